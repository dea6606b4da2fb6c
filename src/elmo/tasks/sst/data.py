"""Sentences as trees of labelled phrases, as in the Stanford Sentiment Treebank (Socher et al. 2013)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from elmo.errors import ElmoError, placing
from elmo.text.decoding import read_lines
from elmo.wording import counted

NUM_LABELS = 5

_PIECE = re.compile(r"\(([^\s()]*)|\)|[^\s()]+")
_ESCAPED = {r"\/": "/", r"\*": "*", "-LRB-": "(", "-RRB-": ")"}
_ESCAPE = re.compile("|".join(map(re.escape, _ESCAPED)))
_QUOTES = {"``": '"', "''": '"', "`": "'"}
"""The quotation marks of the Penn Treebank, and those of plain text."""


class Phrase(NamedTuple):
    """The tokens from `start` up to but not including `end`, counted from 0, and their label, from 0 to 4."""

    start: int
    end: int
    label: int


class LabelledTree(NamedTuple):
    """The tokens of a sentence and its phrases, inner ones first.

    Single words are phrases too, and so is the whole sentence, which is the last one.
    """

    tokens: tuple[str, ...]
    phrases: tuple[Phrase, ...]

    def with_plain_quotes(self) -> LabelledTree:
        """Return the same tree with the quotation marks of plain text, `"` and `'`."""
        return self._replace(tokens=tuple(_QUOTES.get(token, token) for token in self.tokens))


def read_trees(path: str | Path) -> list[LabelledTree]:
    r"""Read the trees of a file, plain or compressed, one on each line: `(3 (2 It) (4 (2 is) (3 fun)))`.

    Brackets and slashes become those of plain text, in place of `-LRB-` and `\/`. Quotation marks stay those of the
    treebank. Blank lines are skipped.

    Raises:
        ElmoError: If a line is not such a tree, or the file holds none.
    """
    trees: list[LabelledTree] = []
    for number, line in enumerate(read_lines(path), 1):
        if line.strip():
            with placing(f"{path}, line {number}"):
                trees.append(parse_tree(line))
    if not trees:
        raise ElmoError(f"{path}: holds no tree; expected one on each line, such as '(3 (2 It) (4 (2 is) (3 fun)))'")
    return trees


def parse_tree(line: str) -> LabelledTree:
    """Parse the tree of one line.

    Raises:
        ElmoError: If it is not a tree; the message names the character.
    """
    tokens: list[str] = []
    phrases: list[Phrase] = []
    # A stack rather than recursion, which would limit how deep a tree may be: the start and label of each open phrase.
    is_open: list[tuple[int, int]] = []
    for match in _PIECE.finditer(line):
        piece, where = match[0], f"at character {match.start() + 1}"
        if phrases and not is_open:
            raise ElmoError(f"the tree ends before {piece!r} {where}; expected one tree on each line")
        if piece.startswith("("):
            if match[1] not in map(str, range(NUM_LABELS)):
                wanted = f"a digit from 0 to {NUM_LABELS - 1} after the bracket"
                raise ElmoError(f"{match[1]!r} {where} is no label; expected {wanted}")
            is_open.append((len(tokens), int(match[1])))
        elif not is_open:
            raise ElmoError(
                f"{piece!r} {where} is in no phrase; expected a tree such as '(3 (2 It) (4 (2 is) (3 fun)))'"
            )
        elif piece == ")":
            start, label = is_open.pop()
            if start == len(tokens):
                raise ElmoError(f"the phrase that ends {where} holds no word")
            phrases.append(Phrase(start, len(tokens), label))
        else:
            tokens.append(_ESCAPE.sub(lambda escape: _ESCAPED[escape[0]], piece))
    if is_open:
        raise ElmoError(f"the line ends within {counted(len(is_open), 'phrase')}; a closing bracket is missing")
    return LabelledTree(tuple(tokens), tuple(phrases))
