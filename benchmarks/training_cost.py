r"""Prints what the presets cost at full size: parameters, memory, disk, traffic and time.

    python benchmarks/training_cost.py
    python benchmarks/training_cost.py --presets=mobilefacenet_flops_300 \
        --peaks=82.6,165,1008,32 --utilisation=0.5

Builds each network as `train` would, traces its training step and counts; nothing is run, and no
data or GPU is needed. `--peaks` is your own GPU in place of those in the table. With `--output`,
the tables are written as Markdown too, between the marks of a page that has them.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from step_graph import StepBytes, step_bytes

from sparse_embed.common.failures import UsageError
from sparse_embed.common.options import option
from sparse_embed.experiments.core.markdown import put_between_marks, titled_table
from sparse_embed.experiments.core.text_table import text_table
from sparse_embed.experiments.training.build import build
from sparse_embed.flags import app
from sparse_embed.flags.options import fields
from sparse_embed.flags.options.train import preset_config
from sparse_embed.flags.train_config import TrainConfig

if TYPE_CHECKING:
    import keras

# Data set -> shape of an example and number of training classes: for faces those of the paper,
# section 5, "1 million images spanning 85k classes", aligned to 112x112 (appendix).
DATA = {"recordio": ((112, 112, 3), 85_000), "cifar100": ((32, 32, 3), 100)}
PRECISIONS = ("float32", "mixed_float16")
DISTRACTORS = 1_000_000


@dataclasses.dataclass(frozen=True)
class Gpu:
    """A GPU, as its maker's data sheet describes it.

    Attributes:
        float32: 10^12 operations per second that convolutions in float32 run at; since the A100
            TensorFlow computes them as TF32 on tensor cores.
        half: the same in mixed precision, on tensor cores, without sparsity.
        bandwidth: of its memory, GB/s.
        link: GB/s that it sends to the other GPUs.
    """

    float32: float
    half: float
    bandwidth: float
    link: float


GPUS = {
    "V100": Gpu(15.7, 125, 900, 150),  # SXM2 with NVLink, the paper's
    "A100": Gpu(156, 312, 2039, 300),
    "H100": Gpu(495, 989, 3350, 450),  # SXM5
}


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Counts of a network: those that its layers' shapes decide.

    Attributes:
        encoder: parameters of the encoder, moving averages included.
        classes: parameters of ArcFace's class matrix, 0 without one.
        encoder_multiply_adds: of the forward pass of one image, up to the embedding.
        classes_multiply_adds: of its cosines with all classes.
        weights: bytes of all weights.
        gradients: bytes of the gradients, those of all trainable weights; in every precision they
            are float32, as the weights are.
        slots: bytes of what the optimizer keeps.
        sums: how many times replicas wait for each other in a step.
        summed: bytes that they sum up in a step.
    """

    encoder: int
    classes: int
    encoder_multiply_adds: int
    classes_multiply_adds: int
    weights: int
    gradients: int
    slots: int
    sums: int
    summed: int

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of an image's forward pass; the backward pass has twice as many."""
        return self.encoder_multiply_adds + self.classes_multiply_adds


@dataclasses.dataclass(frozen=True)
class Cost:
    """The cost of runs that differ in nothing that costs.

    Attributes:
        presets: their names.
        config: of the first.
        sizes: counts by shapes.
        steps: precision -> bytes of a training step, empty if they were not counted.
    """

    presets: list[str]
    config: TrainConfig
    sizes: Sizes
    steps: Mapping[str, StepBytes]

    @property
    def name(self) -> str:
        """Network, kind and dimension of the embeddings."""
        return group_name(self.config)


def paper_presets(names: Iterable[str]) -> list[str]:
    """Returns those presets that train the paper's own networks: faces, and CIFAR-100."""
    starts = ("mobilefacenet_", "resnet101_", "cifar100_")
    return [name for name in names if name.startswith(starts) and "_fast_" not in name]


def group_name(config: TrainConfig) -> str:
    """Returns the name of all presets that cost the same as this one."""
    kind = "SDH" if config.makes_codes else "sparse" if config.is_sparse else "dense"
    return f"{config.model.model}, {kind} {config.model.embedding_dim}-d"


def costs(
    configs: Mapping[str, TrainConfig], num_classes: int | None = None, trace: bool = True
) -> list[Cost]:
    """Returns one cost per group of presets that cost the same.

    Args:
        configs: preset -> config.
        num_classes: training classes of a face data set; None for the paper's.
        trace: whether to count the bytes of training steps too, which takes seconds for each.
    """
    import tensorflow as tf

    groups: dict[str, list[str]] = {}
    for preset, config in configs.items():
        groups.setdefault(group_name(config), []).append(preset)
    found = []
    for presets in groups.values():
        config = configs[presets[0]]
        shape, classes = DATA[config.data.dataset]
        if config.data.dataset == "recordio":
            classes = num_classes or classes
        sizes, steps = [], {}
        for precision in PRECISIONS if trace else PRECISIONS[:1]:
            with tf.Graph().as_default():  # where variables take no memory
                encoder, model = _build(config, shape, classes, precision)
                sizes.append(count_sizes(encoder, model))
                if trace:
                    steps[precision] = step_bytes(model, config.optimization.batch_size)
        found.append(Cost(presets, config, sizes[0], steps))
    return found


def _build(
    config: TrainConfig, shape: tuple[int, ...], num_classes: int, precision: str
) -> tuple["keras.Model", "keras.Model"]:
    import keras
    import tensorflow as tf

    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision)
    try:
        return build(config, shape, num_classes, tf.distribute.get_strategy())
    finally:
        keras.config.set_dtype_policy(before)


def count_sizes(encoder: "keras.Model", model: "keras.Model") -> Sizes:
    """Counts parameters, multiply-adds and bytes of an encoder and of the model that trains it."""
    import keras

    from sparse_embed.losses.regularizers import ActivationRegularization
    from sparse_embed.models import ArcFaceHead

    model.optimizer.build(model.trainable_variables)
    heads = [layer for layer in model.layers if isinstance(layer, ArcFaceHead)]
    gradients = _bytes(model.trainable_variables)
    norms = [
        layer
        for layer in encoder.layers
        if isinstance(layer, keras.layers.BatchNormalization) and layer.synchronized
    ]
    penalties = [
        layer
        for layer in model.layers
        if isinstance(layer, ActivationRegularization) and layer.scope == "global"
    ]
    # A batch norm sums values, squares and counts; gradients come back for the first two. A penalty
    # sums activations and examples together, and gradients come back for both.
    statistics = sum(5 * 4 * layer.moving_mean.shape[0] for layer in norms)
    activations = sum(2 * 4 * (encoder.output_shape[-1] + 1) for _ in penalties)
    return Sizes(
        encoder=encoder.count_params(),
        classes=sum(layer.count_params() for layer in heads),
        encoder_multiply_adds=sum(map(multiply_adds, encoder.layers)),
        classes_multiply_adds=sum(map(multiply_adds, heads)),
        weights=_bytes(model.weights),
        gradients=gradients,
        slots=_bytes(model.optimizer.variables),
        sums=1 + 5 * len(norms) + 2 * len(penalties),
        summed=gradients + statistics + activations,
    )


def multiply_adds(layer: "keras.layers.Layer") -> int:
    """Returns the multiply-adds that a layer's kernel costs in the forward pass of one image.

    Every place of the output costs each number in the kernel one multiply-add. Padding counts as
    any place; element-wise work counts as nothing.

    Raises:
        ValueError: the layer has a matrix of weights, but is of a kind unknown here.
    """
    import keras

    from sparse_embed.models import ArcFaceHead

    layers = keras.layers
    if isinstance(layer, ArcFaceHead):
        kernel = layer.class_weights
    elif type(layer) in (layers.Conv2D, layers.DepthwiseConv2D, layers.Dense):
        kernel = layer.kernel
    elif any(sum(side > 1 for side in weight.shape) > 1 for weight in layer.weights):
        raise ValueError(f"layer {layer.name}: expected Conv2D, DepthwiseConv2D or Dense")
    else:
        return 0
    products: int = math.prod(layer.output.shape[1:-1]) * math.prod(kernel.shape)
    return products


def _bytes(variables: Iterable[Any]) -> int:
    return sum(math.prod(each.shape) * np.dtype(each.dtype).itemsize for each in variables)


def devices(config: TrainConfig) -> int:
    """Returns how many GPUs the paper trained such a run on: 4 for faces, one for their codes."""
    return 4 if config.data.dataset == "recordio" and not config.makes_codes else 1


def step_seconds(cost: Cost, precision: str, gpu: Gpu, utilisation: float) -> float:
    """Returns the time of a step: computing, then moving, then summing over the replicas.

        2 * 3 * multiply-adds * batch / peak + moved / bandwidth + 2 (n - 1) / n * summed / link,

    divided by the utilisation. The backward pass costs twice the forward pass, a multiply-add is
    two operations, and in a ring each of n replicas sends (n - 1) / n of the bytes twice.
    """
    peak = gpu.float32 if precision == "float32" else gpu.half
    computing = 6 * cost.sizes.multiply_adds * cost.config.optimization.batch_size / (peak * 1e12)
    moving = cost.steps[precision].moved / (gpu.bandwidth * 1e9)
    n = devices(cost.config)
    summing = 2 * (n - 1) / n * cost.sizes.summed / (gpu.link * 1e9)
    return (computing + moving + summing) / utilisation


def distractor_bytes(config: TrainConfig, nonzeros: int) -> int:
    """Returns the bytes of a million embeddings on disk.

    Dense ones, SDH's too, are float32. Sparse ones are a CSR matrix: float32 value and int32 index
    for each non-zero, and an int32 per row.
    """
    row = 8 * nonzeros + 4 if config.is_sparse else 4 * config.model.embedding_dim
    return DISTRACTORS * row


Table = tuple[str, list[str], list[list[str]]]  # title, head, rows


def tables(
    found: Sequence[Cost], gpus: Mapping[str, Gpu], utilisation: float, nonzeros: int
) -> list[Table]:
    """Returns the tables of sizes, of memory and of time; without counted steps only the first."""
    shown: list[Table] = [
        (
            "Sizes",
            [
                "run",
                "presets",
                "encoder",
                "class matrix",
                "multiply-adds, encoder",
                "multiply-adds, classes",
                "checkpoint",
                "million embeddings",
                "summed per step",
                "sums per step",
            ],
            [_sizes_row(cost, nonzeros) for cost in found],
        )
    ]
    if any(cost.steps for cost in found):
        memory = ["run", "precision", "batch", "weights", "gradients", "optimizer", "kept", "all"]
        shown.append(
            (
                "Memory of a GPU",
                [*memory, "moved per step"],
                [row for cost in found for row in _memory_rows(cost)],
            )
        )
        columns = ["ms per step", "steps per second", "days"]
        shown.append(
            (
                "Time",
                [
                    *("run", "precision", "GPUs"),
                    *(f"{name}: {column}" for name in gpus for column in columns),
                ],
                [row for cost in found for row in _time_rows(cost, gpus.values(), utilisation)],
            )
        )
    return shown


def _sizes_row(cost: Cost, nonzeros: int) -> list[str]:
    sizes, together = cost.sizes, devices(cost.config) > 1
    return [
        cost.name,
        f"{len(cost.presets)}",
        _millions(sizes.encoder),
        _millions(sizes.classes),
        _millions(sizes.encoder_multiply_adds),
        _millions(sizes.classes_multiply_adds),
        _megabytes(sizes.weights + sizes.slots),
        _gigabytes(distractor_bytes(cost.config, nonzeros)),
        _megabytes(sizes.summed) if together else "-",
        f"{sizes.sums}" if together else "-",
    ]


def _memory_rows(cost: Cost) -> list[list[str]]:
    sizes = cost.sizes
    state = [sizes.weights, sizes.gradients, sizes.slots]
    return [
        [
            cost.name,
            precision,
            f"{cost.config.optimization.batch_size}",
            *map(_gigabytes, [*state, step.kept, sum(state) + step.kept, step.moved]),
        ]
        for precision, step in cost.steps.items()
    ]


def _time_rows(cost: Cost, gpus: Iterable[Gpu], utilisation: float) -> list[list[str]]:
    rows = []
    for precision in cost.steps:
        times = [step_seconds(cost, precision, gpu, utilisation) for gpu in gpus]
        cells = [
            (
                f"{1000 * seconds:,.0f}",
                f"{1 / seconds:.1f}",
                f"{cost.config.optimization.steps * seconds / 86_400:.2f}",
            )
            for seconds in times
        ]
        rows.append([cost.name, precision, f"{devices(cost.config)}", *sum(cells, ())])
    return rows


def _millions(count: int) -> str:
    return f"{count / 1e6:,.2f} M" if count else "-"


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:,.2f} GB"


def markdown(shown: Iterable[Table]) -> str:
    """Returns the tables in Markdown, each with its title, and what they were counted with."""
    import keras
    import tensorflow as tf

    parts = [titled_table(*table) for table in shown]
    parts.append(f"Counted with TensorFlow {tf.__version__} and Keras {keras.__version__}.")
    return "\n\n".join(parts) + "\n"


@dataclasses.dataclass(frozen=True)
class Options:
    """What is measured, and how."""

    output: str | None = fields.output()
    presets: tuple[str, ...] = option(
        (), "Presets of faces or of CIFAR-100; default: all of the paper's."
    )
    classes: int = option(85_000, "Training classes of a face data set.", lower=1)
    gpus: tuple[str, ...] = option(
        (
            "V100",
            "H100",
        ),
        f"GPUs of the table of times: {', '.join(GPUS)}.",
    )
    peaks: tuple[str, ...] = option(
        (),
        "A GPU of your own in place of --gpus: TFLOPS in float32, TFLOPS in half precision, GB/s "
        "of its memory, GB/s to other GPUs.",
    )
    utilisation: float = option(
        0.6, "Share of each peak that a step reaches.", lower=0.01, upper=1.0
    )
    nonzeros: int = option(32, "Non-zeros of a sparse embedding, for the disk.", lower=1)


def main(options: Options) -> None:
    """Counts, prints and writes."""
    output = app.writable_file("output", options.output, ".md") if options.output else None
    configs = {name: preset_config(name) for name in _presets(options)}
    found = costs(configs, options.classes)
    shown = tables(found, _gpus(options), options.utilisation, options.nonzeros)
    for title, head, rows in shown:
        print(f"{title}\n{text_table(head, rows)}\n")
    if output:
        page = output.read_text() if output.exists() else ""
        output.write_text(put_between_marks(page, markdown(shown)))


def _presets(options: Options) -> list[str]:
    known = paper_presets(app.preset_names())
    for name in options.presets:
        if name not in known:
            raise UsageError(f"--presets={name}: expected some of {', '.join(known)}")
    return list(options.presets) or known


def _gpus(options: Options) -> dict[str, Gpu]:
    if options.peaks:
        try:
            return {"GPU": Gpu(*map(float, options.peaks))}
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"--peaks={','.join(options.peaks)}: expected four numbers, such as "
                "15.7,125,900,150"
            ) from error
    for name in options.gpus:
        if name not in GPUS:
            raise UsageError(f"--gpus={name}: expected some of {', '.join(GPUS)}")
    return {name: GPUS[name] for name in options.gpus}


if __name__ == "__main__":
    app.run(main, Options)
