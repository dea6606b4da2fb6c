"""Text in columns, as in the CoNLL shared tasks: one token on each line, and blank lines between sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from elmo.text.decoding import read_lines

DOCUMENT = "-DOCSTART-"
"""The token of a line that separates documents. It is not part of the text."""


class Tagged(NamedTuple):
    """A tagged sentence.

    Attributes:
        tokens: Its tokens.
        tags: The tag of each.
    """

    tokens: Sequence[str]
    tags: Sequence[str]


def read_paragraphs(path: str | Path, encoding: str = "utf-8") -> Iterator[list[tuple[int, str]]]:
    """Yield the groups of lines between blank lines, each line with its number (from 1).

    In formats that have one token per line, such a group is a sentence. One ends before `DOCUMENT`, too, since not all
    files have a blank line there.
    """
    return paragraphs(read_lines(path, encoding))


def paragraphs(lines: Iterable[str]) -> Iterator[list[tuple[int, str]]]:
    """Group lines as `read_paragraphs` does, for lines that are already in memory."""
    group: list[tuple[int, str]] = []
    for number, line in enumerate(lines, 1):
        first = next(iter(line.split(None, 1)), "")
        if group and first in ("", DOCUMENT):
            yield group
            group = []
        if first:
            group.append((number, line))
    if group:
        yield group


def split_columns(line: str) -> list[str]:
    """Split a line of a CoNLL format into its columns: at tabs if it has any, otherwise at spaces.

    Columns between tabs may contain spaces, of which those at their ends are removed.
    """
    columns = line.split("\t") if "\t" in line else [column for column in line.split(" ") if column]
    return [column.strip() for column in columns]
