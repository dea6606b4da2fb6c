"""Reads and writes documents with coreference in the columns of the CoNLL-2012 shared task (Pradhan et al. 2012)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from elmo.errors import ElmoError, placing
from elmo.text.columns import split_columns
from elmo.text.decoding import read_lines
from elmo.wording import counted

UNKNOWN_SPEAKER = "-"
WORD, SPEAKER, MIN_COLUMNS = 3, 9, 12

NO_MENTION = ("-", "_", "")
"""What the last column holds of a word at which no mention begins or ends. LitBank as published has some empty ones."""

BEGIN = "#begin document"
"""The beginning of a document's first line."""

_BEGIN = re.compile(r"#\s*begin document \((.*)\);?(?:\s+part\s+(\d{1,9}))?\s*")
_END = re.compile(r"#\s*end document.*")
_MENTIONS = re.compile(r"(?:\([^()|]+\)?|[^()|]+\))(?:\|(?:\([^()|]+\)?|[^()|]+\)))*")


class Mention(NamedTuple):
    """The words of a document from `start` up to but not including `end`, counted from 0."""

    start: int
    end: int


Cluster = tuple[Mention, ...]
"""The mentions of one thing."""

Clusters = tuple[Cluster, ...]
"""All clusters of a document."""


@dataclass(frozen=True)
class Document:
    """A document.

    Attributes:
        sentences: The words of each sentence.
        speakers: Who says each word; empty if no speaker is known.
        clusters: Which mentions are of the same thing.
        name: The name of the document.
        part: The number of this part of it.
    """

    sentences: tuple[tuple[str, ...], ...]
    speakers: tuple[str, ...] = ()
    clusters: Clusters = ()
    name: str = "text"
    part: int = 0
    begin: str = field(default="", compare=False, repr=False)
    """The document's first line in the file it was read from. The official scorer matches documents by this line."""

    @property
    def starts(self) -> list[int]:
        """The index of each sentence's first word in the document, followed by the number of all words."""
        return list(accumulate(map(len, self.sentences), initial=0))


def read_documents(path: str | Path) -> list[Document]:
    """Read the documents of a file, plain or compressed. Each part is a document of its own.

    Columns are separated by tabs in a line that has any, and by spaces otherwise. The word is in column 4, the
    speaker in column 10, and coreference in the last one.

    Raises:
        ElmoError: If a line does not belong to a document, a bracket lacks its counterpart, or the file holds no
            document.
    """
    documents = list(parse_documents(read_lines(path), str(path)))
    if not documents:
        raise ElmoError(f"{path}: holds no document; expected lines between '{BEGIN} (name); part 000' and its end")
    return documents


def parse_documents(lines: Iterable[str], where: str) -> Iterator[Document]:
    """Read the documents of some lines. `where` is the name of the text in error messages."""
    reader: _Reader | None = None
    number = 0
    for number, line in enumerate(lines, 1):
        with placing(f"{where}, line {number}"):
            if match := _BEGIN.fullmatch(line):
                if reader:
                    raise ElmoError("a document begins before the '#end document' of the previous one")
                reader = _Reader(match[1], int(match[2] or 0), line.strip())
            elif reader and _END.fullmatch(line):
                yield reader.finish()
                reader = None
            elif reader:
                reader.add(line)
            elif line.strip() and not line.startswith("#"):
                raise ElmoError(f"is in no document; expected '{BEGIN} (name); part 000' before it")
    if reader:
        raise ElmoError(f"{where}, line {number}: the text ends within a document; '#end document' is missing")


def cut_document(document: Document, first: int, last: int) -> Document:
    """Return the sentences from index `first` up to but not including `last`, with the mentions inside them."""
    start, end = document.starts[first], document.starts[last]
    clusters = (
        tuple(Mention(a - start, b - start) for a, b in cluster if start <= a and b <= end)
        for cluster in document.clusters
    )
    sentences, speakers = document.sentences[first:last], document.speakers[start:end]
    return replace(document, sentences=sentences, speakers=speakers, clusters=tuple(filter(None, clusters)))


def format_document(document: Document, clusters: Sequence[Cluster]) -> str:
    """Write a document with these clusters in twelve columns. Unknown columns are `-` or `*`."""
    cells: defaultdict[int, list[str]] = defaultdict(list)
    mentions = [(mention, number) for number, cluster in enumerate(clusters) for mention in cluster]
    for (start, end), number in sorted(mentions, key=lambda item: (item[0].start, -item[0].end)):
        cells[start].append(f"({number})" if end == start + 1 else f"({number}")
    for (start, end), number in sorted(mentions, key=lambda item: (item[0].end, -item[0].start)):
        if end > start + 1:
            cells[end - 1].append(f"{number})")
    lines = [document.begin or f"{BEGIN} ({document.name}); part {document.part:03}"]
    for first, sentence in zip(document.starts, document.sentences, strict=False):
        for number, word in enumerate(sentence):
            speaker = document.speakers[first + number] if document.speakers else UNKNOWN_SPEAKER
            mark = "|".join(cells[first + number]) or "-"
            columns = [document.name, document.part, number, word, "-", "*", "-", "-", "-", speaker, "*", mark]
            lines.append("\t".join(map(str, columns)))
        lines.append("")
    return "\n".join([*lines, "#end document\n"])


@dataclass
class _Reader:
    """The part of a document that is read so far."""

    name: str
    part: int
    begin: str
    sentences: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    sentence: list[str] = field(default_factory=list[str])
    speakers: list[str] = field(default_factory=list[str])
    clusters: defaultdict[str, list[Mention]] = field(default_factory=lambda: defaultdict[str, list[Mention]](list))
    begun: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict[str, list[int]](list))

    def add(self, line: str) -> None:
        """Read the line of a word, or the blank line after a sentence."""
        if not line.strip():
            self._end_sentence()
            return
        columns = split_columns(line)
        if len(columns) < MIN_COLUMNS:
            raise ElmoError(
                f"{counted(len(columns), 'column')}; CoNLL-2012 has {MIN_COLUMNS} or more, the last of which is for "
                "coreference"
            )
        mark = columns[-1]
        if mark not in NO_MENTION and not _MENTIONS.fullmatch(mark):
            raise ElmoError(f"{mark!r} is not coreference such as '-', '(3', '(3)' or '3)|(5'")
        word = columns[WORD]
        if not word:
            raise ElmoError("the word is empty")
        self._mark(mark)
        self.sentence.append(word)
        self.speakers.append(columns[SPEAKER])

    def finish(self) -> Document:
        """Return the document."""
        self._end_sentence()
        if not self.sentences:
            raise ElmoError("the document ends without a word")
        for name, starts in self.begun.items():
            if starts:
                raise ElmoError(f"the document ends within a mention of cluster {name}; '{name})' is missing")
        speakers = tuple(self.speakers) if set(self.speakers) - {UNKNOWN_SPEAKER} else ()
        clusters = tuple(tuple(sorted(dict.fromkeys(mentions))) for mentions in self.clusters.values() if mentions)
        return Document(tuple(self.sentences), speakers, clusters, self.name, self.part, self.begin)

    def _end_sentence(self) -> None:
        if self.sentence:
            self.sentences.append(tuple(self.sentence))
            self.sentence = []

    def _mark(self, mark: str) -> None:
        """Begin and end mentions at the next word, in the same order as the official scorer.

        All mentions begin before any ends, and of several open mentions of a cluster, the one that began last ends
        first.
        """
        place = len(self.speakers)
        pieces = [] if mark in NO_MENTION else mark.split("|")
        for piece in pieces:
            if piece[0] == "(":
                self.clusters[piece.strip("()")]  # clusters are in the order in which their first mentions begin
                self.begun[piece.strip("()")].append(place)
        for piece in pieces:
            name = piece.strip("()")
            if piece[-1] == ")":
                if not self.begun[name]:
                    raise ElmoError(f"a mention of cluster {name} ends that has not begun; '({name}' is missing")
                self.clusters[name].append(Mention(self.begun[name].pop(), place + 1))
