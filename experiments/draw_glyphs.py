"""Draws the evaluation sets of glyphs once, so that every encoder embeds the same images.

    python -m sparse_embed.experiments.draw_glyphs --images_dir=runs/images --distractors=1000000

Writes images and labels for identification and for verification of easy and hard pairs (see
`datasets.glyph_sets`).
"""

from absl import flags

from sparse_embed.flags import app
from sparse_embed.flags.evaluation import DISTRACTORS, PAIR_COUNT, PROBE_CLASSES

_IMAGES_DIR = flags.DEFINE_string("images_dir", None, "Folder that the images go to.")


def main() -> None:
    """Reads the flags and draws."""
    folder = app.writable_folder("images_dir", _IMAGES_DIR.value)
    from sparse_embed.datasets import glyph_sets

    files = glyph_sets.draw_all(folder, DISTRACTORS.value, PROBE_CLASSES.value, PAIR_COUNT.value)
    print(*files.values(), sep="\n")


if __name__ == "__main__":
    app.run(main)
