"""Payloads of `export_index`: lines of JSON, labels."""

import json
import pathlib

import numpy as np
from fuzz import arrays
from fuzz.mutations import Parts

from sparse_embed.common.failures import DataError
from sparse_embed.experiments.exporting.rows import read_payloads

ALLOWED = (DataError, OSError)
TOKENS = [rb"\u0000", rb"\ud800", rb"\udc00", b"\xed\xa0\x80", b"\0", b"\r", b"1e400", b'"id"']
TOKENS += [b"NaN", b"-0", b"[" * 99, b"]" * 99, b"\xef\xbb\xbf", b"\xe2\x80\xa8", *arrays.TOKENS]


def seeds() -> list[Parts]:
    """Lines with and without ids, each by itself and all together; labels."""
    values = [{"name": "Ada", "tags": ["a", "ä"], "n": 1.5}, {"name": None}, {"a": {"b": [[2]]}}]
    numbered = [{"id": 7 * place, **value} for place, value in enumerate(values)]
    made: list[Parts] = []
    for some in (values, numbered):
        lines = [json.dumps(value).encode() for value in some]
        made.append({f"line{place}": line for place, line in enumerate(lines)})
        made.append({"payload.jsonl": b"\n".join([*lines, b""])})
    return [*made, arrays.pieces("labels", np.array([3, 1, 4]))]


def attempt(parts: Parts, folder: pathlib.Path) -> None:
    """Every payload is an object that PostgreSQL and Qdrant take."""
    parts = arrays.join(parts)
    lines = [parts.pop(name) for name in sorted(parts) if name.startswith("line")]
    if lines:
        parts["payload.jsonl"] = b"\n".join(lines)
    arrays.write(parts, folder)
    ((name, _),) = parts.items()
    payloads = read_payloads(folder / name)
    count = len(payloads.lines) if payloads.labels is None else len(payloads.labels)
    ids = np.arange(count) if payloads.ids is None else payloads.ids
    assert len(payloads.missing(ids)) == 0
    for payload in payloads.of(ids):
        assert isinstance(payload, dict)
        text = json.dumps(payload, allow_nan=False, ensure_ascii=False)
        text.encode()
        assert "\\u0000" not in text.replace("\\\\", ""), "a zero"
        assert json.loads(text) == payload
