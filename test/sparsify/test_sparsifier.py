"""Sparse codes of dense rows: budgets, evenness, neighbours, files, bad input."""

import gc
import io
import logging
import pickle
import subprocess
import sys
import weakref
import zipfile

import h5py
import keras
import numpy as np
import pytest
import scipy.sparse

from sparse_embed.common.failures import DataError
from sparse_embed.retrieval import SparseIndex, flops_per_row, suboptimality_ratio
from sparse_embed.sparsify import Sparsifier


def clusters(rows=600, classes=40, dim=24, seed=0):
    """Dense rows around centres, all shifted into one direction, as embeddings of faces are."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    centres = rng.normal(size=(classes, dim))
    x = centres[labels] + 0.5 * rng.normal(size=(rows, dim)) + 3.0
    return x.astype(np.float32), labels


@pytest.fixture(scope="module")
def fitted():
    x, _ = clusters()
    return Sparsifier(dim=64, nonzeros=8, steps=150).fit(x)


def test_codes_are_unit_rows_within_the_budget(fitted):
    codes = fitted.transform(clusters(seed=1)[0])
    assert isinstance(codes, scipy.sparse.csr_array)
    assert codes.shape == (600, 64)
    assert codes.dtype == np.float32
    assert np.diff(codes.indptr).max() <= 8
    np.testing.assert_allclose(scipy.sparse.linalg.norm(codes, axis=1), 1.0, atol=1e-5)


def test_codes_are_what_the_formula_says(fitted):
    """In float64: u = x / ||x||, the 8 largest of ReLU(W^T u + b), to unit norm."""
    x, _ = clusters(seed=1)
    kernel, bias = (w.astype(np.float64) for w in fitted.encoder_.get_layer("atoms").get_weights())
    unit = x.astype(np.float64) / np.linalg.norm(x.astype(np.float64), axis=1, keepdims=True)
    expected = np.zeros((600, 64))
    for i, row in enumerate(np.maximum(unit @ kernel + bias, 0)):
        largest = np.argsort(-row)[:8]
        expected[i, largest] = row[largest] / np.linalg.norm(row[largest])
    found = fitted.transform(x).toarray()
    # Rounding may swap the eighth and the ninth largest.
    same = (np.abs(found - expected) < 1e-4).all(axis=1)
    assert same.mean() > 0.99


def test_lists_are_even_where_those_of_plain_largest_values_are_not():
    from sparse_embed.sparsify.encoder import build_encoder, encode
    from sparse_embed.sparsify.learning import learn

    x, _ = clusters(rows=2000, classes=400)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    plain = encode(build_encoder(learn(unit, 64, 8, 300, 0, balance=0.0), 8), x)
    even = Sparsifier(dim=64, nonzeros=8, steps=300).fit(x).transform(x)
    assert suboptimality_ratio(even) < 1.1
    assert suboptimality_ratio(even) - 1 < 0.5 * (suboptimality_ratio(plain) - 1)


def test_learning_finds_more_dense_neighbours_than_random_directions(fitted):
    from sparse_embed.sparsify.encoder import build_encoder, encode
    from sparse_embed.sparsify.learning import untrained

    x, _ = clusters(seed=0)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    unit -= unit.mean(axis=0)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    cosines = unit @ unit.T
    wanted = np.argsort(-cosines, axis=1)[:, 1:11]

    def share(codes):
        _, ids = SparseIndex.build(codes).search(codes, 11)
        return np.mean([np.isin(w, i).mean() for w, i in zip(wanted, ids, strict=True)])

    first = untrained(x / np.linalg.norm(x, axis=1, keepdims=True), 64, 0)
    assert share(fitted.transform(x)) > share(encode(build_encoder(first, 8), x)) + 0.02


def test_flops_is_a_bound_that_unseen_rows_keep_roughly():
    x, _ = clusters(rows=2000)
    sparsifier = Sparsifier(dim=64, flops=1.0, steps=150).fit(x)
    assert sparsifier.flops_ <= 1.0
    assert sparsifier.nonzeros_ in (6, 7, 8)  # 8^2 / 64 = 1 if the lists are even
    assert flops_per_row(sparsifier.transform(clusters(rows=2000, seed=3)[0])) < 1.3
    # The same budget on fewer rows, each of which costs most with itself: that does not count.
    for few in (60, 200):
        assert Sparsifier(dim=64, flops=1.0, steps=150).fit(x[:few]).nonzeros_ in (6, 7, 8)
    both = Sparsifier(dim=64, flops=1.0, nonzeros=3, steps=5).fit(x)
    assert both.nonzeros_ == 3
    assert Sparsifier(dim=32, steps=2).fit(x).nonzeros_ <= 8  # F 2 where nothing is said


def test_flops_is_that_of_pairs_of_different_rows(fitted):
    x, _ = clusters()
    rows = fitted.transform(x).astype(bool).toarray().astype(int)
    shared = rows @ rows.T
    np.fill_diagonal(shared, 0)
    assert fitted.flops_ == pytest.approx(shared.sum() / (600 * 599))


def test_a_budget_that_cannot_be_kept_is_told():
    alike = np.tile(clusters(rows=1)[0], (50, 1))
    with pytest.warns(UserWarning, match=r"flops=0.5: codes of one non-zero cost"):
        sparsifier = Sparsifier(dim=64, flops=0.5, steps=2).fit(alike)
    assert sparsifier.nonzeros_ == 1
    assert sparsifier.flops_ > 0.5
    with pytest.warns(UserWarning, match="codes of one non-zero cost"):
        assert Sparsifier(dim=49, flops=1 / 49, steps=2).fit(clusters()[0]).nonzeros_ == 1


def test_length_does_not_matter_and_zero_rows_stay_zero(fitted):
    x, _ = clusters(rows=50)
    x[7] = 0
    codes = fitted.transform(x)
    assert codes[[7]].nnz == 0
    for length in (100, 1e25, 1e-25):
        found = fitted.transform(np.float32(length) * x)
        np.testing.assert_allclose(found.toarray(), codes.toarray(), atol=1e-5)


def test_zero_rows_teach_nothing():
    x, _ = clusters(rows=300)
    long = np.zeros((900, 24), np.float32)
    long[::3] = x
    made = [Sparsifier(dim=32, nonzeros=4, steps=20).fit(rows) for rows in (x, long)]
    # Other rows are drawn, so codes are alike in kind only: the centre has not moved.
    shared = [flops_per_row(one.transform(x)) for one in made]
    assert shared[1] == pytest.approx(shared[0], rel=0.1)
    with pytest.raises(ValueError, match="fewer than 2 rows that are not all zeros"):
        Sparsifier(dim=32, nonzeros=4, steps=2).fit(long[:3])


def test_ties_do_not_exceed_the_number_of_non_zeros():
    """One feature: all atoms that point one way tie."""
    x = np.random.default_rng(0).normal(size=(100, 1))
    codes = Sparsifier(dim=16, nonzeros=3, steps=5).fit(x).transform(x)
    assert np.diff(codes.indptr).max() == 3


def test_the_same_seed_gives_the_same_codes():
    x, labels = clusters(rows=200)
    made = [
        Sparsifier(dim=32, nonzeros=4, steps=20, random_state=seed).fit(x, labels).transform(x)
        for seed in (5, 5, 6)
    ]
    np.testing.assert_array_equal(made[0].toarray(), made[1].toarray())
    assert abs(made[0] - made[2]).sum() > 1


def test_labels_are_used_where_they_help_unseen_classes():
    """Classes differ in few dimensions, which are drowned in noise of the others."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(300), 5)
    x = rng.normal(size=(1500, 32))
    x[:, :6] = 1.2 * rng.normal(size=(300, 6))[labels] + 0.1 * rng.normal(size=(1500, 6))
    assert Sparsifier(dim=64, nonzeros=8, steps=300).fit(x, labels).contrast_ > 0
    assert Sparsifier(dim=64, nonzeros=8, steps=100).fit(x, np.arange(1500)).contrast_ == 0


def test_labels_are_left_out_where_they_find_less(monkeypatch):
    """What is learned with labels is made worse here: directions of few dimensions."""
    from sparse_embed.sparsify import labels as deciding

    learn = deciding.learn

    def worse_with_labels(*arguments, contrast, **options):
        atoms = learn(*arguments, contrast=contrast, **options)
        if contrast:
            atoms.kernel[4:] = 0
        return atoms

    monkeypatch.setattr(deciding, "learn", worse_with_labels)
    x, labels = clusters(rows=1200, classes=200)
    assert Sparsifier(dim=64, nonzeros=8, steps=50).fit(x, labels).contrast_ == 0


def test_files(fitted, tmp_path):
    x, _ = clusters(rows=30)
    path = tmp_path / "head.keras"
    fitted.save(path)
    again = Sparsifier.load(path)
    assert (again.dim, again.nonzeros_, again.n_features_in_) == (64, 8, 24)
    expected = fitted.transform(x).toarray()
    np.testing.assert_array_equal(again.transform(x).toarray(), expected)
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(fitted)).transform(x).toarray(), expected
    )
    # Keras reads it where this package is not imported.
    np.save(tmp_path / "x.npy", x)
    code = (
        "import keras, numpy, sys; model = keras.models.load_model(sys.argv[1]); "
        "numpy.save(sys.argv[3], model.predict_on_batch(numpy.load(sys.argv[2]))); "
        "assert not any(name.startswith('sparse_embed') for name in sys.modules)"
    )
    files = [str(tmp_path / name) for name in ("head.keras", "x.npy", "y.npy")]
    done = subprocess.run([sys.executable, "-c", code, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)

    with pytest.raises(ValueError, match=r"expected a file that ends in \.keras"):
        fitted.save(tmp_path / "head.npz")
    keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]).save(tmp_path / "other.keras")
    content = bytearray(path.read_bytes())
    (tmp_path / "short.keras").write_bytes(content[:1000])
    with zipfile.ZipFile(path) as archive:
        weights = archive.getinfo("model.weights.h5")
    content[weights.header_offset + weights.compress_size // 2] ^= 1
    (tmp_path / "flipped.keras").write_bytes(content)
    for name in ("other.keras", "short.keras", "flipped.keras"):
        with pytest.raises(DataError, match=rf"{name}: expected a \.keras file that Sparsifier"):
            Sparsifier.load(tmp_path / name)


def repacked(path, change, other):
    """Writes a `.keras` file to `other` with its members changed, and the right checksums."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(other, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return other


def renamed(old, new):
    def change(members):
        assert old in members["config.json"]
        members["config.json"] = members["config.json"].replace(old, new)

    return change


def weighted(change_weights):
    def change(members):
        file = io.BytesIO(members["model.weights.h5"])
        with h5py.File(file, "r+") as opened:
            change_weights(opened["layers/dense/vars"])
        members["model.weights.h5"] = file.getvalue()

    return change


def set_array(name, value, **options):
    def change(group):
        value_now = group[name][...]
        del group[name]
        group.create_dataset(name, data=value(value_now), **options)

    return weighted(change)


def replaced(name, make):
    def change(group):
        del group[name]
        make(group)

    return weighted(change)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (renamed(b"largest_8", b"largest_65"), "largest_65: expected largest_1 to largest_64"),
        (renamed(b"largest_8", b"largest_0"), "largest_0: expected"),
        (renamed(b"largest_8", b"largest_" + b"9" * 5000), ""),
        (renamed(b"largest_8", b"largest_x"), "largest_x"),
        (renamed(b'"atoms"', b'"others"'), "expected the layers"),
        (lambda members: members.update({"config.json": b"[" * 100_000}), "nested too deeply"),
        (lambda members: members.update({"config.json": b"{}"}), "'config' is missing"),
        (lambda members: members.update({"config.json": b'{"config": {"layers": [1]}}'}), ""),
        (lambda members: members.pop("model.weights.h5"), "model.weights.h5"),
        (lambda members: members.update({"model.weights.h5": b"x"}), ""),
        (set_array("0", lambda x: x[:, :-1]), "(24, 63) and (64,)"),
        (set_array("0", lambda x: x[0]), "(64,) and (64,)"),
        (set_array("0", lambda x: x * np.nan), "not finite"),
        (set_array("0", lambda x: x.astype(np.int64)), "<i8"),
        (set_array("1", lambda x: x, compression="gzip"), "where it lies"),
        (
            # Of shape and type alone: nothing is stored, and reading would take 256 GB.
            replaced("0", lambda group: group.create_dataset("0", (10**9, 64), "f4")),
            "0 bytes stored",
        ),
        (
            replaced("1", lambda group: group.__setitem__("1", h5py.ExternalLink("/a.h5", "b"))),
            "",
        ),
    ],
)
def test_a_file_that_was_changed_is_refused(fitted, tmp_path, change, told):
    fitted.save(tmp_path / "head.keras")
    path = repacked(tmp_path / "head.keras", change, tmp_path / "changed.keras")
    with pytest.raises(DataError, match=r"changed\.keras: expected a \.keras file that") as caught:
        Sparsifier.load(path)
    assert told in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_classes_that_a_file_names_are_not_made(fitted, tmp_path):
    """Keras makes any layer that a file describes, here one that takes terabytes."""
    dense = b'"units": 64,'
    path = tmp_path / "changed.keras"
    fitted.save(tmp_path / "head.keras")
    repacked(tmp_path / "head.keras", renamed(dense, b'"units": 100000000000,'), path)
    x, _ = clusters(rows=30)
    expected = fitted.transform(x).toarray()
    np.testing.assert_array_equal(Sparsifier.load(path).transform(x).toarray(), expected)


def test_tensorflow_does_not_warn_of_batches_that_differ_in_size(fitted, tmp_path):
    """It does where the last calls, of this model or others, have made one graph after another."""
    x, _ = clusters(seed=1)
    fitted.save(tmp_path / "codes.keras")
    sparsifiers = [Sparsifier.load(tmp_path / "codes.keras") for _ in range(6)]
    messages = []
    log, handler = logging.getLogger("tensorflow"), logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    log.addHandler(handler)
    try:
        found = [one.transform(x[:size]) for size in (7, 1, 30) for one in sparsifiers]
    finally:
        log.removeHandler(handler)
    assert messages == []
    codes = fitted.transform(x[:30]).toarray()
    for part in found:
        np.testing.assert_allclose(part.toarray(), codes[: part.shape[0]], atol=1e-6)
    encoders = [weakref.ref(one.encoder_) for one in sparsifiers]
    del sparsifiers
    gc.collect()
    assert [encoder() for encoder in encoders] == [None] * 6  # nothing keeps their graphs


def test_constant_columns_and_fewer_rows_than_dimensions():
    x = np.random.default_rng(0).normal(size=(9, 30))
    x[:, 4:] = 1.0
    codes = Sparsifier(dim=40, nonzeros=5, steps=10).fit(x).transform(x)
    assert np.isfinite(codes.data).all()
    assert codes.nnz
    same = Sparsifier(dim=8, nonzeros=2, steps=3).fit(np.ones((5, 3)))
    assert same.transform(np.ones((2, 3))).shape == (2, 8)
    assert np.isfinite(same.transform(np.ones((2, 3))).data).all()


def bad(row=None, value=np.nan):
    x, _ = clusters(rows=20)
    if row is not None:
        x[row, 3] = value
    return x


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (bad(7), None, r"X contains NaN.* in row 7"),
        (bad(0, np.inf), None, r"X contains NaN, infinity.* in row 0"),
        (bad().astype(np.float64) * 1e300, None, r"too large for float32 in row 0"),
        (bad()[0], None, r"X of shape \(24,\), float32: expected 2-D"),
        (bad()[None], None, r"X of shape \(1, 20, 24\)"),
        (bad()[:1], None, r"X has 1 sample .*expected at least 2 rows"),
        (bad()[:0], None, r"0 sample\(s\)"),
        (bad()[:, :0], None, r"0 feature\(s\)"),
        (np.array([["a", "b"], ["c", "d"]]), None, r"X of shape \(2, 2\), <U1"),
        (bad(), np.arange(19), r"y of shape \(19,\): expected 20 labels"),
        (bad(), np.zeros((20, 2)), r"y of shape \(20, 2\): expected 20 labels"),
        (bad(), np.zeros(20), r"y has one class, .*0.*: expected at least 2"),
        (bad(), np.full(20, np.nan), r"y contains NaN"),
        (bad(), np.array(["a", None] * 10, object), r"y contains None or NaN"),
        (bad(), np.array(["a", 1] * 10, object), r"y holds labels that cannot be compared"),
    ],
)
def test_bad_input(x, y, message):
    sparsifier = Sparsifier(dim=8, nonzeros=2, steps=1)
    with pytest.raises(ValueError, match=message):
        sparsifier.fit(x, y)
    assert not hasattr(sparsifier, "encoder_")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dim": 0}, "dim=0: expected an integer >= 1"),
        ({"flops": -1.0}, r"flops=-1.0: expected a finite number > 0"),
        ({"dim": 10, "flops": 0.01}, r"flops=0.01: expected at least 1 / dim = 0.1"),
        ({"nonzeros": 0}, "nonzeros=0: expected an integer >= 1"),
        ({"steps": 0}, "steps=0: expected an integer >= 1"),
        ({"random_state": -1}, "random_state=-1: expected an integer >= 0"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        Sparsifier(**arguments).fit(bad())


def test_misuse_afterwards(fitted):
    with pytest.raises(ValueError, match="X has 3 features, but Sparsifier is expecting 24"):
        fitted.transform(np.ones((2, 3)))
    with pytest.raises(ValueError, match="not fitted yet"):
        Sparsifier().transform(np.ones((2, 3)))
    with pytest.raises(TypeError, match="sparse matrix: expected dense data"):
        fitted.transform(scipy.sparse.csr_array(np.ones((2, 24))))
    with pytest.raises(ValueError, match="width=3: expected one of dim, flops"):
        fitted.set_params(width=3)


def test_labels_are_judged_on_classes_that_were_not_learned(monkeypatch):
    from sparse_embed.sparsify import labels as deciding

    learned, asked = [], []
    learn, encode = deciding.learn, deciding.encode

    def learn_noted(rows, atoms, nonzeros, steps, seed, classes, **options):
        learned.append({row.tobytes() for row in rows})
        assert len(rows) == len(classes)
        return learn(rows, atoms, nonzeros, steps, seed, classes, **options)

    def encode_noted(model, rows):
        asked.append({row.tobytes() for row in rows})
        return encode(model, rows)

    monkeypatch.setattr(deciding, "learn", learn_noted)
    monkeypatch.setattr(deciding, "encode", encode_noted)
    x, labels = clusters(rows=1200, classes=200)
    rows = x.astype(np.float32)
    deciding.chosen_contrast(rows, labels, 32, 4, steps=2, seed=0)
    assert len(learned) == len(asked) == 2
    classes = {row.tobytes(): label for row, label in zip(rows, labels, strict=True)}
    for known, held_out in zip(learned, asked, strict=True):
        assert len(known) + len(held_out) == len(rows)
        assert not {classes[row] for row in known} & {classes[row] for row in held_out}


def test_labels_help_if_they_find_more_than_by_chance():
    """Of 100 queries some find a row of their class only with labels, some only without."""
    from sparse_embed.sparsify.labels import find_more

    def outcomes(more, fewer):
        ours, theirs = np.zeros(100, bool), np.zeros(100, bool)
        ours[:more], theirs[100 - fewer :] = True, True
        return ours, theirs

    assert find_more(*outcomes(5, 0))  # 0.05, standard error 0.022
    assert not find_more(*outcomes(2, 1))  # 0.01, standard error 0.017
    assert not find_more(*outcomes(0, 0))
    assert not find_more(*outcomes(0, 5))
