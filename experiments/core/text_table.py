"""Tables for the terminal."""

from collections.abc import Sequence
from typing import Any


def text_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Returns an aligned table: numbers and their heads to the right, text to the left.

    A column counts as numbers if most of its cells that are not empty begin with a digit.
    """
    lines = [[str(cell) for cell in line] for line in (head, *rows)]
    columns = list(zip(*lines, strict=True))
    aligned = [_align(column) for column in columns]
    return "\n".join("  ".join(line).rstrip() for line in zip(*aligned, strict=True))


def _align(column: tuple[str, ...]) -> list[str]:
    width = max(map(len, column))
    cells = [cell for cell in column[1:] if cell not in ("", "-")]
    is_number = sum(cell[0].isdigit() for cell in cells) > len(cells) / 2
    return [cell.rjust(width) if is_number else cell.ljust(width) for cell in column]
