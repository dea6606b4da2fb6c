"""Spans are found and scored as by conlleval, the script of the shared tasks."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.errors import ElmoError
from elmo.tasks.common.spans import Span, allowed_sequences, score_spans, spans_of, tags_for, tags_of


def span_list(text: str) -> list[Span]:
    """Return the spans that a text such as "0-2 LOC, 3-4 PER" names."""
    parts = [part.split() for part in text.split(", ") if part]
    return [Span(*map(int, places.split("-")), kind) for places, kind in parts]


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("O O", ""),
        ("B-LOC I-LOC O B-PER", "0-2 LOC, 3-4 PER"),
        ("I-LOC I-LOC O I-PER", "0-2 LOC, 3-4 PER"),  # IOB1
        ("I-LOC B-LOC I-LOC", "0-1 LOC, 1-3 LOC"),  # IOB1: B only between neighbours
        ("B-LOC B-LOC", "0-1 LOC, 1-2 LOC"),
        ("B-PER I-LOC", "0-1 PER, 1-2 LOC"),  # ill-formed: another type begins another span
        ("O I-PER O", "1-2 PER"),  # ill-formed: I after O begins a span
        ("B-LOC I-LOC L-LOC U-PER B-LOC L-LOC", "0-3 LOC, 3-4 PER, 4-6 LOC"),
        ("U-LOC U-LOC", "0-1 LOC, 1-2 LOC"),
        ("L-LOC L-LOC", "0-1 LOC, 1-2 LOC"),  # ill-formed: each L ends its span
        ("B-LOC L-LOC I-LOC", "0-2 LOC, 2-3 LOC"),  # ill-formed: I after an end begins a span
        ("B-LOC I-LOC U-LOC O", "0-2 LOC, 2-3 LOC"),  # ill-formed: an open span is closed
        ("B-LOC I-LOC", "0-2 LOC"),  # ill-formed in BIOUL: the span has no end and is closed with the sentence
        ("S-PER B-PER E-PER", "0-1 PER, 1-3 PER"),
        ("B-PER S-PER", "0-1 PER, 1-2 PER"),  # ill-formed: an open span is closed
        ("B-PER E-PER I-PER", "0-2 PER, 2-3 PER"),  # ill-formed: I after an end begins a span
        ("S-PER I-PER", "0-1 PER, 1-2 PER"),  # ill-formed, too
        ("B-creative-work I-creative-work", "0-2 creative-work"),
        ("", ""),
    ],
)
def test_spans_are_found_by_the_rules_of_conlleval(tags: str, spans: str) -> None:
    assert spans_of(tags.split()) == span_list(spans)


def begins(before: str, tag: str) -> bool:
    """Return whether a chunk begins at `tag` by the rules of conlleval, in another form than the program's."""
    (old, _, old_type), (new, _, new_type) = before.partition("-"), tag.partition("-")
    if new == "O":
        return False
    by_position = (old, new) in {
        *product("BIOLU", "B"),
        *product("BIOLU", "U"),
        *product("OLU", "I"),
        *product("OLU", "L"),
    }
    return by_position or old_type != new_type


def ends(before: str, tag: str) -> bool:
    """Return whether the chunk that `before` is in ends there, by the same rules as in `begins`."""
    (old, _, old_type), (new, _, new_type) = before.partition("-"), tag.partition("-")
    if old == "O":
        return False
    by_position = (old, new) in {*product("BI", "BOU"), *product("LU", "BIOLU")}
    return by_position or old_type != new_type


@given(tags=st.lists(st.sampled_from(["O", *(f"{p}-{k}" for p in "BILU" for k in "XY")]), max_size=9))
def test_spans_of_any_tags_are_those_of_two_tables(tags: list[str]) -> None:
    """However ill-formed the tags are, the places where chunks begin and those where they end pair up to the spans."""
    around = list(enumerate(pairwise(["O", *tags, "O"])))
    starts = [place for place, pair in around if begins(*pair)]
    stops = [place for place, pair in around if ends(*pair)]
    spans = [(start, end, tags[start][2:]) for start, end in zip(starts, stops, strict=True)]
    assert spans_of(tags) == spans


@pytest.mark.parametrize(
    ("scheme", "tags"),
    [
        ("BIO", "B-A I-A B-A B-B O"),
        ("BIOUL", "B-A L-A U-A U-B O"),
    ],
)
def test_tags_of_each_scheme(scheme: str, tags: str) -> None:
    assert tags_of(span_list("0-2 A, 2-3 A, 3-4 B"), 5, scheme) == tags.split()


some_spans = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from("AB")), max_size=5)


def to_iob1(tags: list[str]) -> list[str]:
    """Turn BIO into IOB1, in which a span begins with B only if it follows another one of its type."""
    pairs = pairwise(["O", *tags])
    return [f"I{tag[1:]}" if tag[0] == "B" and before[2:] != tag[2:] else tag for before, tag in pairs]


@pytest.mark.parametrize("scheme", ["BIO", "BIOUL"])
@given(parts=some_spans)
def test_spans_survive_every_scheme(scheme: str, parts: list[tuple[int, int, str]]) -> None:
    spans: list[Span] = []
    place = 0
    for gap, length, kind in parts:
        spans.append(Span(place + gap, place + gap + length, kind))
        place = spans[-1].end
    tags = tags_of(spans, place + 1, scheme)
    assert spans_of(tags) == spans
    if scheme == "BIO":
        assert spans_of(to_iob1(tags)) == spans
    names = tags_for("AB", scheme)
    allowed, ids = allowed_sequences(names), [names.index(tag) for tag in tags]
    assert allowed.start[ids[0]]
    assert allowed.end[ids[-1]]
    assert all(allowed.transitions[a, b] for a, b in pairwise(ids))


@pytest.mark.parametrize("scheme", ["BIO", "BIOUL"])
def test_only_well_formed_sequences_are_allowed(scheme: str) -> None:
    """A sequence is allowed exactly if writing its spans as tags gives the sequence again."""

    names = tags_for("AB", scheme)
    allowed = allowed_sequences(names)
    for ids in product(range(len(names)), repeat=3):
        tags = [names[i] for i in ids]
        moves = all(allowed.transitions[a, b] for a, b in pairwise(ids))
        is_allowed = bool(allowed.start[ids[0]] and moves and allowed.end[ids[-1]])
        assert is_allowed == (tags_of(spans_of(tags), 3, scheme) == tags), tags


def test_a_span_is_right_if_place_and_type_are() -> None:
    """Of 4 spans, 2 are found among 3: precision 2/3, recall 1/2. The right place with the wrong type is wrong."""
    gold = [span_list("0-1 A, 2-4 B"), span_list("0-2 A"), span_list("1-2 B")]
    found = [span_list("0-1 A, 2-4 A"), span_list(""), span_list("1-2 B")]
    scores = score_spans(gold, found)
    assert scores == pytest.approx({"precision": 200 / 3, "recall": 50, "f1": 400 / 7, "f1/A": 50, "f1/B": 200 / 3})


def test_scores_without_spans() -> None:
    assert score_spans([[]], [[]]) == {"precision": 0, "recall": 0, "f1": 0}
    assert score_spans([span_list("0-1 A")], [[]]) == {"precision": 0, "recall": 0, "f1": 0, "f1/A": 0}
    assert score_spans([[]], [span_list("0-1 A")])["f1/A"] == 0


def test_a_scheme_to_predict_in_is_one_of_two() -> None:
    assert tags_for(["A"], "BIO") == ["O", "B-A", "I-A"]
    assert tags_for(["A"], "BIOUL") == ["O", "B-A", "I-A", "U-A", "L-A"]
    with pytest.raises(ElmoError, match=r"^scheme: 'IOB1' is neither BIO nor BIOUL"):
        tags_for(["A"], "IOB1")
