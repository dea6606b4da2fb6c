"""Labelled pairs of sentences: JSON lines as in SNLI and MultiNLI, or two sentences separated by a tab."""

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
"""The label of SNLI's pairs for which the annotators found no majority."""


@dataclass(frozen=True)
class PairExample:
    """Two tokenized sentences, and whether the second follows from the first. An unknown `label` is ""."""

    premise: tuple[str, ...]
    hypothesis: tuple[str, ...]
    label: str = ""


def read_pairs(path: str | Path, labels: Sequence[str], tokenize: Tokenizer) -> list[PairExample]:
    """Read the labelled pairs of a file, plain or compressed, with one JSON object on each line.

    The keys that are read are "gold_label", "sentence1" and "sentence2". Pairs with the label "-" are skipped.

    Raises:
        ElmoError: If a line is not such an object, a label is not among `labels`, a sentence has no tokens, or the file
            has no pairs.
    """
    pairs = list(_read(path, labels, tokenize))
    if not pairs:
        raise ElmoError(f"{path}: holds no pair; expected JSON objects with {LABEL}, {PREMISE} and {HYPOTHESIS}")
    return pairs


def parse_pair(line: str, tokenize: Tokenizer) -> PairExample:
    """Make an unlabelled pair from premise, tab and hypothesis, or from a JSON object as in files."""
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
