"""Sentences as trees whose phrases have labels, as the Stanford Sentiment Treebank has them (Socher et al. 2013)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from elmo.errors import ElmoError
from elmo.text.reading import read_lines

NUM_LABELS = 5

_PIECE = re.compile(r"\(([^\s()]*)|\)|[^\s()]+")
_ESCAPED = {r"\/": "/", r"\*": "*", "-LRB-": "(", "-RRB-": ")"}
_ESCAPE = re.compile("|".join(map(re.escape, _ESCAPED)))
_QUOTES = {"``": '"', "''": '"', "`": "'"}
"""Quotes of the Penn Treebank, and how plain text writes them."""


class Phrase(NamedTuple):
    """The tokens from `start` up to, not including, `end`, counted from 0, and their label, from 0 to 4."""

    start: int
    end: int
    label: int


class LabelledTree(NamedTuple):
    """A sentence's tokens and its phrases, single words and the whole sentence included, inner ones first."""

    tokens: tuple[str, ...]
    phrases: tuple[Phrase, ...]

    @property
    def label(self) -> int:
        """That of the whole sentence."""
        return self.phrases[-1].label

    def with_plain_quotes(self) -> LabelledTree:
        """The same tree with quotes as plain text has them, `"` and `'`."""
        return self._replace(tokens=tuple(_QUOTES.get(token, token) for token in self.tokens))


def read_trees(path: str | Path) -> list[LabelledTree]:
    """The trees of a file, plain or compressed, one a line: `(3 (2 It) (4 (2 is) (3 fun)))`.

    Brackets and slashes are as in plain text, for `-LRB-` and `\\/`; quotes stay the treebank's. Blank lines are
    skipped. Raises ElmoError for a line that is no such tree, naming it, and for a file without one.
    """
    trees = list(_read(path))
    if not trees:
        raise ElmoError(f"{path}: holds no tree; expected one a line, as '(3 (2 It) (4 (2 is) (3 fun)))'")
    return trees


def _read(path: str | Path) -> Iterator[LabelledTree]:
    for number, line in enumerate(read_lines(path), 1):
        if line.strip():
            try:
                yield parse_tree(line)
            except ElmoError as error:
                raise ElmoError(f"{path}, line {number}: {error}") from None


def parse_tree(line: str) -> LabelledTree:
    """The tree of one line; ElmoError says what is wrong with it, and at which character."""
    tokens: list[str] = []
    phrases: list[Phrase] = []
    is_open: list[tuple[int, int]] = []
    for match in _PIECE.finditer(line):
        piece, where = match[0], f"at character {match.start() + 1}"
        if phrases and not is_open:
            raise ElmoError(f"the tree ends before {piece!r} {where}; expected one tree a line")
        if piece.startswith("("):
            is_open.append((len(tokens), _label(match[1], where)))
        elif not is_open:
            raise ElmoError(f"{piece!r} {where} is in no phrase; expected a tree as '(3 (2 It) (4 (2 is) (3 fun)))'")
        elif piece == ")":
            start, label = is_open.pop()
            if start == len(tokens):
                raise ElmoError(f"the phrase that ends {where} holds no word")
            phrases.append(Phrase(start, len(tokens), label))
        else:
            tokens.append(_ESCAPE.sub(lambda escape: _ESCAPED[escape[0]], piece))
    if is_open:
        raise ElmoError(f"the line ends within {len(is_open)} phrases; a closing bracket is missing")
    return LabelledTree(tuple(tokens), tuple(phrases))


def _label(text: str, where: str) -> int:
    if text not in map(str, range(NUM_LABELS)):
        raise ElmoError(f"{text!r} {where} is no label; expected a digit from 0 to {NUM_LABELS - 1} after the bracket")
    return int(text)
