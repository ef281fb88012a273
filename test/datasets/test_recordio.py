"""RecordIO: MXNet's own files, arbitrary payloads, and every kind of damage."""

import hashlib
import io
import json
import pathlib
import struct

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from sparse_embed.common.failures import DataError
from sparse_embed.datasets import recordio
from sparse_embed.datasets.examples import split_by_class
from sparse_embed.datasets.recordio import RecordFile

MAGIC = bytes.fromhex("0a23d7ce")


def split_at_magic(content: bytes) -> list[bytes]:
    """What the format's writer does: cut at each magic at a multiple of 4, and drop it."""
    parts, start = [], 0
    for place in range(0, len(content) - 3, 4):
        if content[place : place + 4] == MAGIC:
            parts.append(content[start:place])
            start = place + 4
    return [*parts, content[start:]]


def encode(content: bytes) -> bytes:
    parts = split_at_magic(content)
    flags = [0] if len(parts) == 1 else [1, *[2] * (len(parts) - 2), 3]
    return b"".join(
        MAGIC + struct.pack("<I", flag << 29 | len(part)) + part + bytes(-len(part) % 4)
        for flag, part in zip(flags, parts, strict=True)
    )


def write(folder, contents: dict[int, bytes], name="train") -> tuple[pathlib.Path, pathlib.Path]:
    rec, idx = folder / f"{name}.rec", folder / f"{name}.idx"
    data, lines = b"", []
    for key, content in contents.items():
        lines.append(f"{key}\t{len(data)}\n")
        data += encode(content)
    rec.write_bytes(data)
    idx.write_text("".join(lines))
    return rec, idx


def header(*labels: float, image: bytes = b"", array: bool = False) -> bytes:
    if array or len(labels) != 1:
        packed = struct.pack(f"<IfQQ{len(labels)}f", len(labels), 0.0, 0, 0, *labels)
    else:
        packed = struct.pack("<IfQQ", 0, labels[0], 0, 0)
    return packed + image


def picture(seed: int, size: int = 8) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (size, size, 3), np.uint8)


def png(seed: int, size: int = 8) -> bytes:
    return tf.io.encode_png(picture(seed, size)).numpy()


def training_set() -> dict[int, bytes]:
    """Five images of three identities, as face2rec lays them out: images, identities, record 0."""
    labels = [0, 0, 1, 2, 2]
    contents = {
        # A scalar label or an array, of which the first is the class.
        key: header(label, image=png(key))
        if key % 2
        else header(label, 7.0, array=True, image=png(key))
        for key, label in enumerate(labels, 1)
    }
    ranges = [(1, 3), (3, 4), (4, 6)]
    contents |= {6 + i: header(*bounds) for i, bounds in enumerate(ranges)}
    return contents | {0: header(6, 9)}


@pytest.fixture
def folder(tmp_path):
    write(tmp_path, training_set())
    (tmp_path / "property").write_text("3,8,8\n")
    return tmp_path


def all_batches(examples, batch_size=4):
    batches = list(examples.evaluation_batches(batch_size).as_numpy_iterator())
    return np.concatenate([b[0] for b in batches]), np.concatenate([b[1] for b in batches])


# --- files written by MXNet itself


def test_escape_cases_of_mxnet(shared):
    expected = json.loads((shared / "recordio/expected.json").read_text())
    records = RecordFile(shared / "recordio/escape.rec", shared / "recordio/escape.idx")
    contents = [records.read(key).hex() for key in records.keys.tolist()]
    assert contents == expected["escape_cases_hex"]


def test_training_set_of_mxnet(shared):
    expected = json.loads((shared / "recordio/expected.json").read_text())
    records = RecordFile(shared / "recordio/train.rec", shared / "recordio/train.idx")
    assert records.unpack(0).labels.tolist() == expected["header0"]
    first, end = expected["header0"]
    identities = [records.unpack(key).labels.tolist() for key in range(first, end)]
    assert identities == expected["identities"]

    examples = recordio.load(shared / "recordio")
    assert (examples.num_classes, examples.shape, len(examples)) == (3, (112, 112, 3), 8)
    for row, image in enumerate(expected["images"]):
        data = examples.source.read(row)
        assert records.unpack(image["key"]).image == data
        assert (len(data), hashlib.sha256(data).hexdigest()) == (image["len"], image["sha256"])
        assert examples.labels[row] == image["label"]
    images, labels = all_batches(examples, 3)
    assert labels.tolist() == [image["label"] for image in expected["images"]]
    pixels = np.asarray(Image.open(io.BytesIO(examples.source.read(5))))
    np.testing.assert_array_equal(np.round(images[5] * 255), pixels)


def test_pixels_of_mxnet(shared):
    """The pixels that MXNet decodes, to the last bit, in every image whose checksum there is."""
    folder = shared / "faces/rehearsal/faces_emore"
    if not folder.is_dir():
        pytest.skip(f"no record file with the checksums of its pixels in {folder}")
    expected = json.loads((folder / "pixels_by_mxnet.json").read_text())
    assert len(expected) >= 64
    examples = recordio.load(folder)
    keys = examples.source._keys[examples.rows].tolist()
    chosen = examples.take(np.array([keys.index(int(key)) for key in expected]))
    images, labels = all_batches(chosen, 16)
    assert labels.tolist() == [image["label"] for image in expected.values()]
    pixels = np.round(images * 255).astype(np.uint8)
    found = [hashlib.md5(image.tobytes()).hexdigest() for image in pixels]
    assert found == [image["md5"] for image in expected.values()]


# --- arbitrary payloads

chunks = st.lists(st.binary(max_size=9) | st.just(MAGIC) | st.just(MAGIC[:2]), max_size=12)


@given(contents=st.lists(chunks.map(b"".join), min_size=1, max_size=5), data=st.data())
def test_any_content_comes_back(tmp_path_factory, contents, data):
    folder = tmp_path_factory.mktemp("records")
    keys = data.draw(st.permutations(range(len(contents))))
    paths = write(folder, {key: contents[key] for key in keys})
    records = RecordFile(*paths)
    assert records.keys.tolist() == sorted(keys)
    assert [records.read(key) for key in range(len(contents))] == contents


@given(
    damage=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=6),
    cut=st.integers(0, 60),
)
def test_fuzzed_files_raise_or_read_but_never_crash(tmp_path_factory, damage, cut):
    folder = tmp_path_factory.mktemp("fuzz")
    rec, idx = write(folder, {1: header(0.0, image=b"a" + MAGIC * 3), 2: header(1.0, 2.0)})
    data = bytearray(rec.read_bytes())
    for place, byte in damage:
        data[place % len(data)] = byte
    rec.write_bytes(data[: len(data) - cut])
    try:
        records = RecordFile(rec, idx)
        for key in (1, 2):
            records.unpack(key)
    except ValueError as error:
        assert "train.rec: key" in str(error)  # noqa: PT017 - other exceptions fail the test
        assert "offset" in str(error)  # noqa: PT017


# --- the training set


def test_small_training_set(folder):
    examples = recordio.load(folder)
    assert examples.labels.tolist() == [0, 0, 1, 2, 2]
    images, labels = all_batches(examples)
    assert labels.tolist() == [0, 0, 1, 2, 2]
    expected = np.stack([picture(key) for key in range(1, 6)])
    np.testing.assert_array_equal(images, expected.astype(np.float32) / np.float32(255))


def test_mirroring_is_an_option(folder):
    assert recordio.load(folder).augment is not None
    possible = {picture(key).tobytes() for key in range(1, 6)}
    for mirror in (True, False):
        batches = recordio.load(folder, mirror=mirror).training_batches(10, seed=0).take(4)
        pixels = [np.round(image * 255).astype(np.uint8) for x, _ in batches for image in x.numpy()]
        assert all(image.tobytes() in possible for image in pixels) == (not mirror)


def test_scanned_labels_equal_those_of_the_identities(folder):
    scanned = recordio.load(folder, scan_labels=True)
    assert scanned.labels.tolist() == recordio.load(folder).labels.tolist()


def test_a_plain_record_file_has_no_identities(tmp_path):
    write(tmp_path, {key: header(float(key), image=png(key)) for key in range(3)})
    (tmp_path / "property").write_text("3,8,8")
    assert recordio.load(tmp_path).labels.tolist() == [0, 1, 2]


def test_split_by_class(folder):
    part = split_by_class(recordio.load(folder), test=1, seed=0)
    assert len(part.train) + len(part.test) == 5
    assert part.train.num_classes == 2
    assert part.test.num_classes == 1
    assert sorted(set(part.train.labels.tolist())) == [0, 1]
    assert not set(part.train.class_names) & set(part.test.class_names)


# --- damage


def damaged(folder, key: int, change):
    contents = training_set()
    contents[key] = change(contents[key])
    write(folder, contents)
    return contents


def offset_of(folder, key: int) -> int:
    return int(RecordFile(folder / "train.rec", folder / "train.idx").offset(key))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (header(3.0, image=b"x"), "label 3, expected an integer from 0 to 2"),
        (header(-1.0, image=b"x"), "label -1"),
        (header(0.5, image=b"x"), "label 0.5"),
        (header(float("nan"), image=b"x"), "label nan"),
        (header(1.0, image=png(2)), "label 1, but its identity has 0"),
        (header(0.0), "zero-length image"),
        (header(0.0, image=b"no image"), "cannot be decoded"),
        (header(0.0, image=png(2)[:-20]), "cannot be decoded"),
        (header(0.0, image=png(2, size=9)), "cannot be decoded: PNG of 9 x 9 .* expected 8 x 8"),
        (b"short", "too few for the header"),
        (struct.pack("<IfQQ", 10**6, 0.0, 0, 0), "too few for 1000000 labels"),
    ],
)
def test_a_broken_record_is_refused_by_name(folder, content, message):
    damaged(folder, 2, lambda _: content)
    where = f"train.rec: key 2 at offset {offset_of(folder, 2)}: "
    with pytest.raises(ValueError, match=where + ".*" + message):
        recordio.load(folder).source.check(1)


def test_pipelines_refuse_or_skip_broken_records(folder):
    write(
        folder,
        training_set() | {2: header(0.0, image=png(2)[:-20]), 5: header(9.0, image=png(5))},
    )
    where = [f"train.rec: key {key} at offset {offset_of(folder, key)}: " for key in (2, 5)]
    with pytest.raises(tf.errors.InvalidArgumentError, match=where[0] + "cannot be decoded"):
        all_batches(recordio.load(folder))

    examples = recordio.load(folder, on_error="skip")
    images, labels = all_batches(examples)
    assert labels.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(np.round(images[1] * 255), picture(3))
    assert sorted(examples.source.failures) == [1, 4]
    assert where[0] + "cannot be decoded" in examples.source.failures[1]
    assert where[1] + "label 9" in examples.source.failures[4]
    # Training goes on for ever without them, in batches of full size.
    for _, labels in examples.training_batches(3, seed=0).take(8).as_numpy_iterator():
        assert labels.shape == (3,)


def test_skipping_everything_is_refused(tmp_path):
    write(tmp_path, {key: header(0.0, image=b"broken") for key in range(5)})
    (tmp_path / "property").write_text("1,8,8")
    examples = recordio.load(tmp_path, on_error="skip")
    with pytest.raises(tf.errors.InvalidArgumentError, match="all 5 images"):
        list(examples.training_batches(2, seed=0).take(1))


def test_truncated_file(folder):
    whole = (folder / "train.rec").read_bytes()
    start = offset_of(folder, 0)
    for size in range(start, len(whole)):
        (folder / "train.rec").write_bytes(whole[:size])
        with pytest.raises(ValueError, match=f"train.rec: key 0 at offset {start}: "):
            RecordFile(folder / "train.rec", folder / "train.idx").read(0)


@pytest.mark.parametrize(
    ("place", "replacement", "message"),
    [
        (0, b"\x0b", "magic 0xced7230b at byte OFFSET, expected 0xced7230a"),
        (7, b"\xff", "part 0 has the continuation flag 7"),
        (7, b"\x40", "part 0 has the continuation flag 2"),
        (7, b"\x1f", "the file ends before the record does"),
    ],
)
def test_damaged_record_head(folder, place, replacement, message):
    start = offset_of(folder, 2)
    data = bytearray((folder / "train.rec").read_bytes())
    data[start + place : start + place + 1] = replacement
    (folder / "train.rec").write_bytes(data)
    records = RecordFile(folder / "train.rec", folder / "train.idx")
    message = message.replace("OFFSET", str(start))
    with pytest.raises(ValueError, match=f"train.rec: key 2 at offset {start}: {message}"):
        records.read(2)


@pytest.mark.parametrize("offset", [-4, 10**6, 10**12])
def test_an_index_that_points_outside(folder, offset):
    with open(folder / "train.idx", "a") as file:
        file.write(f"77\t{offset}\n")
    with pytest.raises(ValueError, match=f"key 77 at offset {offset}: outside the"):
        recordio.load(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\t0\n1\t8\n", "key 1 comes twice"),
        ("1\tx\n", "expected lines `key offset`"),
        ("1\t0\t0\n", "2 numbers per line"),
        ("", "the index is empty"),
        ("1\t99999999999999999999\n", "train.idx: expected lines `key offset`"),
        ("\x00\x01", "train.idx: expected lines `key offset`"),
    ],
)
@pytest.mark.filterwarnings("ignore:loadtxt")
def test_damaged_index(folder, text, message):
    (folder / "train.idx").write_text(text)
    with pytest.raises(ValueError, match=message):
        recordio.load(folder)


def test_absent_keys_are_named(folder):
    lines = (folder / "train.idx").read_text().splitlines(keepends=True)
    (folder / "train.idx").write_text("".join(x for x in lines if not x.startswith("3\t")))
    with pytest.raises(ValueError, match="key 3 is not in the index, expected all from 1 to 5"):
        recordio.load(folder)


def test_impossible_header_costs_no_memory(folder):
    damaged(folder, 0, lambda _: header(2.0**40, 2.0**50))
    with pytest.raises(ValueError, match="key 9 is not in the index"):
        recordio.load(folder)
    damaged(folder, 0, lambda _: header(float("inf"), 9.0))
    with pytest.raises(ValueError, match=r"key 0 at offset .* expected a range of keys"):
        recordio.load(folder)


def test_far_more_classes_than_images_are_refused(folder):
    """Each class has a name: a file of ten bytes could ask for a gigabyte."""
    (folder / "property").write_text("16000000,8,8")
    with pytest.raises(ValueError, match=r"property: 16000000 classes, but train.rec holds \d+ im"):
        recordio.load(folder)
    (folder / "property").write_text("500,8,8")
    assert recordio.load(folder).num_classes == 500


def test_identities_that_overlap(folder):
    damaged(folder, 7, lambda _: header(2.0, 4.0))
    with pytest.raises(ValueError, match="key 2 is in no identity's range, or in two"):
        recordio.load(folder)


@pytest.mark.parametrize("scan_labels", [False, True])
def test_identities_without_images(tmp_path, scan_labels):
    write(tmp_path, {0: header(1, 3), 1: header(1, 1), 2: header(1, 1)})
    (tmp_path / "property").write_text("3,8,8\n")
    with pytest.raises(DataError, match=r"train\.rec: identities without images"):
        recordio.load(tmp_path, scan_labels=scan_labels)


@pytest.mark.parametrize(
    "text", [b"", b"3,8", b"3,8,x", b"0,8,8", b"99999999999,8,8", b"\xff\xfe", b"9" * 5000]
)
def test_damaged_property(folder, text):
    (folder / "property").write_bytes(text)
    with pytest.raises(DataError, match="property: expected `classes,height,width`"):
        recordio.load(folder)


def test_absurd_sizes_and_an_absent_property(folder):
    (folder / "property").write_text("3,1000000,1000000")
    with pytest.raises(DataError, match="1000000 x 1000000 pixels: expected at most 4096 x 4096"):
        recordio.load(folder)
    (folder / "property").unlink()
    with pytest.raises(DataError, match=r"property: no such file.*`classes,height,width`.* im2rec"):
        recordio.load(folder)
