"""Regularizers at equal cost: part of the plan `full`.

Encoders are trained for the same FLOPs per row with each regularizer (see `losses.TargetFlops`),
all from one dense run per seed, with the same recipe. A *study* is a way to train them:

    <run_dir>/convnet/seed0/start             the dense run, which also re-ranks
    <run_dir>/<study>/seed0/<method>_<flops>  an encoder, such as flops_2
    <run_dir>/<study>/records                 records of all seeds
"""

import dataclasses
import pathlib

from sparse_embed.experiments.orchestration.makers import Sizes, embed_run, search, train
from sparse_embed.experiments.orchestration.steps import Step

START_STEPS = 600
SECONDS = 80  # of 1,000 steps of `convnet`

# Where the search for the weight begins.
FIRST_WEIGHTS = {"flops": 30.0, "l1": 0.6, "df_flops": 300.0, "masked_flops": 30.0}
OTHERS = ("df_flops", "masked_flops")
BOTH = ("flops", "l1")


@dataclasses.dataclass(frozen=True)
class Study:
    """A way to train encoders.

    Attributes:
        name: of its folder, which studies of other regularizers may share.
        flags: of its sparse encoders.
        targets: FLOPs per row, by method.
        steps: of an encoder; two fifths of them are its warm-up.
    """

    name: str
    flags: tuple[str, ...]
    targets: dict[str, tuple[float, ...]]
    steps: int = 500


STUDIES = (
    # On the way to 0.1, l1 collapses with one of three seeds.
    Study("convnet_relu", (), {"flops": (8.0, 2.0, 0.5, 0.1), "l1": (8.0, 2.0, 0.5)}),
    Study(
        "convnet_soft_threshold",
        ("--activation=soft_threshold", "--initial_probability=0.3"),
        dict.fromkeys(BOTH, (2.0, 0.5)),
    ),
    Study("convnet_relu", (), dict.fromkeys(OTHERS, (2.0,))),
    Study("convnet_relu_long", (), dict.fromkeys(BOTH, (2.0,)), steps=1500),
)
CUT_FROM = 8.0  # the encoders that are also cut to budgets


def regularizers(run_dir: pathlib.Path, drawn: Step, sizes: Sizes) -> list[Step]:
    """Returns the steps of all studies.

    Args:
        run_dir: of the reproduction.
        drawn: the step that draws the evaluation sets.
        sizes: of these; searched without times.
    """
    found, starts = [], {}
    for seed in sizes.seeds:
        folder = run_dir / "convnet" / f"seed{seed}" / "start"
        flags = [f"--seed={seed}", f"--steps={START_STEPS}"]
        preset, seconds = f"{sizes.dataset}_dense512", 10 + SECONDS * START_STEPS / 1000
        trained = train(folder, preset, *flags, seconds=seconds, of="convnet")
        starts[seed] = _embed(folder, trained, drawn, sizes.for_all_seeds)
        found += [trained, starts[seed]]
    for study in STUDIES:
        for seed, start in starts.items():
            found += _compare(run_dir / study.name / f"seed{seed}", study, start, drawn, sizes)
    return found


def _compare(
    folder: pathlib.Path, study: Study, start: Step, drawn: Step, sizes: Sizes
) -> list[Step]:
    """Trains, embeds and searches with one seed.

    Args:
        folder: of the seed.
        study: how to train.
        start: the step that embeds with the dense run.
        drawn: the step that draws the evaluation sets.
        sizes: of these.
    """
    dense = start.outputs[0]
    found, embeds, files = [], [start], {}
    for method, target in [(m, target) for m in study.targets for target in study.targets[m]]:
        run = folder / f"{method}_{target:g}"
        trained = train(
            run,
            f"{sizes.dataset}_flops",
            f"--seed={folder.name.removeprefix('seed')}",
            f"--warm_start={dense.parent}",
            "--nowarm_start_head",
            *study.flags,
            f"--regularizer={method}",
            f"--regularizer_weight={FIRST_WEIGHTS[method]:g}",
            f"--target_flops={target:g}",
            f"--steps={study.steps}",
            f"--warmup_steps={2 * study.steps // 5}",
            seconds=10 + SECONDS * study.steps / 1000,
            needs=[start],
            of=study.name,
        )
        embedded = _embed(run, trained, drawn, sizes.for_all_seeds)
        found += [trained, embedded]
        embeds.append(embedded)
        files[method, target] = embedded.outputs[0]

    def searched(suffix: str, sparse: list[pathlib.Path], *flags: str) -> Step:
        given = {"dense": [dense], "sparse": sparse}
        more = ["--only=sparse,dense", "--timed_queries=0", *flags]
        name = f"{study.name} {folder.name} {' '.join(study.targets)}{suffix}"
        return search(name, folder, given, sizes.dataset, sizes.for_all_seeds, more, 60, embeds)

    found.append(searched("", list(files.values())))
    cut = [path for (_, target), path in files.items() if target == CUT_FROM]
    if cut:
        found.append(searched(" cut", cut, f"--keep={sizes.keep}"))
    return found


def _embed(run: pathlib.Path, trained: Step, drawn: Step, distractors: int) -> Step:
    """Embeds the identification set."""
    suffix = "npy" if run.name == "start" else "npz"
    outputs, seconds = [run / f"identification.{suffix}"], 10 + distractors * SECONDS / 1e6
    return embed_run(run, [drawn.outputs[0]], distractors, outputs, seconds, [trained, drawn])
