"""Writes the encoder of a run in other formats, beside its `.keras` file."""

import contextlib
import os
import pathlib
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sparse_embed.common.checks import check_choice
from sparse_embed.common.files import atomic_path
from sparse_embed.experiments.core.data import reading_part
from sparse_embed.experiments.core.run import Run
from sparse_embed.experiments.encoders.encoder import FORMATS

if TYPE_CHECKING:
    import keras

    from sparse_embed.datasets.examples import Part

EXPORTED = [name for name in FORMATS if name != "keras"]  # which `train` always writes
# The operations of the unit norm but the last, the product that is the output. In 8 bits the
# squares of small values vanish: norms between 0.7 and 1.2 were measured.
_UNIT_NORM = ["SQUARE", "SUM", "GREATER", "SELECT_V2", "RSQRT"]
CALIBRATION = 256  # training examples that tell the ranges of the activations


def export(run: Run, formats: Sequence[str], train: "Part | None" = None) -> list[pathlib.Path]:
    """Writes the encoder of a run in some of the formats; an older file is replaced at once.

    Args:
        run: the run.
        formats: some of `EXPORTED`.
        train: the training examples, for litert_int8.

    Returns:
        The files.
    """
    for name in formats:
        check_choice("format", name, EXPORTED)
    written = []
    for name in formats:
        if name == "saved_model":
            written.append(run.export_saved_model())
            continue
        sample = None
        if name == "litert_int8":
            if train is None:
                raise ValueError("litert_int8: expected training examples to calibrate on")
            sample = calibration_sample(train)
        content = litert(run.encoder(), name, sample)
        with atomic_path(run.folder / FORMATS[name]) as temporary:
            temporary.write_bytes(content)
        written.append(run.folder / FORMATS[name])
    return written


def calibration_sample(train: "Part", count: int = CALIBRATION) -> np.ndarray:
    """Returns `count` training examples, drawn at random: always the same ones."""
    size = min(count, len(train), 32)
    with reading_part(train):
        batches = train.training_batches(size, seed=0).take(-(-count // size))
        return np.concatenate([examples.numpy() for examples, _ in batches])[:count]


def litert(encoder: "keras.Model", format: str, sample: np.ndarray | None = None) -> bytes:
    """Converts an encoder to LiteRT; input and output are float32, and a batch has any size.

    Args:
        encoder: the encoder.
        format: "litert", "litert_float16" or "litert_int8".
        sample: examples that tell the ranges of the activations, for litert_int8.
    """
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import (
        convert_variables_to_constants_v2,
    )

    examples = tf.TensorSpec((None, *encoder.input_shape[1:]), tf.float32)
    graph = tf.function(lambda x: encoder(x, training=False), input_signature=[examples])
    # Variables must become constants: the converter leaves them out otherwise, and an encoder
    # without weights gives NaN.
    constant = convert_variables_to_constants_v2(graph.get_concrete_function())
    converter = tf.lite.TFLiteConverter.from_concrete_functions([constant])
    # LiteRT's own operations only: those of TensorFlow ("Flex") need a runtime of their own.
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    if format != "litert":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if format == "litert_float16":
        converter.target_spec.supported_types = [tf.float16]
    content: bytes
    with _quiet():
        if format != "litert_int8":
            content = converter.convert()
            return content
        if sample is None or not len(sample):
            raise ValueError("litert_int8: expected a sample to calibrate on, got none")
        rows = np.asarray(sample, np.float32)
        converter.representative_dataset = lambda: ([row[None]] for row in rows)
        # Of all of TensorFlow's interfaces only the debugger can leave operations in float32.
        content = tf.lite.experimental.QuantizationDebugger(
            converter=converter,
            debug_dataset=converter.representative_dataset,
            debug_options=tf.lite.experimental.QuantizationDebugOptions(
                denylisted_ops=_UNIT_NORM, denylisted_nodes=[constant.outputs[0].op.name]
            ),
        ).get_nondebug_quantized_model()
        return content


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Leaves out what the converter prints on every success; shown if it fails."""
    kept = [os.dup(1), os.dup(2)]
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            with warnings.catch_warnings():
                # That statistics are missing, which are not, and that a class which the converter
                # itself uses is old.
                warnings.simplefilter("ignore", UserWarning)
                yield
        except BaseException:
            file.seek(0)
            os.write(kept[1], file.read())
            raise
        finally:
            for number, copy in zip((1, 2), kept, strict=True):
                os.dup2(copy, number)
                os.close(copy)
