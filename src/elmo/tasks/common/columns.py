"""The sentences of CoNLL-U and of plain columns, with all that must be written again as it was read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

from elmo.errors import ElmoError
from elmo.text.columns import DOCUMENT, read_paragraphs, split_columns
from elmo.text.conllu import CONLLU, EMPTY, comment_value, split_word
from elmo.text.suspicion import is_true_of_most_lines
from elmo.text.tokenizers import Tokenizer, locate
from elmo.wording import counted

Line = tuple[str, ...]
"""The columns of a line. A line that holds no word is a single column."""

_LAST_OF_CONLL = re.compile(r"-|[^\s*]*\*\)*|\(?\d+\)(\|\S*)?|\(\d+(\|\S*)?")
"""The last column of CoNLL-2005 and CoNLL-2012: arguments, as in `(A0*`, `*` and `*)`, or mentions, as in `(7|2)`."""

_NEWDOC = re.compile(r"#\s*newdoc\b")
_ESCAPE, _BAR = "\\", r"\p"
_ESCAPED = re.compile(r"\\[\\p]")
"""What stands for a backslash and for a vertical bar in a value of `misc`."""


@dataclass(frozen=True)
class ColumnSentence:
    """A sentence: its words, and the lines that they come from.

    Attributes:
        tokens: The forms of the words.
        names: The names of the columns.
        lines: All lines, including comments.
        places: The index of each word's line.
    """

    tokens: tuple[str, ...]
    names: tuple[str, ...]
    lines: tuple[Line, ...]
    places: tuple[int, ...]

    def column(self, name: str) -> tuple[str, ...]:
        """Return what the column of this name holds of each word.

        Raises:
            ElmoError: If there is no such column.
        """
        if name not in self.names:
            raise ElmoError(f"there is no column {name}; columns are {', '.join(self.names)}")
        column = self.names.index(name)
        return tuple(self.lines[place][column] for place in self.places)

    def attribute(self, key: str) -> tuple[str | None, ...]:
        """Return the value of a key of `misc` for each word, as in "NER=B-PER", or None where it has none."""
        return tuple(_item_of(misc, key) for misc in self.column("misc"))

    def comments(self, key: str) -> list[str]:
        """Return the values of all comments of the form "# key = value".

        Those of a document without words, which stand before the sentence or at the end of the file, are left out.
        """
        values = (comment_value(comment, key) for comment in self._comments)
        return [value for value in values if value is not None]

    def after(self, lines: Sequence[Line]) -> ColumnSentence:
        """Return the sentence with further lines before its own, none of which holds a word."""
        if not lines:
            return self
        return replace(self, lines=(*lines, *self.lines), places=tuple(place + len(lines) for place in self.places))

    @property
    def begins_document(self) -> bool:
        """Whether a comment says that a document begins here ("# newdoc", with an id or without)."""
        return any(map(_NEWDOC.match, self._comments))

    @property
    def _comments(self) -> list[str]:
        """The comments on the sentence, and the other lines that hold no word between them and the last word.

        Comments end at a blank line if another document begins after it: they are of one that has no words.
        """
        groups: list[list[str]] = [[]]
        end = self.places[-1] if self.places else len(self.lines)
        for line in self.lines[:end]:  # what stands behind the words, at the end of a file, is of no sentence
            if line == ("",):
                groups.append([])
            elif len(line) == 1:
                groups[-1].append(line[0])
        first = max((number for number, group in enumerate(groups) if any(map(_NEWDOC.match, group))), default=0)
        return list(chain.from_iterable(groups[first:]))

    def with_columns(self, values: Mapping[str, Sequence[str]]) -> str:
        """Return the sentence as text, with new values for each word in some columns, and a blank line at the end.

        What has no column of its own is added to that of `misc`, as in "chunk=B-NP". A vertical bar, which separates
        the items there, is written as the sequence that CoNLL-U has for it.
        """
        lines = list(map(list, self.lines))
        for name, column in values.items():
            for place, value in zip(self.places, column, strict=True):
                if name in self.names:
                    lines[place][self.names.index(name)] = value
                    continue
                others = lines[place][-1].split("|") if lines[place][-1] != EMPTY else []
                kept = [item for item in others if item.partition("=")[0] != name]
                escaped = value.replace(_ESCAPE, 2 * _ESCAPE).replace("|", _BAR)
                lines[place][-1] = "|".join([*kept, f"{name}={escaped}"])
        return "".join("\t".join(line) + "\n" for line in lines) + "\n"


def read_columns(path: str, columns: Sequence[str] | None, encoding: str = "utf-8") -> Iterator[ColumnSentence]:
    """Yield the sentences of a file, plain or compressed.

    Args:
        path: The file, or "-".
        columns: The names of the columns of a file that has one word on each line and nothing else; one of them is
            "form". None reads CoNLL-U.
        encoding: The encoding of the file.

    Raises:
        ElmoError: If a line has other columns. The message names the file and the line.
    """
    before: list[Line] = []
    held: ColumnSentence | None = None  # one sentence is held back, since it gets the lines at the end of the file
    for lines in read_paragraphs(path, encoding):
        numbered = ((f"{path}, line {number}", line) for number, line in lines)
        example = _sentence(numbered, columns)
        if example.tokens:
            if held is not None:
                yield held
            held, before = example.after(before), []
        else:
            before += [*example.lines, ("",)]  # comments on a document, say, with a blank line after them
    if held is not None:
        # Without the last of the blank lines, which every sentence gets when it is written.
        yield replace(held, lines=(*held.lines, ("",), *before)[:-1])


def from_text(text: str, tokenize: Tokenizer) -> ColumnSentence:
    """Return the sentence of a plain text as CoNLL-U, whose columns of tags are all empty."""
    text = " ".join(text.split())
    located = locate(text, tokenize)
    tokens = [token for token, *_ in located]
    misc = [EMPTY] * len(tokens)
    for place, (one, other) in enumerate(pairwise(located)):
        if one.end == other.start:
            misc[place] = "SpaceAfter=No"
    words = [(str(n), token, *[EMPTY] * 7, note) for n, (token, note) in enumerate(zip(tokens, misc, strict=True), 1)]
    return ColumnSentence(tuple(tokens), CONLLU, ((f"# text = {text}",), *words), tuple(range(1, len(words) + 1)))


def _sentence(lines: Iterable[tuple[str, str]], columns: Sequence[str] | None) -> ColumnSentence:
    """Return the sentence of some lines, each with its place in the file. Perhaps none of them holds a word."""
    names = CONLLU if columns is None else tuple(columns)
    rows: list[Line] = []
    places: list[int] = []
    for where, line in lines:
        values = split_word(line, where, len(places) + 1) if columns is None else _split(line, where, names)
        if values is None:
            rows.append((line,))
            continue
        if not all(map(str.strip, values)):
            name = next(name for name, value in zip(names, values, strict=True) if not value.strip())
            hint = f"; CoNLL-U has {EMPTY} where there is no value" if columns is None else ""
            raise ElmoError(f"{where}: column {name} is empty{hint}")
        places.append(len(rows))
        rows.append(tuple(values))
    form = names.index("form")
    return ColumnSentence(tuple(rows[place][form] for place in places), names, tuple(rows), tuple(places))


def note_on_conll(sample: str) -> str | None:
    """Return a note if the beginning of a plain text has the columns of CoNLL-2005 or CoNLL-2012, or None."""

    def is_of_conll(line: str) -> bool:
        columns = line.split()
        return len(columns) > 1 and _LAST_OF_CONLL.fullmatch(columns[-1]) is not None

    if not is_true_of_most_lines(sample, is_of_conll):
        return None
    return "most lines are columns, which are read as words; give text, or score the file with 'elmo task evaluate'"


def _split(line: str, where: str, names: tuple[str, ...]) -> list[str] | None:
    """Return the columns of a line of a plain file, or None if it separates documents."""
    columns = split_columns(line)
    if DOCUMENT in columns:
        return None
    if len(columns) != len(names):
        raise ElmoError(
            f"{where}: has {counted(len(columns), 'column')}, but the recipe names {len(names)} (columns: "
            f"{', '.join(names)}); a line that is no word, such as <s>, has to be left out"
        )
    return columns


def _item_of(misc: str, key: str) -> str | None:
    found = (item.partition("=") for item in misc.split("|"))
    value = next((value for name, _, value in found if name == key), None)
    return value and _ESCAPED.sub(lambda found: "|" if found[0] == _BAR else _ESCAPE, value)
