"""Which steps make the paper's own experiments, whole or as a rehearsal, and the data they need.

A rehearsal is the same plan with another `Size`: every kind of step, both networks as they are, but
few training steps, few weights and few images.
"""

import pathlib
import re
from typing import NamedTuple

from sparse_embed.experiments.core.paper import OWN
from sparse_embed.experiments.orchestration.cifar100_plan import cifar100
from sparse_embed.experiments.orchestration.makers import RECORDS, fit, record, train
from sparse_embed.experiments.orchestration.paper_size import WHOLE, Size
from sparse_embed.experiments.orchestration.steps import Step, script
from sparse_embed.flags.app import preset_names

ACTIVATIONS = {"mobilefacenet": "relu", "resnet101": "soft_threshold"}  # by network, section 5
REGULARIZERS = ("flops", "l1")
PACKS = ("lfw", "agedb_30")

# What is needed: path below --data_root, and what it is. CIFAR-100 and the list of distractors may
# have other names.
FILES = {
    "faces_emore/train.rec": "MS1M of InsightFace's data set zoo: train.rec",
    "faces_emore/train.idx": "the same archive: train.idx",
    "faces_emore/property": "the same archive: property",
    **{f"faces_emore/{pack}.bin": f"the same archive: {pack}.bin" for pack in PACKS},
    "megaface/facescrub_features_list.json": "list of MegaFace's development kit",
    "megaface/megaface_features_list.json_1000000_1": "list of the same kit, or a smaller one",
    "megaface/facescrub_aligned": "folder of FaceScrub's images, aligned, 112x112",
    "megaface/megaface_aligned": "folder of MegaFace's images, aligned, 112x112",
    "megaface/facescrub_noises.txt": "noise list of InsightFace",
    "megaface/megaface_noises.txt": "noise list of InsightFace",
    "cifar-100-python.tar.gz": "CIFAR-100, Python version, or its folder; --cifar100 names it",
}
_DISTRACTORS = "megaface/megaface_features_list.json_1000000_1"
_CIFAR100 = "cifar-100-python.tar.gz"


class Data(NamedTuple):
    """Where the data is.

    Attributes:
        faces: folder of the training images and of the verification packs.
        megaface: folder of lists, noise lists and images.
        distractors: the list of distractors.
        cifar100: archive or folder.
    """

    faces: pathlib.Path
    megaface: pathlib.Path
    distractors: pathlib.Path
    cifar100: pathlib.Path


def find_data(
    root: pathlib.Path, cifar100: pathlib.Path | None = None
) -> tuple[Data, dict[pathlib.Path, str]]:
    """Returns where the data is, and what of it is missing.

    The list of distractors is the one with the highest number in its name.

    Args:
        root: --data_root.
        cifar100: where CIFAR-100 is, if not in `root`.
    """
    paths = {name: root / name for name in FILES}
    kind = re.compile(r"megaface_features_list\.json_(\d+)_(\d+)")
    folder = paths[_DISTRACTORS].parent
    lists = [(kind.fullmatch(path.name), path) for path in folder.glob("megaface_features_list*")]
    found = [(int(match[1]), -int(match[2]), path) for match, path in lists if match]
    if found:
        paths[_DISTRACTORS] = max(found)[-1]
    if cifar100 is not None:
        paths[_CIFAR100] = cifar100
    else:
        names = [f"cifar-100-python{suffix}" for suffix in (".tar.gz", ".tar.xz", ".tar", "")]
        there = [root / name for name in names if (root / name).exists()]
        paths[_CIFAR100] = (there or [paths[_CIFAR100]])[0]
    missing = {path: FILES[name] for name, path in paths.items() if not path.exists()}
    data = Data(root / "faces_emore", folder, paths[_DISTRACTORS], paths[_CIFAR100])
    return data, missing


def weights(network: str, lambdas: int | None = None) -> dict[str, float]:
    """Returns the presets of a face network's sparse runs without its name, and their weights.

    Args:
        network: its name.
        lambdas: how many of each regularizer, the smallest ones; None for all.
    """
    found: dict[str, float] = {}
    for method in REGULARIZERS:
        names = [name for name in preset_names() if name.startswith(f"{network}_{method}_")]
        given = {n.removeprefix(f"{network}_"): float(n.rpartition("_")[2]) for n in names}
        found |= dict(sorted(given.items(), key=lambda item: item[1])[:lambdas])
    return found


def paper(run_dir: pathlib.Path, data: Data, size: Size = WHOLE) -> list[Step]:
    """The paper's own experiments, with its presets."""
    found = []
    for network in ACTIVATIONS:
        found += _faces(run_dir / network, data, size)
    return found + cifar100(run_dir / "cifar100", data.cifar100, OWN.models, size)


def _faces(folder: pathlib.Path, data: Data, size: Size) -> list[Step]:
    """Trains all encoders of a face network, embeds, verifies and identifies with them."""
    network, seconds = folder.name, size.seconds[folder.name]
    sparse = weights(network, size.lambdas)
    lists = [f"--distractor_list={data.distractors}"]
    lists += [f"--probe_list={data.megaface / 'facescrub_features_list.json'}"]
    for kind, name in (("probe", "facescrub"), ("distractor", "megaface")):
        lists += [
            f"--{kind}_images={data.megaface / f'{name}_aligned'}",
            f"--{kind}_noises={data.megaface / f'{name}_noises.txt'}",
        ]
    records = f"--records={folder / RECORDS}"
    found: list[Step] = []
    runs: dict[str, Step] = {}
    embeds: dict[str, Step] = {}
    for run in ["dense512", "dense128", *sparse, "sdh"]:
        embedded = folder / run / f"identification.{'npy' if 'dense' in run else 'npz'}"
        start = [f"--warm_start={folder / 'dense512'}"] if run == "sdh" else []
        runs[run] = train(
            folder / run,
            f"{network}_{run}",
            f"--data_dir={data.faces}",
            *start,
            *size.training_flags(f"{network}_{run}"),
            seconds=seconds["train"],
            needs=[runs["dense512"]] if start else [],
        )
        embeds[run] = script(
            f"embed {network} {run}",
            [
                "embed",
                "--source=megaface",
                f"--model_dir={folder / run}",
                *lists,
                f"--output={embedded}",
            ],
            [embedded],
            seconds["embed"],
            [runs[run]],
        )
        found += [runs[run], embeds[run]]
        if run == "sdh":
            continue  # its codes identify alone
        method, setting = run.partition("_")[0], {"weight": sparse.get(run), "run": run}
        if run.startswith("dense"):
            method, setting = "dense", {"dims": int(run.removeprefix("dense")), "run": run}
        for pack in PACKS:
            key = {"experiment": "verification", "data": pack, "method": method}
            made = record(folder, **key, setting=setting)
            found.append(
                script(
                    f"verify {network} {run} {pack}",
                    [
                        "evaluate_verification",
                        f"--model_dir={folder / run}",
                        records,
                        f"--pack={data.faces / f'{pack}.bin'}",
                        f"--data_name={pack}",
                    ],
                    [made.with_name(f"{made.stem}-seed=*.json")],  # any: see --train_flags
                    seconds["verify"],
                    [runs[run]],
                )
            )
    flops = [run for run in sparse if run.startswith("flops")]
    fitted = flops[min(1, len(flops) - 1)]  # the second weight, if there is one
    few = [f"--images={size.images}"] if size.images else []
    return [
        *found,
        fit(
            runs[fitted],
            folder / fitted,
            folder,
            ACTIVATIONS[network],
            "recordio",
            *few,
            seconds=seconds["fit"],
        ),
        script(
            f"compare {network}",
            [
                "evaluate_megaface",
                "--data_name=megaface",
                records,
                f"--sparse={','.join(str(embeds[run].outputs[0]) for run in sparse)}",
                f"--dense={embeds['dense512'].outputs[0]}",
                f"--narrow_dense={embeds['dense128'].outputs[0]}",
                f"--sdh={embeds['sdh'].outputs[0]}",
            ],
            [folder / RECORDS / "megaface-megaface-*-dense-dims=512-*.json"],
            seconds["compare"],
            list(embeds.values()),
        ),
    ]
