"""NumPy's files: honest ones, damaged ones, and those that ask for more memory than they fill."""

import contextlib
import re
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_strategies

from sparse_embed.common.arrays import read_npy, read_npz
from sparse_embed.common.failures import DataError

FLOATS = np.arange(12, dtype=np.float32).reshape(3, 4)


def npy(header: str, data: bytes = b"", version: int = 1) -> bytes:
    """The bytes of an .npy file with any header."""
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header.encode() + data


def described(shape: str, descr: str = "'<f4'", order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


@given(
    numpy_strategies.arrays(
        st.sampled_from(["<f4", ">f8", "<f2", "i1", "<i8", "?", "<U3", "S2", "<c8"]),
        numpy_strategies.array_shapes(min_dims=0, max_dims=3, min_side=0),
    ),
    st.booleans(),
)
def test_what_numpy_writes_is_read(tmp_path_factory, array, fortran):
    folder = tmp_path_factory.mktemp("arrays")
    array = np.asfortranarray(array) if fortran else array
    np.save(folder / "x.npy", array)
    np.savez(folder / "x.npz", array=array)
    np.savez_compressed(folder / "y.npz", array=array)
    for found in (
        read_npy(folder / "x.npy"),
        read_npy(folder / "x.npy", mmap=True),
        read_npz(folder / "x.npz")["array"],
        read_npz(folder / "y.npz", ["array"])["array"],
    ):
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)


def test_a_mapped_array_stays_on_disk(tmp_path):
    np.save(tmp_path / "x.npy", FLOATS)
    assert isinstance(read_npy(tmp_path / "x.npy", mmap=True), np.memmap)
    assert not isinstance(read_npy(tmp_path / "x.npy"), np.memmap)


BROKEN = {
    "empty": b"",
    "text": b"not numpy",
    "zip": b"PK\x03\x04 torn",
    "magic alone": b"\x93NUMPY",
    "version 3": npy(described("(1,)"), bytes(4), 3),
    "version 9": npy(described("(1,)"), bytes(4), 9),
    "short": npy(described("(3,)"), bytes(11)),
    "long": npy(described("(3,)"), bytes(13)),
    "petabytes": npy(described("(1000000000000000,)"), bytes(8)),
    "beyond 64 bits": npy(described("(4294967296, 4294967296)"), bytes(8)),
    "negative": npy(described("(-1,)"), bytes(8)),
    "two negatives": npy(described("(-1, -2)"), bytes(8)),
    "objects": npy(described("(1,)", "'|O'"), b"cos\nsystem\n"),
    "no width": npy(described("(1000000000000,)", "'|S0'")),
    "no dtype": npy(described("(1,)", "'<q7'"), bytes(8)),
    "no tuple": npy(described("3"), bytes(12)),
    "no dict": npy("[1, 2]"),
    "no python": npy("{'descr': "),
    "deep": npy("(" * 9000),
    "deep minus": npy("-" * 9000 + "1"),
    "long header": npy(described("(1,)") + " " * 20_000, bytes(4), 2),
    "header of gigabytes": b"\x93NUMPY\x02\x00\xff\xff\xff\xff{",
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("mmap", [False, True], ids=["read", "mapped"])
def test_a_damaged_npy_costs_one_sentence(tmp_path, content, mmap):
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"^{re.escape(str(path))}: expected some rows: [^\n]+$"):
        read_npy(path, mmap, "some rows")


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_damaged_array_in_an_npz_costs_one_sentence(tmp_path, content):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rows.npy", content)
    with pytest.raises(
        DataError, match=f"^{re.escape(str(path))}:rows: expected an array: [^\n]+$"
    ):
        read_npz(path)
    assert read_npz(path, []) == {}  # what nobody asks for is not read


def test_every_truncation_and_flip_of_an_npz_is_refused_or_harmless(tmp_path):
    path = tmp_path / "x.npz"
    for save in (np.savez, np.savez_compressed):
        save(path, rows=FLOATS, labels=np.arange(3))
        whole = path.read_bytes()
        for length in range(0, len(whole), 7):
            path.write_bytes(whole[:length])
            with pytest.raises(DataError, match=r"x\.npz: expected"):
                read_npz(path)
        for place in range(0, len(whole), 3):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
            with contextlib.suppress(DataError):  # unless it carries no content, such as a time
                np.testing.assert_array_equal(read_npz(path, ["rows"])["rows"], FLOATS)


def test_missing_and_doubled_arrays(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, rows=FLOATS)
    with pytest.raises(DataError, match=r"'labels', 'rows': 'labels' is not among \['rows"):
        read_npz(path, ["labels", "rows"])
    assert set(read_npz(path, ["rows"], ["labels"])) == {"rows"}
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("rows", archive.read("rows.npy"))
    with pytest.raises(DataError, match="two arrays of one name"):
        read_npz(path)
    with pytest.raises(FileNotFoundError):
        read_npz(tmp_path / "none.npz")


def write_bomb(path, declared: bool):
    """A zip of 260 kB whose member `rows` is an array of 256 MiB."""
    count = 1 << 28
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("rows.npy", "w", force_zip64=True) as file,
    ):
        file.write(npy(described(f"({count},)", "'|u1'")))
        for _ in range(count >> 24):
            file.write(bytes(1 << 24))
    if not declared:  # claim a size that is allowed
        content = path.read_bytes()
        with zipfile.ZipFile(path) as archive:
            size = archive.getinfo("rows.npy").file_size
        path.write_bytes(content.replace(struct.pack("<I", size), struct.pack("<I", 1 << 20)))


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "lying"])
def test_a_bomb_takes_no_memory(tmp_path, declared):
    path = tmp_path / "bomb.npz"
    write_bomb(path, declared)
    assert path.stat().st_size < 300_000
    code = (
        "import resource, sys\n"
        "from sparse_embed.common.arrays import read_npz\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n"
        "    read_npz(sys.argv[1], ['rows'])\n"
        "except ValueError as error:\n"
        "    print(error)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    message, kilobytes = done.stdout.splitlines()
    assert str(path) in message
    assert ("expected at most 67,108,864" in message) == declared
    assert int(kilobytes) < 64 << 10


def test_much_compression_is_allowed_where_it_is_honest(tmp_path):
    """A 16-MB array of -1, the labels of distractors, in a few kB."""
    path = tmp_path / "x.npz"
    np.savez_compressed(path, labels=np.full(2_000_000, -1))
    assert path.stat().st_size < 32_000
    assert (read_npz(path)["labels"] == -1).all()


@pytest.mark.parametrize("code", [0x110000, 0xFFFFFFFF, 0xD800])
@pytest.mark.parametrize("order", "<>")
def test_text_that_is_none_is_refused(tmp_path, code, order):
    np.save(tmp_path / "x.npy", np.array([65, code], f"{order}u4").view(f"{order}U1"))
    with pytest.raises(DataError, match=r"x\.npy: expected .*characters that do not exist"):
        read_npy(tmp_path / "x.npy")
    np.savez(tmp_path / "x.npz", names=np.array([65, code], f"{order}u4").view(f"{order}U1"))
    with pytest.raises(DataError, match=r"x\.npz:names: expected .*characters that do not exist"):
        read_npz(tmp_path / "x.npz")


@pytest.mark.parametrize("code", [0xD7FF, 0xE000, 0x10FFFF])
def test_characters_beside_those_that_are_none_are_text(tmp_path, code):
    np.save(tmp_path / "x.npy", np.array([f"A{chr(code)}"]))
    assert read_npy(tmp_path / "x.npy").tolist() == [f"A{chr(code)}"]
