"""Texts with a token and its tags a line, sentences apart by blank lines, as in the CoNLL shared tasks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from elmo.errors import ElmoError
from elmo.text.reading import read_paragraphs, split_columns

DOCUMENT = "-DOCSTART-"
"""The token of a line that begins a document, and is no part of it."""

_TAG = re.compile(r"O|[BIULES]-.+")


class TaggedSentence(NamedTuple):
    """A sentence's tokens, and the tag of each."""

    tokens: tuple[str, ...]
    tags: tuple[str, ...]


def read_conll(path: str | Path, token_column: int = 0) -> list[TaggedSentence]:
    """The sentences of a file, plain or compressed; the last column is the tag.

    Columns are between tabs in a line that holds any, else between blanks. `token_column` counts from 0, or if it is
    negative from the end, so that -2 is the column before the tag. Raises ElmoError for a line with too few columns or
    a tag of no known scheme, naming it, and for a file without sentence or whose tokens are only numbers.
    """
    sentences = list(_read(path, token_column))
    if not sentences:
        raise ElmoError(
            f"{path}: holds no sentence; expected a token and its tag a line, blank lines between sentences"
        )
    if all(token.isdecimal() for sentence in sentences for token in sentence.tokens):
        raise ElmoError(
            f"{path}: all tokens are numbers, as if column {token_column} counted them; the recipe's token_column says "
            "which column is the token, counted from 0 (--set token_column=1)"
        )
    return sentences


def _read(path: str | Path, token_column: int) -> Iterator[TaggedSentence]:
    for lines in read_paragraphs(path):
        pairs = (_parse(line, token_column, f"{path}, line {number}") for number, line in lines)
        if words := [pair for pair in pairs if pair[0] != DOCUMENT]:
            tokens, tags = zip(*words, strict=True)
            yield TaggedSentence(tokens, tags)


def _parse(line: str, token_column: int, where: str) -> tuple[str, str]:
    columns = split_columns(line)
    place = token_column if token_column >= 0 else len(columns) + token_column
    if not 0 <= place < len(columns) - 1:
        raise ElmoError(
            f"{where}: {len(columns)} columns, but the token should be column {place + 1} and its tag the last "
            "one after it; the recipe's token_column says which it is, counted from 0"
        )
    token, tag = columns[place].strip(), columns[-1].strip()
    if not token:
        raise ElmoError(f"{where}: the token is empty")
    if not _TAG.fullmatch(tag):
        raise ElmoError(f"{where}: {tag!r} is no tag such as O, B-LOC or I-LOC")
    return token, tag


def format_conll(tokens: Sequence[str], tags: Sequence[str]) -> str:
    """A sentence as lines of token, tab, tag."""
    return "".join(f"{token}\t{tag}\n" for token, tag in zip(tokens, tags, strict=True))
