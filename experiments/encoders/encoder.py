"""`Encoder`: one interface to a trained encoder, whatever format its file has.

    encoder = open_encoder(pathlib.Path("runs/sparse"), "litert", num_threads=2)
    embeddings = encoder.encode(images)  # (n, 24, 48, 1) float32 -> (n, 512) float32

The formats, as flags name them:

    keras            `encoder.keras`, which `train` always writes
    saved_model      `saved_model/`, TensorFlow's format for serving
    litert           `encoder.tflite`: LiteRT, float32; needs neither Keras nor TensorFlow
    litert_float16   `encoder_float16.tflite`: weights in half precision, half the bytes
    litert_int8      `encoder_int8.tflite`: 8-bit weights and activations, a quarter of the bytes
"""

import dataclasses
import pathlib
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from sparse_embed.common.checks import check_choice, check_number
from sparse_embed.common.extras import require
from sparse_embed.common.failures import UsageError
from sparse_embed.common.reading import reading
from sparse_embed.experiments.core.run import ENCODER, SAVED_MODEL, Run, load_encoder

# Format -> its file in the folder of a run.
FORMATS = {
    "keras": ENCODER,
    "saved_model": SAVED_MODEL,
    "litert": "encoder.tflite",
    "litert_float16": "encoder_float16.tflite",
    "litert_int8": "encoder_int8.tflite",
}


@dataclasses.dataclass(frozen=True)
class Encoder:
    """A trained encoder that is ready to use. Several threads may use one at the same time.

    Attributes:
        format: one of `FORMATS`.
        path: the file, or the folder of a SavedModel.
        input_shape: (height, width, channels) of an image, or (dim,) of a vector.
        dim: dimension of the embeddings.
        is_sparse: whether the embeddings have exact zeros.
        function: (n, *input_shape) float32 array, n >= 1 -> (n, dim) float32 array.
    """

    format: str
    path: pathlib.Path
    input_shape: tuple[int, ...]
    dim: int
    is_sparse: bool
    function: Callable[[np.ndarray], np.ndarray] = dataclasses.field(repr=False)

    @property
    def files(self) -> list[pathlib.Path]:
        """All files of the encoder: one, or those of a SavedModel."""
        files = sorted(self.path.rglob("*")) if self.path.is_dir() else [self.path]
        return [file for file in files if file.is_file()]

    def encode(self, examples: Any) -> np.ndarray:
        """Returns the embeddings of a batch: (n, dim) float32, rows of unit norm or zero.

        Args:
            examples: (n, *input_shape), converted to float32: images with pixels between 0 and 1,
                or vectors. n may be 0, and may differ from call to call.

        Raises:
            ValueError: the shape is another.
        """
        array = np.ascontiguousarray(examples, np.float32)
        if array.shape[1:] != self.input_shape or array.ndim == 0:
            wanted = ", ".join(["n", *map(str, self.input_shape)])
            raise ValueError(f"examples of shape {array.shape}: expected ({wanted})")
        if not len(array):
            return np.zeros((0, self.dim), np.float32)
        return self.function(array)


def open_encoder(path: pathlib.Path, format: str = "keras", num_threads: int = 1) -> Encoder:
    """Opens an encoder.

    Args:
        path: folder of a run. For the format "keras" a folder with the encoder alone, or the
            `.keras` file, will do.
        format: one of `FORMATS`.
        num_threads: threads of one call, for LiteRT; TensorFlow has its own settings for all of
            its encoders together.

    Raises:
        UsageError: the run has no encoder in this format.
        DataError: the encoder's file is damaged.
        ImportError: the format needs a package that is not installed; names the extra.
    """
    check_choice("format", format, FORMATS)
    check_number("num_threads", num_threads, integer=True, minimum=1)
    file = path if path.suffix == ".keras" and format == "keras" else path / FORMATS[format]
    if not file.exists():
        raise UsageError(f"{path}: expected a folder that holds {FORMATS[format]}{_advice(format)}")
    if format == "keras":
        return _open_keras(file)
    run = Run.open(path)
    if format == "saved_model":
        return _open_saved_model(run, file)
    return _open_litert(run, format, file, num_threads)


def _advice(format: str) -> str:
    return "" if format == "keras" else f", which export_encoder --export={format} writes"


def _open_keras(file: pathlib.Path) -> Encoder:
    import tensorflow as tf

    model = load_encoder(file)
    shape, dim = tuple(model.input_shape[1:]), int(model.output_shape[-1])
    is_sparse = model.get_layer("embedding_activation").get_config()["activation"] != "linear"
    graph = tf.function(
        lambda examples: model(examples, training=False),
        input_signature=[tf.TensorSpec((None, *shape), tf.float32)],
    )
    return Encoder("keras", file, shape, dim, is_sparse, lambda examples: graph(examples).numpy())


def _open_saved_model(run: Run, folder: pathlib.Path) -> Encoder:
    import tensorflow as tf

    # TensorFlow and protobuf raise many kinds at a damaged file.
    with reading(folder, "a SavedModel of an encoder", Exception):
        loaded = tf.saved_model.load(folder)
        if not hasattr(loaded, "serve"):
            raise ValueError("it has no function `serve`")
        (signature,) = loaded.serve.input_signature
    shape, dim = tuple(signature.shape[1:]), run.config.model.embedding_dim

    def encode(examples: np.ndarray) -> np.ndarray:
        # `serve` alone would lose the variables.
        embeddings: np.ndarray = loaded.serve(examples).numpy()
        return embeddings

    return Encoder("saved_model", folder, shape, dim, run.is_sparse, encode)


def _open_litert(run: Run, format: str, file: pathlib.Path, num_threads: int) -> Encoder:
    require(f"the encoder {format}", "litert", "ai_edge_litert")
    from ai_edge_litert.interpreter import Interpreter

    with reading(file, "an encoder in LiteRT's format", RuntimeError):
        interpreter = Interpreter(model_content=file.read_bytes(), num_threads=num_threads)
        (source,), (target,) = interpreter.get_input_details(), interpreter.get_output_details()
        shape = tuple(int(side) for side in source["shape"][1:])
        interpreter.allocate_tensors()
    lock = threading.Lock()  # an interpreter has one set of tensors

    def encode(examples: np.ndarray) -> np.ndarray:
        with lock:
            if interpreter.get_input_details()[0]["shape"][0] != len(examples):
                interpreter.resize_tensor_input(source["index"], examples.shape)
                interpreter.allocate_tensors()
            interpreter.set_tensor(source["index"], examples)
            interpreter.invoke()
            embeddings: np.ndarray = interpreter.get_tensor(target["index"])  # a copy
            return embeddings

    return Encoder(format, file, shape, int(target["shape"][-1]), run.is_sparse, encode)
