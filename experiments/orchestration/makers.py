"""The steps that plans are made of: train, draw, embed, identify, verify, and what figures need.

Making a step reads and writes nothing: what is done is for `steps.run_all` to find out. Seconds are
those of 2 quiet cores of an AMD EPYC.
"""

import dataclasses
import pathlib
from typing import Any

from sparse_embed.experiments.core.records import record_name
from sparse_embed.experiments.core.run import RECORD, snapshot_folder
from sparse_embed.experiments.orchestration.steps import Step, script

PAIR_SETS = ("easy", "hard")
RECORDS = "records"  # folder of an architecture


def record(folder: pathlib.Path, **key: Any) -> pathlib.Path:
    """Returns the file of a record in an architecture's folder."""
    return folder / RECORDS / f"{record_name(key)}.json"


def train(
    folder: pathlib.Path,
    preset: str,
    *arguments: str,
    seconds: float,
    needs: list[Step] | None = None,
    of: str = "",
) -> Step:
    """Trains an encoder into `folder`; the step is named by that, the folder above it and `of`."""
    return script(
        " ".join(filter(None, ["train", of, folder.parent.name, folder.name])),
        ["train", f"--preset={preset}", *arguments, f"--model_dir={folder}"],
        [folder / RECORD],
        seconds,
        needs,
    )


def fit(
    run: Step,
    folder: pathlib.Path,
    home: pathlib.Path,
    activation: str,
    data: str,
    *arguments: str,
    seconds: float,
) -> Step:
    """Fits rectified Gaussians to the activations of a sparse encoder, that of `run`.

    `home` is the folder of its network, which gets the record.
    """
    key = {"experiment": "activations", "data": data, "method": "flops"}
    setting = {"run": folder.name, "activation": activation}
    return script(
        f"fit {home.name}",
        [
            "evaluate_activations",
            f"--model_dir={folder}",
            f"--records={home / RECORDS}",
            *arguments,
        ],
        [record(home, **key, setting=setting)],
        seconds,
        [run],
    )


@dataclasses.dataclass(frozen=True)
class Network:
    """A network in a comparison.

    Attributes:
        flags: of all its training runs.
        sparse: more flags of its sparse ones.
        weights: of the penalties flops and l1; a run goes through those of one, see --reg_path.
        seconds: of 1,000 training steps.
    """

    flags: tuple[str, ...]
    sparse: tuple[str, ...]
    weights: dict[str, list[float]]
    seconds: float


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How large the evaluation sets of a comparison are.

    Attributes:
        dataset: "words" or "glyphs".
        classes: how many test classes the probes are of.
        distractors: among how many the probes are searched and timed.
        pairs: how many each set of pairs has.
        seeds: of the training runs. The first has all runs, and is timed among all distractors.
        compared: among how many distractors all seeds are compared, by default all; those after
            the first embed and search no more.
        keep: budgets that sparse encoders are also cut to, see `evaluate_megaface`.
        keep_timed: those among all distractors, if the seeds are compared among fewer.
    """

    dataset: str
    classes: int
    distractors: int
    pairs: int
    seeds: tuple[int, ...] = (0,)
    compared: int | None = None
    keep: str = ""
    keep_timed: str = ""

    @property
    def for_all_seeds(self) -> int:
        """Among how many distractors all seeds are compared."""
        return self.compared or self.distractors


def draw(images: pathlib.Path, sizes: Sizes) -> Step:
    """Draws the evaluation sets: for identification, then easy and hard pairs."""
    files = [images / f"identification_{sizes.classes}_{sizes.distractors}.npy"]
    files += [images / f"{name}_{sizes.pairs}.npy" for name in PAIR_SETS]
    flags = [
        f"--drawn_from={sizes.dataset}",
        f"--distractors={sizes.distractors}",
        f"--probe_classes={sizes.classes}",
        f"--pair_count={sizes.pairs}",
    ]
    return script(
        f"draw {sizes.dataset}",
        ["prepare_data", "--to=evaluation_sets", f"--images_dir={images}", *flags],
        files,
        10 + (sizes.distractors + 4 * sizes.pairs) / 9000,
    )


def encoders(folder: pathlib.Path, run: str, network: Network) -> list[pathlib.Path]:
    """Returns the embeddings for identification that the encoders of a run make."""
    if run in network.weights:
        found = network.weights[run]
        return [snapshot_folder(folder / run, w) / "identification.npz" for w in found]
    return [folder / run / f"identification.{'npz' if run == 'sdh' else 'npy'}"]


def embed_run(
    run: pathlib.Path,
    sets: list[pathlib.Path],
    distractors: int,
    outputs: list[pathlib.Path],
    seconds: float,
    needs: list[Step],
) -> Step:
    """Embeds some evaluation sets with all encoders of one run, `<network>/seed0/<run>`."""
    return script(
        f"embed {run.parent.parent.name} {run.parent.name} {run.name}",
        [
            "embed",
            "--source=sets",
            f"--model_dir={run}",
            f"--sets={','.join(map(str, sets))}",
            f"--distractors={distractors}",
        ],
        outputs,
        seconds,
        needs,
    )


def embed(
    folder: pathlib.Path, runs: dict[str, Step], network: Network, drawn: Step, distractors: int
) -> dict[str, Step]:
    """Embeds the evaluation sets with all encoders of one seed."""
    steps = {}
    for run, trained in runs.items():
        if run == "start":
            continue
        kinds = (
            ("identification",) if run in ("sdh", "dense128") else ("identification", *PAIR_SETS)
        )
        sets = [path for path in drawn.outputs if path.stem.partition("_")[0] in kinds]
        found = encoders(folder, run, network)
        outputs = [path.with_stem(kind) for path in found for kind in kinds]
        seconds = 10 + len(found) * distractors * network.seconds / 1e6
        steps[run] = embed_run(folder / run, sets, distractors, outputs, seconds, [trained, drawn])
    return steps


def identify(
    folder: pathlib.Path,
    embeds: dict[str, Step],
    network: Network,
    data: str,
    distractors: int,
    timed: bool,
    only: str = "",
    keep: str = "",
) -> Step:
    """Searches for the probes with all methods that one seed has the embeddings for.

    Args:
        folder: of the seed.
        embeds: the steps of `embed`.
        network: the network.
        data: name of the data in the records.
        distractors: among how many.
        timed: whether queries are timed.
        only: what to compare, see `evaluate_megaface`.
        keep: budgets that sparse encoders are also cut to.
    """

    def files(*runs: str) -> list[pathlib.Path]:
        chosen = [encoders(folder, run, network) for run in runs if run in embeds]
        return [path for found in chosen for path in found]

    given = {
        "dense": files("dense512"),
        "sparse": files(*network.weights),
        "narrow_dense": files("dense128"),
        "sdh": files("sdh"),
    }
    flags = [] if timed else ["--timed_queries=0"]
    flags += [f"--only={only}"] if only else []
    flags += [f"--keep={keep}"] if keep else []
    name = f"{folder.parent.name} {folder.name} {distractors}"
    seconds = 30 + distractors / (600 if timed else 2000)
    return search(name, folder, given, data, distractors, flags, seconds, list(embeds.values()))


def search(
    name: str,
    folder: pathlib.Path,
    files: dict[str, list[pathlib.Path]],
    data: str,
    distractors: int,
    flags: list[str],
    seconds: float,
    needs: list[Step],
) -> Step:
    """Searches for the probes in files of embeddings.

    Args:
        name: of the step, after "identify".
        folder: of the seed; the folder above it gets the records.
        files: by the flag of `evaluate_megaface` that takes them.
        data: name of the data in the records.
        distractors: among how many.
        flags: more of its flags.
        seconds: how long it takes.
        needs: the steps that make the files.
    """
    records, seed = folder.parent / RECORDS, folder.name.removeprefix("seed")
    return script(
        f"identify {name}",
        [
            "evaluate_megaface",
            *(f"--{flag}={','.join(map(str, paths))}" for flag, paths in files.items()),
            f"--distractors={distractors}",
            f"--data_name={data}",
            *flags,
            f"--records={records}",
        ],
        [records / f"megaface-{data}-{distractors}-*-seed={seed}*.json"],
        seconds,
        needs,
    )


def verify(
    folder: pathlib.Path, embeds: dict[str, Step], network: Network, data: str
) -> list[Step]:
    """Verifies easy and hard pairs with the dense and the sparse encoders of one seed."""
    seed = int(folder.name.removeprefix("seed"))
    runs = ("dense512", *network.weights)
    found = []
    for kind in PAIR_SETS:
        files = [path.with_stem(kind) for run in runs for path in encoders(folder, run, network)]
        key = {"experiment": "verification", "data": f"{data}_{kind}", "method": "dense"}
        setting = {"dims": 512, "run": "dense512"}
        found.append(
            script(
                f"verify {folder.parent.name} {folder.name} {kind}",
                [
                    "evaluate_verification",
                    f"--pairs={','.join(map(str, files))}",
                    f"--data_name={data}_{kind}",
                    f"--records={folder.parent / RECORDS}",
                ],
                [record(folder.parent, **key, setting=setting, seed=seed)],
                10,
                [embeds[run] for run in runs],
            )
        )
    return found


def gallery(
    folder: pathlib.Path, embeds: dict[str, Step], network: Network, drawn: Step, sizes: Sizes
) -> Step:
    """Keeps what the report's gallery shows: an encoder of medium weight."""
    weights = network.weights["flops"]
    middle = weights[len(weights) // 2 if len(weights) > 2 else 0]
    shown = snapshot_folder(folder / "flops", middle)
    setting = {"weight": middle, "run": shown.name}
    key = {"experiment": "gallery", "data": sizes.dataset, "method": "flops", "setting": setting}
    return script(
        f"gallery {folder.parent.name}",
        [
            "evaluate_megaface",
            "--what=gallery",
            f"--database={shown / 'identification.npz'}",
            f"--gallery_images={drawn.outputs[0]}",
            f"--data_name={sizes.dataset}",
            f"--records={folder.parent / RECORDS}",
        ],
        [record(folder.parent, **key)],
        5 + sizes.distractors / 20_000,
        [embeds["flops"], drawn],
    )


def fit_flops(folder: pathlib.Path, runs: dict[str, Step], network: Network, data: str) -> Step:
    """Fits rectified Gaussians to the sparsest encoder with the FLOPs penalty of one seed."""
    soft = "--activation=soft_threshold" in network.sparse
    activation = "soft_threshold" if soft else "relu"
    return fit(runs["flops"], folder / "flops", folder.parent, activation, data, seconds=25)
