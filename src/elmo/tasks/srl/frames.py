"""Predicates and their arguments (PropBank frames): how files write them, and how they are scored.

Files are in the columns of CoNLL or of PropBank's own releases. Scores are those of CoNLL-2005's script srl-eval.pl
(Carreras and Màrquez 2005).

A sentence has one token on each line, and a column for each predicate: `(ARG0*` begins an argument, `*)` ends one,
`(ARG1*)` is one of a single token, and `*` is none of these. One argument of each column is `V`, the predicate itself.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from elmo.errors import ElmoError
from elmo.tasks.common.scores import percent, precision_recall_f1
from elmo.tasks.common.spans import Span
from elmo.text.columns import read_paragraphs
from elmo.wording import counted

VERB = "V"
"""The role of the predicate itself, whether it is a verb or not."""

NO_LEMMA = "-"
"""What the column of lemmas holds of a token that is no predicate."""

_CELL = re.compile(r"(?:\(([^()*]+))?\*(\))?")
_DOCUMENT = re.compile(r"#\s*(begin|end) document\b")  # in full, as a sentence may have "#" for a token


class FrameFormat(NamedTuple):
    """Which column of a format holds what.

    Attributes:
        token: The column of the token, counted from 0.
        tag: The column of the part of speech. None if there is none.
        lemma: The column of the predicate's lemma.
        roles: The column of the first predicate.
        behind: The number of columns after those of the predicates.
        names: A description of the columns for error messages.
    """

    token: int
    tag: int | None
    lemma: int
    roles: int
    behind: int
    names: str


FORMATS = {
    "gold_conll": FrameFormat(
        3, 4, 6, 8, 0, "file, sentence, number, token, tag, parse, lemma, roleset, then predicates"
    ),
    "conll2012": FrameFormat(3, 4, 6, 11, 1, "those of CoNLL-2012: 11, then predicates, then coreference"),
    "conll2005": FrameFormat(0, None, 1, 2, 0, "token, the predicate's lemma or -, then predicates"),
}
"""The known formats: PropBank's releases, OntoNotes as in CoNLL-2012, and CoNLL-2005's files of words and of props,
joined side by side."""


class Frame(NamedTuple):
    """A predicate and its arguments.

    Attributes:
        predicate: The index of the predicate's token.
        spans: The arguments in order, including the predicate itself (`V`).
        tag: The predicate's part of speech, or "" if it is unknown.
    """

    predicate: int
    spans: tuple[Span, ...] = ()
    tag: str = ""


class FramedSentence(NamedTuple):
    """A sentence and its predicates, in the order of their columns, with the lemma of each."""

    tokens: tuple[str, ...]
    frames: tuple[Frame, ...]
    lemmas: tuple[str, ...]


def read_frames(path: str, format_name: str) -> list[FramedSentence]:
    """Read the sentences of a file in one of `FORMATS`, plain or compressed.

    A predicate is where the first `V` of its column begins.

    Raises:
        ElmoError: If a line is not in the format, arguments are nested, or the file holds no sentence.
    """
    columns = FORMATS[format_name]
    sentences = [_parse(rows, columns, f"{path}, line") for rows in _blocks(path)]
    if not sentences:
        raise ElmoError(f"{path}: holds no sentence; expected a token on each line, in the columns {columns.names}")
    return sentences


def format_frames(tokens: Sequence[str], frames: Sequence[Frame], lemmas: Sequence[str] = ()) -> str:
    """Write a sentence in the format conll2005, and a blank line.

    Args:
        tokens: The tokens.
        frames: The predicates.
        lemmas: The lemma of each predicate. If there are none, the predicates themselves are written in their place.
    """
    columns = [list(tokens), [NO_LEMMA] * len(tokens)]
    for frame, lemma in zip(frames, lemmas or [tokens[frame.predicate] for frame in frames], strict=True):
        columns[1][frame.predicate] = lemma
        cells = ["*"] * len(tokens)
        for start, end, role in frame.spans:
            cells[start] = f"({role}{cells[start]}"  # the cell has its asterisk already: "(ARG0*", then "(ARG0*)"
            cells[end - 1] += ")"
        columns.append(cells)
    return "".join("\t".join(row) + "\n" for row in zip(*columns, strict=True)) + "\n"


OTHER_FORMAT = "if the file is in another format, set the recipe's key format"

NumberedFields = tuple[int, list[str]]
"""The number of a line, and its columns."""


def _blocks(path: str) -> Iterator[list[NumberedFields]]:
    """Yield the rows of each sentence.

    Columns are separated by tabs and spaces on the same line where two files were joined, as `paste words props` does.
    """
    for lines in read_paragraphs(path):
        words = ((number, line) for number, line in lines if not _DOCUMENT.match(line))
        if rows := [(number, [field for field in re.split(r"[ \t]+", line) if field]) for number, line in words]:
            yield rows


def _parse(rows: Sequence[NumberedFields], columns: FrameFormat, where: str) -> FramedSentence:
    width, fewest = len(rows[0][1]), columns.roles + columns.behind
    if width < fewest:
        raise ElmoError(
            f"{where} {rows[0][0]}: {counted(width, 'column')}; there should be {fewest} or more: {columns.names}; "
            f"{OTHER_FORMAT}"
        )
    for number, fields in rows:
        if len(fields) != width:
            raise ElmoError(
                f"{where} {number}: {counted(len(fields), 'column')}, but the sentence's first line has {width}; all "
                "lines of a sentence have a column for each of its predicates"
            )
    # The width of the first line says how many predicates there are: each has a column, between the others.
    places = range(columns.roles, width - columns.behind)
    tokens = tuple(fields[columns.token] for _, fields in rows)
    frames: list[Frame] = []
    lemmas: list[str] = []
    for place in places:
        spans = _spans([(number, fields[place]) for number, fields in rows], f"column {place + 1}", where)
        # A predicate may be of several spans, V and C-V, or one of several tokens: the first token of V stands for it.
        predicate = next((span.start for span in spans if span.type == VERB), None)
        if predicate is None:
            raise ElmoError(f"{where} {rows[0][0]}: column {place + 1} of this sentence has no predicate (V*)")
        tag = "" if columns.tag is None else rows[predicate][1][columns.tag]
        frames.append(Frame(predicate, tuple(spans), tag))
        lemma = rows[predicate][1][columns.lemma]
        lemmas.append(tokens[predicate] if lemma == NO_LEMMA else lemma)
    return FramedSentence(tokens, tuple(frames), tuple(lemmas))


def _spans(cells: Sequence[tuple[int, str]], column: str, where: str) -> list[Span]:
    """Return the arguments of a column."""
    spans: list[Span] = []
    start, role = 0, ""
    for place, (number, cell) in enumerate(cells):
        match = _CELL.fullmatch(cell)
        if match is None:
            raise ElmoError(
                f"{where} {number}: {column} is {cell!r}, none of *, (ROLE*, *) and (ROLE*); {OTHER_FORMAT}"
            )
        opened, closed = match.groups()
        if (opened and role) or (closed and not (opened or role)):
            fault = (
                f"begins inside {role}; arguments may not overlap" if role else "ends an argument that has not begun"
            )
            raise ElmoError(f"{where} {number}: {column}, {cell!r} {fault}")
        if opened:
            start, role = place, opened
        if closed:
            spans.append(Span(start, place + 1, role))
            role = ""
    if role:
        raise ElmoError(f"{where} {cells[-1][0]}: {column}, {role} does not end before the sentence does")
    return spans


CONTINUATION = "C-"
"""The prefix of the role of a span that continues the last argument with this role."""


class Argument(NamedTuple):
    """A role, and the tokens that fill it: `pieces` of (start, end), in order."""

    role: str
    pieces: tuple[tuple[int, int], ...]


def arguments_of(spans: Iterable[Span]) -> list[Argument]:
    """Return the arguments of a predicate, with continuations joined to what they continue.

    A continuation that has nothing to continue is an argument of its own.
    """
    found: list[tuple[str, list[tuple[int, int]]]] = []
    latest: dict[str, list[tuple[int, int]]] = {}
    for start, end, kind in sorted(spans):
        role = kind.removeprefix(CONTINUATION)
        if kind == role or role not in latest:
            latest[role] = []
            found.append((role, latest[role]))
        latest[role].append((start, end))  # also changes the list in `found`, which is the same
    return [Argument(role, tuple(pieces)) for role, pieces in found]


class ArgumentCounts:
    """Counts the correct, predicted and gold arguments of each role. `V` is not counted."""

    def __init__(self) -> None:
        self.right, self.found, self.wanted = Counter[str](), Counter[str](), Counter[str]()
        self.num_frames = self.num_perfect = 0

    def add(self, gold: Sequence[Span], predicted: Sequence[Span]) -> None:
        """Count the arguments of one predicate. An argument is correct if its role and all its pieces are."""
        wanted, found = ({a for a in arguments_of(spans) if a.role != VERB} for spans in (gold, predicted))
        for counter, arguments in ((self.right, wanted & found), (self.found, found), (self.wanted, wanted)):
            counter.update(argument.role for argument in arguments)
        self.num_frames += 1
        self.num_perfect += wanted == found

    def scores(self) -> dict[str, float]:
        """Return precision, recall and F1 in percent, and the percentage of predicates without a mistake.

        A score whose denominator is 0 is 0.
        """
        totals = precision_recall_f1(self.right.total(), self.found.total(), self.wanted.total())
        return totals | {"perfect": percent(self.num_perfect, self.num_frames)}

    def role_scores(self) -> dict[str, float]:
        """Return precision, recall and F1 of each role, as "precision/ROLE", "recall/ROLE" and "f1/ROLE"."""
        return {
            f"{name}/{role}": value
            for role in sorted(self.wanted | self.found)
            for name, value in precision_recall_f1(self.right[role], self.found[role], self.wanted[role]).items()
        }
