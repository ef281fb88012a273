"""InsightFace's training sets (`train.rec`, `train.idx`, `property`), read without MXNet.

A `.rec` file is a sequence of records: u32 magic, u32 whose upper 3 bits say whether the record
goes on and whose lower 29 are a length, that many bytes, zeros up to a multiple of 4. Where the
content itself holds the magic at a multiple of 4, the writer ends a part there and leaves the four
bytes out (flags 1 first part, 2 middle, 3 last; 0 is a record in one part); the reader puts them
back.

The content of a record is u32 flag, f32 label, u64 id, u64 id2, then `flag` f32 labels if flag > 0,
then the encoded image. Record 0 has the labels (first identity key, end); the identity records have
the range of keys of their images; the images' own label is the class. `property` says
`classes,height,width`.
"""

import os
import pathlib
import struct
from typing import NamedTuple, NoReturn

import numpy as np

from sparse_embed.common.failures import DataError
from sparse_embed.common.progress import progress_bar
from sparse_embed.datasets.encoded_images import EncodedImages
from sparse_embed.datasets.examples import Examples
from sparse_embed.datasets.shift_flip import random_flip

_MAGIC = 0xCED7230A
_MAGIC_BYTES = struct.pack("<I", _MAGIC)
_PART = struct.Struct("<II")
_HEADER = struct.Struct("<IfQQ")
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)
_MOST_CLASSES_PER_IMAGE = 100  # a part of a set may keep the `property` of the whole
_LARGEST_SIDE = 4096  # of an image, in pixels; faces have 112


class Record(NamedTuple):
    """The content of a record.

    Attributes:
        labels: (1,) float32 if the label is a scalar, else all of them.
        is_array: whether the label is an array.
        image: the encoded image, empty in records that only hold labels.
    """

    labels: np.ndarray
    is_array: bool
    image: bytes


def unpack(content: bytes) -> Record:
    """Parses the content of a record; raises ValueError if it is too short."""
    if len(content) < _HEADER.size:
        raise ValueError(f"{len(content)} bytes, too few for the header of {_HEADER.size}")
    flag, label, _, _ = _HEADER.unpack_from(content)
    start = _HEADER.size + 4 * flag
    if len(content) < start:
        raise ValueError(f"{len(content)} bytes, too few for {flag} labels")
    if flag:
        labels = np.frombuffer(content, "<f4", flag, _HEADER.size)
    else:
        labels = np.array([label], np.float32)
    return Record(labels, flag > 0, content[start:])


class RecordFile:
    """Records by key, in any order and from any number of threads.

    Only the index is kept in memory: 16 bytes per record.

    Attributes:
        path: path of the `.rec` file.
        keys: (n,) int64, ascending.
        offsets: (n,) int64, where in the file each record starts.
    """

    def __init__(self, path: str | os.PathLike[str], index_path: str | os.PathLike[str]):
        self.path = pathlib.Path(path)
        try:
            index = np.loadtxt(index_path, np.int64, ndmin=2, comments=None, encoding="latin-1")
        except (ValueError, OverflowError) as error:
            raise DataError(f"{index_path}: expected lines `key offset`: {error}") from error
        if index.size and index.shape[1] != 2:
            raise DataError(f"{index_path}: expected 2 numbers per line, got {index.shape[1]}")
        index = index.reshape(-1, 2)
        index = index[np.argsort(index[:, 0], kind="stable")]
        self.keys, self.offsets = np.ascontiguousarray(index.T)
        twice = np.flatnonzero(np.diff(self.keys) == 0)
        if twice.size:
            raise DataError(f"{index_path}: key {self.keys[twice[0]]} comes twice")
        self._file = open(self.path, "rb", buffering=0)  # noqa: SIM115 - open for our lifetime
        self._size = os.fstat(self._file.fileno()).st_size
        outside = np.flatnonzero((self.offsets < 0) | (self.offsets > self._size - _PART.size))
        if outside.size:
            self.fail(int(self.keys[outside[0]]), f"outside the {self._size} bytes of the file")

    def read(self, key: int) -> bytes:
        """Returns the content of the record, joined if it is in parts."""
        start = self.offset(key)
        descriptor = self._file.fileno()
        parts: list[bytes] = []
        while True:
            head = os.pread(descriptor, _PART.size, start)
            if len(head) < _PART.size:
                self.fail(key, "the file ends before the record does")
            magic, word = _PART.unpack(head)
            if magic != _MAGIC:
                self.fail(key, f"magic 0x{magic:08x} at byte {start}, expected 0x{_MAGIC:08x}")
            flag, length = word >> 29, word & (1 << 29) - 1
            if flag not in ((_MIDDLE, _LAST) if parts else (_WHOLE, _FIRST)):
                self.fail(key, f"part {len(parts)} has the continuation flag {flag}")
            end = start + _PART.size + (length + 3) // 4 * 4
            # Checked before reading, because a damaged length would allocate half a gigabyte.
            if end > self._size:
                self.fail(key, f"the file ends before the record does, at byte {self._size}")
            parts.append(os.pread(descriptor, length, start + _PART.size))
            if len(parts[-1]) < length:
                self.fail(key, "the file became shorter while it was read")
            if flag in (_WHOLE, _LAST):
                return _MAGIC_BYTES.join(parts)
            start = end

    def unpack(self, key: int) -> Record:
        """Reads and parses a record."""
        content = self.read(key)
        try:
            return unpack(content)
        except ValueError as error:
            self.fail(key, str(error))

    def offset(self, key: int) -> int:
        """Returns where the record starts; raises DataError if the index does not have it."""
        place = int(np.searchsorted(self.keys, key))
        if place == len(self.keys) or self.keys[place] != key:
            raise DataError(f"{self.path}: key {key} is not in the index")
        return int(self.offsets[place])

    def describe(self, key: int) -> str:
        """Returns how errors name the record."""
        return f"{self.path}: key {key} at offset {self.offset(key)}"

    def fail(self, key: int, reason: str) -> NoReturn:
        """Raises DataError naming the file, the key and the offset."""
        raise DataError(f"{self.describe(key)}: {reason}")


def load(
    folder: str | os.PathLike[str],
    name: str = "train",
    on_error: str = "raise",
    scan_labels: bool = False,
    mirror: bool = True,
) -> Examples:
    """Opens a training set; images are read when batches need them.

    The identity records, and one image of each identity, give the class of every image; each
    image's own label is checked against it when the image is read.

    Args:
        folder: holds `<name>.rec`, `<name>.idx` and `property`.
        name: name of the two files.
        on_error: what happens at a broken record or image when batches need it: "raise", or "skip"
            with a warning. A broken record that is needed for the labels always raises.
        scan_labels: read the label of every record instead, with a progress bar. Always done if
            there are no identity records.
        mirror: whether training mirrors images at random.
    """
    folder = pathlib.Path(folder)
    num_classes, height, width = _read_property(folder / "property")
    records = RecordFile(folder / f"{name}.rec", folder / f"{name}.idx")
    keys, ranges = _layout(records)
    if num_classes > _MOST_CLASSES_PER_IMAGE * len(keys):
        raise DataError(
            f"{folder / 'property'}: {num_classes} classes, but {records.path.name} holds "
            f"{len(keys)} images: expected at most {_MOST_CLASSES_PER_IMAGE} times as many classes"
        )
    if ranges is None or scan_labels:
        progress = progress_bar(
            keys.tolist(), desc=f"labels of {records.path.name}", unit=" records"
        )
        labels = np.fromiter((_label(records, key, num_classes) for key in progress), np.int32)
    else:
        labels = _labels_of_ranges(records, keys, ranges, num_classes)
    return Examples(
        name=folder.name,
        shape=(height, width, 3),
        source=_FaceImages(records, keys, labels, num_classes, (height, width, 3), on_error),
        rows=np.arange(len(keys), dtype=np.int64),
        labels=labels,
        class_names=tuple(map(str, range(num_classes))),
        augment=random_flip if mirror else None,
    )


class _FaceImages(EncodedImages):
    """The images of a training set; row i is the i-th image key."""

    def __init__(
        self,
        records: RecordFile,
        keys: np.ndarray,
        labels: np.ndarray,
        num_classes: int,
        image_shape: tuple[int, int, int],
        on_error: str,
    ) -> None:
        super().__init__(image_shape, on_error, resize=False)
        self._records, self._keys = records, keys
        self._labels, self._num_classes = labels, num_classes

    def read(self, row: int) -> bytes:
        key = int(self._keys[row])
        record = self._records.unpack(key)
        label = _class_of(self._records, key, record, self._num_classes)
        if label != self._labels[row]:
            self._records.fail(key, f"label {label}, but its identity has {self._labels[row]}")
        if not record.image:
            self._records.fail(key, "zero-length image")
        return record.image

    def describe(self, row: int) -> str:
        return self._records.describe(int(self._keys[row]))

    @property
    def files(self) -> list[pathlib.Path]:
        return [self._records.path, self._records.path.with_suffix(".idx")]


def _read_property(path: pathlib.Path) -> tuple[int, int, int]:
    """Returns the number of classes, and height and width of an image."""
    if not path.exists():
        raise DataError(
            f"{path}: no such file. It is one line, `classes,height,width`, such as "
            "`85742,112,112`, beside the .rec of InsightFace's sets; im2rec does not write it: put "
            "the number of labels and the size of your images there"
        )
    with open(path, "rb") as file:
        text = file.read(1000).decode(errors="replace").strip()
    try:
        classes, height, width = map(int, text.split(","))
    except ValueError:
        classes = height = width = 0
    # Labels are float32, which has no odd integers from 2^24 on.
    if min(classes, height, width) < 1 or classes > 2**24:
        raise DataError(f"{path}: expected `classes,height,width`, got {text[:80]!r}")
    if max(height, width) > _LARGEST_SIDE:
        raise DataError(
            f"{path}: images of {height} x {width} pixels: expected at most {_LARGEST_SIDE} x "
            f"{_LARGEST_SIDE}"
        )
    return classes, height, width


def _layout(records: RecordFile) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns the keys of the images and the (n, 2) key ranges of the identities, if any."""
    if not len(records.keys):
        raise DataError(f"{records.path}: the index is empty")
    if records.keys[0] != 0:
        return records.keys, None
    header = records.unpack(0)
    if not header.is_array:
        return records.keys, None  # a plain record file: key 0 is an image like any other
    first, end = _range(records, 0, header)
    keys = _keys_between(records, 1, first)
    if not len(keys):
        raise DataError(f"{records.path}: identities without images: no key is before {first}")
    identities = _keys_between(records, first, end)
    ranges = [_range(records, key, records.unpack(key)) for key in identities.tolist()]
    return keys, np.array(ranges, np.int64).reshape(-1, 2)


def _keys_between(records: RecordFile, low: int, high: int) -> np.ndarray:
    """Returns low ... high - 1, all of which the index must have."""
    keys: np.ndarray = records.keys[slice(*np.searchsorted(records.keys, [low, high]))]
    if len(keys) != high - low:
        gaps = np.flatnonzero(keys != low + np.arange(len(keys)))
        absent = low + (gaps[0] if gaps.size else len(keys))
        raise DataError(
            f"{records.path}: key {absent} is not in the index, expected all from {low} to "
            f"{high - 1}"
        )
    return keys


def _range(records: RecordFile, key: int, record: Record) -> tuple[int, int]:
    low, high = (*record.labels.tolist(), 0.0, 0.0)[:2]
    if not 1 <= low <= high < 2**53 or len(record.labels) < 2:
        records.fail(key, f"labels {record.labels[:4].tolist()}, expected a range of keys")
    return int(low), int(high)


def _labels_of_ranges(
    records: RecordFile, keys: np.ndarray, ranges: np.ndarray, num_classes: int
) -> np.ndarray:
    ranges = ranges[np.argsort(ranges[:, 0])]
    ranges = ranges[ranges[:, 0] < ranges[:, 1]]
    # Every image key in one range: the ranges follow each other from the first key to the last.
    starts, ends = np.append(ranges[:, 0], keys[-1] + 1), np.append(keys[0], ranges[:, 1])
    wrong = np.flatnonzero(starts != ends)
    if wrong.size:
        key = int(min(starts[wrong[0]], ends[wrong[0]]))
        raise DataError(
            f"{records.path}: key {key} is in no identity's range, or in two; scan_labels=True "
            "takes the labels from the images only"
        )
    labels = [_label(records, int(key), num_classes) for key in ranges[:, 0]]
    return np.repeat(np.array(labels, np.int32), np.diff(ranges)[:, 0])


def _label(records: RecordFile, key: int, num_classes: int) -> int:
    return _class_of(records, key, records.unpack(key), num_classes)


def _class_of(records: RecordFile, key: int, record: Record, num_classes: int) -> int:
    label = float(record.labels[0])
    if not (label.is_integer() and 0 <= label < num_classes):
        records.fail(key, f"label {label:g}, expected an integer from 0 to {num_classes - 1}")
    return int(label)
