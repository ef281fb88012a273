r"""Writes the encoder of a run in other formats, and shows how good and how fast each is.

    python -m sparse_embed.experiments.export_encoder --model_dir=runs/sparse

Writes to --model_dir, beside `encoder.keras`: LiteRT in float32 (`encoder.tflite`), with weights in
half precision (`encoder_float16.tflite`) and in 8 bits (`encoder_int8.tflite`, calibrated on
training examples), and TensorFlow's SavedModel; --export chooses some of them. Each is compared
with the Keras encoder on examples of unseen classes; the table is printed, and saved as
`encoders.json`.
`embed`, `search_images` and `serve` take each by --encoder. LiteRT runs with the extra `litert`.
"""

from absl import flags

from sparse_embed.common.extras import require
from sparse_embed.experiments.core.run import ENCODER, RECORD, Run
from sparse_embed.experiments.evaluation.formats import TABLE, export_and_verify, table
from sparse_embed.flags import app
from sparse_embed.flags.config import define
from sparse_embed.flags.output import ENCODERS, EXPORT, MODEL_DIR
from sparse_embed.flags.train_config import DataConfig

define(DataConfig, only=["data_dir"])
_EXAMPLES = flags.DEFINE_integer(
    "examples", 2000, "How many examples of unseen classes to compare on.", lower_bound=2
)


def main() -> None:
    """Reads the flags, exports, shows the table."""
    run = Run.open(app.existing_path("model_dir", MODEL_DIR.value, holding=RECORD))
    app.existing_path("model_dir", MODEL_DIR.value, holding=ENCODER)
    formats = EXPORT.value or [name for name in ENCODERS if name != "keras"]
    if any(name.startswith("litert") for name in formats):
        require("export_encoder", "litert", "ai_edge_litert")
    found = export_and_verify(run, formats, _EXAMPLES.value, flags.FLAGS.data_dir)
    print(table(found))
    print(run.folder / TABLE)


if __name__ == "__main__":
    app.run(main)
