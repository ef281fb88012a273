"""Where results go."""

from absl import flags

MODEL_DIR = flags.DEFINE_string(
    "model_dir", None, "Folder of a training run: encoder, record, checkpoints, TensorBoard events."
)
OUTPUT = flags.DEFINE_string("output", None, "File to write.")
RECORDS = flags.DEFINE_string(
    "records", "runs/records", "Folder of evaluation records, one file per method and setting."
)
RUN_DIR = flags.DEFINE_string(
    "run_dir", "runs/reproduce", "Folder of a reproduction: all that it makes, and its report."
)
USE_SAVED_MODEL = flags.DEFINE_bool(
    "saved_model",
    False,
    "TensorFlow's SavedModel of the encoder, for serving without Keras: train exports it too, "
    "embed uses it in place of the .keras file.",
)
