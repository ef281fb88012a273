"""Verification packs in the forms people have, malicious ones and damaged ones."""

import os
import pickle

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from sparse_embed.datasets import verification_packs
from sparse_embed.datasets.restricted_pickle import RestrictedPickleError

SHAPE = (8, 8, 3)
PIXELS = np.random.default_rng(0).integers(0, 256, (4, *SHAPE), np.uint8)
ENCODED = [tf.io.encode_png(image).numpy() for image in PIXELS]
SAME = [True, False]


def save(path, value, protocol=2):
    path.write_bytes(pickle.dumps(value, protocol))
    return path


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize(
    "entries",
    [
        ENCODED,
        list(PIXELS),
        [np.frombuffer(data, np.uint8) for data in ENCODED],
        [ENCODED[0], PIXELS[1], *ENCODED[2:]],
    ],
    ids=["bytes", "pixels", "arrays of bytes", "mixed"],
)
def test_entries_come_back(tmp_path, protocol, entries):
    pack = verification_packs.load(save(tmp_path / "lfw.bin", (entries, SAME), protocol), SHAPE)
    assert pack.same.tolist() == SAME
    decoded = [pack.images.source.decode(pack.images.source.read(row)) for row in range(4)]
    np.testing.assert_array_equal(np.stack(decoded), PIXELS)


def test_pipeline_keeps_the_pairs_in_order(tmp_path):
    pack = verification_packs.load(save(tmp_path / "lfw.bin", (ENCODED, SAME)), SHAPE)
    assert pack.images.name == "lfw"
    batches = pack.images.evaluation_batches(3).as_numpy_iterator()
    images = np.concatenate([images for images, _ in batches])
    np.testing.assert_array_equal(images, PIXELS.astype(np.float32) / np.float32(255))


def test_numpy_pairs(tmp_path):
    path = save(tmp_path / "a.bin", (ENCODED, np.array(SAME)))
    assert verification_packs.load(path, SHAPE).same.tolist() == SAME
    path = save(tmp_path / "b.bin", [ENCODED, [np.bool_(item) for item in SAME]])
    assert verification_packs.load(path, SHAPE).same.tolist() == SAME


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], r"expected \(images, issame\)"),
        ({}, r"expected \(images, issame\)"),
        ((ENCODED, [True]), "4 images, expected two for each of 1 pairs"),
        ((ENCODED, [True, 7]), "issame to hold only True and False"),
        ((ENCODED, None), "issame to be a list"),
        ((b"abcd", SAME), "images to be a list"),
    ],
)
def test_other_pickles_are_refused(tmp_path, value, message):
    with pytest.raises(ValueError, match="lfw.bin: .*" + message):
        verification_packs.load(save(tmp_path / "lfw.bin", value), SHAPE)


@pytest.mark.parametrize("entry", [b"", b"no image", None, 5, PIXELS[0, 0], PIXELS[:1, :1, :1]])
def test_a_broken_image_is_named(tmp_path, entry):
    path = save(tmp_path / "lfw.bin", ([*ENCODED[:3], entry], SAME), 4)
    with pytest.raises(ValueError, match=r"lfw.bin: image 3: "):
        verification_packs.load(path, SHAPE).images.source.check(3)


class Attack:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def test_a_malicious_pack_is_refused_and_does_not_run(tmp_path):
    trace = tmp_path / "trace"
    path = save(tmp_path / "lfw.bin", ([*ENCODED[:3], Attack(f"touch {trace}")], SAME))
    with pytest.raises(RestrictedPickleError, match=r"lfw.bin: \w+.system is not admitted"):
        verification_packs.load(path, SHAPE)
    assert not trace.exists()


@given(
    damage=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=20),
    cut=st.integers(0, 50),
    arrays=st.booleans(),
)
def test_fuzzed_packs_raise_but_never_crash(tmp_path_factory, damage, cut, arrays):
    path = tmp_path_factory.getbasetemp() / "fuzzed.bin"
    entries = [image[:2, :2] for image in PIXELS] if arrays else [b"a", b"bc", b"def", b""]
    data = bytearray(pickle.dumps((entries, SAME), 2))
    for place, byte in damage:
        data[place % len(data)] = byte
    path.write_bytes(data[: len(data) - cut])
    try:
        source = verification_packs.load(path, (2, 2, 3)).images.source
        for row in range(4):
            source.check(row)
    except ValueError as error:
        assert str(error).startswith(str(path))  # noqa: PT017 - other exceptions fail the test
