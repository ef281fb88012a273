"""`linear`: only the head, for dense embeddings made by another encoder."""

from sparse_embed.models.blocks import Tensor, batch_norm


def linear(embeddings: Tensor, width: float) -> Tensor:
    """Batch norm alone; the linear map is the head's.

    The other encoder has done the work already. With a hidden layer before the head, faces of
    unseen people are found less often (recall@1 0.82 instead of 0.87 after 600 steps on the
    embeddings of half the people of LFW): it memorises the training classes.

    Args:
        embeddings: Keras tensor (batch, dim).
        width: ignored, since no layer could be wider.

    Returns:
        Keras tensor (batch, dim).
    """
    del width
    return batch_norm(embeddings)
