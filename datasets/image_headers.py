"""What the first bytes of an image say: its format and its size, without decoding it.

A few kilobytes can claim to be an image of gigabytes. So the size is read first, and no image
beyond `MAX_PIXELS` is ever decoded. Sizes are those that TensorFlow's decoders give: the first
frame of a GIF has the largest height and the largest width of all its frames.
"""

import struct
from typing import NamedTuple, NoReturn

# The decoder needs 3 bytes per pixel and scaling 12 more: 1.5 GB for the largest image allowed.
MAX_PIXELS = 10**8

_JPEG, _PNG, _GIF, _BMP = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF8", b"BM"
# Start of frame, 0xc0 to 0xcf, without those of Huffman tables, extensions and arithmetic coding.
_SIZES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_ALONE = frozenset({0x00, 0x01, *range(0xD0, 0xD8)})  # markers that have no length
_END, _SCAN = 0xD9, 0xDA


class Header(NamedTuple):
    """What an image says of itself.

    Attributes:
        format: "JPEG", "PNG", "GIF" or "BMP".
        height: in pixels.
        width: in pixels.
        pixels: all that decoding makes: height x width, or of a GIF the sum over its frames, if
            that is more.
    """

    format: str
    height: int
    width: int
    pixels: int


def read_header(data: bytes) -> Header:
    """Reads the header of an encoded image; raises ValueError if there is none that can be read."""
    if not data:
        raise ValueError("it is empty")
    try:
        if data.startswith(_JPEG):
            return _of_size("JPEG", *_jpeg_size(data))
        if data.startswith(_PNG):
            if data[12:16] != b"IHDR":
                _fail("PNG", "does not begin with its size")
            width, height = struct.unpack_from(">II", data, 16)
            return _of_size("PNG", height, width)
        if data.startswith(_GIF):
            return _gif_header(data)
        if data.startswith(_BMP):
            width, height = struct.unpack_from("<ii", data, 18)
            return _of_size("BMP", abs(height), width)  # negative if the top row comes first
    except (struct.error, IndexError) as error:
        raise ValueError("it ends within its header") from error
    raise ValueError(f"expected JPEG, PNG, GIF or BMP, it begins with {data[:8]!r}")


def check_header(data: bytes, size: tuple[int, int] | None = None) -> None:
    """Raises ValueError unless `data` begins like an image that may be decoded.

    Args:
        data: the encoded image, or enough of its beginning.
        size: (height, width) that it must have; None for any of at most `MAX_PIXELS` pixels.
    """
    header = read_header(data)
    what = f"{header.format} of {header.width:,} x {header.height:,} pixels"
    if header.pixels > MAX_PIXELS:
        frames = "" if header.format != "GIF" else f", {header.pixels:,} in all frames"
        raise ValueError(f"{what}{frames}: expected at most {MAX_PIXELS:,} pixels")
    if size is not None and size != (header.height, header.width):
        raise ValueError(f"{what}: expected {size[1]:,} x {size[0]:,}")


def _of_size(kind: str, height: int, width: int) -> Header:
    if height < 1 or width < 1:
        _fail(kind, f"of {width} x {height} pixels")
    return Header(kind, height, width, height * width)


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """Goes from marker to marker as libjpeg does, over stray bytes too, to the start of frame."""
    place = 2
    while True:
        place = data.find(b"\xff", place)
        if place < 0:
            raise IndexError("no marker")
        while data[place] == 0xFF:
            place += 1
        marker = data[place]
        place += 1
        if marker in _SIZES:
            return struct.unpack_from(">HH", data, place + 3)
        if marker in (_END, _SCAN):
            _fail("JPEG", "without a size")
        if marker not in _ALONE:
            place += struct.unpack_from(">H", data, place)[0]


def _gif_header(data: bytes) -> Header:
    """Goes through the blocks of a GIF: the decoder keeps every frame, whichever is wanted."""
    place = 13 + _colours(data[10])
    tallest = widest = total = 0
    while place < len(data) and data[place] != 0x3B:
        block = data[place]
        if block == 0x2C:
            width, height = struct.unpack_from("<HH", data, place + 5)
            tallest, widest = max(tallest, height), max(widest, width)
            total += height * width
            place += 11 + _colours(data[place + 9])  # the descriptor, colours, size of codes
        elif block == 0x21:
            place += 2
        else:
            break  # the decoder gives up here, and keeps what it has
        while place < len(data) and data[place]:
            place += 1 + data[place]
        place += 1
    if not total:
        raise IndexError("no frame")
    return Header("GIF", tallest, widest, max(total, tallest * widest))


def _colours(flags: int) -> int:
    """Returns the size of a GIF's table of colours in bytes."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _fail(kind: str, reason: str) -> NoReturn:
    raise ValueError(f"{kind} {reason}")
