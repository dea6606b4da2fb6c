"""CoNLL-U, the format of Universal Dependencies: ten columns between tabs, one line for each word.

Source: https://universaldependencies.org/format.html
"""

from __future__ import annotations

import re

from elmo.errors import ElmoError

CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
"""The columns. `upos` is the universal part of speech, `xpos` the treebank's own (Penn's in English)."""

EMPTY = "_"
"""What a column holds that has no value."""

_NO_WORD = re.compile(r"\d+[-.]\d+")
"""Numbers of lines that are not words: several words written as one ("1-2"), or a word left out of the text ("8.1")."""


def split_word(line: str, where: str) -> list[str] | None:
    """Return the columns of a line, or None if it holds no word: a comment, a range ("1-2") or an empty node ("8.1").

    Args:
        line: A line that is not blank.
        where: The file and the number of the line, with which error messages begin.

    Raises:
        ElmoError: If the line has another number of columns, or the first one isn't a number.
    """
    # The package `conllu` would read these lines, too. But it lets lines pass that lack columns, takes two spaces for a
    # tab, and doesn't say which line is wrong, so most of these checks would stay. It also takes 8 times as long.
    columns = line.split("\t")
    if (line.startswith("#") and len(columns) < len(CONLLU)) or _NO_WORD.fullmatch(columns[0]):
        return None
    if len(columns) != len(CONLLU):
        raise ElmoError(f"{where}: {len(columns)} columns between tabs; CoNLL-U has {len(CONLLU)}")
    if not columns[0].isdecimal():
        raise ElmoError(f"{where}: {columns[0]!r} is not the number of a word")
    return columns
