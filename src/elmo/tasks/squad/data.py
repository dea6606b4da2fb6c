"""Paragraphs with questions and answers: the JSON of SQuAD v1.1, and lines of plain text."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from elmo.errors import ElmoError, placing
from elmo.tasks.common.objects import get, parse_json, two_texts
from elmo.text.decoding import read_blocks
from elmo.text.rules import sentence_spans
from elmo.text.tokenizers import Tokenizer, locate

T = TypeVar("T")

Bounds = tuple[int, int]
"""The first and the last token of a span."""

CONTEXT, QUESTION = "context", "question"
_ARTICLES = re.compile(r"#(\d*):(\d*)$")


@dataclass(frozen=True)
class Passage:
    """A paragraph: its text, its tokens, and the characters of the text at which each token begins and ends."""

    text: str
    tokens: tuple[str, ...]
    places: tuple[tuple[int, int], ...] = field(repr=False)

    @classmethod
    def of(cls, text: str, tokenize: Tokenizer) -> Passage:
        """Cut a text into tokens, sentence by sentence. Sentences are split by the rules of English.

        Raises:
            ElmoError: If the text has no token.
        """
        found = [
            (token, first + start, first + end)
            for first, last in sentence_spans(text)
            for token, start, end in locate(text[first:last], tokenize)
        ]
        if not found:
            raise ElmoError("is empty")
        return cls(text, tuple(token for token, *_ in found), tuple((start, end) for _, start, end in found))

    def characters(self, bounds: Bounds) -> tuple[int, int]:
        """Return the characters of the text at which the span of these tokens begins and ends."""
        return self.places[bounds[0]][0], self.places[bounds[1]][1]

    def bounds(self, start: int, end: int) -> Bounds:
        """Return the first and the last token that overlap the characters from `start` to `end`; there must be one."""
        first = bisect_right(self.places, start, key=lambda place: place[1])
        return first, bisect_left(self.places, end, key=lambda place: place[0]) - 1


@dataclass(frozen=True)
class SquadExample:
    """A question about a paragraph.

    Attributes:
        context: The paragraph.
        question: The tokens of the question.
        id: The question's id in its file.
        answers: All correct answers. A question of a file has at least one, and a question of plain text has none.
        spans: The distinct spans of the answers' tokens.
    """

    context: Passage
    question: tuple[str, ...]
    id: str = ""
    answers: tuple[str, ...] = ()
    spans: tuple[Bounds, ...] = ()


def read_squad(path: str | Path, tokenize: Tokenizer) -> list[SquadExample]:
    """Read the questions of a file, plain or compressed, or of several files separated by commas.

    A path may end with the articles to read: "train.json#:40" stands for the first 40, and "train.json#40:" for all
    others.

    Raises:
        ElmoError: If the file is not such JSON, a paragraph or question is empty, or a question has no answer or one
            that is not in the paragraph at its "answer_start". The message says where.
    """
    examples = [example for part in split_paths(path) for example in _read_part(part, tokenize)]
    if not examples:
        chosen = ", and at least one article that the name chooses" if "#" in str(path) else ""
        raise ElmoError(f"{path}: holds no question; expected JSON as SQuAD v1.1 is published{chosen}")
    return examples


def split_paths(path: str | Path) -> list[str]:
    """Return the files that a path stands for: the one of that name, or those between its commas."""
    return [str(path)] if Path(path).is_file() else str(path).split(",")


def parse_question(line: str, tokenize: Tokenizer) -> SquadExample:
    """Make a question without answers from paragraph, tab and question, or from a JSON object with both."""
    context, question = two_texts(line, "a paragraph and a question", (CONTEXT, QUESTION))
    return SquadExample(_passage(context, tokenize, CONTEXT), _passage(question, tokenize, QUESTION).tokens)


def _read_part(part: str, tokenize: Tokenizer) -> Iterator[SquadExample]:
    chosen = _ARTICLES.search(part)
    file, start, end = (part[: chosen.start()], *chosen.groups()) if chosen else (part, "", "")
    text = "\n".join(read_blocks(file))
    with placing(file):
        articles = get(parse_json(text), "data", list)
    for number, article in list(enumerate(articles, 1))[int(start or 0) : int(end) if end else None]:
        title = article.get("title") if isinstance(article, dict) else None
        where = f"{file}: article {number}" + (f" ({title!r})" if title else "")
        for place, paragraph in enumerate(_get(article, "paragraphs", list, where), 1):
            yield from _questions(paragraph, tokenize, f"{where}, paragraph {place}")


def _questions(paragraph: object, tokenize: Tokenizer, where: str) -> Iterator[SquadExample]:
    passage = _passage(_get(paragraph, CONTEXT, str, where), tokenize, f"{where}, context")
    for number, values in enumerate(_get(paragraph, "qas", list, where), 1):
        name = _get(values, "id", str, f"{where}, question {number}")
        place = f"{where}, question {name!r}"
        question = _passage(_get(values, QUESTION, str, place), tokenize, f"{place}, question").tokens
        answers = [_answer(answer, passage, place) for answer in _get(values, "answers", list, place)]
        if not answers:
            raise ElmoError(f"{place}: has no answer; questions of SQuAD 2.0 that have none must be left out")
        texts, spans = zip(*answers, strict=True)
        yield SquadExample(passage, question, name, texts, tuple(dict.fromkeys(spans)))


def _answer(values: object, passage: Passage, where: str) -> tuple[str, Bounds]:
    text, start = _get(values, "text", str, where), _get(values, "answer_start", int, where)
    end = start + len(text)
    if start < 0 or passage.text[start:end] != text:
        raise ElmoError(f"{where}: the answer {text!r} is not in its paragraph at answer_start {start}")
    if not text.strip():
        raise ElmoError(f"{where}: an answer is empty")
    first, last = passage.bounds(start, end)
    if first > last:
        raise ElmoError(f"{where}: the tokenizer leaves no token of the answer {text!r}")
    return text, (first, last)


def _passage(text: str, tokenize: Tokenizer, where: str) -> Passage:
    with placing(where):
        return Passage.of(text, tokenize)


def _get(values: object, key: str, kind: type[T], where: str) -> T:
    with placing(where):
        return get(values, key, kind)
