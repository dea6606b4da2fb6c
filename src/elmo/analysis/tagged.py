"""Texts with a word and its part of speech a line, sentences apart by blank lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from elmo.errors import ElmoError
from elmo.text.reading import read_paragraphs

Columns = Literal["upos", "xpos", "columns"]
"""Where the tag stands: CoNLL-U's universal tag (column 4) or the language's own (column 5), or beside the word."""

COLUMNS: tuple[str, ...] = get_args(Columns)

NUM_COLUMNS = 10
"""Of a line of CoNLL-U: number, word, lemma, universal tag, the language's own tag (Penn's in English), and others."""

NO_WORD = re.compile(r"\d+[-.]\d+")
"""Of CoNLL-U, the number of several tokens together, or of a word left out of the text."""


class Tagged(NamedTuple):
    """A sentence's tokens, and the tag of each."""

    tokens: list[str]
    tags: list[str]


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
        for lines in read_paragraphs(path, encoding):
            sentence = Tagged([], [])
            for number, line in lines:
                _add(sentence, line, columns, f"{path}, line {number}")
            if sentence.tokens:
                yield sentence


def read_conllu(path: str | Path) -> list[Tagged]:
    """The words of a CoNLL-U file with their own language's tags. Raises ElmoError as `read_tagged` does, and for a
    file without any sentence or without such tags."""
    sentences = list(read_tagged([path], "xpos"))
    if not sentences:
        raise ElmoError(f"{path}: holds no sentence; expected CoNLL-U")
    if all(tag == "_" for sentence in sentences for tag in sentence.tags):
        raise ElmoError(f"{path}: has no tags in column 5, those of the language; its treebank has universal tags only")
    return sentences


def read_conll2000(path: str | Path) -> list[Tagged]:
    """The words and Penn tags of a file of CoNLL-2000: a word, its tag and its chunk a line, blank lines between
    sentences.

    Raises ElmoError for another number of columns, naming the line, and for a file without any sentence.
    """
    sentences: list[Tagged] = []
    for lines in read_paragraphs(path):
        sentences.append(Tagged([], []))
        for number, line in lines:
            columns = line.split()
            if len(columns) != 3:
                raise ElmoError(
                    f"{path}, line {number}: {len(columns)} columns; expected a word, its tag and its chunk"
                )
            sentences[-1].tokens.append(columns[0])
            sentences[-1].tags.append(columns[1])
    if not sentences:
        raise ElmoError(f"{path}: holds no sentence; expected lines of word, tag and chunk")
    return sentences


def _add(sentence: Tagged, line: str, columns: Columns, where: str) -> None:
    """Add the word of a line to its sentence, if the line has one."""
    parts, place = line.split("\t"), PLACES[columns]
    if columns != "columns":
        if line.startswith("#") or NO_WORD.fullmatch(parts[0]):
            return
        if len(parts) != NUM_COLUMNS:
            raise ElmoError(f"{where}: {len(parts)} columns between tabs; CoNLL-U has {NUM_COLUMNS}")
        if not parts[0].isdecimal():
            raise ElmoError(f"{where}: {parts[0]!r} is no number of a word")
    elif len(parts) < 2:
        raise ElmoError(f"{where}: holds no tab; expected a word, a tab and its tag")
    word, tag = parts[place.word].strip(), parts[place.tag].strip()
    if not word or not tag:
        raise ElmoError(f"{where}: the {'tag' if word else 'word'} is empty")
    sentence.tokens.append(word)
    sentence.tags.append(tag)
