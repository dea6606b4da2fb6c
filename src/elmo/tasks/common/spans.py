"""Spans of text with a type, their tags, and their F1 as the script of the CoNLL shared tasks counts it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch

from elmo.errors import ElmoError
from elmo.tasks.common.crf import Allowed

SCHEMES = ("BIO", "IOB1", "BIOUL")
"""How spans become tags. BIO: every span begins with B. IOB1: only one right after another of its type does, all else
is I. BIOUL: a span of one token is U, others begin with B and end with L."""

OUTSIDE = "O"


class Span(NamedTuple):
    """The tokens from `start` up to, not including, `end`, counted from 0, and what they are."""

    start: int
    end: int
    type: str


def split_tag(tag: str) -> tuple[str, str]:
    """Position and type of a tag: ("B", "LOC") of "B-LOC", ("O", "") of "O"."""
    position, _, kind = tag.partition("-")
    return position, kind


def spans_of(tags: Sequence[str]) -> list[Span]:
    """The spans that tags of any scheme stand for, by the rules of conlleval, whatever their order.

    A span begins at B, U, S, and at any other tag but O that follows O, a span's end (L, E, U, S), or another type. So
    "O I-LOC I-LOC" is one span, and "B-PER I-LOC" are two.
    """
    spans: list[Span] = []
    start, before, kind_before = 0, OUTSIDE, ""
    for place, tag in enumerate([*tags, OUTSIDE]):
        position, kind = split_tag(tag)
        is_open = before != OUTSIDE
        goes_on = is_open and before not in "LEUS" and position not in "OBUS" and kind == kind_before
        if not goes_on:
            if is_open:
                spans.append(Span(start, place, kind_before))
            start = place
        before, kind_before = position, kind
    return spans


def tags_of(spans: Iterable[Span], length: int, scheme: str) -> list[str]:
    """The tags of `length` tokens with these spans, which don't overlap."""
    tags = [OUTSIDE] * length
    for start, end, kind in sorted(spans):
        marks = ["I"] * (end - start)
        follows = start > 0 and split_tag(tags[start - 1])[1] == kind
        if scheme != "IOB1" or follows:
            marks[0] = "B"
        if scheme == "BIOUL":
            marks[-1] = "L" if len(marks) > 1 else "U"
        tags[start:end] = [f"{mark}-{kind}" for mark in marks]
    return tags


def tags_for(types: Iterable[str], scheme: str) -> list[str]:
    """All tags of a scheme for these types: O first."""
    if scheme not in ("BIO", "BIOUL"):
        raise ElmoError(f"scheme: {scheme!r} is neither BIO nor BIOUL")
    return [OUTSIDE, *(f"{position}-{kind}" for kind in types for position in scheme if position != OUTSIDE)]


def allowed_sequences(tags: Sequence[str]) -> Allowed:
    """Which of `tags`, of BIO or BIOUL, may begin, follow one another, and end, so that sequences are well-formed."""
    must_end = any(split_tag(tag)[0] in "LU" for tag in tags)

    def may_follow(before: str, tag: str) -> bool:
        (position_before, kind_before), (position, kind) = split_tag(before), split_tag(tag)
        is_open = position_before in "BI"
        if position in "IL":
            return is_open and kind == kind_before
        return not (is_open and must_end)

    return Allowed(
        torch.tensor([may_follow(OUTSIDE, tag) for tag in tags]),
        torch.tensor([[may_follow(before, tag) for tag in tags] for before in tags]),
        torch.tensor([may_follow(tag, OUTSIDE) for tag in tags]),
    )


def score_spans(gold: Iterable[Sequence[Span]], predicted: Iterable[Sequence[Span]]) -> dict[str, float]:
    """Precision, recall and F1 in percent over all sentences, and the F1 of each type as "f1/TYPE".

    A span counts if start, end and type are those of a gold one. Without any span to divide by, a score is 0.
    """
    wanted, found, right = Counter[str](), Counter[str](), Counter[str]()
    for gold_spans, predicted_spans in zip(gold, predicted, strict=True):
        wanted.update(span.type for span in gold_spans)
        found.update(span.type for span in predicted_spans)
        right.update(span.type for span in set(gold_spans) & set(predicted_spans))
    scores = precision_recall_f1(right.total(), found.total(), wanted.total())
    for kind in sorted(wanted | found):
        scores[f"f1/{kind}"] = percent(2 * right[kind], found[kind] + wanted[kind])
    return scores


def precision_recall_f1(right: int, found: int, wanted: int) -> dict[str, float]:
    """All three in percent, of how many were `right` of those `found` and of those `wanted`."""
    return {
        "precision": percent(right, found),
        "recall": percent(right, wanted),
        "f1": percent(2 * right, found + wanted),
    }


def percent(part: float, whole: float) -> float:
    """`part` of `whole` in percent, 0 of nothing."""
    return 100 * part / whole if whole else 0.0
