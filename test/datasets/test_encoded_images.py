"""Decoding: the pixels of other readers, and images that must not be decoded."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from sparse_embed.common.failures import DataError
from sparse_embed.datasets.encoded_images import decode_image
from sparse_embed.datasets.image_folder import ImageFiles


def picture(height: int, width: int, seed: int = 0) -> Image.Image:
    """Coarse and fine structure, in colour: what a cheap inverse DCT and plain upsampling lose."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (6, 6, 3), np.uint8)).resize((width, height))
    noise = rng.normal(0, 12, (height, width, 3))
    return Image.fromarray(np.clip(np.asarray(coarse) + noise, 0, 255).astype(np.uint8))


def encode(image: Image.Image, kind: str, **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def pixels_of_pil(data: bytes, mode: str = "RGB") -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert(mode))


@pytest.mark.parametrize("size", [(112, 112), (33, 47)])
@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize("quality", [40, 75, 95])
@pytest.mark.parametrize("more", [{}, {"progressive": True}])
def test_pixels_of_jpeg_are_those_of_pil(size, subsampling, quality, more):
    """To the last bit: the same inverse DCT, and the same interpolation of the colours."""
    data = encode(picture(*size), "JPEG", quality=quality, subsampling=subsampling, **more)
    found = decode_image(tf.constant(data), (*size, 3), resize=False)
    np.testing.assert_array_equal(found, pixels_of_pil(data))


def test_pixels_of_grey_jpeg_are_those_of_pil():
    data = encode(picture(40, 56).convert("L"), "JPEG", quality=80)
    for mode, channels in (("L", 1), ("RGB", 3)):
        found = decode_image(tf.constant(data), (40, 56, channels), resize=False)
        np.testing.assert_array_equal(found, pixels_of_pil(data, mode).reshape(40, 56, channels))


@pytest.mark.parametrize("kind", ["PNG", "BMP", "GIF"])
def test_pixels_of_other_formats_are_those_of_pil(kind):
    data = encode(picture(40, 56), kind)
    found = decode_image(tf.constant(data), (40, 56, 3), resize=False)
    np.testing.assert_array_equal(found, pixels_of_pil(data))


@pytest.mark.parametrize("kind", ["PNG", "BMP", "GIF"])
@pytest.mark.parametrize("stored", ["L", "RGB"])
@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("RGB", 3)])
def test_grey_and_colour_are_converted(kind, stored, mode, channels):
    """TensorFlow and PIL weigh the colours alike, but round apart."""
    data = encode(picture(40, 56).convert(stored), kind)
    found = decode_image(tf.constant(data), (40, 56, channels), resize=False)
    wanted = pixels_of_pil(data, mode).reshape(40, 56, channels).astype(int)
    np.testing.assert_allclose(found, wanted, atol=1)


def test_first_frame_of_a_gif():
    frames = [Image.fromarray(np.full((8, 8), 100 * i, np.uint8)) for i in range(3)]
    data = encode(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert not decode_image(tf.constant(data), (8, 8, 3), resize=False).numpy().any()


@pytest.fixture
def files(tmp_path, huge_png):
    """Three images, the second of which claims 2.5 billion pixels in a few bytes."""
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for path in paths:
        path.write_bytes(encode(picture(20, 20), "PNG"))
    paths[1].write_bytes(huge_png)
    return paths


def batches(source):
    rows = tf.data.Dataset.from_tensor_slices((np.arange(3), np.arange(3, dtype=np.int32)))
    return source.load(rows.batch(3), 3)


def test_an_image_too_large_is_never_decoded(files, monkeypatch):
    """Neither in pipelines nor in checks; the error has the file, the size and the limit."""
    assert files[1].stat().st_size < 1000
    decoded, decode = [], ImageFiles.decode

    def spy(self, data):
        return decode(self, tf.numpy_function(lambda x: decoded.append(x) or x, [data], tf.string))

    monkeypatch.setattr(ImageFiles, "decode", spy)
    message = (
        r"1.png: cannot be decoded: PNG of 50,000 x 50,000 pixels: expected at most 100,000,000"
    )
    source = ImageFiles(files, (8, 8, 3), "skip")
    with pytest.raises(ValueError, match=message):
        source.check(1)
    ((_, labels),) = batches(source)
    assert labels.numpy().tolist() == [0, 2]
    assert list(source.failures) == [1]
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"DataError: .*{message}"):
        list(batches(ImageFiles(files, (8, 8, 3), "raise")))
    assert decoded
    assert files[1].read_bytes() not in decoded


def test_broken_images_raise_data_errors(files):
    with pytest.raises(DataError, match=r"1.png: cannot be decoded"):
        ImageFiles(files, (8, 8, 3)).check_or_report(1)
    assert ImageFiles(files, (8, 8, 3), "skip").check_or_report(1) is None


def test_what_was_skipped_is_not_read_again(files, monkeypatch):
    source = ImageFiles(files, (8, 8, 3), "skip")
    list(batches(source))
    seen, read = [], ImageFiles.read
    monkeypatch.setattr(ImageFiles, "read", lambda self, row: seen.append(row) or read(self, row))
    ((_, labels),) = batches(source)
    assert labels.numpy().tolist() == [0, 2]
    assert sorted(seen) == [0, 2]
