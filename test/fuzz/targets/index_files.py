"""Index files, whole or put together from damaged pieces with the right checksums."""

import itertools
import pathlib
import pickle
import zlib

import numpy as np
from fuzz.mutations import Parts

from sparse_embed.retrieval import SparseIndex
from sparse_embed.retrieval.index_file import ALIGNMENT, CHECKSUM, ENTRY, HEADER

_WAYS = list(itertools.product((False, True), (True, False)))  # mmap, verify


def seeds() -> list[Parts]:
    """Small indexes: signed or not, with removed rows, empty, wide, with own ids, with cells."""
    rng = np.random.default_rng(0)
    dense = rng.exponential(size=(150, 12)) * (rng.random((150, 12)) < 0.4)
    signed = dense * rng.choice([-1, 1], dense.shape)
    made = []
    for rows, dims in ((dense, 12), (signed, 12), (signed[:5], 12), (dense[:0], 12), (None, 65540)):
        index = SparseIndex(dims, block_rows=64)
        if rows is None:
            rows = np.zeros((3, dims), np.float32)
            rows[:, [0, 7, 65539]] = dense[:3, :3]
        index.add(rows)
        if len(rows) > 3:
            index.remove([1, len(rows) - 1])
        made.append(_content(index))
    for ids in (np.arange(150) * 3, rng.permutation(10**6)[:150], np.arange(150)[::-1]):
        index = SparseIndex(12, block_rows=64)
        index.add(signed, ids)
        index.remove(ids[:5])
        index.add(signed[:3], ids[:3])
        made.append(_content(index))
    index = SparseIndex(4, block_rows=1024)
    index.add(rng.exponential(size=(400, 4)) * rng.choice([-1, 1], (400, 4)))
    index.remove([7])
    assert index.nbytes_by_part["cells"] > 0
    made.append(_content(index))
    forms = [{"file": content} for content in [*made[:3], made[-3], made[-1]]]
    forms += [_pieces(content) for content in made]
    return forms + [_sections(content) for content in made]


def _content(index: SparseIndex) -> bytes:
    return index.__reduce__()[1][1]


def attempt(parts: Parts, folder: pathlib.Path) -> None:
    """Opens the file in every way; what opens must be safe to use."""
    path = folder / "a.index"
    path.write_bytes(_assemble(parts))
    refusals, results = [], []
    for mmap, verify in _WAYS:
        try:
            index = SparseIndex.load(path, mmap=mmap, verify=verify)
        except ValueError as error:
            assert str(path) in str(error), error
            refusals.append(error)
        else:
            refusals.append(None)
            results.append(_use(index, folder))
    read, read_on_trust, mapped, mapped_on_trust = refusals
    assert (read is None) == (mapped is None), "reading and mapping disagree"
    assert (read_on_trust is None) == (mapped_on_trust is None), "reading and mapping disagree"
    assert read is not None or read_on_trust is None, "refused on trust, accepted after the check"
    for result in results[1:]:
        np.testing.assert_equal(result, results[0])
    if read is not None:
        raise read


def _use(index: SparseIndex, folder: pathlib.Path) -> list[np.ndarray]:
    """All that one does with an index; returns what was found."""
    rows, dims = index.shape
    known = index.ids
    assert 0 <= len(index) == len(known) <= rows
    assert (np.diff(known) > 0).all(), "two rows have one id"
    assert all(one in index for one in known[:3])
    assert index.nbytes >= 0
    queries = np.zeros((3, dims), np.float32)
    queries[0, : min(dims, 8)] = 0.5
    queries[1, ::2] = 1.0
    queries[2, -3:] = -2.0
    found = []
    for k, threshold in ((1, None), (7, 0.1), (rows + 2, None), (5, -3.0)):
        for threads, way in ((1, "cells"), (3, "cells"), (1, "cheapest"), (2, "accumulate")):
            index._way = way
            found += index.search(queries, k, threshold, threads)
            _check(*found[-2:], known)
    for some in (known[:2], known[::2]):
        found += index.search(queries, 5, 0.1, allowed=some)
        _check(*found[-2:], some)
        found += index.search(queries, 5, forbidden=some)
        _check(*found[-2:], np.setdiff1d(known, some))
        found += index.range_search(queries, 0.1, allowed=some)
    assert index.reconstruct(known[::-1]).shape == (len(known), dims)
    assert index.flops(queries).shape == (3,)
    index.save(folder / "same.index")
    again = SparseIndex.load(folder / "same.index", verify=True)
    assert (again.shape, len(again)) == (index.shape, len(index))
    assert pickle.loads(pickle.dumps(index)).shape == index.shape
    free = np.setdiff1d([5, 7, *range(2**40, 2**40 + 8)], known)[:3]
    np.testing.assert_array_equal(index.add(queries, free[::-1]), free[::-1])
    if index.ids[-1] < 2**62:
        ids = index.add(queries)
        assert ids[0] > index.ids[-4], "a new row got an id that was given before"
    left = index.ids
    removed = left[[0, len(left) // 2, -1]]
    assert index.remove(removed) == 3
    assert len(index) == len(left) - 3
    scores, ids = index.search(queries, rows + 6)
    _check(scores, ids, np.setdiff1d(left, removed))
    index.compact()
    compacted = index.search(queries, rows + 6)
    _check(*compacted, index.ids)
    # Lists that lie about the rows, with the right checksum, can have hidden one. Now they are new.
    if np.isfinite(queries @ index.reconstruct(index.ids).T).all():
        assert ((compacted[1] >= 0).sum(axis=1) == len(index)).all(), "a row is not found"
    index.save(folder / "more.index")
    more = SparseIndex.load(folder / "more.index", verify=True)
    assert (more.shape, len(more)) == (index.shape, len(index))
    return [*found, scores, ids, *more.search(queries, 9)]


def _check(scores: np.ndarray, ids: np.ndarray, known: np.ndarray) -> None:
    assert np.isin(ids, [-1, *known]).all(), "an id that no row has"
    for row_scores, row in zip(scores, ids, strict=True):
        places = row >= 0
        assert len(np.unique(row[places])) == places.sum(), "a row was found twice"
        assert (row_scores[~places] == -np.inf).all(), "a score in an unused place"
        assert not (np.diff(places.astype(int)) > 0).any(), "a gap among the results"
        with np.errstate(invalid="ignore"):  # inf - inf
            assert not (np.diff(row_scores[places]) > 0).any(), "results are not best first"


def _table(content: bytes) -> tuple[int, list[list[int]]]:
    end = HEADER.size + ENTRY.size * HEADER.unpack_from(content)[-1]
    return end, [list(entry) for entry in ENTRY.iter_unpack(content[HEADER.size : end])]


def _pieces(content: bytes) -> Parts:
    """Header with table, and the rest; put together, the checksums are mended."""
    end, _ = _table(content)
    return {"start": content[:end], "rest": content[end + CHECKSUM.size :]}


def _sections(content: bytes) -> Parts:
    """The header and each section; put together, the table is made for them."""
    _, entries = _table(content)
    parts = {"header": content[: HEADER.size]}
    for number, (offset, size, _, _) in enumerate(entries):
        parts[f"section{number:03d}"] = content[offset : offset + size]
    return parts


def _assemble(parts: Parts) -> bytes:
    if "file" in parts:
        return parts["file"]
    if "start" in parts:
        return _mended(parts["start"], parts["rest"])
    sections = [content for name, content in sorted(parts.items()) if name != "header"]
    place = HEADER.size + ENTRY.size * len(sections) + CHECKSUM.size
    entries, body = [], b""
    for section in sections:
        gap = -place % ALIGNMENT
        entries.append(ENTRY.pack(place + gap, len(section), 0, 0))
        body += bytes(gap) + section
        place += gap + len(section)
    header = bytearray(parts["header"].ljust(HEADER.size, b"\0")[: HEADER.size])
    header[-8:] = len(sections).to_bytes(8, "little")
    return _mended(bytes(header) + b"".join(entries), body)


def _mended(start: bytes, rest: bytes) -> bytes:
    """The file with the length and the checksums that its content needs."""
    length = len(start) + CHECKSUM.size + len(rest)
    mended = bytearray(start)
    mended[16:24] = length.to_bytes(8, "little")
    whole = bytes(mended) + bytes(CHECKSUM.size) + rest
    for place in range(HEADER.size, len(mended) - ENTRY.size + 1, ENTRY.size):
        offset, size, _, reserved = ENTRY.unpack_from(mended, place)
        checksum = zlib.crc32(whole[offset : offset + size]) if offset < length else 0
        ENTRY.pack_into(mended, place, offset, size, checksum, reserved)
    return bytes(mended) + CHECKSUM.pack(zlib.crc32(mended)) + rest
