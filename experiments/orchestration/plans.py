"""Which steps make a reproduction on words; `paper_plan` has those of the paper's own experiments.

A plan is a list of steps (see `makers`). The folders:

    <run_dir>/images                   the evaluation sets, the same for all encoders
    <run_dir>/<network>/seed0/<run>    training runs: start, dense512, dense128, flops, l1, sdh
    <run_dir>/<network>/records        records of all seeds
"""

import dataclasses
import pathlib

from sparse_embed.experiments.orchestration import regularizer_plan
from sparse_embed.experiments.orchestration.makers import (
    Network,
    Sizes,
    draw,
    embed,
    fit_flops,
    gallery,
    identify,
    train,
    verify,
)
from sparse_embed.experiments.orchestration.steps import Step


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
    compared = sizes.for_all_seeds
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

    The seeds are compared among 100,000, and so are the regularizers at equal cost.
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
    return [*found, *regularizer_plan.regularizers(run_dir, drawn, sizes)]
