"""Draws the evaluation sets of words or glyphs once, so that every encoder embeds the same images.

    python -m sparse_embed.experiments.draw_sets --images_dir=runs/images --distractors=1000000

Writes images and labels for identification and for verification of easy and hard pairs (see
`datasets.evaluation_sets`).
"""

from absl import flags

from sparse_embed.common.failures import UsageError
from sparse_embed.flags import app
from sparse_embed.flags.evaluation import DISTRACTORS, DRAWN, PAIR_COUNT, PROBE_CLASSES

_IMAGES_DIR = flags.DEFINE_string("images_dir", None, "Folder that the images go to.")


def main() -> None:
    """Reads the flags and draws."""
    folder = app.writable_folder("images_dir", _IMAGES_DIR.value)
    from sparse_embed.datasets import catalogue, evaluation_sets

    parts = catalogue.load(DRAWN.value)
    sizes = (DISTRACTORS.value, PROBE_CLASSES.value, PAIR_COUNT.value)
    try:
        files = evaluation_sets.draw_all(folder, parts, *sizes)  # type: ignore[arg-type]
    except ValueError as error:
        raise UsageError(f"--{error}") from error
    print(*files.values(), sep="\n")


if __name__ == "__main__":
    app.run(main)
