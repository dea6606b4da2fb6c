"""Pairs of sentences with a label: JSON a line, as SNLI and MultiNLI are published, or the two sentences and a tab."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from elmo.errors import ElmoError
from elmo.schema import require_choice
from elmo.tasks.common.objects import get, read_object, two_texts
from elmo.text.reading import read_lines
from elmo.text.tokenizers import Tokenizer

LABEL, PREMISE, HYPOTHESIS = "gold_label", "sentence1", "sentence2"
NO_LABEL = "-"
"""What SNLI says where its annotators found no majority."""


@dataclass(frozen=True)
class PairExample:
    """Two tokenized sentences; does the second follow from the first? `label` is "" where that isn't known."""

    premise: tuple[str, ...]
    hypothesis: tuple[str, ...]
    label: str = ""


def read_pairs(path: str | Path, labels: Sequence[str], tokenize: Tokenizer) -> list[PairExample]:
    """The labelled pairs of a file, plain or compressed, with a JSON object a line.

    Its keys are "gold_label", "sentence1" and "sentence2", others don't matter; pairs with the label "-" are passed
    over. Raises ElmoError for a line that isn't such an object, a label that is none of `labels` and a sentence without
    tokens, naming the line, and for a file without pairs.
    """
    pairs = list(_read(path, labels, tokenize))
    if not pairs:
        raise ElmoError(f"{path}: holds no pair; expected JSON objects with {LABEL}, {PREMISE} and {HYPOTHESIS}")
    return pairs


def parse_pair(line: str, tokenize: Tokenizer) -> PairExample:
    """A pair without label: premise, tab and hypothesis, or a JSON object as in files."""
    return _pair(*two_texts(line, "premise and hypothesis", (PREMISE, HYPOTHESIS)), tokenize)


def _read(path: str | Path, labels: Sequence[str], tokenize: Tokenizer) -> Iterator[PairExample]:
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            values = read_object(line)
            label = get(values, LABEL, str)
            if label == NO_LABEL:
                continue
            require_choice(f"key {LABEL!r}", label, labels)
            yield _pair(get(values, PREMISE, str), get(values, HYPOTHESIS, str), tokenize, label)
        except ElmoError as error:
            raise ElmoError(f"{path}, line {number}: {error}") from None


def _pair(premise: str, hypothesis: str, tokenize: Tokenizer, label: str = "") -> PairExample:
    return PairExample(_tokens(premise, "premise", tokenize), _tokens(hypothesis, "hypothesis", tokenize), label)


def _tokens(text: str, where: str, tokenize: Tokenizer) -> tuple[str, ...]:
    tokens = tuple(tokenize(text))
    if not tokens:
        raise ElmoError(f"{where}: the sentence is empty")
    return tokens
