import os
import pathlib
import struct
import zlib

import pytest


@pytest.fixture(scope="session")
def shared() -> pathlib.Path:
    """The folder of real data; tests that need it skip where it is absent."""
    beside = pathlib.Path(__file__).parents[2].parent / "shared"
    folder = pathlib.Path(os.environ.get("SPARSE_EMBED_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"no real data in {folder}; SPARSE_EMBED_DATA names its folder")
    return folder


@pytest.fixture(scope="session")
def huge_png() -> bytes:
    """A few bytes that claim to be 50,000 x 50,000 pixels: all is right but their number."""

    def chunk(name, data):
        end = struct.pack(">I", zlib.crc32(name + data))
        return struct.pack(">I", len(data)) + name + data + end

    head = struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0)
    pixels = chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + pixels + chunk(b"IEND", b"")
