"""CIFAR-100: pickles in a folder, in a tar archive, and damaged archives of them."""

import io
import pathlib
import pickle
import tarfile
import zlib

import numpy as np
from fuzz import arrays
from fuzz.mutations import Parts
from fuzz.targets import pickles

from sparse_embed.datasets import cifar100

TOKENS = [*pickles.TOKENS, b"ustar\x0000", b"ustar  \0", b"train", b"test", b"meta", b"data"]
TOKENS += [b"fine_labels", b"fine_label_names", b"0", b"1", b"2", b"5", b"x", b"L", b"S"]
_FILES = ("train", "test", "meta")
_CHECKSUM = slice(148, 156)


def seeds() -> list[Parts]:
    """The three files, and archives with several compressions."""
    train, test = list(range(100)), [3, 99]
    splits = {
        name: {b"data": np.zeros((len(labels), 3072), np.uint8), b"fine_labels": labels}
        for name, labels in (("train", train), ("test", test))
    }
    meta = {b"fine_label_names": [f"class {place}".encode() for place in range(100)]}
    files = {name: pickle.dumps(split, 2) for name, split in splits.items()}
    files["meta"] = pickle.dumps(meta, 2)
    small = {**files, "meta": pickle.dumps(meta, 4)}
    return [
        files,
        small,
        {"packed." + name: content for name, content in files.items()},
        {"tar": _archive(files, "")},
        *({f"archive.{kind}": _archive(files, kind)} for kind in ("gz", "bz2", "xz")),
    ]


def attempt(parts: Parts, folder: pathlib.Path) -> None:
    """Reads the data set."""
    path = folder / "cifar"
    if "train" in parts:
        path.mkdir()
        arrays.write(parts, path)
    elif "tar" in parts:  # with the right checksums, compressed
        path.write_bytes(zlib.compress(_mended(parts["tar"]), 1, wbits=31))
    elif "packed.train" in parts:
        names = {name.removeprefix("packed."): content for name, content in parts.items()}
        path.write_bytes(_archive(names, "gz"))
    else:
        (content,) = parts.values()
        path.write_bytes(content)
    found = cifar100.load(path)
    for part in (found.train, found.test):
        assert part.labels.shape == (len(part),)
        assert part.num_classes == 100
        assert all(isinstance(name, str) for name in part.class_names)
        if len(part):
            assert 0 <= part.labels.min() <= part.labels.max() < 100


def _archive(files: Parts, kind: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=f"w:{kind}") as archive:
        for name in _FILES:
            info = tarfile.TarInfo(f"cifar-100-python/{name}")
            info.size = len(files[name])
            archive.addfile(info, io.BytesIO(files[name]))
    return file.getvalue()


def _mended(content: bytes) -> bytes:
    """The archive with the right checksum in each block that looks like a header."""
    mended = bytearray(content)
    for place in range(0, len(mended) - 511, 512):
        block = mended[place : place + 512]
        if b"ustar" in block[250:270]:
            block[_CHECKSUM] = b" " * 8
            block[_CHECKSUM] = b"%06o\0 " % sum(block)
            mended[place : place + 512] = block
    return bytes(mended)
