"""Texts with a word and its part of speech a line, sentences apart by blank lines, read as a stream."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from elmo.analysis.pos import NUM_COLUMNS, Tagged
from elmo.errors import ElmoError
from elmo.text.reading import read_lines

Columns = Literal["upos", "xpos", "columns"]
"""Where the tag stands: CoNLL-U's universal tag (column 4) or the language's own (column 5), or beside the word."""

COLUMNS: tuple[str, ...] = get_args(Columns)


NO_WORD = re.compile(r"\d+[-.]\d+")
"""Of CoNLL-U, the number of several tokens together, or of a word left out of the text."""


class _Place(NamedTuple):
    """Of what is between the tabs of a line: the number, counted from 0, of the word and of its tag."""

    word: int
    tag: int


PLACES = {"upos": _Place(1, 3), "xpos": _Place(1, 4), "columns": _Place(0, 1)}


def read_tagged(paths: Iterable[str | Path], columns: Columns, encoding: str = "utf-8") -> Iterator[Tagged]:
    """The sentences of files, one after the other.

    "columns" are a word, a tab and its tag, with or without further columns. Of CoNLL-U comments are passed over, and
    so are the lines of words that several tokens were written as ("1-2") and of words left out of the text ("8.1").
    Raises ElmoError for a line with other columns or without a word or a tag, naming it.
    """
    for path in paths:
        sentence = Tagged([], [])
        for number, line in enumerate(chain(read_lines(path, encoding), [""]), 1):
            if line.strip():
                _add(sentence, line, columns, f"{path}, line {number}")
            elif sentence.tokens:
                yield sentence
                sentence = Tagged([], [])


def _add(sentence: Tagged, line: str, columns: Columns, where: str) -> None:
    """Add the word of a line to its sentence, if the line has one."""
    parts, place = line.split("\t"), PLACES[columns]
    if columns != "columns":
        if line.startswith("#") or NO_WORD.fullmatch(parts[0]):
            return
        if len(parts) != NUM_COLUMNS:
            raise ElmoError(f"{where}: {len(parts)} columns between tabs; CoNLL-U has {NUM_COLUMNS}")
    elif len(parts) < 2:
        raise ElmoError(f"{where}: holds no tab; expected a word, a tab and its tag")
    word, tag = parts[place.word].strip(), parts[place.tag].strip()
    if not word or not tag:
        raise ElmoError(f"{where}: the {'tag' if word else 'word'} is empty")
    sentence.tokens.append(word)
    sentence.tags.append(tag)
