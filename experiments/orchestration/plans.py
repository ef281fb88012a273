"""Which steps make a reproduction on words; `paper_plan` has those of the paper's own experiments.

A plan is a list of steps. Making one reads and writes nothing: what is done is for `steps.run_all`
to find out. Seconds are those of 2 quiet cores of an AMD EPYC. The folders:

    <run_dir>/images                   the evaluation sets, the same for all encoders
    <run_dir>/<network>/seed0/<run>    training runs: start, dense512, dense128, flops, l1, sdh
    <run_dir>/<network>/records        records of all seeds
"""

import dataclasses
import pathlib
from typing import Any

from sparse_embed.experiments.evaluation.records import record_name
from sparse_embed.experiments.orchestration.steps import Step, script
from sparse_embed.experiments.training.run import RECORD, snapshot_folder

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
        compared: among how many distractors all seeds are compared; those after the first embed
            and search no more.
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
        ["draw_sets", f"--images_dir={images}", *flags],
        files,
        10 + (sizes.distractors + 4 * sizes.pairs) / 9000,
    )


def encoders(folder: pathlib.Path, run: str, network: Network) -> list[pathlib.Path]:
    """Returns the embeddings for identification that the encoders of a run make."""
    if run in network.weights:
        found = network.weights[run]
        return [snapshot_folder(folder / run, w) / "identification.npz" for w in found]
    return [folder / run / f"identification.{'npz' if run == 'sdh' else 'npy'}"]


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
        steps[run] = script(
            f"embed {folder.parent.name} {folder.name} {run}",
            [
                "embed_sets",
                f"--model_dir={folder / run}",
                f"--sets={','.join(map(str, sets))}",
                f"--distractors={distractors}",
            ],
            [path.with_stem(kind) for path in found for kind in kinds],
            10 + len(found) * distractors * network.seconds / 1e6,
            [trained, drawn],
        )
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

    def files(*runs: str) -> str:
        chosen = [encoders(folder, run, network) for run in runs if run in embeds]
        return ",".join(str(path) for found in chosen for path in found)

    records, seed = folder.parent / RECORDS, folder.name.removeprefix("seed")
    name = f"megaface-{data}-{distractors}-*-seed={seed}*.json"
    return script(
        f"identify {folder.parent.name} {folder.name} {distractors}",
        [
            "evaluate_megaface",
            f"--dense={files('dense512')}",
            f"--sparse={files(*network.weights)}",
            f"--narrow_dense={files('dense128')}",
            f"--sdh={files('sdh')}",
            f"--distractors={distractors}",
            f"--data_name={data}",
            *([] if timed else ["--timed_queries=0"]),
            *([f"--only={only}"] if only else []),
            *([f"--keep={keep}"] if keep else []),
            f"--records={records}",
        ],
        [records / name],
        30 + distractors / (600 if timed else 2000),
        list(embeds.values()),
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
            "evaluate_gallery",
            f"--database={shown / 'identification.npz'}",
            f"--gallery_images={drawn.outputs[0]}",
            f"--data_name={sizes.dataset}",
            f"--records={folder.parent / RECORDS}",
        ],
        [record(folder.parent, **key)],
        5 + sizes.distractors / 20_000,
        [embeds["flops"], drawn],
    )


def train_all(
    folder: pathlib.Path,
    network: Network,
    dataset: str,
    steps: tuple[int, int],
    more: tuple[str, ...] = ("dense128", "sdh"),
    flags: list[str] | None = None,
) -> dict[str, Step]:
    """Trains the encoders of one seed.

    Deep networks that are sparse from their first step learn nothing in a short training run. So
    one dense run, `start`, comes first. All encoders, dense and sparse, then start from it with an
    embedding layer of their own, and have the same recipe and number of steps.

    Args:
        folder: of the seed, such as `seed0`.
        network: the network.
        dataset: "words" or "glyphs".
        steps: training steps of `start` and of each encoder; further weights of a path take a
            quarter of the latter each.
        more: which of the runs dense128 and sdh to train besides dense512, flops and l1.
        flags: more flags of all runs.

    Returns:
        The training steps by run, `start` first.
    """
    seed = f"--seed={folder.name.removeprefix('seed')}"
    same = [*network.flags, seed, *(flags or [])]
    warm = [f"--warm_start={folder / 'start'}", "--nowarm_start_head"]
    first, then = steps

    def run(
        name: str, kind: str, count: int, *arguments: str, needs: list[Step], longer: float = 1.0
    ) -> Step:
        return train(
            folder / name,
            f"{dataset}_{kind}",
            *same,
            f"--steps={count}",
            *arguments,
            seconds=10 + longer * network.seconds * count / 1000,
            needs=needs,
            of=folder.parent.name,
        )

    start = run("start", "dense512", first, needs=[])
    runs = {"start": start}
    runs["dense512"] = run("dense512", "dense512", then, *warm, needs=[start])
    for method, weights in network.weights.items():
        path = f"--reg_path={','.join(f'{weight:g}' for weight in weights)}"
        warm_up = f"--warmup_steps={max(1, 2 * then // 5)}"
        given = [*warm, *network.sparse, warm_up, path]
        longer = 1 + (len(weights) - 1) / 4
        runs[method] = run(method, method, then, *given, needs=[start], longer=longer)
    if "dense128" in more:
        narrow = [*warm, "--embedding_dim=128"]
        runs["dense128"] = run("dense128", "dense512", then, *narrow, needs=[start])
    if "sdh" in more:  # continues a dense encoder, its embedding layer too
        trained = f"--warm_start={folder / 'dense512'}"
        fewer = max(1, then // 3)
        runs["sdh"] = run("sdh", "sdh", fewer, trained, needs=[runs["dense512"]], longer=2.0)
    return runs


def fit_flops(folder: pathlib.Path, runs: dict[str, Step], network: Network, data: str) -> Step:
    """Fits rectified Gaussians to the sparsest encoder with the FLOPs penalty of one seed."""
    soft = "--activation=soft_threshold" in network.sparse
    activation = "soft_threshold" if soft else "relu"
    return fit(runs["flops"], folder / "flops", folder.parent, activation, data, seconds=25)


def compare(
    folder: pathlib.Path,
    seed: int,
    network: Network,
    sizes: Sizes,
    drawn: Step,
    steps: tuple[int, int],
    only: str = "",
    flags: list[str] | None = None,
) -> list[Step]:
    """Trains one network with one seed, and compares all methods of search.

    Args:
        folder: of the network.
        seed: of the training runs.
        network: the network.
        sizes: of the evaluation sets.
        drawn: the step that draws them.
        steps: training steps, see `train_all`.
        only: what to compare, see `evaluate_megaface`.
        flags: more flags of all training runs.
    """
    own, data, is_first = folder / f"seed{seed}", sizes.dataset, seed == sizes.seeds[0]
    runs = train_all(own, network, data, steps, ("dense128", "sdh") if is_first else (), flags)
    compared = sizes.compared or sizes.distractors
    embeds = embed(own, runs, network, drawn, sizes.distractors if is_first else compared)
    found = [*runs.values(), *embeds.values()]
    searched = (own, embeds, network, data)
    is_whole = compared == sizes.distractors
    if is_first:
        keep = sizes.keep if is_whole else sizes.keep_timed
        found.append(identify(*searched, sizes.distractors, timed=True, only=only, keep=keep))
        found.append(gallery(own, embeds, network, drawn, sizes))
        found.append(fit_flops(own, runs, network, data))
    if not (is_first and is_whole):
        few = only or "sparse,dense"
        found.append(identify(*searched, compared, timed=False, only=few, keep=sizes.keep))
    return [*found, *verify(own, embeds, network, data)]


# The paper's roles: MobileFaceNet with ReLU, a residual network with the soft threshold. Both are
# narrow, so that 2 cores train them.
MOBILEFACENET = Network(
    ("--model=mobilefacenet", "--width=0.25", "--learning_rate=0.005"),
    (),
    {"flops": [40.0, 120.0], "l1": [0.6, 1.5]},
    seconds=140,
)
RESNET = Network(
    ("--model=resnet8",),
    ("--activation=soft_threshold", "--initial_probability=0.3"),
    {"flops": [40.0, 120.0], "l1": [1.1, 2.2]},
    seconds=120,
)
CONVNET = Network((), (), {"flops": [30.0, 100.0], "l1": [0.6, 1.2]}, seconds=80)

BUDGETS = "64,48,32,24,16,12,8"


def quick(run_dir: pathlib.Path, first_seed: int = 0) -> list[Step]:
    """Short runs of `convnet`; another network is trained just long enough for figure 2a."""
    seeds = tuple(range(first_seed, first_seed + 3))
    sizes = Sizes("words", classes=300, distractors=50_000, pairs=2000, seeds=seeds, keep=BUDGETS)
    drawn = draw(run_dir / "images", sizes)
    narrow = run_dir / "mobilefacenet" / f"seed{first_seed}"
    second = dataclasses.replace(MOBILEFACENET, weights={"flops": [40.0]})
    runs = train_all(narrow, second, "words", (150, 100), ())
    found = [drawn]
    for seed in seeds:
        found += compare(run_dir / "convnet", seed, CONVNET, sizes, drawn, (250, 200))
    fitted = fit_flops(narrow, runs, second, "words")
    return [*found, runs["start"], runs["flops"], fitted]


def full(run_dir: pathlib.Path, first_seed: int = 0) -> list[Step]:
    """Two networks, three seeds of each, a million distractors for the first seed.

    The seeds are compared among 100,000.
    """
    sizes = Sizes(
        "words",
        classes=400,
        distractors=1_000_000,
        pairs=6000,
        seeds=tuple(range(first_seed, first_seed + 3)),
        compared=100_000,
        keep=BUDGETS,
        keep_timed="32,24,16",
    )
    drawn = draw(run_dir / "images", sizes)
    found = [drawn]
    for name, network, steps in (
        ("resnet8", RESNET, (700, 500)),
        ("mobilefacenet", MOBILEFACENET, (1000, 500)),
    ):
        for seed in sizes.seeds:
            found += compare(run_dir / name, seed, network, sizes, drawn, steps)
    return found
