"""Typed spans of text, their tags, and their F1 as the script of the CoNLL shared tasks computes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch

from elmo.errors import ElmoError
from elmo.tasks.common.crf import Allowed
from elmo.tasks.common.scores import percent, precision_recall_f1

OUTSIDE = "O"


class Span(NamedTuple):
    """The tokens from `start` up to but not including `end`, counted from 0, and their type."""

    start: int
    end: int
    type: str


def split_tag(tag: str) -> tuple[str, str]:
    """Split a tag into position and type: "B-LOC" into ("B", "LOC"), "O" into ("O", "")."""
    position, _, kind = tag.partition("-")
    return position, kind


def spans_of(tags: Sequence[str]) -> list[Span]:
    """Return the spans of a sequence of tags in any scheme, well-formed or not.

    For B, I and O, these are the spans that conlleval finds. That script does not know S, U and L, and has other rules
    for E.

    A span begins at B, U or S, and at any other tag except O that follows O, the end of a span (L, E, U, S), or another
    type. So "O I-LOC I-LOC" is one span, and "B-PER I-LOC" is two.
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
    """Return the tags of `length` tokens with these spans, which must not overlap.

    In BIO, a span begins with B, and its other tokens are I. In BIOUL, it also ends with L, and a span of one token is
    U.
    """
    tags = [OUTSIDE] * length
    for start, end, kind in sorted(spans):
        marks = ["B", *["I"] * (end - start - 1)]
        if scheme == "BIOUL":
            marks[-1] = "L" if len(marks) > 1 else "U"
        tags[start:end] = [f"{mark}-{kind}" for mark in marks]
    return tags


def tags_for(types: Iterable[str], scheme: str) -> list[str]:
    """Return all tags of a scheme for these types, O first.

    Raises:
        ElmoError: If the scheme is neither BIO nor BIOUL.
    """
    if scheme not in ("BIO", "BIOUL"):
        raise ElmoError(f"scheme: {scheme!r} is neither BIO nor BIOUL")
    return [OUTSIDE, *(f"{position}-{kind}" for kind in types for position in scheme if position != OUTSIDE)]


def allowed_sequences(tags: Sequence[str]) -> Allowed:
    """Return which of `tags`, in BIO or BIOUL, may begin, follow one another and end in a well-formed sequence."""
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
    """Return precision, recall and F1 in percent over all sentences, and the F1 of each type as "f1/TYPE".

    A span is correct if its start, end and type are those of a gold span. A score whose denominator is 0 is 0.
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
