"""CIFAR-100: which steps make the models of the paper's table, and their records.

With the paper's own network each model is trained on the images. Within a CPU's reach only the
dense one is; its backbone makes *features* of the images once, and sparse embedding layers are
trained on these, with several seeds and for several FLOPs per row:

    <folder>/fast_dense                   the dense model
    <folder>/features                     what its backbone makes of the images
    <folder>/seed0/fast_flops_0.36        an embedding layer
    <folder>/records                      a record per encoder
"""

import pathlib
from collections.abc import Iterable

from sparse_embed.experiments.core.paper import DENSE, FAST, OWN, SOFT
from sparse_embed.experiments.orchestration.makers import RECORDS, train
from sparse_embed.experiments.orchestration.paper_size import WHOLE, Size
from sparse_embed.experiments.orchestration.steps import Step, script
from sparse_embed.flags.app import preset_flags

SEEDS = (0, 1, 2)
# The paper's table has 0.40 for relaxed FLOPs; a model may miss its target by a tenth.
TARGETS = (0.1, 0.2, 0.36, 1.0)
HEADS = [f"{FAST.prefix}{row}" for row in SOFT.rows] + SOFT.models  # trained on features
FEATURES = "features"
PARTS = ("train", "validation", "test")
FEATURE_SECONDS = 80  # of a run on features
PART_SECONDS = 30  # of making the features of a part


def cifar100(
    folder: pathlib.Path, archive: pathlib.Path, models: Iterable[str], size: Size = WHOLE
) -> list[Step]:
    """Models of the paper's CIFAR-100 table.

    Args:
        folder: of the runs and their records.
        archive: CIFAR-100.
        models: which models, of any series. The dense one that others start from is trained in any
            case.
        size: how much to train and to evaluate.
    """
    chosen = list(models)
    found = []
    for series, of_features in ((OWN, []), (FAST, HEADS)):
        names = [name for name in series.models if name in chosen and name not in of_features]
        heads = [name for name in of_features if name in chosen]
        if names or heads:
            dense = series.prefix + DENSE
            runs = _on_images(folder, archive, dense, names, size)
            found += [*runs.values()]
            found += [_evaluate(folder / name, name, runs[name], folder, size) for name in names]
            found += _on_features(folder, archive, dense, runs[dense], heads, size)
    return found


def _on_images(
    folder: pathlib.Path, archive: pathlib.Path, dense: str, names: list[str], size: Size
) -> dict[str, Step]:
    """Trains models on the images: the dense one first, from whose weights SDH starts."""
    runs: dict[str, Step] = {}
    for name in dict.fromkeys([dense, *names]):
        preset, starts = f"cifar100_{name}", "sdh" in name
        seconds = size.seconds[preset_flags(preset)["model"]]
        runs[name] = train(
            folder / name,
            preset,
            *([f"--warm_start={folder / dense}"] if starts else []),
            f"--data_dir={archive}",
            *size.training_flags(preset),
            seconds=seconds["dense" if name == dense else "train"],
            needs=[runs[dense]] if starts else [],
        )
    return runs


def _on_features(
    folder: pathlib.Path,
    archive: pathlib.Path,
    dense: str,
    trained: Step,
    names: list[str],
    size: Size,
) -> list[Step]:
    """Trains embedding layers on the features of the dense model, and evaluates each."""
    features = _features(folder, dense, archive, trained) if names else []
    found = list(features)
    for seed in SEEDS:
        for name, target in [(name, target) for name in names for target in TARGETS]:
            home = folder / f"seed{seed}" / f"{name}_{target:g}"
            run = train(
                home,
                f"cifar100_{name}",
                f"--data_dir={folder / FEATURES}",
                *size.training_flags(f"cifar100_{name}"),
                f"--target_flops={target:g}",
                f"--seed={seed}",
                seconds=FEATURE_SECONDS,
                needs=features,
                of="cifar100",
            )
            found += [run, _evaluate(home, name, run, folder, size)]
    return found


def _features(folder: pathlib.Path, dense: str, archive: pathlib.Path, trained: Step) -> list[Step]:
    """Writes what the dense model's backbone makes of the images of each part."""
    return [
        script(
            f"features cifar100 {part}",
            [
                "embed",
                f"--model_dir={folder / dense}",
                f"--data_dir={archive}",
                "--features",
                f"--split={part}",
                f"--output={folder / FEATURES / part}.npy",
            ],
            [folder / FEATURES / f"{part}.npy"],
            PART_SECONDS,
            [trained],
        )
        for part in PARTS
    ]


def _evaluate(
    run: pathlib.Path, name: str, trained: Step, folder: pathlib.Path, size: Size
) -> Step:
    """Measures the precision of all encoders of a run."""
    # A run of the paper's own may have an encoder for each weight, and its seed is free.
    of_seed = run.parent.name.startswith("seed")
    run_name = run.name if of_seed else ""
    seed = run.parent.name.removeprefix("seed") if of_seed else "*"
    return script(
        trained.name.replace("train", "evaluate", 1),
        [
            "evaluate_cifar100",
            f"--model_dir={run}",
            f"--model_name={name}",
            f"--records={folder / RECORDS}",
            *([f"--most_images={size.images}"] if size.images else []),
        ],
        [folder / RECORDS / f"cifar100-*{run_name}-seed={seed}-{name}.json"],
        30,
        [trained],
    )
