"""Which spans of a document may be mentions, which of them do not cross, and what clusters links make of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from elmo.tasks.coref.data import Cluster, Mention


def enumerate_spans(lengths: Sequence[int], max_width: int) -> NDArray[np.int64]:
    """All spans of up to `max_width` words within sentences of these `lengths`, by start, then end: (N, 2)."""
    ends = np.repeat(np.cumsum(lengths), lengths)
    starts = np.arange(len(ends))
    widths = np.minimum(ends - starts, max_width)
    first = np.repeat(starts, widths)
    offset = np.arange(len(first)) - np.repeat(np.cumsum(widths) - widths, widths)
    return np.stack([first, first + offset + 1], axis=1)


def prune_spans(spans: NDArray[np.int64], scores: NDArray[np.floating], number: int) -> list[int]:
    """The places of the `number` best spans none of which crosses a better one, in the order of `spans` (N, 2).

    Spans cross that overlap without one being in the other. Fewer are left where there are no more. Source: Lee et al.
    2017, sec. 5.
    """
    furthest: dict[int, int] = {}
    earliest: dict[int, int] = {}
    kept: list[int] = []
    for place in np.argsort(-scores, kind="stable").tolist():
        if len(kept) == number:
            break
        start, end = spans[place].tolist()
        inside = range(start + 1, end)
        if not any(furthest.get(word, 0) > end or earliest.get(word, start) < start for word in inside):
            kept.append(place)
            furthest[start] = max(end, furthest.get(start, 0))
            earliest[end] = min(start, earliest.get(end, start))
    return sorted(kept)


def link_mentions(mentions: Sequence[Mention], antecedents: Sequence[int]) -> tuple[Cluster, ...]:
    """The clusters of two mentions or more that links make: of each mention to the place of one before, or to -1."""
    clusters: list[list[Mention]] = []
    of: list[int] = []
    for mention, antecedent in zip(mentions, antecedents, strict=True):
        of.append(len(clusters) if antecedent < 0 else of[antecedent])
        if antecedent < 0:
            clusters.append([])
        clusters[of[-1]].append(mention)
    return tuple(tuple(cluster) for cluster in clusters if len(cluster) > 1)
