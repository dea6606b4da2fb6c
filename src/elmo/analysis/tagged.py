"""Readers for tagged text: each line holds a word and its part of speech, and blank lines separate sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, get_args

from elmo.errors import ElmoError
from elmo.text.columns import DOCUMENT, Tagged, read_paragraphs, split_columns
from elmo.text.conllu import CONLLU, is_conllu, split_word, without_spaces

Columns = Literal["upos", "xpos", "columns"]
"""Where the tag is: column 4 of CoNLL-U (universal), column 5 (language-specific), or the column after the word."""

COLUMNS: tuple[str, ...] = get_args(Columns)


COLUMN_NUMBERS = {
    "upos": (CONLLU.index("form"), CONLLU.index("upos")),
    "xpos": (CONLLU.index("form"), CONLLU.index("xpos")),
    "columns": (0, 1),
}
"""The columns of the word and of its tag, counted from 0."""


def read_tagged(
    paths: Iterable[str | Path], columns: Columns, encoding: str = "utf-8"
) -> Iterator[tuple[tuple[int, int], Tagged]]:
    """Yield the sentences of files, each with the numbers of its file (from 0) and of its first line (from 1).

    With `columns="columns"` a line is a word, a tab and its tag; further columns are ignored, and lines that separate
    documents ("-DOCSTART-") are skipped. In CoNLL-U, comments are skipped, as are lines for several tokens written as
    one word ("1-2") and for words left out of the text ("8.1"). Spaces in words become `_`.

    Raises:
        ElmoError: If a line has other columns, or lacks a word or a tag (the message names the file and the line), or
            if `columns` is "columns" and a file is CoNLL-U by its name.
    """
    for file, path in enumerate(paths):
        if columns == "columns" and is_conllu(str(path)):
            raise ElmoError(f"{path}: is CoNLL-U by its name; its tags are upos or xpos, not columns")
        for lines in read_paragraphs(path, encoding):
            words: list[tuple[str, str]] = []
            for number, line in lines:
                if (word := _tagged_word(line, columns, f"{path}, line {number}", len(words) + 1)) is not None:
                    words.append(word)
            if words:
                tokens, tags = map(list, zip(*words, strict=True))
                yield (file, lines[0][0]), Tagged(tokens, tags)


def read_conllu(path: str | Path) -> list[Tagged]:
    """Read the words of a CoNLL-U file with their language-specific tags (column 5).

    Args:
        path: The file, which may be compressed.

    Returns:
        All sentences.

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
        rows = [split_columns(line) for _, line in lines]
        for (number, _), row in zip(lines, rows, strict=True):
            if len(row) != 3:
                raise ElmoError(f"{path}, line {number}: {len(row)} columns; expected a word, its tag and its chunk")
        tokens, tags, _ = map(list, zip(*rows, strict=True))
        sentences.append(Tagged(tokens, tags))
    if not sentences:
        raise ElmoError(f"{path}: holds no sentence; expected lines of word, tag and chunk")
    return sentences


def _tagged_word(line: str, columns: Columns, where: str, expected: int) -> tuple[str, str] | None:
    """Return the word of a line and its tag, or None if the line holds no word."""
    word_column, tag_column = COLUMN_NUMBERS[columns]
    # Not split at spaces, so that text that isn't tagged at all is noticed: further columns are allowed.
    parts = line.split("\t") if columns == "columns" else split_word(line, where, expected)
    if parts is None or DOCUMENT in parts:
        return None
    if len(parts) < 2:
        raise ElmoError(f"{where}: holds no tab; expected a word, a tab and its tag")
    word, tag = without_spaces(parts[word_column]), parts[tag_column].strip()
    if not word or not tag:
        raise ElmoError(f"{where}: the {'tag' if word else 'word'} is empty")
    return word, tag
