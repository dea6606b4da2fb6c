"""Readers for sense-annotated text in the format of Raganato et al. 2017, and for the first senses of WordNet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

from elmo.errors import ElmoError
from elmo.text.decoding import read_blocks, read_lines

PARENTS = {"corpus": None, "text": "corpus", "sentence": "text", "wf": "sentence", "instance": "sentence"}
"""The XML elements of the format, each with the element that contains it."""

PARTS_OF_SPEECH = {"1": "NOUN", "2": "VERB", "3": "ADJ", "4": "ADV", "5": "ADJ"}
"""Parts of speech by the digit after the `%` of a sense key. WordNet numbers satellites (5) among adjectives (3)."""

DATA, KEYS = ".data.xml", ".gold.key.txt"


class Target(NamedTuple):
    """A lemma with a part of speech (NOUN, VERB, ADJ or ADV), to which senses belong."""

    lemma: str
    pos: str


class Instance(NamedTuple):
    """A word or multi-word expression with its senses: the tokens from `start` up to, but not including, `end`.

    `senses` are WordNet's sense keys, such as "play%1:10:01::". If there are several, each of them is right.
    """

    target: Target
    start: int
    end: int
    senses: tuple[str, ...]


class Annotated(NamedTuple):
    """An annotated sentence.

    Attributes:
        tokens: Its tokens.
        instances: Its annotated instances in order.
    """

    tokens: list[str]
    instances: list[Instance]


def require_instances(sentences: Iterable[Annotated], name: str) -> None:
    """Raise ElmoError, which begins with the name of the text, unless some word of it is annotated."""
    if not any(sentence.instances for sentence in sentences):
        raise ElmoError(f"{name}: has no annotated word; give the file whose words have elements <instance>")


def read_annotated(path: str | Path) -> Iterator[Annotated]:
    """Read the sentences of `NAME.data.xml`, whose senses are in `NAME.gold.key.txt` in the same folder.

    Args:
        path: The file `NAME.data.xml`. Both files may be compressed (`.xz`).

    Returns:
        The sentences one after the other; they are not kept in memory. An expression that is one element ("primary
        election") becomes several tokens.

    Raises:
        ElmoError: If the XML is not of this format, an instance has no senses, senses have no instance, or the file
            declares a document type (in which entities could expand without bound). The message names the file and,
            where known, the line.
    """
    path = Path(path)
    if DATA not in path.name:
        raise ElmoError(f"{path}: expected a file NAME{DATA} next to NAME{KEYS}, which holds the senses")
    # The senses, a few megabytes, are read whole; the text goes through the parser block by block, and each instance
    # takes its senses out of the dictionary. What is left in the end belongs to no instance.
    senses = _read_senses(path.with_name(path.name.replace(DATA, KEYS)))
    parser = _Parser(path, senses)
    for block in read_blocks(path):
        yield from parser.feed(f"{block}\n")
    yield from parser.feed("", is_last=True)
    if senses:
        raise ElmoError(f"{path}: has no instance {next(iter(senses))}, which the file of senses next to it has")


def _read_senses(path: Path) -> dict[str, tuple[str, ...]]:
    """Read the sense keys of each instance."""
    senses: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(read_lines(path), 1):
        name, *keys = line.split() or [""]
        if not keys or not all("%" in key for key in keys):
            raise ElmoError(f"{path}, line {number}: expected an instance and its sense keys, as in 'd0.s0.t0 art%1:…'")
        if name in senses:
            raise ElmoError(f"{path}, line {number}: the instance {name} is listed twice")
        senses[name] = tuple(keys)
    return senses


class _Parser:
    """Collects the sentences of the XML that it is fed, and removes the senses that they use from `senses`."""

    def __init__(self, path: Path, senses: dict[str, tuple[str, ...]]) -> None:
        self._path, self._senses = path, senses
        self._open: list[str] = []
        self._done: list[Annotated] = []
        self._sentence = Annotated([], [])
        self._attributes: Mapping[str, str] = {}
        self._text: list[str] = []
        self._expat = expat.ParserCreate("utf-8")
        # Entities are declared in a document type. Without one, none can expand a small file beyond bounds.
        self._expat.StartDoctypeDeclHandler = self._doctype
        self._expat.StartElementHandler = self._start
        self._expat.EndElementHandler = self._end
        self._expat.CharacterDataHandler = self._text.append

    def feed(self, text: str, *, is_last: bool = False) -> list[Annotated]:
        """Parse a piece of text, and return the sentences that end in it."""
        try:
            self._expat.Parse(text, is_last)
        except expat.ExpatError as error:
            raise self._error(expat.ErrorString(error.code), error.lineno) from None
        done, self._done = self._done, []
        return done

    def _error(self, what: str, line: int | None = None) -> ElmoError:
        return ElmoError(f"{self._path}, line {line or self._expat.CurrentLineNumber}: {what}")

    def _doctype(self, *_: object) -> None:
        raise self._error("declares a document type, which the format does not have; remove it")

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._take_text(allowed=False)  # words before an element would belong to its parent
        parent = self._open[-1] if self._open else None
        if name not in PARENTS or PARENTS[name] != parent:
            where = f"inside <{parent}>" if parent else "at the top"
            raise self._error(f"<{name}> {where}; expected <corpus>, in it <text>, <sentence>, and <wf> or <instance>")
        self._open.append(name)
        self._attributes = attributes
        if name == "sentence":
            self._sentence = Annotated([], [])

    def _end(self, name: str) -> None:
        self._open.pop()
        words = self._take_text(allowed=PARENTS[name] == "sentence")
        if PARENTS[name] == "sentence":
            start = len(self._sentence.tokens)
            self._sentence.tokens.extend(words)
            if not words:
                raise self._error(f"<{name}> holds no word")
            if name == "instance":
                self._sentence.instances.append(self._instance(start))
        elif name == "sentence":
            self._done.append(self._sentence)

    def _take_text(self, *, allowed: bool) -> list[str]:
        words = "".join(self._text).split()
        self._text.clear()
        if words and not allowed:
            raise self._error(f"{words[0]!r} is outside of <wf> and <instance>")
        return words

    def _instance(self, start: int) -> Instance:
        try:
            name, lemma, pos = (self._attributes[key] for key in ("id", "lemma", "pos"))
        except KeyError as error:
            raise self._error(f"<instance> without {error.args[0]}; it needs id, lemma and pos") from None
        if pos not in PARTS_OF_SPEECH.values():
            raise self._error(f"pos {pos!r} of an instance is none of NOUN, VERB, ADJ, ADV")
        senses = self._senses.pop(name, None)
        if senses is None:
            raise self._error(f"the file of senses has none for the instance {name}, or the instance is listed twice")
        return Instance(Target(lemma, pos), start, len(self._sentence.tokens), senses)


def read_first_senses(path: str | Path) -> dict[Target, str]:
    """Read which sense of a lemma WordNet lists first.

    Args:
        path: WordNet's file `index.sense`.

    Returns:
        The key of the first sense of each lemma and part of speech. Adjectives and satellites are numbered together, so
        that either kind can be first.

    Raises:
        ElmoError: If a line does not have the format of `index.sense`.
    """
    first: dict[Target, str] = {}
    for number, line in enumerate(read_lines(path), 1):
        match line.split():
            case [key, _, order, _] if (target := _target(key)) and order.isdecimal():
                if order == "1":
                    first[target] = key
            case _:
                raise ElmoError(
                    f"{path}, line {number}: expected a sense key, an offset, the sense's number and a count, "
                    "as in WordNet's index.sense"
                )
    return first


def _target(key: str) -> Target | None:
    """Return the lemma and part of speech of a sense key, or None if it is not one."""
    lemma, _, rest = key.rpartition("%")
    pos = PARTS_OF_SPEECH.get(rest[:1])
    return Target(lemma, pos) if lemma and pos else None
