r"""All figures and tables of the paper from one command, which `make reproduce` runs.

    make reproduce                      # quick: under a quarter of an hour on 2 cores, no data
    make reproduce PRESET=full          # two networks, three seeds, a million words: hours
    make reproduce PRESET=rehearsal     # every step of paper in half an hour: needs data folders
    make reproduce PRESET=paper         # faces: needs data folders and GPUs
    make reproduce PRESET=cifar100 ARGS=--data_dir=cifar-100-python.tar.gz
    make reproduce PRESET=comparison    # all methods of search with one small network

Each step is one of the other scripts (see `orchestration.plans` and `orchestration.paper_plan`);
call again after an interruption to continue. All results go to <run_dir>/<extent>, the report last.
A rehearsal ends with an estimate of how long paper takes on the same machine.

cifar100 trains the models of the paper's table (appendix "Cifar-100 results") that are not there
yet, each by its preset `cifar100_<name>`: those within a CPU's reach, `fast_*`, or those that
--only names. It evaluates them on the test images, and prints the table: where a model has several
encoders, validation images choose one, within the paper's F.

comparison draws the images of the evaluation once, trains dense encoders, some with the FLOPs and
the l1 penalty at several weights, and one with Sparse Deep Hashing; it embeds the images with each,
compares all methods of search and verifies pairs. Nothing else should run while search is timed.
"""

import dataclasses
import pathlib
import sys

from sparse_embed.common.failures import UsageError
from sparse_embed.common.files import user_path
from sparse_embed.experiments.core import notes, records
from sparse_embed.experiments.core.paper import FAST, SERIES, SOFT
from sparse_embed.experiments.evaluation import identification
from sparse_embed.experiments.orchestration import (
    cifar100_plan,
    estimate,
    makers,
    paper_plan,
    paper_size,
    plans,
    steps,
)
from sparse_embed.experiments.reporting import cifar100_table, page, selection
from sparse_embed.flags import app
from sparse_embed.flags.options.reproduce import OPTIONS, Cifar100, Comparison, Faces, Words
from sparse_embed.flags.train_config import ObjectiveConfig

WORDS = {"quick": plans.quick, "full": plans.full}
FACES = {"rehearsal": paper_size.REHEARSAL, "paper": paper_size.WHOLE}


def main(
    options: Words | Faces | Cifar100 | Comparison,
) -> None:
    """Runs the steps of the chosen extent, then shows what they found."""
    if isinstance(options, Words):
        run_dir = _folder(options.run_dir, options.extent)
        steps.run_all(WORDS[options.extent](run_dir, options.first_seed), run_dir)
        print(page.write_and_tell(run_dir))
    elif isinstance(options, Faces):
        _reproduce_faces(options)
    elif isinstance(options, Cifar100):
        _reproduce_cifar100(options)
    else:
        _compare(options)


def _folder(run_dir: str, extent: str) -> pathlib.Path:
    return app.writable_folder("run_dir", str(pathlib.Path(run_dir) / extent))


def _reproduce_faces(options: Faces) -> None:
    data, size = _find_data(options), FACES[options.extent]
    if options.lambdas is not None:
        size = dataclasses.replace(size, lambdas=options.lambdas)
    size = dataclasses.replace(size, train_flags=options.train_flags)
    run_dir = _folder(options.run_dir, options.extent)
    plan = paper_plan.paper(run_dir, data, size)
    is_rehearsal = options.extent == "rehearsal"
    if is_rehearsal:
        notes.write_estimate(run_dir, [])
    steps.run_all(plan, run_dir)
    if is_rehearsal:
        rows = estimate.estimate(plan, paper_plan.paper(run_dir, data))
        notes.write_estimate(run_dir, rows)
        print(estimate.told(rows))
    print(page.write_and_tell(run_dir))


def _find_data(options: Faces) -> paper_plan.Data:
    """Returns where the data is; lists what is missing, and then UsageError."""
    root = user_path("data_root", options.data_root, "a folder")
    given = user_path("cifar100", options.cifar100, "a file") if options.cifar100 else None
    data, missing = paper_plan.find_data(root, given)
    for path, what in missing.items():
        print(f"missing: {path} ({what})", file=sys.stderr)
    if missing:
        raise UsageError(
            f"--extent={options.extent}: {len(missing)} of {len(paper_plan.FILES)} files or "
            f"folders are missing; put them there, or point --data_root={root} to their folder"
        )
    return data


def _reproduce_cifar100(options: Cifar100) -> None:
    data_dir = app.existing_path("data_dir", options.data_dir)
    known = [name for series in SERIES for name in series.models]
    for name in options.only:
        if name not in known:
            raise UsageError(f"--only={name}: expected some of {', '.join(known)}")
    folder = _folder(options.run_dir, "cifar100")
    size = dataclasses.replace(paper_size.WHOLE, train_flags=options.train_flags)
    models = list(options.only) or FAST.models + SOFT.models
    steps.run_all(cifar100_plan.cifar100(folder, data_dir, models, size), folder)
    print(cifar100_table.table(selection.load(folder)))


def _compare(options: Comparison) -> None:
    weights = {name: _weights(options, f"{name}_weights") for name in ("flops", "l1")}
    folder = _folder(options.run_dir, "comparison")
    sizes = makers.Sizes(
        options.drawn_from,
        options.probe_classes,
        options.distractors,
        options.pair_count,
        tuple(range(options.seeds)),
    )
    network = makers.Network((), (), weights, plans.CONVNET.seconds)
    drawn = makers.draw(folder / "images", sizes)
    plan = [drawn]
    lengths = (options.start_steps, options.encoder_steps)
    for seed in sizes.seeds:
        more = (lengths, ",".join(options.only), list(options.train_flags))
        plan += plans.compare(folder, seed, network, sizes, drawn, *more)
    steps.run_all(plan, folder)
    print(identification.table(records.load(folder / makers.RECORDS, "megaface")))


def _weights(options: Comparison, name: str) -> list[float]:
    text = getattr(options, name)
    try:
        return ObjectiveConfig(reg_path=text).weights
    except ValueError as error:
        raise UsageError(
            f"--{name}={text}: expected increasing positive weights, such as 10,20,40"
        ) from error


if __name__ == "__main__":
    app.run(main, OPTIONS)
