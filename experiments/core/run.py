"""The folder of a training run, which `train` writes and every other script opens."""

import dataclasses
import functools
import json
import pathlib
from typing import TYPE_CHECKING, Any

from sparse_embed.common.failures import UsageError
from sparse_embed.common.files import atomic_path, scratch_folder, user_path
from sparse_embed.common.reading import check_keras_file, read_json, reading
from sparse_embed.flags.train_config import TrainConfig

if TYPE_CHECKING:
    import keras

ENCODER = "encoder.keras"
RECORD = "train.json"
SAVED_MODEL = "saved_model"
EVENTS = "tensorboard"


@dataclasses.dataclass(frozen=True)
class Run:
    """A run that has ended.

    Attributes:
        folder: where it is.
        config: all settings of the training run.
        record: everything that `train` recorded: curves, seconds, checksum of the weights,
            provenance.
    """

    folder: pathlib.Path
    config: TrainConfig
    record: dict[str, Any]

    @classmethod
    def open(cls, folder: pathlib.Path) -> "Run":
        """Opens the folder of a run; UsageError if it holds none, DataError if it is damaged."""
        path, expected = folder / RECORD, "the record of a run"
        if not path.exists():
            raise UsageError(f"{folder}: expected a folder that holds {RECORD}")
        record = read_json(path, expected)
        with reading(path, expected):
            return cls(folder, TrainConfig.from_dict(record["config"]), record)

    @property
    def name(self) -> str:
        """Name of the folder, which tells runs apart in records."""
        return self.folder.name

    @property
    def method(self) -> str:
        """Name of the method in records; see `TrainConfig.method`."""
        return self.config.method

    @property
    def setting(self) -> dict[str, Any]:
        """The setting of this run on the method's curve, with the run's name."""
        return {**self.config.setting, "run": self.name}

    @property
    def seed(self) -> int:
        """Seed of the training run."""
        return self.config.optimization.seed

    @property
    def is_sparse(self) -> bool:
        """Whether the embeddings have exact zeros."""
        return self.config.is_sparse

    @property
    def suffix(self) -> str:
        """Suffix of the file of embeddings or hash codes to search."""
        return ".npz" if self.is_sparse or self.config.makes_codes else ".npy"

    @property
    def encoder_file(self) -> pathlib.Path:
        """The encoder in Keras' format."""
        return self.folder / ENCODER

    @functools.cached_property
    def snapshots(self) -> "list[Run]":
        """The run's encoders: one for each weight of --reg_path, or the run itself."""
        folders = sorted((self.folder / "path").glob("*"))
        return [Run.open(folder) for folder in folders] or [self]

    def encoder(self) -> "keras.Model":
        """Returns the trained encoder."""
        return load_encoder(self.encoder_file)

    def backbone(self) -> "keras.Model":
        """Returns the trained encoder without its embedding layer: examples -> features."""
        import keras

        encoder = self.encoder()
        return keras.Model(encoder.input, encoder.get_layer("embedding_linear").input)

    def export_saved_model(self) -> pathlib.Path:
        """Writes the encoder as a TensorFlow SavedModel beside the `.keras` file."""
        folder = self.folder / SAVED_MODEL
        with scratch_folder(folder) as temporary:
            # Loaded from the file, so that the variables are not those of a distribution strategy.
            self.encoder().export(temporary / "new", verbose=False)
            if folder.exists():
                folder.rename(temporary / "old")
            (temporary / "new").rename(folder)
        return folder


def save(folder: pathlib.Path, encoder: "keras.Model", record: dict[str, Any]) -> Run:
    """Saves the encoder, then the record: where there is a record, the run is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_path(folder / ENCODER) as temporary:
        encoder.save(temporary)
    with atomic_path(folder / RECORD) as temporary:
        temporary.write_text(json.dumps(record, indent=1))
    return Run.open(folder)


def snapshot_folder(model_dir: pathlib.Path, weight: float) -> pathlib.Path:
    """Returns the folder of the encoder of one weight of --reg_path."""
    return model_dir / "path" / f"lambda_{weight:g}"


def load_encoder(path: pathlib.Path) -> "keras.Model":
    """Returns the encoder in a `.keras` file.

    Raises:
        DataError: the file is damaged.
    """
    import keras

    with reading(path, "an encoder in Keras' format"):
        check_keras_file(path)
        return keras.models.load_model(path)


def encoder_path(flag: str, value: str) -> pathlib.Path:
    """Returns the `.keras` file that a flag names, directly or by its run; UsageError if absent."""
    given = user_path(flag, value, f"a folder that holds {ENCODER}")
    path = given if given.suffix == ".keras" else given / ENCODER
    if not path.exists():
        wanted = "a file that exists" if path is given else f"a folder that holds {ENCODER}"
        raise UsageError(f"--{flag}={value}: expected {wanted}")
    return path
