"""Which steps make a reproduction on glyphs; `paper_plan` has those of the paper's own experiments.

A plan is a list of steps. Making one reads and writes nothing: what is done is for `steps.run_all`
to find out. Seconds are those of 2 quiet cores of an AMD EPYC.
"""

import pathlib
from typing import Any

from sparse_embed.experiments.evaluation.records import record_name
from sparse_embed.experiments.orchestration.steps import Step, script
from sparse_embed.experiments.training.run import RECORD, snapshot_folder

# The second architecture on glyphs: the paper's MobileFaceNet, narrow, so that a CPU trains it, and
# with the activation that the paper gave to its other network.
NARROW = ["--model=mobilefacenet", "--width=0.25"]
SPARSE_NARROW = [*NARROW, "--activation=soft_threshold"]

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
) -> Step:
    """Trains an encoder into `folder`."""
    return script(
        f"train {folder.parent.name} {folder.name}",
        ["train", f"--preset={preset}", *arguments, f"--model_dir={folder}"],
        [folder / RECORD],
        seconds,
        needs,
    )


def fit(
    run: Step, folder: pathlib.Path, activation: str, data: str, *arguments: str, seconds: float
) -> Step:
    """Fits rectified Gaussians to the activations of a sparse encoder, that of `run`."""
    key = {"experiment": "activations", "data": data, "method": "flops"}
    setting = {"run": folder.name, "activation": activation}
    return script(
        f"fit {folder.parent.name}",
        [
            "evaluate_activations",
            f"--model_dir={folder}",
            f"--records={folder.parent / RECORDS}",
            *arguments,
        ],
        [record(folder.parent, **key, setting=setting)],
        seconds,
        [run],
    )


def draw(images: pathlib.Path, classes: int, distractors: int, pairs: int) -> Step:
    """Draws the evaluation sets of glyphs: for identification, then easy and hard pairs."""
    files = [images / f"identification_{classes}_{distractors}.npy"]
    files += [images / f"{name}_{pairs}.npy" for name in PAIR_SETS]
    sizes = [f"--distractors={distractors}", f"--probe_classes={classes}", f"--pair_count={pairs}"]
    return script(
        "draw glyphs",
        ["draw_glyphs", f"--images_dir={images}", *sizes],
        files,
        10 + (distractors + 4 * pairs) / 5000,
    )


def compare(
    folder: pathlib.Path,
    runs: dict[str, Step],
    weights: dict[str, list[float]],
    drawn: Step,
    distractors: int,
    only: str = "",
) -> list[Step]:
    """Embeds the sets with the encoders in `folder`, compares all methods, keeps a gallery.

    Args:
        folder: of the architecture; `<run>` below it is a training run.
        runs: the training steps of dense512, flops, l1 and sdh.
        weights: of the paths flops and l1.
        drawn: the step that draws the sets.
        distractors: how many there are.
        only: what to compare, see `evaluate_megaface`.
    """
    name, sets = folder.name, ",".join(map(str, drawn.outputs))
    encoders: dict[str, list[tuple[pathlib.Path, str]]] = {
        "dense512": [(folder / "dense512", ".npy")],
        **{
            method: [(snapshot_folder(folder / method, weight), ".npz") for weight in found]
            for method, found in weights.items()
        },
        "sdh": [(folder / "sdh", ".npz")],
    }
    embeds: dict[str, Step] = {}
    for run, found in encoders.items():
        kinds = ("identification",) if run == "sdh" else ("identification", *PAIR_SETS)
        outputs = [path / f"{kind}{suffix}" for path, suffix in found for kind in kinds]
        embeds[run] = script(
            f"embed {name} {run}",
            ["embed_sets", f"--model_dir={folder / run}", f"--sets={sets}"],
            outputs,
            10 + len(found) * distractors / 8000,
            [runs[run], drawn],
        )

    def files(kind: str, *chosen: str) -> str:
        return ",".join(
            str(path / f"{kind}{suffix}") for run in chosen for path, suffix in encoders[run]
        )

    records = f"--records={folder / RECORDS}"
    key = {"experiment": "megaface", "data": "glyphs", "method": "dense", "setting": {"dims": 512}}
    size = {"distractors": distractors}
    identify = script(
        f"identify {name}",
        [
            "evaluate_megaface",
            f"--dense={files('identification', 'dense512')}",
            f"--sparse={files('identification', *weights)}",
            f"--sdh={files('identification', 'sdh')}",
            f"--distractors={distractors}",
            *([f"--only={only}"] if only else []),
            records,
        ],
        [folder / RECORDS / "megaface-*.json" if only else record(folder, **key, **size)],
        60 + distractors / 500,
        list(embeds.values()),
    )
    verify = [
        script(
            f"verify {name} {kind}",
            [
                "evaluate_verification",
                f"--pairs={files(kind, 'dense512', *weights)}",
                f"--data_name=glyphs_{kind}",
                records,
            ],
            [
                record(
                    folder,
                    experiment="verification",
                    data=f"glyphs_{kind}",
                    method="dense",
                    setting={"dims": 512, "run": "dense512"},
                )
            ],
            10,
            [embeds[run] for run in ("dense512", *weights)],
        )
        for kind in PAIR_SETS
    ]
    middle = weights["flops"][len(weights["flops"]) // 2 if len(weights["flops"]) > 2 else 0]
    shown = snapshot_folder(folder / "flops", middle)
    setting = {"weight": middle, "run": shown.name}
    gallery = script(
        f"gallery {name}",
        [
            "evaluate_gallery",
            f"--database={shown / 'identification.npz'}",
            f"--gallery_images={drawn.outputs[0]}",
            records,
        ],
        [record(folder, experiment="gallery", data="glyphs", method="flops", setting=setting)],
        5 + distractors / 20_000,
        [embeds["flops"], drawn],
    )
    return [*embeds.values(), identify, *verify, gallery]


def path_flag(weights: list[float]) -> str:
    """Returns the flag that trains one encoder after the other."""
    return f"--reg_path={','.join(f'{weight:g}' for weight in weights)}"


def glyph_runs(
    folder: pathlib.Path,
    weights: dict[str, list[float]],
    arguments: dict[str, list[str]] | None = None,
    slower: float = 1.0,
) -> dict[str, Step]:
    """Returns the training steps that a comparison on glyphs needs.

    Args:
        folder: of the architecture.
        weights: of the paths flops and l1.
        arguments: more flags of the runs, by name.
        slower: how much longer than the `convnet` of 1,000 steps they take.
    """
    more = arguments or {}
    dense = train(
        folder / "dense512",
        "glyphs_dense512",
        *more.get("dense512", []),
        seconds=210 * slower,
    )
    start = f"--warm_start={folder / 'dense512'}"
    runs = {"dense512": dense}
    for method, found in weights.items():
        given = more.get(method, [])
        runs[method] = train(
            folder / method,
            f"glyphs_{method}",
            path_flag(found),
            *given,
            seconds=310 * slower,
            needs=[dense] if start in given else [],
        )
    runs["sdh"] = train(
        folder / "sdh",
        "glyphs_sdh",
        start,
        *more.get("sdh", []),
        seconds=300 * slower,
        needs=[dense],
    )
    return runs


def glyphs(
    runs_dir: pathlib.Path,
    weights: dict[str, list[float]],
    classes: int,
    distractors: int,
    pairs: int,
    train_flags: list[str],
    only: str,
) -> list[Step]:
    """The comparison on glyphs with one architecture; see `evaluate_glyphs`."""
    names = ("dense512", *weights, "sdh")
    runs = glyph_runs(runs_dir, weights, {name: train_flags for name in names})
    drawn = draw(runs_dir / "images", classes, distractors, pairs)
    return [*runs.values(), drawn, *compare(runs_dir, runs, weights, drawn, distractors, only)]


def quick(run_dir: pathlib.Path) -> list[Step]:
    """Short runs; the second architecture is trained just long enough for figure 2a."""
    convnet, narrow = run_dir / "convnet", run_dir / "mobilefacenet"
    weights = {"flops": [15.0, 60.0], "l1": [0.4, 0.8]}
    short = ["--steps=400", "--warmup_steps=160", "--path_steps=100"]
    few = {"dense512": ["--steps=400"], "flops": short, "l1": short, "sdh": ["--steps=60"]}
    runs = glyph_runs(convnet, weights, few, slower=0.35)
    second = train(
        narrow / "flops",
        "glyphs_flops",
        *SPARSE_NARROW,
        "--steps=120",
        "--warmup_steps=60",
        seconds=60,
    )
    drawn = draw(run_dir / "images", classes=200, distractors=20_000, pairs=2000)
    return [
        *runs.values(),
        second,
        fit(runs["flops"], convnet / "flops", "relu", "glyphs", seconds=20),
        fit(second, narrow / "flops", "soft_threshold", "glyphs", seconds=25),
        drawn,
        *compare(convnet, runs, weights, drawn, distractors=20_000),
    ]


def full(run_dir: pathlib.Path) -> list[Step]:
    """Every sweep, two architectures, a million distractors, which are drawn once for both."""
    distractors = 1_000_000
    drawn = draw(run_dir / "images", classes=400, distractors=distractors, pairs=6000)
    weights = {"flops": [15.0, 30.0, 60.0], "l1": [0.4, 0.6, 0.8]}
    found = [drawn]
    for name, slower in (("convnet", 1.0), ("mobilefacenet", 1.5)):
        folder = run_dir / name
        more: dict[str, list[str]] = {}
        if name == "mobilefacenet":
            # Narrow and sparse from the start, MobileFaceNet does not come far in 1,000 steps
            # (recall@1 of 0.61 where the dense one has 0.90): it starts from the dense one.
            tuned = [
                *SPARSE_NARROW,
                f"--warm_start={folder / 'dense512'}",
                "--nowarm_start_head",
                "--steps=500",
                "--warmup_steps=200",
                "--path_steps=250",
            ]
            more = {"dense512": NARROW, "flops": tuned, "l1": tuned, "sdh": NARROW}
        runs = glyph_runs(folder, weights, more, slower)
        activation = "relu" if name == "convnet" else "soft_threshold"
        found += [
            *runs.values(),
            fit(runs["flops"], folder / "flops", activation, "glyphs", seconds=25),
            *compare(folder, runs, weights, drawn, distractors),
        ]
    return found
