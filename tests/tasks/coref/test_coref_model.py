"""Spans are enumerated and pruned, and mentions that are linked become clusters."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elmo.tasks.coref.data import Mention
from elmo.tasks.coref.model import enumerate_spans, link_mentions, prune_spans

lengths = st.lists(st.integers(1, 6), min_size=1, max_size=4)
seeds = st.integers(0, 2**32 - 1)


def all_spans(sentences: list[int], max_width: int) -> list[tuple[int, int]]:
    """Return all spans by trying every start and end."""
    of = [number for number, length in enumerate(sentences) for _ in range(length)]
    return [
        (start, end)
        for start in range(len(of))
        for end in range(start + 1, len(of) + 1)
        if end - start <= max_width and of[start] == of[end - 1]
    ]


@given(lengths, st.integers(1, 5))
def test_spans_are_all_those_within_a_sentence(sentences: list[int], max_width: int) -> None:
    assert [tuple(span) for span in enumerate_spans(sentences, max_width).tolist()] == all_spans(sentences, max_width)


@given(lengths, st.integers(1, 5), st.integers(0, 12), seeds)
def test_the_best_spans_that_do_not_cross_are_kept(
    sentences: list[int], max_width: int, number: int, seed: int
) -> None:
    """Each span is compared with each better one that is kept. There are few different scores, so some are equal."""
    spans = enumerate_spans(sentences, max_width)
    scores = np.random.default_rng(seed).integers(4, size=len(spans)).astype(float)
    kept: list[int] = []
    for place in sorted(range(len(spans)), key=lambda place: -scores[place]):
        start, end = spans[place]
        crosses = [s < start < e < end or start < s < end < e for s, e in spans[kept].tolist()] if kept else []
        if len(kept) < number and not any(crosses):
            kept.append(place)
    assert prune_spans(spans, scores, number) == sorted(kept)


def test_links_make_clusters() -> None:
    """Links are transitive. A mention without any link is in no cluster."""
    mentions = [Mention(place, place + 1) for place in range(6)]
    found = link_mentions(mentions, [-1, -1, 0, 1, 2, -1])
    assert found == ((mentions[0], mentions[2], mentions[4]), (mentions[1], mentions[3]))
