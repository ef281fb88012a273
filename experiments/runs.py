"""The folder of a training run: what `train` leaves behind and the other scripts pick up."""

import json
import pathlib
import shutil
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sparse_embed.common.files import atomic_path

if TYPE_CHECKING:
    import keras

ENCODER = "encoder.keras"
RECORD = "train.json"
SAVED_MODEL = "saved_model"


def save_run(model_dir: pathlib.Path, encoder: "keras.Model", record: dict[str, Any]) -> None:
    """Saves the encoder, then the record: where there is a record, the run is whole."""
    model_dir.mkdir(parents=True, exist_ok=True)
    with atomic_path(model_dir / ENCODER) as temporary:
        encoder.save(temporary)
    with atomic_path(model_dir / RECORD) as temporary:
        temporary.write_text(json.dumps(record, indent=1))


def load_record(model_dir: pathlib.Path) -> dict[str, Any]:
    """Returns the record of the run in `model_dir`."""
    return json.loads((model_dir / RECORD).read_text())


def load_encoder(path: pathlib.Path) -> "keras.Model":
    """Returns the trained encoder of a run's folder, or that of a `.keras` file."""
    import keras

    return keras.models.load_model(path if path.suffix == ".keras" else path / ENCODER)


def export_saved_model(model_dir: pathlib.Path) -> pathlib.Path:
    """Writes the run's encoder as a TensorFlow SavedModel beside the `.keras` file."""
    folder = model_dir / SAVED_MODEL
    with tempfile.TemporaryDirectory(dir=model_dir) as temporary:
        # Read back from the file, so that the variables are not those of a distribution strategy.
        load_encoder(model_dir).export(f"{temporary}/new", verbose=False)
        if folder.exists():
            shutil.rmtree(folder)
        pathlib.Path(temporary, "new").rename(folder)
    return folder


def load_saved_model(model_dir: pathlib.Path) -> Callable:
    """Returns the function examples -> embeddings of the run's SavedModel."""
    import tensorflow as tf

    loaded = tf.saved_model.load(model_dir / SAVED_MODEL)
    return lambda examples: loaded.serve(examples)  # `serve` alone would not keep the variables
