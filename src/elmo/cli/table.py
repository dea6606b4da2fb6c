"""Tables of commands on a terminal: columns of numbers to the right, all others to the left."""

from __future__ import annotations

import re
from collections.abc import Sequence
from unicodedata import combining, east_asian_width

import click

NUMBER = re.compile(r"[-+]?\d[\d,.]*( ± [\d,.]+)?( ?[kMG%]B?)?|nan")
"""A number, which may have a deviation and a unit: "1,024", "91.2 ± 0.3", "65.5 MB"."""


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, widest: int | None = None) -> None:
    """Print rows under their head, with two spaces between columns.

    Words of any script keep the columns straight: a wide character takes two places, and a combining mark none.

    Args:
        head: The names of the columns; empty for a table without a head.
        rows: A text for each column.
        widest: The most places that a cell may take. What is longer is cut, with an ellipsis at its end.
    """
    lines = [[_cut(cell, widest) for cell in row] for row in ([head] if head else []) + list(rows)]
    widths = [max(map(display_width, column)) for column in zip(*lines, strict=True)]
    is_right = [_are_numbers(column) for column in zip(*rows, strict=True)] or [False] * len(head)
    for line in lines:
        cells: list[str] = []
        for cell, width, right in zip(line, widths, is_right, strict=True):
            space = " " * (width - display_width(cell))
            cells.append(space + cell if right else cell + space)
        click.echo("  ".join(cells).rstrip())


def display_width(text: str) -> int:
    """Return how many places a text takes on a terminal: two for a wide character, none for a combining mark."""
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def _are_numbers(column: Sequence[str]) -> bool:
    return any(column) and all(NUMBER.fullmatch(cell) for cell in column if cell)


def _cut(text: str, widest: int | None) -> str:
    if widest is None or display_width(text) <= widest:
        return text
    while display_width(text) >= widest:
        text = text[:-1]
    return f"{text.rstrip()}…"
