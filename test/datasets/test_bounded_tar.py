"""Archives: members of any compression, and bombs of every kind, which must take neither memory nor
more bytes than are allowed."""

import gzip
import io
import lzma
import subprocess
import sys
import tarfile

import pytest

from sparse_embed.common.failures import DataError
from sparse_embed.datasets.bounded_tar import read_members

MOST, TOTAL = {"a": 1 << 20, "b": 1000}, 8 << 20


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.type = size, kind
    return member.tobuf(tarfile.GNU_FORMAT)


def entry(name: str, data: bytes, kind: bytes = tarfile.REGTYPE) -> bytes:
    return header(name, len(data), kind) + data + bytes(-len(data) % 512)


A, B, END = entry("folder/a", b"x" * 700), entry("folder/b", b"y"), bytes(1024)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_what_tarfile_writes_is_read(tmp_path, mode, form):
    path = tmp_path / "x.tar"
    with tarfile.open(path, mode, format=form) as archive:
        for name, data in {"é/read me": b"r", "é/a": b"x" * 700, "é/b": b"", "c": b"c" * 5}.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        folder = tarfile.TarInfo("other/a")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
    assert read_members(path, MOST, TOTAL) == {"a": b"x" * 700, "b": b""}


def test_an_archive_without_them_is_refused(tmp_path):
    path = tmp_path / "x.tar"
    for content in (b"", END, A + END):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"x\.tar: [ab] is not in the archive"):
            read_members(path, MOST, TOTAL)


@pytest.mark.parametrize(
    "content",
    [
        b"no archive",
        A[:-100],
        A + B[:300],
        A[:600] + b"?" + A[601:] + B[:100] + b"?" + B[101:],
        # mtime=0: the names of tests must not hold the time at which they were collected
        gzip.compress(A + B + END, mtime=0)[:-20],
        gzip.compress(A + B + END, mtime=0)[:-8] + bytes(8),
        lzma.compress(A + B + END)[:-20],
        b"\x1f\x8b rest",
        b"\xfd7zXZ\x00 rest",
        b"BZh rest",
    ],
)
def test_damage_is_named(tmp_path, content):
    path = tmp_path / "x.tar"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"x\.tar: expected a tar archive: ."):
        read_members(path, MOST, TOTAL)


GIGABYTE = 1 << 30
BOMBS = {
    "a member": (
        [header("a", GIGABYTE)],
        "a holds 1,073,741,824 bytes: expected at most 1,04",
    ),
    "another member": ([header("junk", GIGABYTE)], "more than 8,388,608 bytes"),
    "a long name": ([header("name", GIGABYTE, tarfile.GNUTYPE_LONGNAME)], "more than 8,388,608"),
    "an extended header": ([header("pax", GIGABYTE, tarfile.XHDTYPE)], "more than 8,388,608 bytes"),
    "after the end": ([A, B, END], "more than 8,388,608 bytes"),
    "before the start": ([], "more than 8,388,608 bytes"),
}


@pytest.mark.parametrize(("start", "message"), BOMBS.values(), ids=BOMBS)
@pytest.mark.parametrize("kind", ["gz", "xz"])
def test_a_bomb_takes_no_memory(tmp_path, start, message, kind):
    path = tmp_path / f"bomb.tar.{kind}"
    with (gzip if kind == "gz" else lzma).open(path, "wb") as file:
        file.write(b"".join(start))
        for _ in range(16):
            file.write(bytes(1 << 24))
    assert path.stat().st_size < 300_000
    code = (
        "import pathlib, resource, sys\n"
        "from sparse_embed.datasets.bounded_tar import read_members\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n"
        f"    read_members(pathlib.Path(sys.argv[1]), {MOST}, {TOTAL})\n"
        "except ValueError as error:\n"
        "    print(error)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    sentence, kilobytes = done.stdout.splitlines()
    assert sentence.startswith(f"{path}: ")
    assert message in sentence
    assert int(kilobytes) < 40 << 10
