"""Ids of one's own, filters, range search, reconstruction, merging: all against Algorithm 1."""

import itertools
import pickle

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_embed.retrieval import SparseIndex, algorithm1_search
from sparse_embed.retrieval.index import available_kernels

LARGEST = 2**63 - 1


class Model:
    """The rows of an index by id, and what a search among them should find.

    Algorithm 1 breaks ties by row, so rows in order of their ids give ties by id.
    """

    def __init__(self, dims):
        self.dims, self.rows, self.next_id = dims, {}, 0

    def add(self, csr, ids=None):
        if ids is None:
            ids = range(self.next_id, self.next_id + csr.shape[0])
        for row, one in zip(csr.toarray(), ids, strict=True):
            self.rows[int(one)] = row
            self.next_id = max(self.next_id, int(one) + 1)

    def search(self, queries, k, threshold, visible=None):
        ids = sorted(self.rows if visible is None else set(visible) & set(self.rows))
        csr = np.array([self.rows[one] for one in ids], np.float32).reshape(-1, self.dims)
        scores, found = algorithm1_search(csr, queries, k, threshold)
        return scores, np.append(np.array(ids, np.int64), -1)[found]

    def range_search(self, queries, threshold, visible=None):
        scores, ids = self.search(queries, len(self.rows) + 1, threshold, visible)
        found = ids >= 0
        return np.concatenate([[0], np.cumsum(found.sum(axis=1))]), scores[found], ids[found]


def assert_same(got, want):
    for one, two in zip(got, want, strict=True):
        assert one.dtype == two.dtype
        np.testing.assert_array_equal(one, two)


def check(index, model, queries, k, threshold, threads=1):
    """Compares everything that an index can tell with the model."""
    assert len(index) == len(model.rows)
    np.testing.assert_array_equal(index.ids, sorted(model.rows))
    assert_same(index.search(queries, k, threshold, threads), model.search(queries, k, threshold))
    if threshold is not None:
        got = index.range_search(queries, threshold, threads)
        assert_same(got, model.range_search(queries, threshold))
    wanted = list(model.rows)[::-1]
    rows = index.reconstruct(np.array(wanted, np.int64))
    assert rows.shape == (len(wanted), model.dims)
    assert rows.dtype == np.float32
    expected = np.array([model.rows[one] for one in wanted]).reshape(rows.shape)
    np.testing.assert_array_equal(rows.toarray(), expected)


def check_filters(index, model, queries, k, threshold, some, threads=1):
    """Every way to say that `some` ids may be found, and that they may not."""
    size = model.next_id
    others = set(model.rows) - set(some)
    listed = np.array(some, np.int64)
    ways = [({"allowed": listed}, some), ({"forbidden": listed}, others)]
    if size < 10_000:
        mask = np.zeros(size + 3, bool)
        mask[[one for one in some if 0 <= one < size]] = True
        ways += [({"allowed": mask}, some), ({"forbidden": mask[:size]}, others)]
    for how, visible in ways:
        got = index.search(queries, k, threshold, threads, **how)
        assert_same(got, model.search(queries, k, threshold, visible))
        if threshold is not None:
            got = index.range_search(queries, threshold, threads, **how)
            assert_same(got, model.range_search(queries, threshold, visible))


values = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 0.5, 1e-30, 1e-42, 3e18, -2e19, 1e38]),
    st.floats(-2, 2, width=32),
)
THRESHOLDS = [None, 0.0, 0.25, -0.5, 1e-40]


@st.composite
def matrices(draw, dims, max_rows):
    rows = draw(st.integers(0, max_rows))
    x = np.zeros((rows, dims), np.float32)
    if rows:
        cells = st.tuples(st.integers(0, rows - 1), st.integers(0, dims - 1), values)
        for i, j, value in draw(st.lists(cells, max_size=30)):
            x[i, j] = value
    return scipy.sparse.csr_array(x)


@st.composite
def new_ids(draw, model, rows):
    """Ids that no row has, in any order, near each other or anywhere; or None."""
    near = st.integers(0, 400)
    anywhere = st.integers(0, LARGEST - 1000)  # leaves some for rows to come
    kinds = [st.none(), st.lists(near, min_size=rows, max_size=rows, unique=True)]
    kinds.append(st.lists(st.one_of(near, anywhere), min_size=rows, max_size=rows, unique=True))
    ids = draw(st.one_of(kinds))
    return None if ids is None or set(ids) & set(model.rows) else ids


def change(data, index, model, folder):
    """Does one thing to both; returns the index, which may be another one."""
    action = data.draw(st.sampled_from(["add", "add", "remove", "compact", "merge", "move"]))
    if action == "add":
        csr = data.draw(matrices(model.dims, 80))
        ids = data.draw(new_ids(model, csr.shape[0]))
        given = index.add(csr, ids)
        wanted = ids if ids is not None else np.arange(csr.shape[0]) + model.next_id
        np.testing.assert_array_equal(given, wanted)
        model.add(csr, ids)
    elif action == "remove" and model.rows:
        some = data.draw(st.lists(st.sampled_from(sorted(model.rows)), max_size=60))
        assert index.remove(np.array(some, np.int64)) == len(set(some))
        assert index.remove(np.array(some, np.int64)) == 0
        for one in set(some):
            del model.rows[one]
    elif action == "compact":
        index.compact(num_threads=2)
        assert index.shape[0] == len(index)
    elif action == "merge":
        other = SparseIndex(model.dims, block_rows=64)
        csr = data.draw(matrices(model.dims, 70))
        ids = data.draw(new_ids(model, csr.shape[0]))
        ids = ids or [model.next_id + 2 * i for i in range(csr.shape[0])]
        other.add(csr, ids)
        if ids:
            other.remove(ids[0])
        index.merge(other)
        model.add(csr, ids)
        if ids:
            del model.rows[ids[0]]
    elif action == "move":
        index.save(folder / "a.index")
        moved = [SparseIndex.load(folder / "a.index"), pickle.loads(pickle.dumps(index))]
        assert moved[0].nbytes == moved[1].nbytes == index.nbytes
        index = data.draw(st.sampled_from(moved))
    return index


@settings(max_examples=300)
@given(st.data())
def test_whatever_is_done_results_are_those_of_algorithm_1(tmp_path_factory, data):
    """Tiny matrices with ties, zeros and huge values; ids in any order, filters of any rows."""
    dims = data.draw(st.integers(1, 5))
    index, model = SparseIndex(dims, block_rows=64), Model(dims)
    folder = tmp_path_factory.getbasetemp()
    for _ in range(data.draw(st.integers(1, 5))):
        index = change(data, index, model, folder)
    index.kernels = data.draw(st.sampled_from(available_kernels()))
    queries = data.draw(matrices(dims, 3))
    k = data.draw(st.integers(1, 100))
    threshold = data.draw(st.sampled_from(THRESHOLDS))
    threads = data.draw(st.sampled_from([1, 3]))
    check(index, model, queries, k, threshold, threads)
    known = st.sampled_from(sorted(model.rows)) if model.rows else st.integers(0, 9)
    some = data.draw(st.lists(st.one_of(known, st.integers(-3, 500)), max_size=80))
    check_filters(index, model, queries, k, threshold, some, threads)


def clustered_csr(rng, rows, dims, size=10, signed=False):
    """Rows around shared centres, so that scores reach from 0 to nearly 1."""
    centres = rng.exponential(size=(-(-rows // size), dims)) * (rng.random(dims) < 0.2)
    x = np.repeat(centres, size, axis=0)[:rows] * (rng.random((rows, dims)) < 0.7)
    x += 0.5 * rng.exponential(size=x.shape) * (rng.random(x.shape) < 0.02)
    if signed:
        x *= rng.choice([-1, 1], x.shape)
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9)
    return scipy.sparse.csr_array(x.astype(np.float32))


@pytest.mark.parametrize("kernels", available_kernels())
@pytest.mark.parametrize("signed", [False, True])
def test_many_blocks_with_shuffled_ids_and_filters_of_every_size(kernels, signed):
    """Enough blocks for every pruning step; some filters leave few rows, which are listed."""
    rng = np.random.default_rng(0)
    csr = clustered_csr(rng, 6000, 96, signed=signed)
    queries = csr[rng.choice(6000, 12, replace=False)]
    ids = rng.permutation(9000)[:6000]
    index, model = SparseIndex(96, block_rows=128), Model(96)
    index.add(csr, ids)
    index.kernels = kernels
    model.add(csr, ids)
    gone = rng.choice(ids, 500, replace=False)
    index.remove(gone)
    for one in gone:
        del model.rows[one]
    for k, threshold in ((1, None), (10, 0.25), (1000, 0.25), (200, -0.2)):
        check(index, model, queries, k, threshold)
        for size, threads in itertools.product((0, 1, 60, 2500, 8000), (1, 3)):
            some = rng.choice(9000, size, replace=False).tolist()
            check_filters(index, model, queries, k, threshold, some, threads)
        one = queries[[0]]
        check_filters(index, model, one, k, threshold, some, threads=4)


@pytest.mark.parametrize("kernels", available_kernels())
def test_ties_go_to_the_lower_id_wherever_rows_lie(kernels):
    """Rows of few distinct values: more tie with the k-th, and with a guess, than it keeps."""
    rng = np.random.default_rng(0)
    for dims, distinct in itertools.product((2, 5, 20), (1, 2, 5)):
        rows = rng.choice(rng.random(distinct) + 0.01, (3000, dims))
        csr = scipy.sparse.csr_array((rows * (rng.random(rows.shape) < 0.5)).astype(np.float32))
        for ids in (np.arange(3000)[::-1], rng.permutation(2**40 // np.arange(1, 3001))):
            ids = np.unique(ids)[rng.permutation(len(np.unique(ids)))]
            index, model = SparseIndex(dims, block_rows=64), Model(dims)
            index.add(csr[: len(ids)], ids)
            index.kernels = kernels
            model.add(csr[: len(ids)], ids)
            for k, threads in itertools.product((1, 10, 50), (1, 3)):
                got = index.search(csr[:5], k, num_threads=threads)
                assert_same(got, model.search(csr[:5], k, None))


def test_ties_among_many_rows_that_are_scored_one_by_one():
    """Lists of 250 dimensions are so long that rows are cheaper, and come in several parts."""
    rng = np.random.default_rng(0)
    kinds = rng.choice([0.25, 0.5], (3, 250)).astype(np.float32)
    csr = scipy.sparse.csr_array(kinds[rng.integers(3, size=10_000)])
    ids = rng.permutation(20_000)[:10_000]
    index, model = SparseIndex.build(csr, ids), Model(250)
    model.add(csr, ids)
    queries = scipy.sparse.csr_array(kinds)
    some = rng.choice(ids, 9000, replace=False).tolist()
    middle = float(np.sort((queries @ queries.T).toarray()[0])[1])  # a score, exactly
    for k, threshold in itertools.product((1, 50, 5000), (None, middle)):
        check_filters(index, model, queries, k, threshold, some)


def test_default_ids_cost_nothing():
    csr = np.eye(300, 20, dtype=np.float32)
    plain = SparseIndex.build(csr)
    same = SparseIndex.build(csr, ids=np.arange(300))
    rising = SparseIndex.build(csr, ids=np.arange(300) + 7)
    shuffled = SparseIndex.build(csr, ids=np.arange(300)[::-1])
    assert same.nbytes == plain.nbytes
    assert rising.nbytes == plain.nbytes + 8 * 300  # the ids
    assert shuffled.nbytes == plain.nbytes + 8 * 300  # their order, in both directions
    assert [len(array) for array in plain._index.snapshot().id_arrays] == [0, 0, 0]


def test_default_ids_go_on_after_the_largest_so_far():
    index = SparseIndex(2)
    assert index.add(np.eye(2)).tolist() == [0, 1]
    assert index.add(np.eye(2), [9, 5]).tolist() == [9, 5]
    assert index.add(np.eye(2)).tolist() == [10, 11]
    index.remove([11])
    assert index.add(np.eye(2)).tolist() == [12, 13]
    index.remove([12, 13])
    index.compact()
    assert index.shape == (5, 2)
    again = pickle.loads(pickle.dumps(index))
    assert again.add(np.eye(2)).tolist() == [14, 15]
    index.add(np.eye(1, 2), [LARGEST])
    with pytest.raises(ValueError, match="no ids are left after the largest"):
        index.add(np.eye(1, 2))
    assert LARGEST in index


def test_a_removed_id_may_be_given_again():
    index = SparseIndex.build(np.float32([[1, 0], [0, 1], [0.5, 0]]))
    for value in (3.0, 4.0, 5.0):
        index.remove([1])
        assert 1 not in index
        assert index.add(np.float32([[value, 0]]), [1]).tolist() == [1]
        scores, ids = index.search(np.float32([[1, 0]]), 4)
        assert ids.tolist() == [[1, 0, 2, -1]]
        assert scores[0, 0] == value
        assert index.reconstruct([1]).toarray().tolist() == [[value, 0]]
    assert index.shape == (6, 2)
    assert index.remove([1, 1]) == 1
    assert index.remove([1]) == 0
    index.compact()
    assert index.shape == (2, 2)
    with pytest.raises(ValueError, match="ids holds 1, which no row has"):
        index.remove([1])


def test_contains():
    index = SparseIndex.build(np.eye(3), ids=[4, 8, 6])
    assert [one for one in range(10) if one in index] == [4, 6, 8]
    assert np.uint8(4) in index
    for other in (-1, 2**70, 4.0, "4", True, None, [4]):
        assert other not in index
    assert index.ids.tolist() == [4, 6, 8]


def test_compact_frees_the_space_and_lets_go_of_a_mapped_file(tmp_path):
    rng = np.random.default_rng(0)
    csr = clustered_csr(rng, 5000, 64)
    index = SparseIndex.build(csr)
    index.remove(np.setdiff1d(np.arange(5000), np.arange(0, 5000, 10)))
    queries = csr[:7]
    wanted = index.search(queries, 50)
    index.save(tmp_path / "a.index")
    loaded = SparseIndex.load(tmp_path / "a.index")
    for one in (index, loaded):
        before = one.nbytes
        one.compact()
        assert one.shape == (500, 64)
        assert one.nbytes < 0.25 * before
        assert_same(one.search(queries, 50), wanted)
    (tmp_path / "a.index").write_bytes(b"")
    assert_same(loaded.search(queries, 50), wanted)


def test_merge_leaves_the_other_index_alone():
    one, two = SparseIndex.build(np.eye(3)), SparseIndex.build(2 * np.eye(3), ids=[7, 5, 3])
    one.merge(two)
    assert (len(one), len(two)) == (6, 3)
    assert one.search(np.eye(3), 2)[1].tolist() == [[7, 0], [5, 1], [3, 2]]
    assert one.add(np.eye(1, 3)).tolist() == [8]
    with pytest.raises(ValueError, match="other holds the id 7, which a row of the index has"):
        one.merge(two)
    with pytest.raises(ValueError, match="other holds the id 0, which a row of the index has"):
        one.merge(one)
    assert len(one) == 7
    with pytest.raises(ValueError, match="other has 2 dimensions: expected 3"):
        one.merge(SparseIndex(2))
    with pytest.raises(ValueError, match="expected a SparseIndex"):
        one.merge(np.eye(3))


def test_reconstruct_gives_sorted_columns_and_no_zeros():
    csr = scipy.sparse.csr_array(
        (np.float32([3, 2, 0, 1e-42]), np.array([2, 0, 1, 2]), np.array([0, 3, 3, 4])), (3, 3)
    )
    index = SparseIndex.build(csr)
    rows = index.reconstruct([2, 0, 0, 1])
    assert rows.indptr.tolist() == [0, 1, 3, 5, 5]
    assert rows.indices.tolist() == [2, 0, 2, 0, 2]
    assert rows.data.tolist() == np.float32([1e-42, 2, 3, 2, 3]).tolist()
    assert index.reconstruct([]).shape == (0, 3)
    index.remove([0])
    with pytest.raises(ValueError, match="ids holds 0, whose row was removed"):
        index.reconstruct([1, 0])
    wide = scipy.sparse.random_array((50, 100_000), density=1e-3, dtype=np.float32, format="csr")
    got = SparseIndex.build(wide).reconstruct(np.arange(50))
    assert (got != scipy.sparse.csr_array(wide)).nnz == 0


def test_range_search_of_nothing():
    index = SparseIndex.build(np.eye(3))
    for queries, wanted in ((np.zeros((0, 3)), [0]), (np.zeros((2, 3)), [0, 0, 0])):
        offsets, scores, ids = index.range_search(queries, 0.5)
        assert offsets.tolist() == wanted
        assert (offsets.dtype, scores.dtype, ids.dtype) == (np.int64, np.float32, np.int64)
        assert len(scores) == len(ids) == 0
    offsets, scores, ids = SparseIndex(3).range_search(np.eye(3), -1)
    assert offsets.tolist() == [0, 0, 0, 0]
    assert index.range_search(np.eye(3), 0)[0].tolist() == [0, 3, 6, 9]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: x.add(np.eye(2, 3), [5, 5]), "ids holds 5 twice: expected each id once"),
        (lambda x: x.add(np.eye(3), [4, 2, 4]), "ids holds 2, which a row of the index has"),
        (lambda x: x.add(np.eye(3), [9, 8, 9]), "ids holds 9 twice"),
        (lambda x: x.add(np.eye(2, 3), [9, -1]), "ids holds -1: expected ids >= 0"),
        (lambda x: x.add(np.eye(2, 3), [9]), r"ids has shape \(1,\): expected \(2,\), one id per"),
        (lambda x: x.add(np.eye(1, 3), 9), r"ids has shape \(\): expected \(1,\)"),
        (lambda x: x.add(np.eye(2, 3), [0.5, 1]), "ids has dtype float64"),
        (lambda x: x.add(np.eye(2, 3), [True, False]), "ids has dtype bool"),
        (lambda x: x.add(np.eye(1, 3), np.uint64([2**63])), "ids holds 9223372036854775808"),
        (lambda x: x.remove([0, 3]), "ids holds 3: expected 0 <= id < 3"),
        (lambda x: x.remove([[0]]), r"ids has dtype int64 and shape \(1, 1\)"),
        (lambda x: x.reconstruct([0, 3]), "ids holds 3: expected 0 <= id < 3"),
        (lambda x: x.reconstruct([-1]), "ids holds -1"),
        (lambda x: x.reconstruct([0.0]), "ids has dtype float64"),
        (lambda x: x.search(np.eye(3), allowed=[0.5]), "allowed has dtype float64"),
        (lambda x: x.search(np.eye(3), allowed=[[0]]), r"allowed has dtype int64 and shape \(1, 1"),
        (lambda x: x.search(np.eye(3), allowed=["a"]), "allowed has dtype <U1"),
        (lambda x: x.search(np.eye(3), allowed=[0], forbidden=[1]), "allowed and forbidden are"),
        (
            lambda x: x.search(np.eye(3), allowed=[True, False]),
            "allowed has 2 places: expected at least 3, one for each id",
        ),
        (lambda x: x.range_search(np.eye(3), 1, forbidden=[True]), "forbidden has 1 places"),
        (lambda x: x.range_search(np.eye(3), None), "threshold=None: expected a finite number"),
        (lambda x: x.range_search(np.eye(3), np.inf), "threshold=inf"),
        (lambda x: x.range_search(np.eye(2), 0.5), "queries has 2 columns: expected 3"),
        (lambda x: x.range_search(np.eye(3), 0.5, num_threads=0), "num_threads=0"),
        (lambda x: x.compact(num_threads=0), "num_threads=0"),
        (lambda x: x.merge(x, num_threads=0), "num_threads=0"),
    ],
)
def test_bad_arguments_are_named_and_change_nothing(call, message):
    index = SparseIndex.build(np.eye(3))
    with pytest.raises(ValueError, match=message):
        call(index)
    assert index.shape == (3, 3)
    assert index.ids.tolist() == [0, 1, 2]


def test_unknown_ids_in_a_filter_are_ignored():
    """As in faiss: so the padding of another search's results may be among them."""
    index = SparseIndex.build(np.eye(3), ids=[10, 20, 30])
    scores, ids = index.search(np.ones((1, 3)), 3, allowed=[-1, 20, 20, 5, 2**40])
    assert ids.tolist() == [[20, -1, -1]]
    assert scores.tolist() == [[1, -np.inf, -np.inf]]
    assert index.search(np.ones((1, 3)), 2, forbidden=[-1, 20, 7])[1].tolist() == [[10, 30]]
    assert (index.search(np.ones((1, 3)), 2, allowed=[])[1] == -1).all()
    assert index.search(np.ones((1, 3)), 2, forbidden=[])[1].tolist() == [[10, 20]]


def test_merge_gives_no_id_again_that_the_other_index_has_given():
    """Its last rows were removed, and their ids forgotten."""
    other = SparseIndex.build(np.eye(5, dtype=np.float32))
    other.remove([3, 4])
    other.compact()
    index = SparseIndex(5)
    index.merge(other)
    assert index.next_id == 5
    assert index.add(np.eye(5)[:1]).tolist() == [5]


@pytest.mark.parametrize("own_ids", [False, True])
def test_no_filter_brings_a_removed_row_back(own_ids):
    rows = np.tile(np.eye(8, dtype=np.float32), (40, 1))
    ids = np.arange(320)[::-1] * 2 if own_ids else np.arange(320)
    index = SparseIndex.build(rows, ids if own_ids else None)
    gone = ids[::3]
    index.remove(gone)
    mask = np.zeros(index.next_id, bool)
    mask[ids[10:]] = True
    for chosen in ({"allowed": mask}, {"allowed": ids[10:]}, {"forbidden": ids[:10]}):
        _, found = index.search(rows[:8], 320, **chosen)
        want = np.setdiff1d(ids[10:], gone)
        assert {*found[found >= 0]} == {*want}
