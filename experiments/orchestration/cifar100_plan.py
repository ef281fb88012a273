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

from sparse_embed.experiments.orchestration.makers import RECORDS, train
from sparse_embed.experiments.orchestration.paper_size import WHOLE, Size
from sparse_embed.experiments.orchestration.steps import Step, script
from sparse_embed.experiments.reporting.cifar100_table import DENSE, FAST, OWN, SERIES
from sparse_embed.flags.app import preset_flags

SEEDS = (0, 1, 2)
# The paper's table has 0.40 for relaxed FLOPs; a model may miss its target by a tenth.
TARGETS = (0.1, 0.2, 0.36, 1.0)
FEATURES = "features"
PARTS = ("train", "validation", "test")
FEATURE_SECONDS = 30  # of a run on features
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
    of_images = [name for name in OWN.models if name in chosen]
    others = [name for series in SERIES for name in series.models if series is not OWN]
    fast = [name for name in others if name in chosen]
    found = _with_images(folder, archive, of_images, size) if of_images else []
    return found + (_with_features(folder, archive, fast, size) if fast else [])


def _with_images(
    folder: pathlib.Path, archive: pathlib.Path, names: list[str], size: Size
) -> list[Step]:
    """The paper's own models: trains all, then evaluates all. Only SDH starts from weights."""
    runs: dict[str, Step] = {}
    for name in dict.fromkeys([DENSE, *names]):
        start = runs[DENSE] if "sdh" in name else None
        runs[name] = _on_images(folder / name, name, archive, size, start, folder / DENSE)
    return [*runs.values(), *(_evaluate(folder / n, n, runs[n], folder, size) for n in names)]


def _with_features(
    folder: pathlib.Path, archive: pathlib.Path, names: list[str], size: Size
) -> list[Step]:
    """The models within a CPU's reach."""
    dense = FAST.prefix + DENSE
    trained = _on_images(folder / dense, dense, archive, size)
    found = [trained]
    if dense in names:
        found.append(_evaluate(folder / dense, dense, trained, folder, size))
    hashing = [name for name in names if "sdh" in name]
    sparse = [name for name in names if name not in (dense, *hashing)]
    features = _features(folder, dense, archive, trained) if sparse else []
    found += features
    for seed in SEEDS:
        home, own = folder / f"seed{seed}", f"--seed={seed}"
        for name in hashing:
            run = _on_images(home / name, name, archive, size, trained, folder / dense, own)
            found += [run, _evaluate(home / name, name, run, folder, size)]
        for name, target in [(name, target) for name in sparse for target in TARGETS]:
            run = train(
                home / f"{name}_{target:g}",
                f"cifar100_{name}",
                f"--data_dir={folder / FEATURES}",
                *size.training_flags(f"cifar100_{name}"),
                f"--target_flops={target:g}",
                own,
                seconds=FEATURE_SECONDS,
                needs=features,
                of="cifar100",
            )
            found += [run, _evaluate(home / f"{name}_{target:g}", name, run, folder, size)]
    return found


def _on_images(
    folder: pathlib.Path,
    name: str,
    archive: pathlib.Path,
    size: Size,
    start: Step | None = None,
    start_folder: pathlib.Path | None = None,
    *more: str,
) -> Step:
    """Trains a model on the images, from the weights of another one if there is a `start`."""
    preset = f"cifar100_{name}"
    seconds = size.seconds[preset_flags(preset)["model"]]
    return train(
        folder,
        preset,
        *([f"--warm_start={start_folder}"] if start else []),
        f"--data_dir={archive}",
        *size.training_flags(preset),
        *more,
        seconds=seconds["dense" if name.endswith(DENSE) else "train"],
        needs=[start] if start else [],
        of="cifar100" if folder.parent.name != "cifar100" else "",
    )


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
