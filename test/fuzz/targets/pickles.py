"""The pickles of data sets, by the reader that runs nothing of what they say."""

import io
import pathlib
import pickle
from typing import Any

import numpy as np
from fuzz.mutations import Parts

from sparse_embed.datasets import restricted_pickle

ALLOWED = (restricted_pickle.RestrictedPickleError,)
TOKENS = [
    *(
        b"(",
        b"]",
        b"}",
        b")",
        b"a",
        b"e",
        b"s",
        b"u",
        b"t",
        b"\x85",
        b"\x86",
        b"\x87",
        b"N",
        b"R",
        b"b",
    ),
    *(
        b".",
        b"0",
        b"2",
        b"h\x00",
        b"h\x01",
        b"q\x00",
        b"q\x01",
        b"\x94",
        b"\x93",
        b"\x88",
        b"K\x01",
    ),
    *(b"j\xff\xff\xff\xff", b"r\xff\xff\xff\x7f", b"X\xff\xff\xff\xff", b"B\xff\xff\xff\xff"),
    *(b"\x8a\xff" + b"\x7f" * 255, b"\x8b\xff\xff\xff\x7f", b"\x8e" + b"\xff" * 8, b"\x8c\x02b1"),
    *(b"cnumpy\nndarray\n", b"cnumpy\ndtype\n", b"cnumpy.core.multiarray\n_reconstruct\n"),
    *(b"cnumpy.core.multiarray\nscalar\n", b"cnumpy.core.numeric\n_frombuffer\n"),
    *(b"c_codecs\nencode\n", b"cbuiltins\nbytes\n", b"cos\nsystem\n", b"\x8c\x02u1", b"\x8c\x01|"),
]
_PLAIN = (type(None), bool, int, str, bytes, bytearray, np.bool_, np.uint8)


def seeds() -> list[Parts]:
    """Lists, dicts, texts and arrays, in protocols 2 to 5."""
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 12)
    cifar = {b"data": pixels, b"fine_labels": [3, 70000], "names": ["a", "ä"], 7: (None, True, -1)}
    pack = ([b"jpeg", np.arange(5, dtype=np.uint8)], [True, np.True_])
    turned = [np.asfortranarray(pixels), pixels[:, ::2], np.zeros((0, 3), bool), np.uint8(4)]
    seeds = []
    for value in (cifar, pack, turned, [[], {}, (), "", b"", 2**70]):
        seeds += [{"pickle": pickle.dumps(value, protocol)} for protocol in (2, 3, 4, 5)]
    return seeds


def attempt(parts: Parts, folder: pathlib.Path) -> None:
    """Reads it; what comes out must be plain, and what Python's own reader reads."""
    value = restricted_pickle.loads(parts["pickle"], "a file")
    seen: set[int] = set()
    waiting = [value]
    arrays = 0
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, np.ndarray):
            arrays += item.nbytes
            assert item.dtype in (np.uint8, np.bool_), item.dtype
        elif type(item) is dict:
            waiting += [*item.keys(), *item.values()]
        elif type(item) in (list, tuple):
            waiting += item
        else:
            plain = type(item) in _PLAIN or isinstance(item, np.dtype)
            assert plain, f"{type(item)} came out"
    assert arrays <= 2 * len(parts["pickle"]), "arrays are larger than the file"
    if not arrays:
        _compare(value, parts["pickle"])


def _compare(value: Any, data: bytes) -> None:
    """Python's reader, which is given no names at all, agrees wherever it needs none."""

    # In Python, since the compiled one makes room for as many notes as a file claims to have.
    class Nameless(pickle._Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            raise pickle.UnpicklingError(f"{module}.{name}")

    try:
        wanted = Nameless(io.BytesIO(data), encoding="bytes").load()
        same = bool(repr(wanted) == repr(value))
    except Exception:
        return  # damaged, or with names; or so deep that it cannot be shown
    assert same, f"Python reads {wanted!r:.200}, we read {value!r:.200}"
