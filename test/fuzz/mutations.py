"""Turns valid inputs into damaged ones.

An input is its parts by name: the files that a reader opens, or the pieces that a target puts
together to files (with the right checksums, so that damage gets past the door).
"""

import json
import random
import re
from collections.abc import Callable, Sequence

from sparse_embed.common.reading import parse_json

Parts = dict[str, bytes]

CHOICES = "choices"  # the part of targets whose input is any bytes; see `choices.py`
LONGEST = 1 << 20  # no part grows beyond this, or beyond twice what it was
_POWERS = (7, 8, 15, 16, 24, 31, 32, 48, 53, 63, 64)
NUMBERS = [0, 1, 2, 3, 4, 5, 64, 100, 1000, -1, -2]
NUMBERS += [sign * 2**power + step for power in _POWERS for sign in (1, -1) for step in (-1, 0, 1)]
_ODD_JSON = [  # as text, since Python writes not all of it
    *("null", "true", "false", "0", "-1", "1.5", "1e308", "1e400", "NaN", "Infinity"),
    *(str(2**63 - 1), str(2**64), str(10**12), str(10**30), "9" * 5000),
    *('""', '"x"', r'"\u0000"', r'"\ud800"', '"../x"', '"../.."', '"/"', f'"{"x" * 5000}"'),
    *("[]", "{}", "[[]]", '["a", 1]', '{"a": {}}', f"[{', '.join('0' * 300)}]", '{"\\udfff": 1}'),
    *("[" * 99 + "]" * 99, "[" * 500 + "]" * 500, '{"a":' * 50_000 + "1" + "}" * 50_000),
]
_ODD_PLACE = "where the odd value goes"
_INTEGER = re.compile(rb"-?\d+")


def mutate(
    parts: Parts, donors: Sequence[Parts], tokens: Sequence[bytes], rng: random.Random
) -> Parts:
    """Returns a damaged copy.

    Args:
        parts: the input.
        donors: other inputs, to take slices from.
        tokens: pieces that mean something to the reader.
        rng: decides everything.
    """
    if CHOICES in parts and rng.random() < 0.5:
        return {CHOICES: rng.randbytes(len(parts[CHOICES]))}
    parts = dict(parts)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 4, 8))):
        name = rng.choice(sorted(parts))
        donor = rng.choice(donors)
        other = donor.get(name) or donor[rng.choice(sorted(donor))]
        before = parts[name]
        after = rng.choice(_CHANGES)(before, other, tokens, rng)
        parts[name] = after[: max(LONGEST, 2 * len(before))]
    return parts


def _flip_bit(data: bytes, other: bytes, tokens: Sequence[bytes], rng: random.Random) -> bytes:
    if not data:
        return b"\x01"
    changed = bytearray(data)
    changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _set_bytes(data: bytes, other: bytes, tokens: Sequence[bytes], rng: random.Random) -> bytes:
    begin, end = _slice(data, rng, 8)
    return (
        data[:begin] + rng.choice((rng.randbytes(1), b"\0", b"\xff")) * (end - begin) + data[end:]
    )


def _truncate(data: bytes, other: bytes, tokens: Sequence[bytes], rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _cut(data: bytes, other: bytes, tokens: Sequence[bytes], rng: random.Random) -> bytes:
    begin, end = _slice(data, rng)
    return data[:begin] + data[end:]


def _repeat(data: bytes, other: bytes, tokens: Sequence[bytes], rng: random.Random) -> bytes:
    begin, end = _slice(data, rng)
    times = rng.choice((1, 1, 2, 7, 100))
    return data[:end] + data[begin:end] * min(times, LONGEST // (end - begin + 1)) + data[end:]


def _splice(data: bytes, other: bytes, tokens: Sequence[bytes], rng: random.Random) -> bytes:
    begin, end = _slice(other, rng)
    place = rng.randrange(len(data) + 1)
    over = rng.choice((0, end - begin))  # between the bytes, or in their place
    return data[:place] + other[begin:end] + data[place + over :]


def _swap(data: bytes, other: bytes, tokens: Sequence[bytes], rng: random.Random) -> bytes:
    a, b, c, d = sorted(rng.randrange(len(data) + 1) for _ in range(4))
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def _number(data: bytes, other: bytes, tokens: Sequence[bytes], rng: random.Random) -> bytes:
    """A field of a header: mostly aligned, mostly near the beginning."""
    size = rng.choice((1, 2, 4, 4, 8, 8))
    places = len(data) if rng.random() < 0.5 else min(len(data), 128)
    place = (
        rng.randrange(places + 1) // size * size
        if rng.random() < 0.7
        else rng.randrange(places + 1)
    )
    value = rng.choice(NUMBERS)
    if rng.random() < 0.3:  # near what it was
        value = int.from_bytes(data[place : place + size], "little") + rng.choice((-1, 1, 64))
    raw = (value % 256**size).to_bytes(size, rng.choice(("little", "little", "big")))
    return data[:place] + raw + data[place + size :]


def _digits(data: bytes, other: bytes, tokens: Sequence[bytes], rng: random.Random) -> bytes:
    """A number that is written in digits."""
    found = list(_INTEGER.finditer(data[:LONGEST]))
    if not found:
        return _number(data, other, tokens, rng)
    match = rng.choice(found)
    return data[: match.start()] + str(rng.choice(NUMBERS)).encode() + data[match.end() :]


def _token(data: bytes, other: bytes, tokens: Sequence[bytes], rng: random.Random) -> bytes:
    """A piece that means something, in the place of another one or anywhere."""
    if not tokens:
        return _splice(data, other, tokens, rng)
    new, old = rng.choice(tokens), rng.choice(tokens)
    place = data.find(old) if old else -1
    if place >= 0 and rng.random() < 0.7:
        return data[:place] + new + data[place + len(old) :]
    place = rng.randrange(len(data) + 1)
    return data[:place] + new + data[place + rng.choice((0, len(new))) :]


def _json(data: bytes, other: bytes, tokens: Sequence[bytes], rng: random.Random) -> bytes:
    """A value of a JSON document."""
    try:
        value = parse_json(data) if data[:1] in (b"{", b"[") else None
    except ValueError:
        value = None
    if not value:
        return _digits(data, other, tokens, rng)
    node = value
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = rng.choice(keys)
        if not isinstance(node[key], dict | list) or not node[key] or rng.random() < 0.4:
            break
        node = node[key]
    if rng.random() < 0.15:
        del node[key]
    else:
        node[key] = _ODD_PLACE
    return json.dumps(value).replace(f'"{_ODD_PLACE}"', rng.choice(_ODD_JSON)).encode()


def _slice(data: bytes, rng: random.Random, longest: int | None = None) -> tuple[int, int]:
    begin = rng.randrange(len(data) + 1)
    longest = min(longest or rng.choice((4, 16, 64, len(data))), len(data) - begin)
    return begin, begin + rng.randrange(longest + 1)


_CHANGES: list[Callable[[bytes, bytes, Sequence[bytes], random.Random], bytes]] = [
    *(_flip_bit, _flip_bit, _set_bytes, _truncate, _cut, _repeat, _splice, _swap),
    *(_number, _number, _number, _digits, _token, _token, _json, _json),
]
