"""Files that cannot be read: one sentence that names them, and nothing else converted."""

import json
import zipfile
import zlib

import pytest

from sparse_embed.common.failures import DataError
from sparse_embed.common.reading import check_zip, read_json, reading


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        (ValueError("two\n lines"), "two lines"),
        (KeyError("shape"), "'shape' is missing"),
        (EOFError(), "EOFError"),
        (zlib.error("wrong data"), "wrong data"),
        (OSError("Unable to open file"), "Unable to open file"),  # as h5py does, without errno
    ],
)
def test_what_parsers_raise_names_the_file(raised, reason):
    with pytest.raises(DataError) as caught, reading("a.bin", "a thing"):
        raise raised
    assert str(caught.value) == f"a.bin: expected a thing: {reason}"
    assert caught.value.__cause__ is raised


@pytest.mark.parametrize(
    "raised",
    [
        FileNotFoundError(2, "No such file", "b"),
        OSError(28, "No space left on device"),
        DataError("b: has its own sentence"),
        AttributeError("a bug"),
        AssertionError("a bug"),
        MemoryError(),
        KeyboardInterrupt(),
    ],
)
def test_the_system_and_bugs_speak_for_themselves(raised):
    with pytest.raises(type(raised)) as caught, reading("a.bin", "a thing"):
        raise raised
    assert caught.value is raised


def test_json(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"é": [1]}), encoding="utf-8")
    assert read_json(path, "a note") == {"é": [1]}
    deep = b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}"
    for content in (
        b"",
        b'{"a": ',
        b"\xff\xfe\x00\x00",
        b"[1]",
        b"3",
        b"[" * 100_000,
        b"9" * 9999,
        deep,
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"x\.json: expected a note: ."):
            read_json(path, "a note")
    path.write_text("[1]")
    assert read_json(path, "a list", list) == [1]
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "none.json", "a note")


def test_zip_of_another_compression_is_refused(tmp_path):
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a", b"text")
    with (
        zipfile.ZipFile(path) as archive,
        pytest.raises(DataError, match=r"x\.zip: a is compressed by method 14"),
    ):
        check_zip(path, archive.infolist())
