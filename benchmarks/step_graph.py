"""What a training step keeps and moves in memory, counted in the graph that TensorFlow draws.

Nothing is run: a step that fits on no machine at hand is counted in seconds.
"""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

# Their output is their input, under another name or shape.
_ALIASES = {"Identity", "IdentityN", "Reshape", "Squeeze", "ExpandDims", "StopGradient"}
# What is no activation: weights and constants.
_STATE = {"ReadVariableOp", "VarHandleOp", "Const"}
# They read a tensor's shape and not its values.
_SHAPES = {"Shape", "ShapeN", "Size", "Rank", "BroadcastGradientArgs"}


class StepBytes(NamedTuple):
    """Bytes of one training step on one device.

    Attributes:
        kept: tensors of the forward pass that the backward pass reads, each counted once: the
            images, and what TensorFlow's gradients of each operation need.
        moved: sum over all operations of what they read and write, the update of the weights
            included: the traffic between memory and processor if no two operations are fused.
    """

    kept: int
    moved: int


def step_bytes(model: "keras.Model", batch_size: int) -> StepBytes:
    """Draws forward pass, backward pass and update of a compiled model, and counts.

    Must be called within the `tf.Graph` in which the model was built: there, variables take no
    memory, and a class matrix of any size can be counted.

    Args:
        model: a compiled model with one input, and integer labels.
        batch_size: examples of the step.
    """
    import tensorflow as tf

    graph = tf.compat.v1.get_default_graph()
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    optimizer.build(model.trainable_variables)
    shape = (batch_size, *model.input_shape[1:])
    start = len(graph.get_operations())
    examples = tf.compat.v1.placeholder(tf.float32, shape)
    labels = tf.compat.v1.placeholder(tf.int32, (batch_size,))
    with tf.GradientTape() as tape:
        loss = model.compute_loss(examples, labels, model(examples, training=True))
    forward = graph.get_operations()[start:]
    gradients = tape.gradient(loss, model.trainable_variables)
    backward = graph.get_operations()[start + len(forward) :]
    optimizer.apply(gradients, model.trainable_variables)
    operations = graph.get_operations()[start:]

    updates = [each for each in operations if each.type.startswith("Assign")]
    needed = _needed([loss.op, *updates])
    made = {value.ref() for operation in forward for value in operation.outputs}
    read = {
        source(value).ref()
        for operation in backward
        if operation.name in needed
        for value in _read(operation)
    }
    kept = [each.deref() for each in read & made]
    passive = _ALIASES | _STATE | {"Placeholder"}
    return StepBytes(
        kept=sum(tensor_bytes(tensor) for tensor in kept if tensor.op.type not in _STATE),
        moved=sum(
            sum(map(tensor_bytes, (*_read(operation), *operation.outputs)))
            for operation in operations
            if operation.name in needed and operation.type not in passive
        ),
    )


def tensor_bytes(tensor: "tf.Tensor") -> int:
    """Returns the bytes of a tensor; 0 for a handle of a variable, and for an unknown shape.

    Only what a loss computes on the host, on a few numbers per example, has unknown shapes.
    """
    if not tensor.shape.is_fully_defined():
        return 0
    size: int = math.prod(tensor.shape.as_list()) * (tensor.dtype.size or 0)
    return size


def source(tensor: "tf.Tensor") -> "tf.Tensor":
    """Returns the tensor whose memory a tensor shares."""
    while tensor.op.type in _ALIASES:
        place = tensor.value_index if tensor.op.type == "IdentityN" else 0
        tensor = tensor.op.inputs[place]
    return tensor


def _read(operation: "tf.Operation") -> list["tf.Tensor"]:
    return [] if operation.type in _SHAPES else list(operation.inputs)


def _needed(roots: Iterable["tf.Operation"]) -> set[str]:
    """Returns the names of the operations that the roots depend on: others are not run."""
    found: set[str] = set()
    left = list(roots)
    while left:
        operation = left.pop()
        if operation.name not in found:
            found.add(operation.name)
            left += [value.op for value in operation.inputs]
            left += operation.control_inputs
    return found
