r"""Writes the encoder of a run in other formats, and shows how good and how fast each is.

    python -m sparse_embed.experiments.export_encoder --model_dir=runs/sparse

Writes to --model_dir, beside `encoder.keras`: LiteRT in float32 (`encoder.tflite`), with weights in
half precision (`encoder_float16.tflite`) and in 8 bits (`encoder_int8.tflite`, calibrated on
training examples), and TensorFlow's SavedModel; --export chooses some of them. Each is compared
with the Keras encoder on examples of unseen classes; the table is printed, and saved as
`encoders.json`.
`embed`, `search` and `serve` take each by --encoder. LiteRT runs with the extra `litert`.
"""

from sparse_embed.common.extras import require
from sparse_embed.experiments.core.run import ENCODER, RECORD, Run
from sparse_embed.experiments.evaluation.formats import TABLE, export_and_verify, table
from sparse_embed.flags import app
from sparse_embed.flags.options.export import Encoder as Options
from sparse_embed.flags.options.fields import ENCODERS


def main(options: Options) -> None:
    """Exports, and shows the table."""
    run = Run.open(app.existing_path("model_dir", options.model_dir, holding=RECORD))
    app.existing_path("model_dir", options.model_dir, holding=ENCODER)
    formats = list(options.export) or [name for name in ENCODERS if name != "keras"]
    if any(name.startswith("litert") for name in formats):
        require("export_encoder", "litert", "ai_edge_litert")
    found = export_and_verify(run, formats, options.examples, options.data_dir)
    print(table(found))
    print(run.folder / TABLE)


if __name__ == "__main__":
    app.run(main, Options)
