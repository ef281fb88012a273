r"""Copies images on disk into shards of TFRecords, or draws the images of an evaluation.

    python -m sparse_embed.experiments.prepare_data --dataset=recordio --data_dir=faces_emore \
        --shards_dir=shards
    python -m sparse_embed.experiments.prepare_data --dataset=image_folder --data_dir=photos \
        --image_size=112 --shards_dir=shards --on_error=skip
    python -m sparse_embed.experiments.prepare_data --to=evaluation_sets \
        --images_dir=runs/images --distractors=1000000

Slow disks read shards several times faster than images. Every image is checked. A shard appears
under its name only when it is whole: after an interruption the same command continues where it
stopped. `train --dataset=tfrecords` reads the shards, and splits them by class as it would split
the images themselves.

--to=evaluation_sets draws words or glyphs once, so that every encoder embeds the same images: those
of identification, and easy and hard pairs, with their labels (see `datasets.evaluation_sets`).
"""

from typing import TYPE_CHECKING

from sparse_embed.common.failures import UsageError
from sparse_embed.flags import app
from sparse_embed.flags.options.prepare_data import OPTIONS, EvaluationSets, Shards

if TYPE_CHECKING:
    import pathlib

    from sparse_embed.datasets.examples import Examples


def main(options: Shards | EvaluationSets) -> None:
    """Writes the shards or the sets."""
    if isinstance(options, Shards):
        _write_shards(options)
    else:
        _draw_sets(options)


def _write_shards(options: Shards) -> None:
    holding = "train.rec" if options.dataset == "recordio" else ""
    data_dir = app.existing_path("data_dir", options.data_dir, holding)
    shards_dir = app.writable_folder("shards_dir", options.shards_dir)
    # Imported only now, so that a mistake in a path is reported at once.
    from sparse_embed.datasets import tfrecords

    try:
        examples = _load(options, data_dir)
        shards = tfrecords.write_shards(examples, shards_dir, options.num_shards)
    except ValueError as error:
        raise UsageError(str(error)) from error
    skipped = len(examples) - len(shards)
    print(
        f"{shards_dir}: {len(shards):,} images of {shards.num_classes:,} classes in "
        f"{shards.num_shards} shards; {skipped:,} broken images skipped"
    )


def _load(options: Shards, data_dir: "pathlib.Path") -> "Examples":
    from sparse_embed.datasets import image_folder, recordio

    if options.dataset == "recordio":
        scan = options.scan_labels
        return recordio.load(data_dir, on_error=options.on_error, scan_labels=scan)
    shape = (options.image_size, options.image_size, 3)
    return image_folder.load(data_dir, shape, options.on_error)


def _draw_sets(options: EvaluationSets) -> None:
    folder = app.writable_folder("images_dir", options.images_dir)
    from sparse_embed.datasets import catalogue, evaluation_sets

    parts = catalogue.load(options.drawn_from)
    sizes = (options.distractors, options.probe_classes, options.pair_count)
    try:
        files = evaluation_sets.draw_all(folder, parts, *sizes)  # type: ignore[arg-type]
    except ValueError as error:
        raise UsageError(f"--{error}") from error
    print(*files.values(), sep="\n")


if __name__ == "__main__":
    app.run(main, OPTIONS)
