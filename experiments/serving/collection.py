"""What the service answers from: an index and, where given, encoders, dense rows, pictures."""

import dataclasses
import functools
import inspect
import pathlib
from typing import Any

import numpy as np

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.core import embedding_files
from sparse_embed.experiments.encoders import image_search
from sparse_embed.experiments.encoders.encoder import Encoder
from sparse_embed.experiments.serving.pictures import FolderPictures, Pictures
from sparse_embed.retrieval import Reranker, ShardedIndex, SparseIndex


@dataclasses.dataclass(frozen=True)
class Collection:
    """The rows that are searched, and what is known of them.

    Attributes:
        index: a `SparseIndex`, or anything with its `search`.
        encoder: images -> sparse embeddings, as those in the index; None if clients bring vectors.
        dense: (ids, d) dense embeddings, row i that of id i; None if nothing is re-ranked.
        dense_encoder: images -> dense embeddings, as `dense`.
        pictures: of the rows.
        num_threads: of a search.

    Raises:
        UsageError: the parts do not fit.
    """

    index: Any
    encoder: Encoder | None = None
    dense: np.ndarray | None = None
    dense_encoder: Encoder | None = None
    pictures: Pictures | None = None
    num_threads: int = 1

    def __post_init__(self) -> None:
        ids, dims = ids_of(self.index), self.index.shape[1]
        if self.dense is not None and len(self.dense) != ids:
            raise UsageError(
                f"--dense: {len(self.dense)} rows: expected {ids}, one for each id from 0 to the "
                "largest in the index"
            )
        if self.encoder is not None and self.encoder.dim != dims:
            raise UsageError(
                f"--model_dir={self.encoder.path.parent}: an encoder of {self.encoder.dim} "
                f"dimensions: expected {dims}, as in the index"
            )
        self.image_shape  # noqa: B018 - an encoder of vectors is refused here
        if self.dense_encoder is None:
            return
        where = f"--dense_model_dir={self.dense_encoder.path.parent}"
        if self.dense is None or self.encoder is None:
            raise UsageError(f"{where}: expected --model_dir and dense embeddings beside it")
        if self.dense_encoder.dim != self.dense.shape[1]:
            raise UsageError(
                f"{where}: an encoder of {self.dense_encoder.dim} dimensions: expected "
                f"{self.dense.shape[1]}, as in --dense"
            )
        if self.dense_encoder.input_shape != self.encoder.input_shape:
            raise UsageError(
                f"{where}: it takes images of {self.dense_encoder.input_shape}: expected "
                f"{self.encoder.input_shape}, as --model_dir takes"
            )

    @functools.cached_property
    def image_shape(self) -> tuple[int, int, int] | None:
        """(height, width, channels) of the images that can be searched for; None if none can."""
        return None if self.encoder is None else image_search.image_shape(self.encoder)

    @functools.cached_property
    def reranker(self) -> Reranker | None:
        """Orders rows by their dense embeddings; None if there are none."""
        return None if self.dense is None else Reranker(self.dense)

    @functools.cached_property
    def has_filters(self) -> bool:
        """Whether a search can leave rows out."""
        return "allowed" in inspect.signature(self.index.search).parameters

    @functools.cached_property
    def has_deadlines(self) -> bool:
        """Whether a search can be told how long it may take."""
        return "deadline" in inspect.signature(self.index.search).parameters

    @property
    def has_codes(self) -> bool:
        """Whether the index gives its rows back."""
        return hasattr(self.index, "reconstruct")

    def has_row(self, number: int) -> bool:
        """Whether a row has this id."""
        if hasattr(self.index, "__contains__"):
            return number in self.index
        known: bool = 0 <= number < self.index.shape[0]
        return known

    def close(self) -> None:
        """Closes the index, if it is one that has to be."""
        if hasattr(self.index, "close"):
            self.index.close()


def ids_of(index: Any) -> int:
    """Returns how many ids there are from 0 to the largest of an index."""
    count: int = getattr(index, "next_id", index.shape[0])
    return count


def open_folder(
    folder: pathlib.Path,
    index_path: pathlib.Path,
    encoder: Encoder,
    dense_encoder: Encoder | None = None,
    num_threads: int = 1,
) -> Collection:
    """Serves a folder of images. Its embeddings are kept, see `image_search.open_index`.

    Args:
        folder: of the images.
        index_path: file of the index; dense embeddings stand beside it.
        encoder: makes the index.
        dense_encoder: makes dense embeddings to re-rank with.
        num_threads: of a search.
    """
    index, paths = image_search.open_index(index_path, folder, encoder)
    dense = None
    if dense_encoder is not None:
        kept = index_path.with_name(f"{index_path.stem}_dense.npy")
        dense = image_search.dense_rows(kept, folder, paths, dense_encoder)
    pictures = FolderPictures(folder, paths)
    return Collection(index, encoder, dense, dense_encoder, pictures, num_threads)


def open_rows(flag: str, path: pathlib.Path) -> Any:
    """Opens what is to be searched: an `.index` file, sparse embeddings (.npz), or shards.

    Args:
        flag: that names it.
        path: a file, or the folder of a `ShardedIndex`.
    """
    if path.is_dir():
        return ShardedIndex.open(path)
    if path.suffix == ".npz":
        found = embedding_files.load_flag(flag, path, sparse=True)
        return SparseIndex.build(found.vectors, progress=True)
    return SparseIndex.load(path)


def open_dense(flag: str, path: pathlib.Path) -> np.ndarray:
    """Opens dense embeddings of the rows, mapped into memory."""
    return np.asarray(embedding_files.load_flag(flag, path, sparse=False).vectors)
