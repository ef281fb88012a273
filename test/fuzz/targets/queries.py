"""What one does with an index, in any order and with odd values, against Algorithm 1."""

import itertools
import pathlib
import pickle
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from fuzz import choices
from fuzz.choices import Choices
from fuzz.mutations import Parts

from sparse_embed.retrieval import SparseIndex, algorithm1_search
from sparse_embed.retrieval.index import available_kernels

# Exponents of ten that values are drawn from: plain, such that products are the smallest that
# float32 has, tiny, huge, everything.
_EXPONENTS = ((-1, 0), (-22.5, -21), (-45, -38), (-23, -18), (18, 20), (37, 38.5), (-45, 38.5))
_DTYPES = (
    "f4",
    "f8",
    ">f4",
    "f2",
    "i1",
    "u1",
    "i8",
    "u8",
    ">i4",
    "?",
    "g",
    "c8",
    "O",
    "U3",
    "M8[s]",
)
_FORMS = (
    "dense",
    "csr",
    "csr_matrix",
    "fortran",
    "strided",
    "csc",
    "coo",
    "lil",
    "long",
    "unsorted",
)
_DAMAGES = ("nan", "inf", "-inf", "beyond", "column", "negative", "offsets", "end", "flat", "wider")
_NOT_COUNTS = (0, -1, True, 1.5, "3", None, 2**32, 2**70, float("nan"), np.float64(2))
_NOT_SCORES = (float("nan"), float("inf"), -float("inf"), "x", True, 1j, [0.5])
_NOT_IDS = ([-1], [2**62], [0.0], ["a"], None, [[0]], [True], 2**63)
_NOT_NEW_IDS = ([-1], [0.0], ["a"], [[0]], [True], [2**63], 7, [], [2**62, 2**62 + 1])
_NOT_FILTERS = ([0.0], ["a"], [[0]], [[True]], [None], {0: 1})
_SCORES = (None, 0.25, 0, 1e-45, -1e-45, -0.5, 1e38, 1e39, -1e39, np.float32(0.1), np.int8(1))

_ACTIONS = ("add", "search", "search", "remove", "move", "refuse", "build", "merge", "compact")

Values = tuple[tuple[float, float], bool]  # exponents of ten, whether some are negative


class Given(NamedTuple):
    """A matrix as it is given, and what it means; None if it must be refused."""

    matrix: Any
    meaning: scipy.sparse.csr_array | None


def seeds() -> list[Parts]:
    """Some decisions."""
    return choices.seeds(160)


class Model:
    """The rows that an index should have, by rising id."""

    def __init__(self, dims: int):
        self.rows = scipy.sparse.csr_array((0, dims), dtype=np.float32)
        self.ids = np.empty(0, np.int64)
        self.next_id = 0
        self.stored = 0  # rows, those removed included

    def add(self, rows: Any, ids: np.ndarray) -> None:
        """Adds rows of new ids."""
        order = np.argsort(np.append(self.ids, ids))
        self.rows = scipy.sparse.csr_array(scipy.sparse.vstack([self.rows, rows], "csr"))[order]
        self.ids = np.append(self.ids, ids)[order]
        self.next_id = max(self.next_id, int(ids.max(initial=-1)) + 1)
        self.stored += len(ids)

    def keep(self, kept: np.ndarray) -> None:
        """Removes the rows that are not kept."""
        self.rows, self.ids = self.rows[np.flatnonzero(kept)], self.ids[kept]

    def search(self, queries: Any, threshold: Any, visible: np.ndarray) -> list[tuple[Any, Any]]:
        """Scores and ids of all rows that each query should find among those visible."""
        ids = np.append(self.ids[visible], -1)
        rows = self.rows[np.flatnonzero(visible)]
        found = algorithm1_search(rows, queries, max(rows.shape[0], 1), threshold)
        return [
            (scores[places >= 0], ids[places[places >= 0]])
            for scores, places in zip(*found, strict=True)
        ]


def attempt(parts: Parts, folder: pathlib.Path) -> None:
    """Builds an index and does up to ten things with it; each is compared with the model."""
    choice = Choices(parts)
    dims = choice.pick((5, 1, 0, 17, 300, 70000))
    usual = choice.pick(_EXPONENTS), choice.chance(2)
    index, model = SparseIndex(dims, choice.pick((64, 1024, 32768))), Model(dims)
    for _ in range(2 + choice.number(9)):
        action = choice.pick(_ACTIONS)
        if action == "add":
            _add(choice, index, model, usual)
        elif action == "build" and not model.stored:
            index = _build(choice, index, model, usual)
        elif action == "search":
            _search(choice, index, model, usual)
        elif action == "remove":
            _remove(choice, index, model)
        elif action == "compact":
            index.compact(choice.pick((1, 2)))
            model.stored = len(model.ids)
        elif action == "merge":
            _merge(choice, index, model, usual)
        elif action == "move":
            index = _move(choice, index, folder)
        elif action == "refuse":
            _refuse(choice, index, model)
        assert index.shape == (model.stored, dims)
        assert len(index) == len(model.ids)
    np.testing.assert_array_equal(index.ids, model.ids)
    rows = index.reconstruct(model.ids)
    assert (rows != model.rows).nnz == 0, "rows are not those that were added"


def _new_ids(choice: Choices, model: Model, count: int) -> np.ndarray | None:
    """None, or ids that no row has: in a row, shuffled, anywhere, perhaps of removed rows."""
    way = choice.pick(("default", "shuffled", "anywhere", "low", "rising"))
    rng = choice.generator()
    if way == "default":
        return None
    if way == "rising":
        return model.next_id + np.sort(rng.choice(4 * count + 1, count, replace=False))
    most = {"shuffled": 2 * count, "anywhere": 2**61, "low": count}[way] + len(model.ids)
    drawn = np.unique(rng.integers(most, size=4 * count + 8))
    free = rng.permutation(np.setdiff1d(drawn, model.ids))[:count]
    return free.astype(np.int64) if len(free) == count else None


def _add(choice: Choices, index: SparseIndex, model: Model, usual: Values) -> None:
    given = _matrix(choice, index.shape[1], usual)
    threads = choice.pick((1, 2, 7))
    if given.meaning is None:
        _refused(index.add, given.matrix, None, threads)
        return
    count = given.meaning.shape[0]
    ids = _new_ids(choice, model, count)
    found = index.add(given.matrix, ids, threads)
    wanted = model.next_id + np.arange(count) if ids is None else ids
    np.testing.assert_array_equal(found, wanted)
    model.add(given.meaning, wanted)


def _build(choice: Choices, index: SparseIndex, model: Model, usual: Values) -> SparseIndex:
    given = _matrix(choice, index.shape[1], usual)
    if given.meaning is None:
        return index
    threads = choice.pick((1, 3))
    count = given.meaning.shape[0]
    model.next_id = 0  # a new index, whose ids begin anew
    model.add(given.meaning, np.arange(count))
    if not choice.chance(2):
        return SparseIndex.build(given.matrix, num_threads=threads)
    ends = np.unique([0, *choice.generator().integers(count + 1, size=3), count])
    parts = [given.meaning[low:high] for low, high in itertools.pairwise(ends)]
    return SparseIndex.build(iter(parts or [given.meaning]), num_threads=threads)


def _merge(choice: Choices, index: SparseIndex, model: Model, usual: Values) -> None:
    given = _matrix(choice, index.shape[1], usual)
    if given.meaning is None:
        return
    count = given.meaning.shape[0]
    ids = _new_ids(choice, model, count)
    ids = model.next_id + np.arange(count) if ids is None else ids
    other = SparseIndex(index.shape[1], choice.pick((64, 128)))
    other.add(given.matrix, ids)
    gone = choice.number(max(count, 1))
    other.remove(ids[:gone])
    index.merge(other, choice.pick((1, 2)))
    model.add(given.meaning[gone:], ids[gone:])
    model.next_id = max(model.next_id, int(ids.max(initial=-1)) + 1)
    if len(model.ids):
        _refused(index.merge, index)


def _filter(choice: Choices, model: Model) -> tuple[dict[str, Any], np.ndarray]:
    """Arguments that choose rows, and which rows of the model they mean."""
    way = choice.pick(("all", "allowed", "forbidden"))
    if way == "all":
        return {}, np.ones(len(model.ids), bool)
    rng = choice.generator()
    chosen = rng.random(len(model.ids)) < choice.pick((0.5, 0.02, 0.98))
    unknown = np.array(choice.pick(([], [-1, 2**62])), np.int64)
    argument = rng.permutation(np.append(model.ids[chosen], unknown))
    if choice.chance(2) and model.next_id < 10**6:
        argument = np.zeros(model.next_id + choice.pick((0, 9)), bool)
        argument[model.ids[chosen]] = True
    return {way: argument}, chosen if way == "allowed" else ~chosen


def _search(choice: Choices, index: SparseIndex, model: Model, usual: Values) -> None:
    given = _matrix(choice, index.shape[1], usual, rows=(1, 3, 0, 20))
    k = choice.pick((1, 2, 10, np.int64(3), np.uint8(200), 1000, 100_000))
    threshold = choice.pick(_SCORES)
    threads = choice.pick((1, 2, 7))
    index.kernels = choice.pick(available_kernels())
    index._way = choice.pick(("cheapest", "cells", "accumulate"))
    if given.meaning is None:
        _refused(index.search, given.matrix, k, threshold, threads)
        return
    how, visible = _filter(choice, model)
    with np.errstate(over="ignore"):  # a threshold beyond float32
        scores, ids = index.search(given.matrix, k, threshold, threads, **how)
        wanted = model.search(given.meaning, threshold, visible)
    assert scores.shape == ids.shape == (given.meaning.shape[0], k)
    assert (scores.dtype, ids.dtype) == (np.float32, np.int64)
    for row, (row_scores, row_ids) in enumerate(wanted):
        count = min(len(row_ids), int(k))
        _same(scores[row, :count], ids[row, :count], row_scores[:count], row_ids[:count])
        assert (ids[row, count:] == -1).all(), "results beyond those of Algorithm 1"
        assert (scores[row, count:] == -np.inf).all(), "a score in an unused place"
    if threshold is not None:
        with np.errstate(over="ignore"):
            offsets, scores, ids = index.range_search(given.matrix, threshold, threads, **how)
        assert offsets.tolist() == np.cumsum([0, *(len(one[1]) for one in wanted)]).tolist()
        every = [np.concatenate([one[i] for one in wanted] or [[]]) for i in (0, 1)]
        _same(scores, ids, every[0].astype(np.float32), every[1])
    work = np.zeros(index.shape[1])
    if len(model.ids):
        work = np.asarray((model.rows != 0).sum(axis=0)).ravel()
    touched = (given.meaning != 0).astype(np.float64) @ work
    np.testing.assert_array_equal(index.flops(given.matrix), touched)


def _same(scores: np.ndarray, ids: np.ndarray, wanted: np.ndarray, wanted_ids: np.ndarray) -> None:
    np.testing.assert_array_equal(ids, wanted_ids)
    same = scores.view(np.uint32) == wanted.view(np.uint32)
    assert same.all(), "scores differ from those of Algorithm 1"


def _remove(choice: Choices, index: SparseIndex, model: Model) -> None:
    count = choice.number(6) * bool(len(model.ids))
    ids = model.ids[choice.generator().integers(max(len(model.ids), 1), size=count)]
    fits = ids.max(initial=0) < 2**16
    dtype = choice.pick((np.int64, np.uint64, np.int32, np.uint16) if fits else (np.int64, "u8"))
    assert index.remove(ids.astype(dtype)) == len({*ids.tolist()})
    assert index.remove(ids) == 0
    model.keep(~np.isin(model.ids, ids))


def _move(choice: Choices, index: SparseIndex, folder: pathlib.Path) -> SparseIndex:
    """Through a file, mapped or not, or through a pickle."""
    way = choice.number(4)
    if way == 3:
        return pickle.loads(pickle.dumps(index))
    index.save(folder / "a.index")
    return SparseIndex.load(folder / "a.index", mmap=way != 1, verify=way == 2)


def _refuse(choice: Choices, index: SparseIndex, model: Model) -> None:
    queries = np.ones((1, index.shape[1]), np.float32)
    what = choice.number(9)
    if what == 0:
        _refused(index.search, queries, choice.pick(_NOT_COUNTS))
    elif what == 1:
        _refused(index.search, queries, 1, choice.pick(_NOT_SCORES))
    elif what == 2:
        _refused(index.search, queries, 1, None, choice.pick((*_NOT_COUNTS, 1025)))
    elif what == 3:
        _refused(index.remove, choice.pick(_NOT_IDS))
    elif what == 4:
        _refused(index.reconstruct, choice.pick(_NOT_IDS))
    elif what == 5:
        _refused(index.add, queries, choice.pick((*_NOT_NEW_IDS, *([one] for one in model.ids))))
    elif what == 6:
        _refused(index.search, queries, 1, None, 1, choice.pick(_NOT_FILTERS))
    elif what == 7:
        _refused(index.range_search, queries, choice.pick((*_NOT_SCORES, None)))
    else:
        _refused(SparseIndex, *choice.pick(((-1,), (2**31,), (1.5,), ("5",), (5, 100), (5, True))))


def _refused(function: Any, *arguments: Any) -> None:
    try:
        function(*arguments)
    except ValueError:
        return
    raise AssertionError(f"{function.__qualname__} accepted {arguments!r}"[:500])


def _matrix(
    choice: Choices, dims: int, usual: Values, rows: tuple[int, ...] = (3, 40, 0, 150, 700)
) -> Given:
    count = choice.pick(rows) if dims < 1000 else min(choice.pick(rows), 4)
    density = choice.pick((0.3, 0.02, 1.0))
    exponents, signed = usual  # mostly, since queries and rows belong together
    if choice.chance(4):
        exponents, signed = choice.pick(_EXPONENTS), choice.chance(2)
    dtype = np.dtype(choice.pick(_DTYPES) if choice.chance(2) else "f4")
    form = choice.pick(_FORMS)
    rng = choice.generator()
    values = 10.0 ** rng.uniform(*exponents, (count, dims))
    if choice.chance(4):  # ties
        values = np.full_like(values, 10.0 ** exponents[0])
    values *= rng.random(values.shape) < density
    if signed:
        values *= rng.choice([-1.0, 1.0], values.shape)
    if dtype.kind in "iu":
        values = np.clip(np.round(values), np.iinfo(dtype).min / 2, np.iinfo(dtype).max / 2)
    elif dtype.kind == "f" and not choice.chance(8):  # once in a while beyond float32
        values = np.clip(values, -3e38, 3e38)
    if dtype.kind == "M":
        values = np.round(np.clip(values, -1e9, 1e9)).astype(np.int64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        dense = values.astype(dtype)
        if dtype.kind not in "fiub":
            return Given(dense, None)
        meaning = dense.astype(np.float32)
    if not dtype.isnative or (dtype.kind == "f" and dtype.itemsize not in (4, 8)):
        form = "dense"  # SciPy has no such matrices
    if choice.chance(10):
        return _damaged(choice.pick(_DAMAGES), dense, form)
    matrix = _formed(dense, form, rng)
    if form == "unsorted":
        whole = scipy.sparse.csr_array((matrix.data, matrix.indices, matrix.indptr), matrix.shape)
        whole = whole.copy()
        with np.errstate(over="ignore"):
            whole.sum_duplicates()
            meaning = whole.astype(np.float32).toarray()
    finite = np.isfinite(meaning).all()
    return Given(matrix, scipy.sparse.csr_array(meaning) if finite else None)


def _formed(dense: np.ndarray, form: str, rng: np.random.Generator) -> Any:
    match form:
        case "fortran":
            return np.asfortranarray(dense)
        case "strided":
            return np.repeat(dense, 2, axis=1)[:, ::2]
        case "csr" | "csc" | "coo" | "lil":
            return getattr(scipy.sparse, f"{form}_array")(dense)
        case "csr_matrix":
            return scipy.sparse.csr_matrix(dense)
        case "long":  # 64-bit indices
            csr = scipy.sparse.csr_array(dense)
            csr.indices, csr.indptr = csr.indices.astype(np.int64), csr.indptr.astype(np.int64)
            return csr
        case "unsorted":  # and some entries twice
            csr = scipy.sparse.csr_array(dense)
            places = [
                rng.permutation(np.r_[low:high, low : min(high, low + 2)])
                for low, high in zip(csr.indptr[:-1], csr.indptr[1:], strict=True)
            ]
            ends = np.cumsum([0, *map(len, places)])
            order = np.concatenate([np.empty(0, np.int64), *places]).astype(np.int64)
            return scipy.sparse.csr_array((csr.data[order], csr.indices[order], ends), csr.shape)
    return dense


def _damaged(damage: str, dense: np.ndarray, form: str) -> Given:
    """A matrix that must be refused; the damaged CSR matrices are such as SciPy lets one make."""
    if damage == "flat":
        return Given(dense.ravel(), None)
    if damage == "wider":
        return Given(np.ones((2, dense.shape[1] + 1), np.float32), None)
    values = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf, "beyond": 1e39}
    if damage in values:
        wide = np.append(np.zeros((1, dense.shape[1])), np.zeros(dense.shape), axis=0)
        if not wide.size:
            return Given([[]], None) if dense.shape[1] else Given([0.0], None)
        wide[0, -1] = values[damage]
        return Given(wide if form == "dense" else scipy.sparse.csr_array(wide), None)
    csr = scipy.sparse.csr_array(np.ones((3, max(dense.shape[1], 1)), np.float32))
    if damage == "column":
        csr.indices[-1] = csr.shape[1]
    elif damage == "negative":
        csr.indices[0] = -1
    elif damage == "offsets":
        csr.indptr[1] = csr.indptr[2] + 1
    else:
        csr.indptr[-1] = len(csr.data) + 1
    return Given(csr, None)
