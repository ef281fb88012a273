"""Reads the pickles that data sets are shipped in, without running what they say.

`pickle.load` calls whatever a file names. Here nothing is ever looked up or called: the opcodes are
interpreted one by one, and only those that build plain values (None, bool, int, str, bytes, list,
tuple, dict) and NumPy arrays of uint8 or bool are understood. Anything else is refused by name.
Memory stays in proportion to the size of the file, whatever the file says.
"""

import dataclasses
import io
import pickle
import pickletools
from typing import Any, Literal, NoReturn

import numpy as np

from sparse_embed.common.failures import DataError

# Names in pickles of arrays and bytes, by NumPy 1 and 2 and Python 3's protocol 2 -> our names.
_ADMITTED = {
    "numpy ndarray": "ndarray",
    "numpy dtype": "dtype",
    "numpy.core.multiarray _reconstruct": "reconstruct",
    "numpy._core.multiarray _reconstruct": "reconstruct",
    "numpy.core.multiarray scalar": "scalar",
    "numpy._core.multiarray scalar": "scalar",
    "numpy.core.numeric _frombuffer": "frombuffer",
    "numpy._core.numeric _frombuffer": "frombuffer",
    "_codecs encode": "encode",
    "__builtin__ bytes": "bytes",
    "builtins bytes": "bytes",
}
_DTYPES = {"u1": np.dtype(np.uint8), "b1": np.dtype(np.bool_)}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY = {"EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_DICT": dict}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
# Opcodes whose argument, as pickletools decodes it, is the value itself.
_VALUES = {
    *("BININT", "BININT1", "BININT2", "LONG1", "LONG4"),
    *("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
    *("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}
# IndexError: empty stack; KeyError: memo never written; the rest: pickletools and NumPy.
_DAMAGE = (LookupError, ArithmeticError, ValueError, TypeError, MemoryError, RecursionError)
_PY2_STRINGS = {"SHORT_BINSTRING", "BINSTRING"}  # bytes in Python 2; pickletools decodes latin-1


class RestrictedPickleError(pickle.UnpicklingError, DataError):
    """The pickle is damaged, or holds something that no data set of ours needs."""


@dataclasses.dataclass(frozen=True)
class _Global:
    """Stands on the stack for what a name in `_ADMITTED` means."""

    name: str


class _Mark:
    """The opcode MARK on the stack."""


_MARK = _Mark()


def loads(data: bytes, source: str, most_opcodes: int | None = None) -> Any:
    """Returns the value pickled in `data`; strings of Python 2 come back as bytes.

    Args:
        data: the whole pickle, of protocol 2 to 5.
        source: how errors name the file.
        most_opcodes: most opcodes that an honest file has; None for any number. Each opcode can
            make an object many times its size.

    Raises:
        RestrictedPickleError: naming `source`, the byte and what was refused or damaged.
    """
    return _Machine(data, source, most_opcodes).run()


class _Machine:
    """The stack machine of the pickle format, with the opcodes that plain data need."""

    def __init__(self, data: bytes, source: str, most_opcodes: int | None):
        self._data = data
        self._most_opcodes = most_opcodes
        self._source = source
        self._position = 0
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        # A pickle may refer to one long string many times and have it copied each time. An honest
        # file holds each byte of an array once; it is copied as bytes and as an array.
        self._budget = 2 * len(data)
        # One byte can ask for an empty dict or a place in the memo, each of which takes about 100.
        # Honest files fill what they make.
        self._objects = 1000 + len(data) // 4

    def run(self) -> Any:
        try:
            opcodes = pickletools.genops(io.BytesIO(self._data))
            for number, (opcode, argument, position) in enumerate(opcodes, 1):
                self._position = position or 0
                if self._most_opcodes is not None and number > self._most_opcodes:
                    self._refuse(f"more than {self._most_opcodes:,} opcodes")
                self._step(opcode.name, argument)
        except RestrictedPickleError:
            raise
        except _DAMAGE as error:
            self._refuse(f"damaged pickle ({type(error).__name__}: {str(error)[:200]})")
        if len(self._stack) != 1:
            self._refuse("damaged pickle (it does not end with one value)")
        self._check_plain(self._stack[0])
        return self._stack[0]

    def _check_plain(self, value: Any) -> None:
        """Refuses a value that holds a name which no call has taken."""
        seen, waiting = set(), [value]
        while waiting:
            item = waiting.pop()
            if isinstance(item, _Global | _Mark | np.dtype):
                self._refuse("damaged pickle (a name in place of a value)")
            if isinstance(item, list | tuple | dict) and id(item) not in seen:
                seen.add(id(item))
                waiting.extend(item.values() if isinstance(item, dict) else item)

    def _refuse(self, what: str) -> NoReturn:
        raise RestrictedPickleError(f"{self._source}: {what} at byte {self._position}")

    def _step(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name in _VALUES:
            stack.append(argument)
        elif name in _PY2_STRINGS:
            stack.append(argument.encode("latin-1"))
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            self._count()
            stack.append(_EMPTY[name]())
        elif name == "MARK":
            stack.append(_MARK)
        elif name in _TUPLES:
            self._count()
            stack.append(tuple(self._pop_last(_TUPLES[name])))
        elif name == "TUPLE":
            self._count()
            stack.append(tuple(self._pop_to_mark()))
        elif name == "APPEND":
            self._extend(self._pop_last(1))
        elif name == "APPENDS":
            self._extend(self._pop_to_mark())
        elif name == "SETITEM":
            self._update(self._pop_last(2))
        elif name == "SETITEMS":
            self._update(self._pop_to_mark())
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._memoize(argument)
        elif name == "MEMOIZE":
            self._memoize(len(self._memo))
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self._memo[argument])
        elif name == "GLOBAL":
            stack.append(self._admit(argument))
        elif name == "STACK_GLOBAL":
            names = self._pop_last(2)
            if not all(
                type(word) is str for word in names
            ):  # joining others would show all they hold
                self._refuse("damaged pickle (a name that is no string)")
            stack.append(self._admit(" ".join(word[:200] for word in names)))
        elif name == "REDUCE":
            function, arguments = self._pop_last(2)
            stack.append(self._reduce(function, arguments))
        elif name == "BUILD":
            (state,) = self._pop_last(1)
            self._build(stack[-1], state)
        elif name not in ("PROTO", "FRAME", "STOP"):
            self._refuse(f"opcode {name} is not admitted")

    def _pop_last(self, count: int) -> list[Any]:
        values = self._stack[-count:]
        if len(values) < count or any(isinstance(value, _Mark) for value in values):
            self._refuse("damaged pickle (too few values on the stack)")
        del self._stack[-count:]
        return values

    def _pop_to_mark(self) -> list[Any]:
        for start in range(len(self._stack) - 1, -1, -1):
            if isinstance(self._stack[start], _Mark):
                values = self._stack[start + 1 :]
                del self._stack[start:]
                return values
        self._refuse("damaged pickle (no mark on the stack)")

    def _extend(self, values: list[Any]) -> None:
        if not isinstance(self._stack[-1], list):
            self._refuse("damaged pickle (items for something that is no list)")
        self._stack[-1].extend(values)

    def _update(self, values: list[Any]) -> None:
        target = self._stack[-1]
        if not isinstance(target, dict) or len(values) % 2:
            self._refuse("damaged pickle (keys for something that is no dict)")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if type(key) not in (str, bytes, int):
                self._refuse(f"a dict key of type {type(key).__name__} is not admitted")
            # Among 64-bit integers at most eight share a hash, and each is hashed at once.
            if type(key) is int and key.bit_length() > 64:
                self._refuse(f"a dict key of {key.bit_length()} bits is not admitted")
            target[key] = value

    def _memoize(self, place: int) -> None:
        self._count()
        self._memo[place] = self._stack[-1]

    def _count(self) -> None:
        """Counts one more object that the file makes; refuses more than an honest one needs."""
        self._objects -= 1
        if self._objects < 0:
            self._refuse("the pickle makes more objects than its size allows")

    def _admit(self, name: str) -> _Global:
        if name not in _ADMITTED:
            self._refuse(f"{name[:200].replace(' ', '.')} is not admitted")
        return _Global(_ADMITTED[name])

    def _reduce(self, function: Any, arguments: Any) -> Any:
        """Returns what a call of an admitted name would; each checks its own arguments."""
        match function, arguments:
            case _Global("reconstruct"), (_Global("ndarray"), (0,), bytes() | str()):
                return np.empty(0, np.uint8)  # filled by the BUILD that follows
            case _Global("dtype"), (bytes() | str() as code, 0 | 1, 0 | 1):
                return self._dtype(code)
            case _Global("scalar"), (np.dtype() as dtype, raw):
                return self._array(dtype, (), raw, "C")[()]
            case _Global("frombuffer"), (raw, np.dtype() as dtype, tuple() as shape, order):
                return self._array(dtype, shape, raw, "F" if order == "F" else "C")
            case _Global("encode"), (str() as text, "latin1"):
                self._spend(len(text))
                return text.encode("latin-1")
            case _Global("bytes"), ():
                return b""
        name = function.name if isinstance(function, _Global) else type(function).__name__
        self._refuse(f"a call of {name} with these arguments is not admitted")

    def _build(self, target: Any, state: Any) -> None:
        """The state that follows a `reconstruct` or a `dtype`; nothing else takes one."""
        match target, state:
            case np.ndarray(shape=(0,)), (
                1,
                tuple() as shape,
                np.dtype() as dtype,
                0 | 1 as f,
                raw,
            ):
                self._array(dtype, shape, raw, "C")  # checks that the parts belong together
                # In place, since the memo may already hold the array.
                state = (1, shape, dtype, bool(f), bytes(raw))
                target.__setstate__(state)
            case np.dtype(), (3 | 4, b"|" | "|", None, None, None, -1, -1, 0):
                pass  # what uint8 and bool always have
            case _:
                self._refuse(f"a state for {type(target).__name__} is not admitted")

    def _dtype(self, code: bytes | str) -> np.dtype:
        name = code.decode("latin-1") if isinstance(code, bytes) else code
        if name not in _DTYPES:
            self._refuse(f"an array of dtype {name[:50]!r} is not admitted (only u1 and b1)")
        return _DTYPES[name]

    def _array(
        self, dtype: np.dtype, shape: tuple[Any, ...], raw: Any, order: Literal["C", "F"]
    ) -> np.ndarray:
        if not isinstance(raw, bytes | bytearray):
            self._refuse(f"array content of type {type(raw).__name__} is not admitted")
        if not all(type(size) is int and size >= 0 for size in shape) or len(shape) > 8:
            self._refuse("damaged pickle (the shape of an array)")
        self._spend(len(raw))
        return np.frombuffer(raw, dtype).reshape(shape, order=order)

    def _spend(self, size: int) -> None:
        self._budget -= size
        if self._budget < 0:
            self._refuse("the pickle expands to more content than it holds")
