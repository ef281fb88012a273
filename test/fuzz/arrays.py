"""`.npy` and `.npz` files in pieces: a damaged header or array, in a file that is whole elsewhere.

The array `x` is two pieces: `x.header`, the text of its header, and `x.data`; or one, `x.text`, if
it holds a text that is damaged as such.
"""

import io
import pathlib
import struct
import zipfile

import numpy as np
from fuzz.mutations import Parts

TOKENS = [
    *(
        b"'<f4'",
        b"'<f8'",
        b"'<f2'",
        b"'<i4'",
        b"'<i8'",
        b"'>i8'",
        b"'|u1'",
        b"'|b1'",
        b"'|O'",
        b"'<U3'",
    ),
    *(b"'|S2'", b"'<c8'", b"'<M8[s]'", b"'|V4'", b"'<f16'", b"'<U0'", b"[('a', '<i4')]", b"None"),
    *(
        b"True",
        b"False",
        b"()",
        b"(0,)",
        b"(1,)",
        b"(3,)",
        b"(-1,)",
        b"(2, 3)",
        b"(0, 3)",
        b"(3, 0)",
    ),
    *(b"(9999999999,)", b"(3, 9999999999)", b"(4294967296, 4294967296)", b"(1, 2, 3)", b"(True,)"),
]
_MAGIC = b"\x93NUMPY\x01\x00"


def pieces(name: str, array: np.ndarray) -> Parts:
    """Takes an array apart."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    content = file.getvalue()
    start = len(_MAGIC) + 2
    end = start + struct.unpack("<H", content[len(_MAGIC) : start])[0]
    return {f"{name}.header": content[start:end].rstrip(), f"{name}.data": content[end:]}


def join(parts: Parts) -> Parts:
    """Returns the parts with each array in one piece, `x.npy`."""
    joined = {}
    for name, content in parts.items():
        if name.endswith(".header"):
            stem = name.removesuffix(".header")
            header = content + b" " * (-(len(_MAGIC) + 3 + len(content)) % 64) + b"\n"
            length = struct.pack("<H", min(len(header), 2**16 - 1))
            joined[f"{stem}.npy"] = _MAGIC + length + header + parts[f"{stem}.data"]
        elif name.endswith(".text"):
            text = np.array(content.decode(errors="replace"))
            joined |= join(pieces(name.removesuffix(".text"), text))
        elif not name.endswith(".data"):
            joined[name] = content
    return joined


def zipped(members: Parts, compress: bool = False) -> bytes:
    """A zip archive of the members, with the right checksums."""
    file = io.BytesIO()
    kind = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", kind) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, kind)
    return file.getvalue()


def write(parts: Parts, folder: pathlib.Path) -> None:
    """Writes each part to a file of its name."""
    for name, content in parts.items():
        (folder / name).write_bytes(content)
