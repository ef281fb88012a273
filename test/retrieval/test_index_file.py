"""Index files: round trips, and refusal of everything that is not a whole, undamaged one."""

import os
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
import scipy.sparse

from sparse_embed.retrieval import SparseIndex, index_file
from sparse_embed.retrieval.index_file import ENTRY, HEADER, OLD_HEADER, IndexFileError

NEXT_ID = 6  # which field of the header it is
IDS, ROWS, RANKS = 2, 3, 4  # sections


@pytest.fixture
def index():
    rng = np.random.default_rng(0)
    csr = scipy.sparse.random_array((300, 20), density=0.2, rng=rng, dtype=np.float32, format="csr")
    made = SparseIndex(20, block_rows=64)
    made.add(csr)
    made.remove([3, 77])
    return made


@pytest.fixture
def own_ids(index):
    """An index whose ids are in no order; one of them was removed and given again."""
    rng = np.random.default_rng(2)
    made = SparseIndex(20, block_rows=64)
    made.merge(index)
    made.add(index.reconstruct([5, 6, 9, 8]), ids=[3, 400, 2**40, 77])
    made.remove([5, 400])
    made.add(rng.random((60, 20)), ids=[5, 400, *rng.permutation(10**6)[:58] + 1000])
    return made


@pytest.fixture
def with_cells():
    """An index whose first block has cells."""
    rng = np.random.default_rng(3)
    made = SparseIndex(20, block_rows=1024)
    made.add(rng.random((1100, 20)) * (rng.random((1100, 20)) < 0.3))
    made.remove([3, 77])
    assert made.nbytes_by_part["cells"] > 0
    made._way = "cells"
    return made


@pytest.fixture
def queries():
    return np.random.default_rng(1).random((4, 20)).astype(np.float32)


@pytest.mark.parametrize("mmap", [True, False])
def test_round_trip(tmp_path, index, queries, mmap):
    index.save(tmp_path / "a.index")
    loaded = SparseIndex.load(tmp_path / "a.index", mmap=mmap)
    assert loaded.shape == index.shape
    assert len(loaded) == len(index) == 298
    np.testing.assert_array_equal(loaded.ids, index.ids)
    assert loaded.nbytes == index.nbytes
    np.testing.assert_array_equal(loaded.flops(queries), index.flops(queries))
    for a, b in zip(loaded.search(queries, 20), index.search(queries, 20), strict=True):
        np.testing.assert_array_equal(a, b)
    # A mapped index can grow and shrink like any other; the file stays as it is.
    before = (tmp_path / "a.index").read_bytes()
    for one in (loaded, index):
        one.add(queries)
        one.remove([0, 301])
    for a, b in zip(loaded.search(queries, 400), index.search(queries, 400), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (tmp_path / "a.index").read_bytes() == before
    loaded.save(tmp_path / "a.index")  # over the file it is mapped from
    again = SparseIndex.load(tmp_path / "a.index", verify=True)
    np.testing.assert_array_equal(again.search(queries, 9)[1], index.search(queries, 9)[1])


@pytest.mark.parametrize("mmap", [True, False])
def test_ids_round_trip(tmp_path, own_ids, queries, mmap):
    own_ids.save(tmp_path / "a.index")
    loaded = SparseIndex.load(tmp_path / "a.index", mmap=mmap, verify=True)
    assert loaded.nbytes == own_ids.nbytes
    for _ in range(2):
        np.testing.assert_array_equal(loaded.ids, own_ids.ids)
        for a, b in zip(loaded.search(queries, 400), own_ids.search(queries, 400), strict=True):
            np.testing.assert_array_equal(a, b)
        for one in (loaded, own_ids):
            assert one.add(queries)[0] > 2**40
            one.remove([3, 400])
            one.add(queries[:1], [3])
    loaded.save(tmp_path / "a.index")
    own_ids.save(tmp_path / "b.index")
    assert (tmp_path / "a.index").read_bytes() == (tmp_path / "b.index").read_bytes()


def as_version_1(content):
    """The same index of default ids as an old release wrote it."""
    _, sections = sections_of(content)
    header = list(HEADER.unpack(content[: HEADER.size]))
    kept = [content[offset : offset + size] for offset, size in [*sections[:2], *sections[5:]]]
    place = OLD_HEADER.size + ENTRY.size * len(kept) + index_file.CHECKSUM.size
    entries, body = b"", b""
    for section in kept:
        gap = -place % index_file.ALIGNMENT
        entries += ENTRY.pack(place + gap, len(section), zlib.crc32(section), 0)
        body += bytes(gap) + section
        place += gap + len(section)
    del header[NEXT_ID]
    header[2:4], header[-1] = [1, place], len(kept)
    start = OLD_HEADER.pack(*header) + entries
    return start + index_file.CHECKSUM.pack(zlib.crc32(start)) + body


def test_files_of_version_1_are_read(tmp_path, index, queries):
    index.save(tmp_path / "a.index")
    content = as_version_1((tmp_path / "a.index").read_bytes())
    (tmp_path / "old.index").write_bytes(content)
    loaded = SparseIndex.load(tmp_path / "old.index", verify=True)
    np.testing.assert_array_equal(loaded.ids, index.ids)
    for a, b in zip(loaded.search(queries, 20), index.search(queries, 20), strict=True):
        np.testing.assert_array_equal(a, b)
    assert loaded.add(queries)[0] == 300
    for length in (50, OLD_HEADER.size, OLD_HEADER.size + 5, len(content) - 1):
        assert all(try_damaged(tmp_path / "b.index", content[:length], queries)), length


@pytest.mark.parametrize("shape", [(0, 7), (5, 0), (0, 0)])
def test_empty_index_round_trip(tmp_path, shape):
    SparseIndex.build(np.zeros(shape)).save(tmp_path / "empty.index")
    assert SparseIndex.load(tmp_path / "empty.index").shape == shape


def test_a_failed_save_leaves_the_old_file_whole(tmp_path, index, queries, monkeypatch):
    path = tmp_path / "a.index"
    index.save(path)
    before = path.read_bytes()

    def fail(section):
        raise OSError("disk full")

    index.add(queries)
    monkeypatch.setattr(index_file.zlib, "crc32", fail)
    with pytest.raises(OSError, match="disk full"):
        index.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.index"]


def test_a_killed_save_leaves_the_old_file_whole(tmp_path, index):
    """A process that dies by SIGKILL while it writes the new file."""
    path = tmp_path / "a.index"
    index.save(path)
    before = path.read_bytes()
    script = f"""
import os, signal
import numpy as np
from sparse_embed.retrieval import SparseIndex, index_file

class Dying:  # stands in for the checksum, which is written after the new file was opened
    size = 4
    def pack(value):
        os.kill(os.getpid(), signal.SIGKILL)

index_file.CHECKSUM = Dying
SparseIndex.build(np.eye(200)).save({str(path)!r})
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True)
    assert done.returncode == -9, done.stderr
    assert path.read_bytes() == before
    SparseIndex.load(path, verify=True)


def refuses(path, queries, mmap, verify):
    """Whether loading refuses the file; if not, the index must be safe to use, right or wrong."""
    try:
        loaded = SparseIndex.load(path, mmap=mmap, verify=verify)
    except IndexFileError as error:
        return str(path) in str(error)
    loaded.search(queries, 20)
    loaded.search(queries, 20, 0.1, allowed=np.arange(200))
    loaded.search(-queries, 400, forbidden=[7])
    loaded.range_search(queries, 0.5)
    loaded.reconstruct(loaded.ids)
    loaded.add(queries, [2**50, 2**20, 2**30, 2**51])
    loaded.remove(loaded.ids[[0, 100]])
    loaded.compact()
    return False


def try_damaged(path, content, queries):
    """Whether damaged content is refused when read, mapped and verified, and mapped on trust."""
    path.write_bytes(content)
    ways = ((False, None), (True, True), (True, False))
    return [refuses(path, queries, mmap, verify) for mmap, verify in ways]


def sections_of(content):
    num_sections = HEADER.unpack(content[: HEADER.size])[-1]
    end = HEADER.size + ENTRY.size * num_sections
    return end, [entry[:2] for entry in ENTRY.iter_unpack(content[HEADER.size : end])]


@pytest.mark.parametrize("kind", ["index", "own_ids", "with_cells"])
def test_every_flipped_bit_is_noticed_and_none_is_dangerous(tmp_path, queries, kind, request):
    request.getfixturevalue(kind).save(tmp_path / "a.index")
    content = (tmp_path / "a.index").read_bytes()
    end, sections = sections_of(content)
    rng = np.random.default_rng(0)
    places = {8 * byte + int(rng.integers(8)) for byte in range(end + 4)}
    for offset, size in sections:  # block headers and offsets densely, the rest at random
        dense = range(min(size, 160))
        places |= {8 * (offset + int(b)) + int(rng.integers(8)) for b in dense}
        if size:
            places |= {8 * offset + int(bit) for bit in rng.integers(8 * size, size=60)}
    assert len(places) > 1000
    covered = [range(offset, offset + size) for offset, size in sections]
    for bit in sorted(places):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        read, verified, trusted = try_damaged(tmp_path / "b.index", bytes(damaged), queries)
        assert read, f"bit {bit} was not noticed"
        assert verified, f"bit {bit} was not noticed"
        if not any(bit // 8 in section for section in covered[IDS:]):
            assert trusted, f"bit {bit} of header, table or small section was not noticed"


def test_truncated_and_extended_files_are_refused(tmp_path, index, queries):
    index.save(tmp_path / "a.index")
    content = (tmp_path / "a.index").read_bytes()
    end, sections = sections_of(content)
    lengths = {0, 1, 7, 8, 20, HEADER.size - 1, HEADER.size, HEADER.size + 5, end, end + 3, end + 4}
    for offset, size in sections:
        lengths |= {offset, offset + 1, offset + size // 2, offset + size - 1, offset + size}
    for length in sorted(lengths - {len(content)}):
        assert all(try_damaged(tmp_path / "b.index", content[:length], queries)), length
    assert all(try_damaged(tmp_path / "b.index", content + b"\0", queries))


def test_wrong_lengths_with_a_right_checksum_are_refused(tmp_path, index, queries):
    """Somebody edits numbers of the header or the table and mends its checksum."""
    index.save(tmp_path / "a.index")
    content = (tmp_path / "a.index").read_bytes()
    end, sections = sections_of(content)
    header = list(HEADER.unpack(content[: HEADER.size]))
    rng = np.random.default_rng(0)
    cases = []
    for field in {*range(3, len(header))} - {NEXT_ID}:  # any next id is right that no row has
        for value in (
            0,
            1,
            header[field] + 1,
            header[field] - 1,
            2 * header[field],
            2**31,
            2**32 - 1,
        ):
            changed = list(header)
            changed[field] = max(value, 0)
            if changed != header:
                cases.append((HEADER.pack(*changed), content[HEADER.size : end]))
    for number in range(len(sections)):
        for field in (0, 1):
            for value in (0, 64, 2**63, int(rng.integers(2**40)) * 64, len(content)):
                entries = [list(e) for e in ENTRY.iter_unpack(content[HEADER.size : end])]
                if entries[number][field] != value:
                    entries[number][field] = value
                    table = b"".join(ENTRY.pack(*entry) for entry in entries)
                    cases.append((content[: HEADER.size], table))
    for start in cases:
        joined = b"".join(start)
        checksum = index_file.CHECKSUM.pack(index_file.zlib.crc32(joined))
        damaged = joined + checksum + content[end + 4 :]
        assert all(try_damaged(tmp_path / "b.index", damaged, queries)), start[0]


def test_foreign_files_are_refused(tmp_path):
    path = tmp_path / "foreign"
    np.save(tmp_path / "foreign.npy", np.eye(3))
    for content, message in (
        (b"", "the file is empty"),
        (b"hello", "not an index file"),
        ((tmp_path / "foreign.npy").read_bytes(), "not an index file"),
        (b"SPEMBIDX" + (0x04030201).to_bytes(4, sys.byteorder) + bytes(100), "other byte order"),
        (
            b"SPEMBIDX"
            + b"".join(x.to_bytes(4, sys.byteorder) for x in (0x01020304, 9))
            + bytes(99),
            "format version 9",
        ),
    ):
        path.write_bytes(content)
        for mmap in (True, False):
            with pytest.raises(IndexFileError, match=message):
                SparseIndex.load(path, mmap=mmap)
    with pytest.raises(FileNotFoundError):
        SparseIndex.load(tmp_path / "absent")


def forged(content, change):
    """The file with its table of sections (and header) changed, and the checksum that fits."""
    end, _ = sections_of(content)
    header = list(HEADER.unpack(content[: HEADER.size]))
    entries = [list(entry) for entry in ENTRY.iter_unpack(content[HEADER.size : end])]
    body = bytearray(content)
    change(header, entries, body)
    start = HEADER.pack(*header) + b"".join(ENTRY.pack(*entry) for entry in entries)
    rest = body[len(start) + 4 :]
    return start + index_file.CHECKSUM.pack(zlib.crc32(start)) + bytes(rest)


def test_blocks_that_share_their_bytes_are_refused(tmp_path):
    """Two blocks in one place would let a small file claim any number of rows."""
    made = SparseIndex(4, block_rows=64)
    made.add(np.eye(4, dtype=np.float32)[np.arange(128) % 4])
    made.save(tmp_path / "a.index")
    content = (tmp_path / "a.index").read_bytes()

    def share(header, entries, body):
        entries[6] = entries[5]

    (tmp_path / "b.index").write_bytes(forged(content, share))
    with pytest.raises(IndexFileError, match="section 6 does not lie in its place"):
        SparseIndex.load(tmp_path / "b.index")
    (tmp_path / "c.index").write_bytes(forged(content, lambda *parts: None))
    assert SparseIndex.load(tmp_path / "c.index").shape == (128, 4)


def test_removed_rows_beyond_the_last_are_refused(tmp_path, index):
    index.save(tmp_path / "a.index")

    def remove_too_much(header, entries, body):
        offset, size = entries[1][:2]
        bits = np.frombuffer(bytes(body[offset : offset + size]), np.uint64).copy()
        bits[-1] |= np.uint64(1) << np.uint64(63)  # row 319 of 300
        body[offset : offset + size] = bits.tobytes()
        entries[1][2] = zlib.crc32(bits.tobytes())

    (tmp_path / "b.index").write_bytes(forged((tmp_path / "a.index").read_bytes(), remove_too_much))
    with pytest.raises(IndexFileError, match="removed that the index does not have"):
        SparseIndex.load(tmp_path / "b.index")


def changed(section, values):
    """Writes other values to a section and mends its checksum."""

    def change(header, entries, body):
        offset, size = entries[section][:2]
        array = np.frombuffer(bytes(body[offset : offset + size]), values.dtype).copy()
        array[: len(values)] = values
        body[offset : offset + size] = array.tobytes()
        entries[section][2] = zlib.crc32(array.tobytes())

    return change


def next_id(value):
    def change(header, entries, body):
        header[NEXT_ID] = value

    return change


def emptied(*sections):
    """Lets sections claim to be empty."""

    def change(header, entries, body):
        for section in sections:
            entries[section][1:3] = [0, 0]

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed(IDS, np.int64([-1])), "the ids do not rise"),
        (changed(IDS, np.int64([1, 0])), "the ids do not rise"),
        (changed(IDS, np.int64([1, 1])), "two rows have the same id"),
        (changed(ROWS, np.uint32([2**32 - 1])), "the order of the rows is damaged"),
        (changed(ROWS, np.uint32([364])), "the order of the rows is damaged"),
        (changed(ROWS, np.uint32([1])), "the order of the rows is damaged"),
        (changed(RANKS, np.uint32([2**32 - 1])), "the order of the rows is damaged"),
        (emptied(ROWS), "the order of the rows is incomplete"),
        (emptied(RANKS), "the order of the rows is incomplete"),
        (next_id(2**40), "the next id has been given out"),
        (next_id(0), "the next id has been given out"),
        (next_id(2**63 + 1), "the next id has been given out"),
    ],
)
def test_damaged_ids_are_refused(tmp_path, own_ids, change, message):
    own_ids.save(tmp_path / "a.index")
    (tmp_path / "b.index").write_bytes(forged((tmp_path / "a.index").read_bytes(), change))
    for mmap in (True, False):
        with pytest.raises(IndexFileError, match=f"b.index: the ids are damaged: {message}"):
            SparseIndex.load(tmp_path / "b.index", mmap=mmap, verify=True)


def test_damaged_cells_are_refused(tmp_path, with_cells):
    with_cells.save(tmp_path / "a.index")
    content = (tmp_path / "a.index").read_bytes()
    offset, size = sections_of(content)[1][5]
    block = content[offset : offset + size]
    groups, words = struct.unpack("=QQ", block[8:24])
    parts = [64, 21 * 4, 8 * groups, 2 * groups + 16, 2 * groups + 16, 1025 * 4, 4 * words]
    order = sum(-(-part // 64) * 64 for part in parts)
    np.testing.assert_array_equal(
        np.sort(np.frombuffer(block[order : order + 2048], np.uint16)), np.arange(1024)
    )
    cases = [(order, bytes(block[order + 2 : order + 4]), "order of rows")]
    cases += [(order, b"\xff\xff", "order of rows"), (order + 2048, b"\xff\xff", "order of rows")]
    cases += [(order + 4096, struct.pack("=f", value), "levels") for value in (1.0, -1.0, np.nan)]
    cases += [(order + 4096 + 60, struct.pack("=f", 0.0), "levels"), (60, b"\0", "do not match")]
    cases.append((60, b"\xff\xff\xff\xff", "cells are too large"))
    for at, value, message in cases:
        damaged = np.frombuffer(block[:at] + value + block[at + len(value) :], np.uint8)
        path = tmp_path / "b.index"
        path.write_bytes(forged(content, changed(5, damaged)))
        with pytest.raises(IndexFileError, match=message):
            SparseIndex.load(path, verify=True)


def test_files_of_version_2_are_read(tmp_path, own_ids, queries):
    """They are as those of today, without cells."""
    assert own_ids.nbytes_by_part["cells"] == 0
    own_ids.save(tmp_path / "a.index")

    def older(header, entries, body):
        header[2] = 2

    (tmp_path / "b.index").write_bytes(forged((tmp_path / "a.index").read_bytes(), older))
    loaded = SparseIndex.load(tmp_path / "b.index", verify=True)
    np.testing.assert_equal(loaded.search(queries, 400), own_ids.search(queries, 400))


def test_ids_of_the_wrong_length_are_refused(tmp_path, own_ids):
    own_ids.save(tmp_path / "a.index")

    def shorten(header, entries, body):
        offset, size = entries[IDS][:2]
        entries[IDS][1:3] = [size - 8, zlib.crc32(bytes(body[offset : offset + size - 8]))]

    (tmp_path / "b.index").write_bytes(forged((tmp_path / "a.index").read_bytes(), shorten))
    with pytest.raises(IndexFileError, match="the ids have the wrong length"):
        SparseIndex.load(tmp_path / "b.index")
