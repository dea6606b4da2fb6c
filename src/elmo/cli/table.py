"""Tables of commands on a terminal: columns of numbers to the right, all others to the left."""

from __future__ import annotations

import re
from collections.abc import Sequence
from unicodedata import bidirectional, category, east_asian_width

import click

from elmo.cli.shared import without_controls

NUMBER = re.compile(r"[-+]?\d[\d,.]*( ± [\d,.]+)?( ?[kMG%]B?)?|nan")
"""A number, which may have a deviation and a unit: "1,024", "91.2 ± 0.3", "65.5 MB"."""

RIGHT_TO_LEFT, FIRST_STRONG, END, MARK = "\u2067", "\u2068", "\u2069", "\u200f"
"""Invisible characters of Unicode that order text. What stands between `RIGHT_TO_LEFT` and `END` is ordered from right
to left, and what stands between `FIRST_STRONG` and `END` in the direction of its first letter; neither changes the
order of the rest of the line. `MARK`, put before `END`, keeps the spaces before it inside, even at the end of a line.
Terminals that don't order letters ignore all of them."""

_WITHOUT_PLACE = ("Mn", "Me", "Cf")
_JOINING_JAMO = re.compile(r"[\u1160-\u11ff\ud7b0-\ud7ff]")
"""Vowels and final consonants of Korean, which stand inside of the syllable that they belong to (as in NFD)."""


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, widest: int | None = None) -> None:
    """Print rows under their head, with two spaces between columns.

    Words of any script keep the columns straight: a wide character takes two places, a combining mark none, and words
    that are written from right to left don't move their neighbors.

    Args:
        head: The names of the columns; empty for a table without a head.
        rows: A text for each column.
        widest: The most places that a cell may take. What is longer is cut, with an ellipsis at its end.
    """
    lines = [[_cut(without_controls(cell), widest) for cell in row] for row in ([head] if head else []) + list(rows)]
    widths = [max(map(display_width, column)) for column in zip(*lines, strict=True)]
    is_right = [_are_numbers(column) for column in zip(*rows, strict=True)] or [False] * len(head)
    for line in lines:
        cells: list[str] = []
        for cell, width, right in zip(line, widths, is_right, strict=True):
            space = " " * (width - display_width(cell))
            cells.append(space + cell if right else isolated(cell) + space)
        click.echo("  ".join(cells).rstrip())


def display_width(text: str) -> int:
    """Return how many places a text takes on a terminal: two for a wide character, none for a mark or a joiner."""
    text = _JOINING_JAMO.sub("", text)
    return sum(0 if category(c) in _WITHOUT_PLACE else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def is_right_to_left(text: str) -> bool:
    """Return whether the first letter of a text is written from right to left, as in Hebrew and Arabic."""
    return next((kind != "L" for c in text if (kind := bidirectional(c)) in ("L", "R", "AL")), False)


def isolated(text: str) -> str:
    """Return a text that a terminal orders by itself, so that numbers and marks next to it stay where they are.

    Its control characters are escaped, as by `without_controls`.
    """
    text = without_controls(text)
    return f"{FIRST_STRONG}{text}{END}" if any(bidirectional(c) in ("R", "AL") for c in text) else text


def _are_numbers(column: Sequence[str]) -> bool:
    return any(column) and all(NUMBER.fullmatch(cell) for cell in column if cell)


def _cut(text: str, widest: int | None) -> str:
    if widest is None or display_width(text) <= widest:
        return text
    while display_width(text) >= widest:
        text = text[:-1]
    return f"{text.rstrip()}…"
