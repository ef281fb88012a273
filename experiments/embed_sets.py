r"""Embeds the stored evaluation sets with every encoder of a run, beside the encoder.

    python -m sparse_embed.experiments.embed_sets --model_dir=runs/flops \
        --sets=runs/images/identification_400_1000000.npy,runs/images/easy_6000.npy

The start of a file's name is the name of the set. A run with --reg_path has an encoder for every
weight, and all of them are used. Of the distractors, which come last, the first --distractors are
embedded. Sparse Deep Hashing makes codes only for the identification set.
"""

from absl import flags

from sparse_embed.experiments.core.run import RECORD, Run
from sparse_embed.experiments.encoders.embedding import embed_sets
from sparse_embed.flags import app
from sparse_embed.flags.evaluation import DISTRACTORS
from sparse_embed.flags.output import MODEL_DIR

_SETS = flags.DEFINE_list("sets", [], "Stored images (.npy) that draw_sets wrote.")


def main() -> None:
    """Reads the flags and embeds."""
    run = Run.open(app.existing_path("model_dir", MODEL_DIR.value, holding=RECORD))
    files = [app.existing_path("sets", value) for value in _SETS.value]
    for path in embed_sets(run, files, DISTRACTORS.value):
        print(path)


if __name__ == "__main__":
    app.run(main)
