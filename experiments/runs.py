"""The folder of a training run: what `train` leaves behind and the other scripts pick up."""

import json
import pathlib
from typing import TYPE_CHECKING, Any

from sparse_embed.common.files import atomic_path

if TYPE_CHECKING:
    import keras

ENCODER = "encoder.keras"
RECORD = "train.json"


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
