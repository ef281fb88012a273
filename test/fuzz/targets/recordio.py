"""Record files of training sets: `.rec`, `.idx` and `property`."""

import pathlib
import struct

from fuzz import arrays, pictures
from fuzz.mutations import Parts

from sparse_embed.datasets import recordio

_MAGIC = struct.pack("<I", 0xCED7230A)
TOKENS = [_MAGIC, _MAGIC + bytes(4), b"\t", b"\n", b" ", b",", b"1e5", b"nan", b"#", b"0x1", b"-"]


def seeds() -> list[Parts]:
    """Five images of three identities with their ranges, and two images without."""
    labels = (0, 0, 1, 2, 2)
    images = [_record(label, image=_image(seed)) for seed, label in enumerate(labels)]
    ranges = [_record(*bounds) for bounds in ((1, 3), (3, 4), (4, 6))]
    whole = {**dict(enumerate([*images, *ranges], 1)), 0: _record(6, 9)}
    plain = {key: _record(key % 2, image=_image(key)) for key in range(2)}
    split = {0: _record(0, image=b"ab" + _MAGIC + b"cd" + bytes(2) + _MAGIC)}
    return [_files(whole, b"3,8,8\n"), _files(plain, b"2,8,8"), _files(split, b"1,8,8")]


def attempt(parts: Parts, folder: pathlib.Path) -> None:
    """Opens the set both ways, and reads the first images."""
    arrays.write(parts, folder)
    refused = None
    for scan_labels in (False, True):
        try:
            examples = recordio.load(folder, scan_labels=scan_labels)
        except ValueError as error:
            refused = error
            continue
        assert examples.labels.shape == (len(examples),)
        assert len(examples) > 0, "a set without images"
        assert 0 <= examples.labels.min() <= examples.labels.max() < examples.num_classes
        for row in range(min(len(examples), 6)):
            try:
                examples.source.read(row)
            except ValueError as error:
                refused = error
    if refused:
        raise refused


def _image(seed: int) -> bytes:
    return pictures.encoded("PNG", seed, size=4)


def _record(*labels: float, image: bytes = b"") -> bytes:
    if len(labels) == 1:
        return struct.pack("<IfQQ", 0, labels[0], 0, 0) + image
    return struct.pack(f"<IfQQ{len(labels)}f", len(labels), 0.0, 0, 0, *labels) + image


def _files(records: dict[int, bytes], property_text: bytes) -> Parts:
    data, lines = b"", ""
    for key, content in records.items():
        lines += f"{key}\t{len(data)}\n"
        pieces = _cut(content)
        flags = [0] if len(pieces) == 1 else [1, *[2] * (len(pieces) - 2), 3]
        for flag, piece in zip(flags, pieces, strict=True):
            data += _MAGIC + struct.pack("<I", flag << 29 | len(piece))
            data += piece + bytes(-len(piece) % 4)
    return {"train.rec": data, "train.idx": lines.encode(), "property": property_text}


def _cut(content: bytes) -> list[bytes]:
    """At each magic number at a multiple of 4, as the format's writer does."""
    places = [p for p in range(0, len(content) - 3, 4) if content[p : p + 4] == _MAGIC]
    begins, ends = [0, *(place + 4 for place in places)], [*places, len(content)]
    return [content[begin:end] for begin, end in zip(begins, ends, strict=True)]
