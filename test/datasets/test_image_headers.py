"""Headers: the sizes of PIL and TensorFlow, and no image that is too large."""

import io
import struct

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from sparse_embed.datasets.image_headers import MAX_PIXELS, check_header, read_header


def png_head(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR" + struct.pack(">II", width, height)


def encode(kind: str, height: int, width: int, mode: str = "RGB", **options) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize("size", [(1, 1), (7, 300), (480, 33)])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("JPEG", {}),
        ("JPEG", {"progressive": True}),
        ("JPEG", {"mode": "L"}),
        ("JPEG", {"mode": "CMYK"}),
        ("JPEG", {"icc_profile": bytes(200_000), "exif": b"Exif\0\0" + bytes(60_000)}),
        ("JPEG", {"comment": b"\xff\xc0\0\x11\x08\0\x01\0\x01"}),
        ("PNG", {}),
        ("PNG", {"mode": "P"}),
        ("GIF", {}),
        ("BMP", {}),
        ("BMP", {"mode": "L"}),
    ],
)
def test_sizes_are_those_of_pil_and_tensorflow(kind, options, size):
    data = encode(kind, *size, **options)
    header = read_header(data)
    assert header == (kind, *size, size[0] * size[1])
    assert Image.open(io.BytesIO(data)).size == size[::-1]
    assert tf.io.decode_image(data, channels=3, expand_animations=False).shape[:2] == size
    check_header(data, size)
    with pytest.raises(ValueError, match=f"{kind} of {size[1]} x {size[0]} pixels: expected 9 x 8"):
        check_header(data, (8, 9))


def test_jpeg_with_stray_bytes_between_markers():
    data = encode("JPEG", 20, 30)
    data = data[:2] + b"\xff\xff\xfe\0\x04ab" + b"stray" + data[2:]
    assert read_header(data)[:3] == ("JPEG", 20, 30)
    assert tf.io.decode_image(data).shape == (20, 30, 3)


def test_bmp_from_top_to_bottom():
    data = bytearray(encode("BMP", 5, 4))
    data[22:26] = struct.pack("<i", -5)
    assert read_header(bytes(data))[:3] == ("BMP", 5, 4)
    assert tf.io.decode_image(bytes(data)).shape == (5, 4, 3)


def test_all_frames_of_a_gif_count():
    frames = [Image.fromarray(np.full((10, 12), 80 * i, np.uint8)) for i in range(3)]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    assert read_header(file.getvalue()) == ("GIF", 10, 12, 3 * 120)
    canvas = bytearray(file.getvalue())
    canvas[6:10] = struct.pack("<HH", 20, 30)  # larger than its frames
    assert read_header(bytes(canvas))[:3] == ("GIF", 10, 12)
    assert tf.io.decode_image(bytes(canvas), expand_animations=False).shape == (10, 12, 3)
    # The decoder makes room for the tallest and the widest frame, whichever it returns.
    tall, wide = (
        b"\x2c" + struct.pack("<HHHHB", 0, 0, *size, 0) + b"\x02\x01\0\0"
        for size in ((1, 60_000), (60_000, 1))
    )
    cross = b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0, 0, 0) + tall + wide + b"\x3b"
    with pytest.raises(ValueError, match="60,000 x 60,000 pixels, 3,600,000,000 in all frames"):
        check_header(cross)
    # A thousand frames of a few bytes each: their pixels would fill the memory.
    frame = b"\x2c" + struct.pack("<HHHHB", 0, 0, 10_000, 10_000, 0) + b"\x02\x01\0\0"
    bomb = b"GIF89a" + struct.pack("<HHBBB", 10_000, 10_000, 0, 0, 0) + frame * 1000 + b"\x3b"
    assert len(bomb) < 20_000
    with pytest.raises(ValueError, match="100,000,000,000 in all frames: expected at most"):
        check_header(bomb)


@pytest.mark.parametrize(
    "data",
    [
        png_head(50_000, 50_000),
        png_head(2**31 - 1, 1),
        b"BM" + bytes(16) + struct.pack("<ii", 50_000, -50_000) + bytes(20),
        b"\xff\xd8\xff\xc0\0\x11\x08" + struct.pack(">HH", 65_000, 65_000) + b"\x03",
        b"GIF89a" + bytes(7) + b"\x2c" + struct.pack("<HHHHB", 0, 0, 65_000, 65_000, 0) + b"\0\0",
    ],
)
def test_bombs_are_refused_with_their_size_and_the_limit(data):
    with pytest.raises(
        ValueError, match=r"of [\d,]+ x [\d,]+ pixels.*: expected at most 100,000,000"
    ):
        check_header(data)


def test_the_limit_itself_is_allowed():
    check_header(png_head(MAX_PIXELS // 1000, 1000))
    with pytest.raises(ValueError, match="100,001 x 1,000 pixels: expected at most 100,000,000"):
        check_header(png_head(MAX_PIXELS // 1000 + 1, 1000))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it is empty"),
        (b"RIFF\x24\0\0\0WEBP", r"expected JPEG, PNG, GIF or BMP, it begins with b'RIFF"),
        (b"\xff\xd8\xff", "it ends within its header"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "it ends within its header"),
        (b"\xff\xd8\xff\xda\0\x0c", "JPEG without a size"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\x0dIDAT", "PNG does not begin with its size"),
        (png_head(8, 0), "PNG of 8 x 0 pixels"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0", "it ends within its header"),
        (b"GIF89a", "it ends within its header"),
        (b"GIF89a" + bytes(7) + b"\x3b", "it ends within its header"),
        (b"BM123", "it ends within its header"),
    ],
)
def test_other_headers_are_refused(data, message):
    with pytest.raises(ValueError, match=message):
        read_header(data)


STARTS = [encode(kind, 9, 11) for kind in ("JPEG", "PNG", "GIF", "BMP")]


@given(
    start=st.sampled_from(STARTS),
    damage=st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 255)), max_size=8),
    cut=st.integers(0, 1000),
)
def test_any_bytes_have_a_header_or_raise(start, damage, cut):
    """And what is decoded has the size that the header says: nothing slips through the limit."""
    data = bytearray(start)
    for place, byte in damage:
        data[place % len(data)] = byte
    data = bytes(data[: max(0, len(data) - cut)])
    try:
        header = read_header(data)
    except ValueError:
        header = None
    if header is not None and header.pixels > 10**6:
        return
    try:
        decoded = tf.io.decode_image(data, channels=3, expand_animations=False)
    except tf.errors.InvalidArgumentError:
        return
    assert header is not None
    if header.format == "GIF":  # of which the decoder may see only the first frames
        assert decoded.shape[0] <= header.height
        assert decoded.shape[1] <= header.width
    else:
        assert decoded.shape[:2] == (header.height, header.width)
