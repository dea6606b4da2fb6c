"""CoNLL-U, the format of Universal Dependencies: ten columns between tabs, one line for each word.

Source: https://universaldependencies.org/format.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from elmo.errors import ElmoError
from elmo.schema import shown
from elmo.text.opening import kind_by_name
from elmo.wording import counted

CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
"""The columns. `upos` is the universal part of speech, `xpos` the treebank's own (Penn's in English)."""

EMPTY = "_"
"""What a column holds that has no value."""

_NO_WORD = re.compile(r"\d+[-.]\d+")
"""Numbers of lines that are not words: several words written as one ("1-2"), or a word left out of the text ("8.1")."""


def is_conllu(path: str | Path) -> bool:
    """Return whether a file is CoNLL-U by its name, such as "x.conllu" or "x.conllu.xz"."""
    return kind_by_name(path) == ".conllu"


def refuse_tokenizer(name: str | None) -> None:
    """Raise ElmoError if a tokenizer is named for CoNLL-U, which gives the words; "whitespace" cuts nothing."""
    if name not in (None, "whitespace"):
        raise ElmoError(f"tokenizer {name}: the words of CoNLL-U are given; leave out the tokenizer")


def layout_by_name(paths: Sequence[str]) -> str:
    """Return what a line of these files holds: "conllu" if they are named so, and otherwise "sentences".

    Raises:
        ElmoError: If some are named so and others are not.
    """
    named = {is_conllu(path): path for path in reversed(paths)}
    if len(named) > 1:
        raise ElmoError(
            f"{named[True]} is CoNLL-U by its name, and {named[False]} is not; read them one after the other, or pass "
            "`text=...` if both have the same layout"
        )
    return "conllu" if True in named else "sentences"


def without_spaces(form: str) -> str:
    """Return a word with `_` in place of spaces, as a biLM reads it: no token contains whitespace."""
    return "_".join(form.split())


def split_word(line: str, where: str, expected: int) -> list[str] | None:
    """Return the columns of a line, or None if it holds no word: a comment, a range ("1-2") or an empty node ("8.1").

    Args:
        line: A line that is not blank.
        where: The file and the number of the line, with which error messages begin.
        expected: The number that the next word of the sentence has, from 1.

    Raises:
        ElmoError: If the line has another number of columns, or the first one isn't the expected number. Without this
            check, sentences between which a blank line is missing would become one.
    """
    # The package `conllu` would read these lines, too. But it lets lines pass that lack columns, takes two spaces for a
    # tab, and doesn't say which line is wrong, so most of these checks would stay. It also takes 8 times as long.
    columns = line.split("\t")
    if line.startswith("#") or _NO_WORD.fullmatch(columns[0]):
        return None
    if len(columns) != len(CONLLU):
        raise ElmoError(
            f"{where}: {counted(len(columns), 'column')} between tabs; CoNLL-U has {len(CONLLU)}, and the line is "
            f"{shown(line)} (other files of columns need a recipe that names them, as in columns=[form, xpos])"
        )
    if not columns[0].isdecimal():
        raise ElmoError(f"{where}: {columns[0]!r} is not the number of a word")
    if columns[0].lstrip("0") != str(expected):
        missing = "; if a sentence begins here, put a blank line before it" if columns[0] == "1" else ""
        raise ElmoError(f"{where}: the word has the number {columns[0]}; expected {expected}{missing}")
    return columns


@dataclass
class ConlluSentence:
    """The words of a sentence, the line of the file where it begins, and its id.

    Each word comes with its start and end in the text that `conllu_sentences` was given. Spaces in words are `_` (see
    `without_spaces`).
    """

    line: int
    id: str = ""
    words: list[tuple[str, int, int]] = field(default_factory=list[tuple[str, int, int]])


def conllu_sentences(text: str, path: str, line: int = 1) -> Iterator[ConlluSentence]:
    """Yield the sentences of a part of a CoNLL-U file that have words.

    Args:
        text: Whole lines that contain only whole sentences.
        path: The name of the file, for error messages.
        line: The number of the first line of the part (from 1).

    Raises:
        ElmoError: If a line is malformed (see `split_word`).
    """
    sentence: ConlluSentence | None = None
    start = 0
    for number, content in enumerate(text.split("\n"), line):
        if not content.strip():
            if sentence is not None and sentence.words:
                yield sentence
            sentence = None
        else:
            sentence = sentence or ConlluSentence(number)
            if (found := comment_value(content, "sent_id")) is not None:
                sentence.id = found
            elif (columns := split_word(content, f"{path}, line {number}", len(sentence.words) + 1)) is not None:
                if not columns[1].strip():
                    raise ElmoError(f"{path}, line {number}: the word is empty")
                first = start + len(columns[0]) + 1
                sentence.words.append((without_spaces(columns[1]), first, first + len(columns[1])))
        start += len(content) + 1
    if sentence is not None and sentence.words:
        yield sentence


def comment_value(line: str, key: str) -> str | None:
    """Return the value in a comment of the form "# key = value", or None if the line is not one with this key."""
    # By parts, since a pattern that ends in `(.*?)\s*` takes minutes for a line of many spaces.
    name, mark, value = line.partition("=")
    return value.strip() if mark and name.startswith("#") and name[1:].strip() == key else None
