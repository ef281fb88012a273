"""The restricted unpickler: equal to pickle on plain data, deaf to everything else."""

import os
import pickle
import re
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparse_embed.datasets import restricted_pickle
from sparse_embed.datasets.restricted_pickle import RestrictedPickleError

plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.binary() | st.integers(-(2**63), 2**64 - 1), inner)
    ),
    max_leaves=30,
)


@given(value=plain_values, protocol=st.integers(2, 5))
def test_plain_values_come_back(value, protocol):
    assert restricted_pickle.loads(pickle.dumps(value, protocol), "x") == value


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize(
    "array",
    [
        np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
        np.asfortranarray(np.arange(24, dtype=np.uint8).reshape(4, 6)),
        np.arange(24, dtype=np.uint8).reshape(4, 6)[:, ::2],
        np.empty((0, 3), np.uint8),
        np.array([True, False, True]),
    ],
    ids=["c", "fortran", "strided", "empty", "bool"],
)
def test_arrays_come_back(array, protocol):
    # Twice the same array: the second one comes out of the memo.
    first, second = restricted_pickle.loads(pickle.dumps([array, array], protocol), "x")
    assert first is second
    assert first.dtype == array.dtype
    np.testing.assert_array_equal(first, array)


def test_python_2_strings_come_back_as_bytes():
    # What Python 2 wrote for ["ab\xff", "c" * 300]: SHORT_BINSTRING and BINSTRING.
    data = b"\x80\x02]q\x00(U\x03ab\xffq\x01T\x2c\x01\x00\x00" + b"c" * 300 + b"q\x02e."
    assert restricted_pickle.loads(data, "x") == [b"ab\xff", b"c" * 300]
    assert pickle.loads(data, encoding="bytes") == [b"ab\xff", b"c" * 300]


class _Reduces:
    def __init__(self, *reduced):
        self.reduced = reduced

    def __reduce__(self):
        return self.reduced


class _Ordinary:
    def __init__(self):
        self.x = 1


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("nested", [False, True])
def test_a_call_is_refused_by_name_and_not_made(tmp_path, protocol, nested):
    trace = tmp_path / "trace"
    attack = _Reduces(os.system, (f"touch {trace}",))
    data = pickle.dumps(([b"jpeg", [attack]], [True]) if nested else attack, protocol)
    with pytest.raises(RestrictedPickleError) as refusal:
        restricted_pickle.loads(data, "evil.bin")
    assert not trace.exists()
    # Protocols 0 and 1 have opcodes before the call that are refused already.
    named = "system" if protocol >= 2 else ""
    assert re.match(rf"evil.bin: .*{named}.* is not admitted at byte \d+", str(refusal.value))
    pickle.loads(data)  # the attack is real: the ordinary unpickler does run it
    assert trace.exists()


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"cos\nsystem\n.", "os.system"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "os.system"),
        (b"\x80\x02cbuiltins\neval\n(X\x01\x00\x00\x001tR.", "builtins.eval"),
        (b"\x80\x02cnumpy\nload\n.", "numpy.load"),
        (b"\x80\x02(ios\nsystem\n.", "INST"),
        (b"\x80\x02(K\x01oK\x01.", "OBJ"),
        (b"\x80\x02\x82\x01.", "EXT1"),
        (b"\x80\x02K\x01Q.", "BINPERSID"),
        (b"\x80\x05\x97.", "NEXT_BUFFER"),
        (b"\x80\x02]}b.", "state for list"),
        (b"\x80\x02cnumpy\nndarray\n}b.", "state for _Global"),
        (b"\x80\x02cnumpy\ndtype\n)\x81.", "NEWOBJ"),
        (b"\x80\x02K\x05)R.", "call of int"),
        (pickle.dumps(_Ordinary(), 2), "_Ordinary"),
        (pickle.dumps(_Ordinary(), 4), "_Ordinary"),
        (pickle.dumps(np.zeros(3, np.float32), 2), "f4"),
        (pickle.dumps(np.array([None, "x"], object), 2), "O8"),
        (pickle.dumps({(1, 2): 3}, 2), "tuple"),
        (pickle.dumps({1, 2}, 4), "EMPTY_SET"),
        (pickle.dumps(1.5, 4), "BINFLOAT"),
    ],
)
def test_everything_else_is_refused_by_name(data, named):
    with pytest.raises(RestrictedPickleError, match=f"pack: .*{named}"):
        restricted_pickle.loads(data, "pack")


def test_other_encodings_than_latin1_are_refused():
    data = pickle.dumps(b"\xff" * 10, 2).replace(b"latin1", b"zip_32")
    with pytest.raises(RestrictedPickleError, match="call of encode"):
        restricted_pickle.loads(data, "pack")


def test_damage_inside_an_array_is_refused():
    whole = pickle.dumps(np.zeros((4, 5), np.uint8), 4)
    assert whole.count(b"K\x04K\x05\x86") == 1
    with pytest.raises(RestrictedPickleError, match="damaged"):
        restricted_pickle.loads(whole.replace(b"K\x04K\x05\x86", b"K\x04K\x06\x86"), "pack")


def test_memory_is_bounded_by_the_file():
    # A memo index of 2^31, a length of 2^40, and one string of 1 MB encoded 1,000 times.
    huge_index = b"\x80\x04K\x01r\xff\xff\xff\x7f."
    huge_length = b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"abc."
    text = b"X" + struct.pack("<I", 2**20) + b"a" * 2**20 + b"q\x00"
    again = b"c_codecs\nencode\nh\x00X\x06\x00\x00\x00latin1\x86R"
    amplified = b"\x80\x02](" + text + again * 1000 + b"e."
    tracemalloc.start()
    assert restricted_pickle.loads(huge_index, "pack") == 1
    for data in (huge_length, amplified):
        with pytest.raises(RestrictedPickleError):
            restricted_pickle.loads(data, "pack")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**23


@pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning")  # of pickletools
@given(
    protocol=st.integers(2, 5),
    damage=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=8),
    cut=st.integers(0, 400),
)
def test_fuzzed_pickles_raise_or_load_but_never_crash(protocol, damage, cut):
    images = [b"\xff\xd8" + b"a" * 9, np.arange(12, dtype=np.uint8).reshape(2, 2, 3)]
    data = bytearray(pickle.dumps((images, [True, False]), protocol))
    for position, byte in damage:
        data[position % len(data)] = byte
    try:
        restricted_pickle.loads(bytes(data[: len(data) - cut]), "pack")
    except RestrictedPickleError as error:
        assert str(error).startswith("pack: ")  # noqa: PT017 - other exceptions fail the test


@given(data=st.binary(max_size=200))
def test_random_bytes_never_crash(data):
    try:
        restricted_pickle.loads(b"\x80\x04" + data, "pack")
    except RestrictedPickleError as error:
        assert str(error).startswith("pack: ")  # noqa: PT017


def nested(depth, empty=b"]", wrap=b"\x85"):
    """A list in a tuple in a tuple in ..., `depth` deep."""
    return empty + wrap * depth


def shared(doublings):
    """A list that holds itself twice, and that twice, ...: 2^doublings when it is written out."""
    content = b"]q\x00K\x01a"
    for place in range(doublings):
        content += b"](h%ch%ceq%c" % (place, place, place + 1)
    return content


LONG = b"\x8b" + struct.pack("<i", 500_000) + b"\x01" * 500_000
OBJECTS = "more objects than its size allows"
BOMBS = {
    "a shared list as a name": (
        b"\x80\x04" + shared(30) + b"h\x1eh\x1e\x93.",
        "a name that is no string",
    ),
    "a name nested 200,000 deep": (
        b"\x80\x04" + nested(200_000) + b"q\x00h\x00\x93.",
        OBJECTS,
    ),
    "nested 200,000 deep": (b"\x80\x02" + nested(200_000) + b"b.", OBJECTS),
    "a long integer as a key, again and again": (
        b"\x80\x02}" + LONG + b"q\x00K\x01s" + b"h\x00K\x01s" * 50_000 + b".",
        "a dict key of 3999993 bits",
    ),
    "keys of one hash": (
        b"\x80\x02}("
        + b"".join(
            b"\x8a\x10" + (n * (2**61 - 1)).to_bytes(16, "little") + b"K\x01"
            for n in range(2, 50_000)
        )
        + b"u.",
        "a dict key of 65 bits",
    ),
    "300 kB of empty dicts": (b"\x80\x02" + b"}" * 300_000 + b".", OBJECTS),
    "300 kB of marks": (b"\x80\x02" + b"(" * 300_000 + b".", "does not end with one value"),
    "300 kB of memos": (b"\x80\x04]" + b"\x94" * 300_000 + b".", OBJECTS),
    "300 kB of tuples": (b"\x80\x02]" + b"\x85" * 300_000 + b".", OBJECTS),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_before_they_take_much_memory(name):
    """At most 30 bytes for each of the file; objects that nobody counts take 48 to 108."""
    data, reason = BOMBS[name]
    tracemalloc.start()
    try:
        with pytest.raises(RestrictedPickleError, match=reason):
            restricted_pickle.loads(data, "bomb")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000 + 30 * len(data)


@pytest.mark.parametrize("data", [b"\x80\x02cnumpy\ndtype\n.", b"\x80\x02](cnumpy\nndarray\ne."])
def test_a_name_is_no_value(data):
    with pytest.raises(restricted_pickle.RestrictedPickleError, match="a name in place of a value"):
        restricted_pickle.loads(data, "names.bin")
