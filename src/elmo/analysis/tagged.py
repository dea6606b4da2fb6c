"""Readers for tagged text: each line holds a word and its part of speech, and blank lines separate sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from elmo.errors import ElmoError
from elmo.text.conllu import CONLLU, is_conllu, split_word, without_spaces
from elmo.text.decoding import read_paragraphs

Columns = Literal["upos", "xpos", "columns"]
"""Where the tag is: column 4 of CoNLL-U (universal), column 5 (language-specific), or the column after the word."""

COLUMNS: tuple[str, ...] = get_args(Columns)


class Tagged(NamedTuple):
    """The tokens of a sentence, and the tag of each."""

    tokens: list[str]
    tags: list[str]


class _ColumnNumbers(NamedTuple):
    """The columns of the word and of its tag, counted from 0."""

    word: int
    tag: int


COLUMN_NUMBERS = {
    "upos": _ColumnNumbers(CONLLU.index("form"), CONLLU.index("upos")),
    "xpos": _ColumnNumbers(CONLLU.index("form"), CONLLU.index("xpos")),
    "columns": _ColumnNumbers(0, 1),
}


def read_tagged(
    paths: Iterable[str | Path], columns: Columns, encoding: str = "utf-8"
) -> Iterator[tuple[tuple[int, int], Tagged]]:
    """Yield the sentences of files, each with the numbers of its file (from 0) and of its first line (from 1).

    With `columns="columns"` a line is a word, a tab and its tag; further columns are ignored. In CoNLL-U, comments are
    skipped, as are lines for several tokens written as one word ("1-2") and for words left out of the text ("8.1").
    Spaces in words become `_`.

    Raises:
        ElmoError: If a line has other columns, or lacks a word or a tag (the message names the file and the line), or
            if `columns` is "columns" and a file is CoNLL-U by its name.
    """
    for file, path in enumerate(paths):
        if columns == "columns" and is_conllu(str(path)):
            raise ElmoError(f"{path}: is CoNLL-U by its name; its tags are upos or xpos, not columns")
        for lines in read_paragraphs(path, encoding):
            sentence = Tagged([], [])
            for number, line in lines:
                _add(sentence, line, columns, f"{path}, line {number}")
            if sentence.tokens:
                yield (file, lines[0][0]), sentence


def read_conllu(path: str | Path) -> list[Tagged]:
    """Read the words of a CoNLL-U file with their language-specific tags (column 5).

    Raises:
        ElmoError: If a line is malformed (see `read_tagged`), or the file has no sentence or no such tags.
    """
    sentences = [sentence for _, sentence in read_tagged([path], "xpos")]
    if not sentences:
        raise ElmoError(f"{path}: holds no sentence; expected CoNLL-U")
    # "_" is CoNLL-U's mark of an empty column. Probing it would give every layer an accuracy of 1.
    if all(tag == "_" for sentence in sentences for tag in sentence.tags):
        raise ElmoError(f"{path}: has no language-specific tags (column 5); its treebank has universal tags only")
    return sentences


def read_conll2000(path: str | Path) -> list[Tagged]:
    """Read the words and Penn tags of a file of CoNLL-2000.

    Each line holds a word, its tag and its chunk; blank lines separate sentences.

    Raises:
        ElmoError: If a line has another number of columns, or the file has no sentence.
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
    """Add the word of a line to its sentence, unless the line holds no word."""
    place = COLUMN_NUMBERS[columns]
    parts = line.split("\t") if columns == "columns" else split_word(line, where)
    if parts is None:
        return
    if len(parts) < 2:
        raise ElmoError(f"{where}: holds no tab; expected a word, a tab and its tag")
    word, tag = without_spaces(parts[place.word]), parts[place.tag].strip()
    if not word or not tag:
        raise ElmoError(f"{where}: the {'tag' if word else 'word'} is empty")
    sentence.tokens.append(word)
    sentence.tags.append(tag)
