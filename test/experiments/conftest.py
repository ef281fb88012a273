import json
import types
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse


@pytest.fixture(scope="session")
def write_vectors():
    """A function that writes 40 classes of 8-d vectors; the more noise, the more they overlap."""

    def write(path, noise):
        rng = np.random.default_rng(0)
        labels = np.repeat(np.arange(40), 12)
        embeddings = rng.normal(size=(40, 8))[labels] + noise * rng.normal(size=(480, 8))
        np.savez(path, embeddings=embeddings.astype(np.float32), labels=labels)
        return path

    return write


@pytest.fixture(scope="session")
def vectors(tmp_path_factory, write_vectors):
    """A data set on which a step costs nothing."""
    return write_vectors(tmp_path_factory.mktemp("vectors") / "vectors.npz", 0.3)


NOTE = {
    "time": "2026-01-02T03:04:05Z",
    "python": "3.12.0",
    "versions": {"numpy": "2.0.0"},
    "revision": "0123456789ab",
    "hardware": {"machine": "x86_64", "processor": "Abacus", "cores": 2},
}


def save_record(folder, name, arrays, **record):
    """Writes a record as `records.update` does, without asking git and the system each time."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps({"name": name, **record, "provenance": NOTE}))
    np.savez(folder / f"{name}.npz", **arrays)


class Row(NamedTuple):
    """One setting of a method in `IDENTIFICATION`.

    `noise` is what each class has more or less of recall than in other rows, `drift` what seeds 0,
    1 and 2 have more, of recall and of the ratio, and `wobble` the relative change of the time from
    round to round; what is common to all rows comes on top.
    """

    method: str
    setting: dict
    recall: float | None  # re-ranked
    alone: float | None
    ms: float | None  # re-ranked
    alone_ms: float | None
    probability: float | None = None
    ratio: float | None = None
    noise: float = 0.0
    drift: tuple[float, ...] = (0.0, 0.0, 0.0)
    wobble: float = 0.0


IDENTIFICATION = [
    Row("flops", {"weight": 10.0}, 0.950, 0.930, 1.5, 1.2, 0.04, 1.05),
    Row("flops", {"weight": 30.0}, 0.945, 0.900, 1.0, 0.8, 0.02, 1.10),
    Row("l1", {"weight": 0.3}, 0.946, 0.910, 2.0, 1.8, 0.04, 1.30),
    Row("l1", {"weight": 0.6}, 0.920, 0.850, 1.4, 1.1, 0.02, 2.00),
    Row("flops_cut", {"weight": 10.0, "keep": 16}, 0.949, 0.920, 1.3, 1.0, 0.03, 1.10),
    Row("flops_cut", {"weight": 10.0, "keep": 8}, 0.940, 0.880, 1.1, 0.9, 0.015, 1.20),
    Row("sdh", {"active_bits": 3}, 0.900, None, 30.0, None),
    Row("ivfpq", {"nprobe": 50}, 0.946, 0.800, 3.0, 2.0),
    Row("lsh", {"bits": 512}, 0.946, 0.700, 9.0, 8.0),
    Row("pca", {"dims": 64}, 0.948, 0.800, 20.0, 19.0),
    Row("hnsw", {"ef_search": 128}, None, 0.949, None, 0.5),
    Row("dense", {"dims": 512}, None, 0.951, None, 100.0),
]
CLASSES, PROBES, MATES, ROUNDS = 40, 5, 1000, 10  # probes per class, mates per probe
TIMED, UNTIMED = 1_000_000, 100_000  # distractors


def save_identification(folder, rows=IDENTIFICATION, timed=TIMED, load=0.0, seeds=(0, 1, 2)):
    """Numbers from which every verdict can be told by hand.

    Seed 0 is timed; all seeds of what was trained sparse are searched among fewer distractors.
    """
    for place, row in enumerate(rows):
        for reranked, recall, milliseconds in (
            (True, row.recall, row.ms),
            (False, row.alone, row.alone_ms),
        ):
            if recall is None:
                continue
            base = f"megaface-{row.method}-" + "".join(f"{v:g}" for v in row.setting.values())
            key = {
                "experiment": "megaface", "data": "glyphs", "method": row.method,
                "setting": row.setting, "reranked": reranked, "probes": CLASSES * PROBES,
            }  # fmt: skip
            seconds = times(milliseconds, row.wobble, place)
            save_record(
                folder, base + "-reranked" * reranked,
                {**hits(recall + row.drift[0], row.noise, place), "seconds": seconds},
                **key, **metrics(row, recall, 0), distractors=timed, seed=0, turns="all of them",
                milliseconds_per_query=milliseconds, other_load=load,
            )  # fmt: skip
            for seed in seeds if row.ratio else ():
                save_record(
                    folder, f"{base}-{UNTIMED}-seed={seed}" + "-reranked" * reranked,
                    hits(recall + row.drift[seed], row.noise, place),
                    **key, **metrics(row, recall, seed), distractors=UNTIMED, seed=seed,
                )  # fmt: skip


def metrics(row, recall, seed):
    """The metrics of one seed that need no clock."""
    found = {"recall_at_1": recall + row.drift[seed], "index_bytes": 1 << 20}
    if row.ratio is None:
        return found | {"flops_per_row": 512.0}
    ratio = row.ratio + row.drift[seed]
    cost = row.ratio * 512 * row.probability**2
    sparsity = {"activation_probability": row.probability, "flops_per_row": cost}
    return found | sparsity | {"suboptimality_ratio": ratio}


def hits(recall, noise, place):
    """Outcomes of probes with exactly this recall; some classes are harder, for all alike."""
    rng = np.random.default_rng(0)
    half = rng.integers(-20, 21, CLASSES // 2)
    own = np.random.default_rng(place + 1).permutation(np.tile([1, -1], CLASSES // 2))
    of_class = round(MATES * recall) + np.concatenate([half, -half]) + round(MATES * noise) * own
    return {
        "labels": np.repeat(np.arange(CLASSES), PROBES).astype(np.int32),
        "mates": np.full(CLASSES * PROBES, MATES, np.uint16),
        "hits": np.repeat(of_class, PROBES).astype(np.uint16),
        "ranks": np.zeros(10),
    }


def times(milliseconds, wobble, place):
    """Seconds (rounds, queries): the machine is slower in some rounds, for all alike."""
    slow = np.linspace(1, 1.5, ROUNDS)
    own = np.random.default_rng(place).permutation(np.linspace(-1, 1, ROUNDS))
    rounds = milliseconds / 1e3 * slow * (1 + (0.01 + wobble) * own)
    return np.repeat(rounds[:, None], 5, axis=1)


PAIRS = 2000


def save_verification(folder, seeds=(0, 1, 2), l1_quality=0.85, easy_loss=0.0):
    """Scores of pairs: the better the encoder, the further apart."""
    from sparse_embed.retrieval.pair_verification import verification_of_scores

    same = np.arange(PAIRS) % 2 == 0
    for data, ease in (("glyphs_easy", 0.8), ("glyphs_hard", 0.5)):
        noise = np.random.default_rng(int(10 * ease)).normal(size=PAIRS)
        hard = ease < 0.8
        for name, method, weight, probability, quality in (
            ("dense", "dense", None, None, 1.0),
            ("flops", "flops", 30.0, 0.02, 0.85 if hard else 0.95 - easy_loss),
            ("l1", "l1", 0.6, 0.015, l1_quality - 0.1 * hard),
            ("l1-0.3", "l1", 0.3, 0.03, l1_quality - 0.1 * hard),
        ):
            sparsity = {"activation_probability": probability} if probability else {}
            for seed in seeds:
                own = np.random.default_rng(seed).normal(size=PAIRS)
                scores = same * quality * ease + 0.2 * noise + 0.01 * own
                found = verification_of_scores(scores, same)
                save_record(
                    folder, f"verification-{data}-{name}" + f"-seed={seed}" * (seed > 0),
                    {"scores": found.scores, "same": same},
                    experiment="verification", data=data, method=method, seed=seed,
                    setting={"weight": weight}, pairs=PAIRS, dim=512, accuracy=found.accuracy,
                    **{f"tar_at_far_{far:g}": rate for far, rate in found.tar_at_far.items()},
                    **sparsity,
                )  # fmt: skip


def save_activations(folder, mean=-1.2, dimensions=5):
    """The fits of rectified Gaussians."""
    from sparse_embed.experiments.evaluation import activations as fits

    rng = np.random.default_rng(0)
    fitted, arrays = fits.evaluate(np.maximum(rng.normal(mean, 1.0, (1000, dimensions)), 0))
    save_record(
        folder, "activations-flops", arrays,
        experiment="activations", data="glyphs", method="flops",
        setting={"run": "flops", "activation": "relu"}, **fitted,
    )  # fmt: skip


@pytest.fixture(scope="session")
def writers():
    """Functions that write records, for runs of a test's own."""
    return types.SimpleNamespace(
        rows=IDENTIFICATION,
        identification=save_identification,
        verification=save_verification,
        record=save_record,
    )


@pytest.fixture(scope="session")
def recorded_run(tmp_path_factory):
    """A small run of two architectures with records of every kind."""
    from sparse_embed.experiments.evaluation import gallery

    rng = np.random.default_rng(0)
    run_dir = tmp_path_factory.mktemp("run")
    for architecture in ("convnet", "mobilefacenet"):
        folder = run_dir / architecture / "records"
        save_identification(folder)
        save_verification(folder)
        save_activations(folder)
    labels = np.append(np.repeat(np.arange(40), 5), np.full(60, -1))
    codes = rng.random((40, 64)) * (rng.random((40, 64)) < 0.1)
    noise = rng.random((260, 64)) * (rng.random((260, 64)) < 0.1)
    rows = np.where(labels[:, None] >= 0, codes[labels], 0) + 0.5 * noise
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    images = rng.integers(0, 256, (260, 8, 8), dtype=np.uint8)
    vectors = scipy.sparse.csr_array(rows.astype(np.float32))
    shown, arrays = gallery.evaluate(vectors, labels, images)
    save_record(
        run_dir / "convnet" / "records", "gallery-flops", arrays,
        experiment="gallery", data="glyphs", method="flops", setting={"weight": 30.0}, **shown,
    )  # fmt: skip
    return run_dir


@pytest.fixture(scope="session")
def cifar100_results(tmp_path_factory):
    """The paper's own table of CIFAR-100 as records; its sparse models with a second weight."""
    from sparse_embed.experiments.core.paper import METRICS, PAPER

    folder = tmp_path_factory.mktemp("recorded") / "cifar100"
    for name, (_, (flops, *precisions)) in PAPER.items():
        values = (flops, *(precision / 100 for precision in precisions))
        metrics = dict(zip(METRICS, values, strict=True))
        method = name.split("_")[0]
        points = [(2.0, metrics)]
        if method in ("flops", "l1"):
            points.append((4.0, {key: value / 2 for key, value in metrics.items()}))
        for weight, found in points:
            end = {"evaluation_flops_per_row": found["flops_per_row"], "recall_at_1": 1 / weight}
            evenness = {"suboptimality_ratio": 1.1} if method in ("flops", "l1") else {}
            save_record(
                folder / "records", f"cifar100-fast_{name}-{weight:g}", {},
                experiment="cifar100", data="cifar100", method=method, model=f"fast_{name}",
                curve=[end], setting={"weight": weight}, train_seconds=60.0, **evenness, **found,
            )  # fmt: skip
    return folder
