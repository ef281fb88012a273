"""Small encoded images to damage."""

import io
import struct
import zlib

import numpy as np
import PIL.Image
from fuzz.mutations import Parts

SIZE = 8
TOKENS = [
    *(
        b"\xff\xd8",
        b"\xff\xd9",
        b"\xff\xc0",
        b"\xff\xc2",
        b"\xff\xda",
        b"\xff\xdb",
        b"\xff\xc4",
        b"\xff",
    ),
    *(
        b"IHDR",
        b"IDAT",
        b"PLTE",
        b"tRNS",
        b"IEND",
        b"GIF89a",
        b"GIF87a",
        b"\x21\xf9\x04",
        b"\x2c",
        b";",
    ),
    *(b"BM", b"RIFF", b"WEBPVP8 ", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0\x00\x10JFIF\x00"),
]
_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def encoded(kind: str, seed: int = 0, grey: bool = False, size: int = SIZE) -> bytes:
    """An image of random pixels as PNG, JPEG, GIF or BMP."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size, size, 3), np.uint8)
    image = PIL.Image.fromarray(pixels).convert("L" if grey else "RGB")
    file = io.BytesIO()
    image.save(file, kind, **({"progressive": True} if kind == "JPEG" and seed else {}))
    return file.getvalue()


def png_pieces(seed: int = 0) -> Parts:
    """Header and pixels of a PNG, which `joined` packs with the right checksums."""
    pixels = np.random.default_rng(seed).integers(0, 256, (SIZE, SIZE, 3), np.uint8)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    return {"png.header": struct.pack(">IIBBBBB", SIZE, SIZE, 8, 2, 0, 0, 0), "png.pixels": rows}


def joined(parts: Parts) -> bytes:
    """The image that the parts of an input are."""
    if "png.header" not in parts:
        return parts["image"]
    chunks = [(b"IHDR", parts["png.header"]), (b"IDAT", zlib.compress(parts["png.pixels"], 1))]
    made = _SIGNATURE
    for name, content in [*chunks, (b"IEND", b"")]:
        checksum = zlib.crc32(name + content)
        made += struct.pack(">I", len(content)) + name + content + struct.pack(">I", checksum)
    return made
