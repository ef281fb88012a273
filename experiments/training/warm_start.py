"""Starts a training run from the weights of an earlier encoder."""

from typing import TYPE_CHECKING

from sparse_embed.common.failures import UsageError

if TYPE_CHECKING:
    import keras

HEAD = "embedding_"  # start of the names of the head's layers with weights


def copy_weights(source: "keras.Model", target: "keras.Model", head: bool) -> None:
    """Gives `target` the weights of `source`, layer by layer in their order.

    Keras numbers layers as they are made, so names need not agree; kinds and shapes must. All are
    compared before the first is copied.

    Args:
        source: an encoder.
        target: the encoder to be trained.
        head: whether to copy the embedding layer (linear map and batch norm) too.

    Raises:
        UsageError: the encoders differ; it names the first layer that does.
    """
    pairs = list(zip(_layers(source, head), _layers(target, head), strict=False))
    for old, new in pairs:
        if type(old) is not type(new) or _shapes(old) != _shapes(new):
            advice = "; --nowarm_start_head leaves out the head" if _is_head(new) else ""
            raise UsageError(
                f"--warm_start: layer {new.name} is {_describe(new)} here and {_describe(old)} "
                f"there{advice}"
            )
    counts = [len(_layers(model, head)) for model in (source, target)]
    if counts[0] != counts[1]:
        raise UsageError(
            f"--warm_start: {counts[1]} layers with weights here ({target.name}) and {counts[0]} "
            f"there ({source.name})"
        )
    for old, new in pairs:
        new.set_weights(old.get_weights())


def freeze_backbone(encoder: "keras.Model") -> None:
    """Lets only the embedding layer train; batch norms before it keep their statistics.

    Call it before the model is compiled.
    """
    for layer in _layers(encoder, head=False):
        layer.trainable = False


def _layers(model: "keras.Model", head: bool) -> list["keras.Layer"]:
    return [layer for layer in model.layers if layer.weights and (head or not _is_head(layer))]


def _is_head(layer: "keras.Layer") -> bool:
    starts: bool = layer.name.startswith(HEAD)
    return starts


def _shapes(layer: "keras.Layer") -> list[tuple[int, ...]]:
    return [tuple(weight.shape) for weight in layer.weights]


def _describe(layer: "keras.Layer") -> str:
    return f"{type(layer).__name__} {' '.join(map(str, _shapes(layer)))}"
