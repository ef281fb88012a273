import json

import numpy as np
import pytest
import scipy.sparse


@pytest.fixture(scope="session")
def vectors(tmp_path_factory):
    """40 classes of 8-d vectors: a data set on which a step costs nothing."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(40), 12)
    embeddings = rng.normal(size=(40, 8))[labels] + 0.3 * rng.normal(size=(480, 8))
    path = tmp_path_factory.mktemp("vectors") / "vectors.npz"
    np.savez(path, embeddings=embeddings.astype(np.float32), labels=labels)
    return path


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


# method, setting, recall@1 re-ranked and alone, ms re-ranked and alone, p, R_sub
IDENTIFICATION = [
    ("flops", {"weight": 10.0}, 0.950, 0.930, 1.5, 1.2, 0.04, 1.05),
    ("flops", {"weight": 30.0}, 0.945, 0.900, 1.0, 0.8, 0.02, 1.10),
    ("l1", {"weight": 0.3}, 0.946, 0.910, 2.0, 1.8, 0.04, 1.30),
    ("l1", {"weight": 0.6}, 0.920, 0.850, 1.4, 1.1, 0.02, 2.00),
    ("sdh", {"active_bits": 3}, 0.900, None, 30.0, None, None, None),
    ("ivfpq", {"nprobe": 50}, 0.946, 0.800, 3.0, 2.0, None, None),
    ("lsh", {"bits": 512}, 0.946, 0.700, 9.0, 8.0, None, None),
    ("pca", {"dims": 64}, 0.948, 0.800, 20.0, 19.0, None, None),
    ("hnsw", {"ef_search": 128}, None, 0.949, None, 0.5, None, None),
    ("dense", {"dims": 512}, None, 0.951, None, 100.0, None, None),
]


def save_identification(folder):
    """Numbers from which every verdict can be told by hand."""
    for method, setting, *pairs, probability, ratio in IDENTIFICATION:
        for reranked, recall, milliseconds in (
            (True, pairs[0], pairs[2]),
            (False, pairs[1], pairs[3]),
        ):
            if recall is None:
                continue
            sparsity = {"flops_per_row": 512.0}
            if probability:
                sparsity = {
                    "activation_probability": probability,
                    "suboptimality_ratio": ratio,
                    "flops_per_row": ratio * 512 * probability**2,
                }
            setting_name = "".join(f"{value:g}" for value in setting.values())
            save_record(
                folder, f"megaface-{method}-{setting_name}{'-reranked' * reranked}", {},
                experiment="megaface", data="glyphs", method=method, setting=setting,
                reranked=reranked, probes=300, distractors=5000, recall_at_1=recall,
                milliseconds_per_query=milliseconds, index_bytes=1 << 20, **sparsity,
            )  # fmt: skip


def save_verification(folder, rng):
    """Scores of pairs: the better the encoder, the further apart."""
    same = np.arange(200) % 2 == 0
    for data, ease in (("glyphs_easy", 1.0), ("glyphs_hard", 0.5)):
        for method, weight, probability, quality in (
            ("dense", None, None, 1.0),
            ("flops", 30.0, 0.02, 0.95 - 0.05 * (ease < 1)),
            ("l1", 0.6, 0.022, 0.9 - 0.1 * (ease < 1)),
        ):
            sparsity = {"activation_probability": probability} if probability else {}
            scores = same * quality * ease + 0.2 * rng.normal(size=200)
            save_record(
                folder, f"verification-{data}-{method}", {"scores": scores, "same": same},
                experiment="verification", data=data, method=method, setting={"weight": weight},
                pairs=200, dim=512, accuracy=quality * (0.9 + 0.1 * ease),
                **{"tar_at_far_0.01": quality - 0.05, "tar_at_far_0.001": quality - 0.2},
                **sparsity,
            )  # fmt: skip


@pytest.fixture(scope="session")
def recorded_run(tmp_path_factory):
    """A small run of two architectures with records of every kind."""
    from sparse_embed.experiments.evaluation import activations as fits
    from sparse_embed.experiments.evaluation import gallery

    rng = np.random.default_rng(0)
    run_dir = tmp_path_factory.mktemp("run")
    for architecture in ("convnet", "mobilefacenet"):
        folder = run_dir / architecture / "records"
        save_identification(folder)
        save_verification(folder, rng)
        activations = np.maximum(rng.normal(-1.2, 1.0, (1000, 5)), 0)
        fitted, arrays = fits.evaluate(activations)
        setting = {"run": "flops", "activation": "relu"}
        save_record(
            folder, "activations-flops", arrays,
            experiment="activations", data="glyphs", method="flops", setting=setting, **fitted,
        )  # fmt: skip
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
    from sparse_embed.experiments.reporting.cifar100_table import METRICS, PAPER

    folder = tmp_path_factory.mktemp("recorded") / "cifar100"
    for name, (_, (flops, *precisions)) in PAPER.items():
        values = (flops, *(precision / 100 for precision in precisions))
        metrics = dict(zip(METRICS, values, strict=True))
        method = name.split("_")[0]
        points = [(2.0, True, metrics)]
        if method in ("flops", "l1"):
            points.append((4.0, False, {key: value / 2 for key, value in metrics.items()}))
        for weight, chosen, found in points:
            save_record(
                folder / "records", f"cifar100-fast_{name}-{weight:g}", {},
                experiment="cifar100", data="cifar100", method=method, model=f"fast_{name}",
                chosen=chosen, setting={"weight": weight}, train_seconds=60.0, **found,
            )  # fmt: skip
    return folder
