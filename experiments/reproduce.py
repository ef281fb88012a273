r"""All figures and tables of the paper from one command: what `make reproduce` runs.

    make reproduce                      # quick: under a quarter of an hour on 2 cores, no data
    make reproduce PRESET=full          # the paper's sweeps on glyphs, a few hours
    make reproduce PRESET=paper         # faces: needs data folders and GPUs

Each step is one of the other scripts (see `steps`); call again after an interruption to go on. All
that is made goes to <run_dir>/<extent>, at last the report.
"""

import pathlib
import sys

from absl import flags

from sparse_embed.experiments import steps
from sparse_embed.experiments.runs import RECORD
from sparse_embed.experiments.steps import Step, script
from sparse_embed.flags import app
from sparse_embed.flags.output import RUN_DIR

_EXTENT = flags.DEFINE_enum("extent", "quick", ["quick", "full", "paper"], "How much to reproduce.")
_DATA_ROOT = flags.DEFINE_string("data_root", "data", "Folder of the data that paper needs.")

# The second architecture on glyphs: the paper's MobileFaceNet, narrow, so that a CPU trains it, and
# with the activation that the paper gave to its other network.
NARROW = ["--model=mobilefacenet", "--width=0.25"]
SPARSE_NARROW = [*NARROW, "--activation=soft_threshold"]

# What `paper` needs: path below --data_root, and what it is.
PAPER_DATA = {
    "faces_emore/train.rec": "MS1M of InsightFace's data set zoo: train.rec",
    "faces_emore/train.idx": "the same archive: train.idx",
    "faces_emore/property": "the same archive: property",
    "faces_emore/lfw.bin": "the same archive: lfw.bin",
    "faces_emore/agedb_30.bin": "the same archive: agedb_30.bin",
    "megaface/facescrub_features_list.json": "list of MegaFace's development kit",
    "megaface/megaface_features_list.json_1000000_1": "list of MegaFace's development kit",
    "megaface/facescrub_aligned": "folder of FaceScrub's images, aligned, 112x112",
    "megaface/megaface_aligned": "folder of MegaFace's images, aligned, 112x112",
    "megaface/facescrub_noises.txt": "noise list of InsightFace",
    "megaface/megaface_noises.txt": "noise list of InsightFace",
    "cifar-100-python.tar.gz": "CIFAR-100, Python version",
}
PAPER_WEIGHTS = {
    "mobilefacenet": [
        "flops_200",
        "flops_300",
        "flops_400",
        "flops_600",
        "l1_1.5",
        "l1_2.0",
        "l1_2.7",
        "l1_3.5",
    ],
    "resnet101": [
        "flops_50",
        "flops_100",
        "flops_200",
        "flops_630",
        "l1_2.0",
        "l1_3.0",
        "l1_5.0",
        "l1_6.0",
    ],
}


def train(folder: pathlib.Path, preset: str, *arguments: str, seconds: float) -> Step:
    """Trains an encoder into `folder`."""
    return script(
        f"train {folder.parent.name} {folder.name}",
        ["train", f"--preset={preset}", *arguments, f"--model_dir={folder}"],
        [folder / RECORD],
        seconds,
    )


def fit(folder: pathlib.Path, seconds: float) -> Step:
    """Fits rectified Gaussians to the activations of an encoder."""
    name, records = folder.parent.name, folder.parent / "records"
    arguments = ["evaluate_activations", f"--model_dir={folder}", f"--records={records}"]
    return script(f"fit {name}", arguments, [records], seconds)


def compare(
    folder: pathlib.Path, weight: int, classes: int, distractors: int, pairs: int, seconds: float
) -> list[Step]:
    """Compares all methods with the encoders in `folder`, and keeps a gallery of one of them."""
    records = folder / "records"
    images = folder / "images" / f"identification_{classes}_{distractors}.npy"
    database = folder / "flops" / "path" / f"lambda_{weight}" / "identification.npz"
    return [
        script(
            f"compare {folder.name}",
            [
                "evaluate_glyphs",
                f"--runs_dir={folder}",
                f"--records={records}",
                f"--distractors={distractors}",
                f"--probe_classes={classes}",
                f"--pair_count={pairs}",
            ],
            [images, database],
            seconds,
        ),
        script(
            f"gallery {folder.name}",
            [
                "evaluate_gallery",
                f"--database={database}",
                f"--gallery_images={images}",
                f"--records={records}",
            ],
            [records],
            5 + distractors / 20_000,
        ),
    ]


# Seconds are those of 2 quiet cores of an AMD EPYC; those of `paper` are guesses for 4 GPUs.
def quick(run_dir: pathlib.Path) -> list[Step]:
    """Short trainings; the second architecture is trained just long enough for figure 2a."""
    convnet, narrow = run_dir / "convnet", run_dir / "mobilefacenet"
    short = ["--steps=400", "--warmup_steps=160", "--path_steps=100"]
    return [
        train(convnet / "dense512", "glyphs_dense512", "--steps=400", seconds=90),
        train(convnet / "flops", "glyphs_flops", "--reg_path=15,60", *short, seconds=110),
        train(convnet / "l1", "glyphs_l1", "--reg_path=0.4,0.8", *short, seconds=110),
        train(
            convnet / "sdh",
            "glyphs_sdh",
            f"--warm_start={convnet / 'dense512'}",
            "--steps=60",
            seconds=45,
        ),
        train(
            narrow / "flops",
            "glyphs_flops",
            *SPARSE_NARROW,
            "--steps=120",
            "--warmup_steps=60",
            seconds=60,
        ),
        fit(convnet / "flops", seconds=20),
        fit(narrow / "flops", seconds=25),
        *compare(convnet, 15, classes=200, distractors=20_000, pairs=2000, seconds=175),
    ]


def full(run_dir: pathlib.Path) -> list[Step]:
    """Every sweep, two architectures, a million distractors, which are drawn once for both."""
    images = run_dir / "mobilefacenet" / "images"
    if not images.exists():
        images.parent.mkdir(parents=True, exist_ok=True)
        (run_dir / "convnet" / "images").mkdir(parents=True, exist_ok=True)
        images.symlink_to(pathlib.Path("..") / "convnet" / "images")
    found = []
    for name, dense, slower in (("convnet", [], 1.0), ("mobilefacenet", NARROW, 1.5)):
        folder = run_dir / name
        start = f"--warm_start={folder / 'dense512'}"
        flops, l1 = "--reg_path=15,30,60", "--reg_path=0.4,0.6,0.8"
        # Narrow and sparse from the start, MobileFaceNet does not come far in 1,000 steps (recall@1
        # of 0.61 where the dense one has 0.90): its sparse encoders start from the dense one.
        short = ["--steps=500", "--warmup_steps=200", "--path_steps=250"]
        fine_tuned = [*SPARSE_NARROW, start, "--nowarm_start_head", *short]
        sparse = [] if name == "convnet" else fine_tuned
        found += [
            train(folder / "dense512", "glyphs_dense512", *dense, seconds=210 * slower),
            train(folder / "flops", "glyphs_flops", flops, *sparse, seconds=310 * slower),
            train(folder / "l1", "glyphs_l1", l1, *sparse, seconds=310 * slower),
            train(folder / "sdh", "glyphs_sdh", start, *dense, seconds=300 * slower),
            fit(folder / "flops", seconds=25),
            *compare(
                folder, 30, classes=400, distractors=1_000_000, pairs=6000, seconds=2400 * slower
            ),
        ]
    return found


def paper(run_dir: pathlib.Path, data: pathlib.Path) -> list[Step]:
    """The paper's own experiments, with its presets."""
    found = []
    lists = []
    for kind, name in (("probe", "facescrub"), ("distractor", "megaface")):
        suffix = "_1000000_1" if kind == "distractor" else ""
        lists += [
            f"--{kind}_list={data / 'megaface' / f'{name}_features_list.json{suffix}'}",
            f"--{kind}_images={data / 'megaface' / f'{name}_aligned'}",
            f"--{kind}_noises={data / 'megaface' / f'{name}_noises.txt'}",
        ]
    for model, weights in PAPER_WEIGHTS.items():
        folder = run_dir / model
        records = f"--records={folder / 'records'}"
        embedded = {}
        for run in ["dense512", "dense128", *weights, "sdh"]:
            suffix = "npy" if "dense" in run else "npz"
            embedded[run] = folder / run / f"identification.{suffix}"
            start = [f"--warm_start={folder / 'dense512'}"] if run == "sdh" else []
            found += [
                train(
                    folder / run,
                    f"{model}_{run}",
                    f"--data_dir={data / 'faces_emore'}",
                    *start,
                    seconds=100_000,
                ),
                script(
                    f"embed {model} {run}",
                    [
                        "embed_megaface",
                        f"--model_dir={folder / run}",
                        *lists,
                        f"--output={embedded[run]}",
                    ],
                    [embedded[run]],
                    2000,
                ),
            ]
            if run == "sdh":
                continue  # its codes identify alone
            found += [
                script(
                    f"verify {model} {run} {pack}",
                    [
                        "evaluate_verification",
                        f"--model_dir={folder / run}",
                        records,
                        f"--pack={data / 'faces_emore' / f'{pack}.bin'}",
                        f"--data_name={pack}",
                    ],
                    [folder / "records"],
                    60,
                )
                for pack in ("lfw", "agedb_30")
            ]
        sparse = ",".join(str(embedded[run]) for run in weights)
        found += [
            fit(folder / weights[1], seconds=60),
            script(
                f"compare {model}",
                [
                    "evaluate_megaface",
                    "--data_name=megaface",
                    records,
                    f"--sparse={sparse}",
                    f"--dense={embedded['dense512']}",
                    f"--narrow_dense={embedded['dense128']}",
                    f"--sdh={embedded['sdh']}",
                ],
                [folder / "records"],
                5000,
            ),
        ]
    results = run_dir / "cifar100" / "results"
    archive = data / "cifar-100-python.tar.gz"
    arguments = ["cifar100", f"--data_dir={archive}", f"--run_dir={run_dir}"]
    found.append(script("cifar100", [*arguments, f"--results={results}"], [results], 20_000))
    return found


def check_paper_data(data: pathlib.Path) -> None:
    """Lists what is missing; UsageError if anything is."""
    missing = {path: what for path, what in PAPER_DATA.items() if not (data / path).exists()}
    for path, what in missing.items():
        print(f"missing: {data / path} ({what})", file=sys.stderr)
    if missing:
        raise app.UsageError(
            f"--extent=paper: {len(missing)} of {len(PAPER_DATA)} files or folders are missing, "
            f"put them there, or say with --data_root={data} where they are"
        )


def main() -> None:
    """Runs the steps of the chosen extent, then writes the report and tells where it is."""
    data = pathlib.Path(_DATA_ROOT.value).expanduser()
    if _EXTENT.value == "paper":
        check_paper_data(data)
    run_dir = app.writable_folder("run_dir", str(pathlib.Path(RUN_DIR.value) / _EXTENT.value))
    cifar100 = pathlib.Path("results/cifar100")
    if _EXTENT.value == "paper":
        chosen, cifar100 = paper(run_dir, data), run_dir / "cifar100" / "results"
    else:
        chosen = {"quick": quick, "full": full}[_EXTENT.value](run_dir)
    steps.run_all(chosen, run_dir)
    steps.run_script("report", f"--run_dir={run_dir}", f"--cifar100_results={cifar100}")


if __name__ == "__main__":
    app.run(main)
