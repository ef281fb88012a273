"""The paper's table of CIFAR-100 (appendix "Cifar-100 results"), with ours beside it.

    python -m sparse_embed.experiments.cifar100 --data_dir=cifar-100-python.tar.gz
    python -m sparse_embed.experiments.cifar100 --report_only

Trains what is not in --run_dir yet, each model as its preset `cifar100_<name>` says, and all but
the dense one from its weights; chooses the weight of the penalty on validation images, within the
paper's F; evaluates all on the test images; leaves a small record of each (flags, curves, figures,
those of every weight tried, time) in --results, and prints the table from those records alone.
Flags of `train` that are given here go to every training. A run that was stopped goes on from its
last checkpoint when the script is called again.
"""

import dataclasses
import json
import pathlib

from absl import flags

from sparse_embed.common.files import atomic_path
from sparse_embed.experiments import records
from sparse_embed.experiments.records import Record
from sparse_embed.experiments.runs import RECORD, load_record
from sparse_embed.experiments.steps import run_script, run_step
from sparse_embed.experiments.train import TrainConfig
from sparse_embed.flags import app
from sparse_embed.flags.evaluation import ONLY
from sparse_embed.flags.output import RUN_DIR

_RESULTS = flags.DEFINE_string("results", "results/cifar100", "Folder of the table's records.")
_REPORT_ONLY = flags.DEFINE_bool("report_only", False, "Print the table of --results, no more.")

DENSE = "fast_dense"  # which all others start from
FIGURES = (
    "flops_per_row",
    "precision_at_4_train",
    "precision_at_16_train",
    "precision_at_4_test",
    "precision_at_16_test",
)
# Name of the run -> its row in the paper's table: precision in percent, in the order of FIGURES.
PAPER: dict[str, tuple[str, tuple[float, ...]]] = {
    DENSE: ("dense", (64, 61.53, 61.26, 57.31, 56.95)),
    "fast_sdh_k1": ("SDH k=1", (1.18, 62.29, 61.94, 57.22, 55.87)),
    "fast_sdh_k2": ("SDH k=2", (3.95, 60.93, 60.15, 55.98, 54.42)),
    "fast_sdh_k3": ("SDH k=3", (8.82, 60.80, 59.96, 55.81, 54.10)),
    "fast_flops": ("relaxed FLOPs", (0.40, 61.05, 61.08, 55.23, 55.21)),
    "fast_l1": ("l1", (0.47, 60.50, 60.17, 54.32, 54.96)),
}
CURVE = (
    "step",
    "seconds",
    "loss",
    "regularizer_weight",
    "sparsity_flops_per_row",
    "evaluation_flops_per_row",
    "recall_at_1",
)


def train_all(run_dir: pathlib.Path, names: list[str], more: list[str]) -> None:
    """Trains what is missing: the dense model, and the others from its weights."""
    dense = run_dir / DENSE
    for name in (DENSE, *names):
        folder, flagfile = run_dir / name, app.preset_path(f"cifar100_{name}")
        inputs, arguments = [flagfile], [f"--flagfile={flagfile}"]
        if name != DENSE:
            inputs.append(dense / RECORD)
            arguments.append(f"--warm_start={dense}")
        run_step(folder / RECORD, inputs, "train", *arguments, *more, f"--model_dir={folder}")


def encoders(model_dir: pathlib.Path) -> list[pathlib.Path]:
    """Returns the folders of a run's encoders: one for each weight of --reg_path, or its own."""
    return sorted((model_dir / "path").glob("*")) or [model_dir]


def chosen(model_dir: pathlib.Path, limit: float) -> pathlib.Path:
    """Returns the folder of the encoder that stands for a run: of --reg_path, one of its snapshots.

    It is the one with the best recall@1 of the validation images among those whose FLOPs per row on
    them are within `limit`; if none is, the sparsest. Test images have no part in the choice.
    """
    folders = encoders(model_dir)
    if folders == [model_dir]:
        return model_dir
    ends = {folder: load_record(folder)["curves"][-1] for folder in folders}
    flops = {folder: row["evaluation_flops_per_row"] for folder, row in ends.items()}
    within = [folder for folder in folders if flops[folder] <= limit]
    if not within:
        return min(folders, key=lambda folder: flops[folder])
    return max(within, key=lambda folder: ends[folder]["recall_at_1"])


def evaluate_all(
    run_dir: pathlib.Path, names: list[str], data_dir: pathlib.Path, results: pathlib.Path
) -> None:
    """Evaluates each model on the test images, unless that was done, and keeps a small record."""
    for name in names:
        _, (flops, *_) = PAPER[name]
        folder = run_dir / "records" / name
        for model_dir in encoders(run_dir / name):
            where = [f"--model_dir={model_dir}", f"--data_dir={data_dir}", f"--records={folder}"]
            run_script("evaluate_cifar100", *where)
        found = {record["setting"]["run"]: record for record in records.load(folder, "cifar100")}
        save_small(results / f"{name}.json", chosen(run_dir / name, limit=flops), found)


def save_small(path: pathlib.Path, model_dir: pathlib.Path, found: dict[str, Record]) -> None:
    """Writes what the table and its reader need: figures, flags, curve, time, provenance.

    The time and the curve are those of this run alone, without those of the dense model that it
    started from.

    Args:
        path: of the small record.
        model_dir: folder of the encoder that stands for the run.
        found: evaluations of all encoders of the run, by the names of their folders.
    """
    run = load_record(model_dir)
    settings = {name: value for part in run["config"].values() for name, value in part.items()}
    del settings["data_dir"]  # where the data lay decides nothing
    if settings["warm_start"]:
        settings["warm_start"] = pathlib.Path(settings["warm_start"]).name
    record = {
        "figures": _numbers(found[model_dir.name]),
        "path": [
            {"weight": other["setting"]["weight"], **_numbers(other)}
            for other in sorted(found.values(), key=lambda other: other["flops_per_row"])
            if len(found) > 1
        ],
        "flags": settings,
        "seconds": run["seconds"],
        "weights_crc32": run["weights_crc32"],
        "curve": [{key: row[key] for key in CURVE if key in row} for row in run["curves"]],
        "provenance": run["provenance"],
    }
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(record, indent=1))


def _numbers(record: Record) -> dict[str, float]:
    return {key: value for key, value in record.items() if isinstance(value, float)}


def load_results(results: pathlib.Path) -> list[Record]:
    """Reads the small records: one of experiment "cifar100" per model, "cifar100 path" per weight.

    Args:
        results: their folder; a model without a record is left out.
    """
    found = []
    for name in PAPER:
        path = results / f"{name}.json"
        if path.exists():
            content = json.loads(path.read_text())
            note = {"name": name, "provenance": content["provenance"], "architecture": "cifar100"}
            found.append({**content["figures"], **note, "experiment": "cifar100"})
            found += [{**p, **note, "experiment": "cifar100 path"} for p in content.get("path", [])]
    return found


def table(results: pathlib.Path) -> str:
    """Returns the paper's table with ours beside it, as text; "-" where there is no record."""
    head = ["model", "F", "train @4", "train @16", "test @4", "test @16", "seconds"]
    lines = [head, [""] + ["paper / ours"] * 5 + ["ours"]]
    for name, (title, paper) in PAPER.items():
        path = results / f"{name}.json"
        ours, seconds = ["-"] * len(FIGURES), "-"
        if path.exists():
            record = json.loads(path.read_text())
            flops, *precisions = (record["figures"][figure] for figure in FIGURES)
            ours = [f"{flops:.2f}", *(f"{100 * precision:.2f}" for precision in precisions)]
            seconds = f"{record['seconds']:.0f}"
        pairs = [f"{a:.2f} / {b}" for a, b in zip(paper, ours, strict=True)]
        lines.append([title, *pairs, seconds])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])])
        for line in lines
    )


def main() -> None:
    """Trains and evaluates what is missing, and prints the table."""
    if _REPORT_ONLY.value:
        print(table(app.existing_path("results", _RESULTS.value)))
        return
    data_dir = app.existing_path("data_dir", flags.FLAGS.data_dir)
    run_dir = app.writable_folder("run_dir", RUN_DIR.value) / "cifar100"
    results = app.writable_folder("results", _RESULTS.value)
    unknown = set(ONLY.value) - set(PAPER)
    if unknown:
        raise app.UsageError(f"--only={','.join(unknown)}: expected some of {', '.join(PAPER)}")
    names = [name for name in PAPER if name in ONLY.value or not ONLY.value]
    given = [
        f"--{field.name}={flags.FLAGS[field.name].value}"
        for part in dataclasses.fields(TrainConfig)
        for field in dataclasses.fields(part.type)  # type: ignore[arg-type]
        if flags.FLAGS[field.name].present
    ]
    train_all(run_dir, [name for name in names if name != DENSE], given)
    evaluate_all(run_dir, names, data_dir, results)
    print(table(results))


if __name__ == "__main__":
    app.run(main)
