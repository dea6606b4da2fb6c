"""Uses of a word as a concordance: a line for each use with the word in the middle, or a table for other programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import click

from elmo.cli.shared import without_controls
from elmo.cli.table import END, MARK, RIGHT_TO_LEFT, display_width, is_right_to_left

if TYPE_CHECKING:
    from elmo.analysis.neighbors import Use
    from elmo.analysis.origins import Origins

CONTEXT_WIDTH = 40
"""Places on the terminal for the text on either side of a word."""

COLUMNS = ("rank", "score", "left", "word", "right", "sentence")
PLACE_COLUMNS = ("file", "line")
"""The columns of a table of uses, and those that follow if it is known where the uses are from."""


def print_kwic(uses: Sequence[Use]) -> None:
    """Print each use with its similarity and as many whole tokens around it as fit, the words below each other.

    If the word is written from right to left, so is its whole line: the text before the word is on its right, and the
    text after it on its left. Such a line is filled to its full width, which keeps these words below each other, too.
    """
    widest = max((display_width(use.word) for use in uses), default=0)
    for use in uses:
        left = " ".join(reversed(_fitting(use.tokens[: use.position][::-1])))
        right = " ".join(_fitting(use.tokens[use.position + use.length :]))
        before, after = " " * (CONTEXT_WIDTH - display_width(left)), " " * (widest - display_width(use.word))
        line = f"{before}{left}  {use.word}{after}  {right}"
        if is_right_to_left(use.word):
            line = f"{RIGHT_TO_LEFT}{line}{' ' * (CONTEXT_WIDTH - display_width(right))}{MARK}{END}"
        click.echo(f"{use.similarity:6.3f}  {without_controls(line)}".rstrip())


def print_csv(uses: Sequence[Use], origins: Origins | None) -> None:
    """Print a table of uses with commas between columns. Sentences are whole, their tokens with spaces between them.

    Args:
        uses: The uses, nearest first.
        origins: What is known of where the uses are from. The table then has their files, lines and metadata.
    """
    known = () if origins is None else origins.columns
    head = [*COLUMNS, *(PLACE_COLUMNS if origins else ())]
    # Each column keeps a name of its own, as programs read a row by the names of its columns.
    names = [f"metadata.{name}" if name in head else name for name in known]
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow([*head, *names])
    for rank, use in enumerate(uses, 1):
        end = use.position + use.length
        left, right = (" ".join(part) for part in (use.tokens[: use.position], use.tokens[end:]))
        row = [rank, f"{use.similarity:.6f}", left, use.word, right, use.sentence]
        if use.origin is not None:
            row += [use.origin.file, use.origin.line, *(use.origin.metadata.get(name, "") for name in known)]
        writer.writerow(row)
    click.echo(table.getvalue(), nl=False)


def _fitting(tokens: Sequence[str]) -> list[str]:
    """Return the first tokens, as many as fit into `CONTEXT_WIDTH` with spaces between them."""
    ends = accumulate(display_width(token) + 1 for token in tokens)
    return [token for token, end in zip(tokens, ends, strict=True) if end <= CONTEXT_WIDTH + 1]
