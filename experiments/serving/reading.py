"""From what a client sent to a query; what cannot be one is refused with one sentence."""

import struct
from typing import Any

import numpy as np
import scipy.sparse

from sparse_embed.experiments.serving.answers import Filter, Query
from sparse_embed.experiments.serving.collection import Collection
from sparse_embed.experiments.serving.refusals import Refusal, unknown_id
from sparse_embed.experiments.serving.schema import Options, VectorQuery

# A BMP of one black pixel: the first image that is decoded takes seconds.
BLANK = struct.pack("<2sIIIIiiHHIIIIIII", b"BM", 58, 0, 54, 40, 1, 1, 1, 24, 0, 4, 0, 0, 0, 0, 0)


def decoded(data: bytes, shape: tuple[int, int, int], most_pixels: int) -> np.ndarray:
    """Returns an encoded image as an encoder takes it; its size is looked at before it is decoded.

    Args:
        data: JPEG, PNG, GIF or BMP.
        shape: (height, width, channels) that the encoder takes.
        most_pixels: that the image may have.
    """
    from sparse_embed.datasets.encoded_images import decode_query
    from sparse_embed.datasets.image_headers import read_header

    try:
        header = read_header(data)
    except ValueError as error:
        raise Refusal(422, f"The body is no image: {error}.") from error
    if header.pixels > most_pixels:
        what = f"{header.format} of {header.width:,} x {header.height:,} pixels"
        raise Refusal(413, f"{what} is too large: expected at most {most_pixels:,} pixels.")
    try:
        return decode_query(data, shape)
    except ValueError as error:
        raise Refusal(422, f"The image is damaged: {error}.") from error


def of_image(collection: Collection, options: Options, image: np.ndarray) -> Query:
    """Returns the query of an image that `decoded` returned."""
    if options.rerank and collection.dense_encoder is None:
        raise Refusal(422, "rerank: this service has no dense encoder for images.")
    return Query(**_common(collection, options), image=image)


def of_row(collection: Collection, options: Options, number: int) -> Query:
    """Returns the query that a row is."""
    check_row(collection, number)
    return Query(**_common(collection, options), row=number)


def of_vector(collection: Collection, given: VectorQuery) -> Query:
    """Returns the query of a sparse vector."""
    indices = np.array(given.indices, object)  # JSON has integers of any size
    dims = collection.index.shape[1]
    if len(indices) != len(given.values):
        counts = f"{len(indices)} indices and {len(given.values)} values"
        raise Refusal(422, f"{counts}: expected as many of one as of the other.")
    if len(indices) and max(given.indices) >= dims:
        raise Refusal(422, f"indices: {max(given.indices)} is out of range: expected below {dims}.")
    if len(set(given.indices)) < len(indices):
        raise Refusal(422, "indices: expected each dimension once.")
    values = _floats("values", given.values)
    place = (np.zeros(len(indices), np.int32), indices.astype(np.int32))
    vector = scipy.sparse.csr_array((values, place), shape=(1, dims))
    dense = None
    if given.rerank:
        if collection.dense is None:
            raise Refusal(422, "rerank: this service has no dense embeddings.")
        wanted = collection.dense.shape[1]
        if given.dense is None or len(given.dense) != wanted:
            got = "none" if given.dense is None else len(given.dense)
            raise Refusal(422, f"dense: {got} given: expected {wanted} numbers to re-rank with.")
        dense = _floats("dense", given.dense)[None]
    return Query(**_common(collection, given), vector=vector, dense=dense)


def check_row(collection: Collection, number: int) -> None:
    """Refuses an id that no row has, and every id if the index does not give its rows back."""
    if not collection.has_codes:
        raise Refusal(422, "This index does not give its rows back: search by vector.")
    if not collection.has_row(number):
        raise unknown_id(number)


def _common(collection: Collection, options: Options) -> dict[str, Any]:
    if options.rerank and collection.dense is None:
        raise Refusal(422, "rerank: this service has no dense embeddings.")
    if options.codes and not collection.has_codes:
        raise Refusal(422, "codes: this index does not give its rows back.")
    return {
        "k": options.k,
        "threshold": options.threshold,
        "only": _filter(collection, options),
        "shortlist": max(options.shortlist, options.k) if options.rerank else None,
        "codes": options.codes,
    }


def _filter(collection: Collection, options: Options) -> Filter:
    given = {"allowed": options.allowed, "forbidden": options.forbidden}
    filters = {name: ids for name, ids in given.items() if ids is not None}
    if not filters:
        return None
    if len(filters) > 1:
        raise Refusal(422, "allowed and forbidden are both given: expected at most one of them.")
    ((name, ids),) = filters.items()
    if not collection.has_filters:
        raise Refusal(422, f"{name}: this index has no filters.")
    return name, np.unique(np.array(ids, np.int64)).tobytes()


def _floats(name: str, values: list[float]) -> np.ndarray:
    with np.errstate(over="ignore"):
        found = np.array(values, np.float32)
    if not np.isfinite(found).all():
        raise Refusal(422, f"{name}: expected numbers that float32 holds.")
    return found
