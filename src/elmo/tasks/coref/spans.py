"""Which spans of a document may be mentions, which of them do not cross, and how links become clusters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from elmo.tasks.coref.data import Cluster, Mention


def enumerate_spans(lengths: Sequence[int], max_width: int) -> NDArray[np.int64]:
    """Return all spans (N, 2) of up to `max_width` words in sentences of these `lengths`, by start and then by end."""
    ends = np.repeat(np.cumsum(lengths), lengths)
    starts = np.arange(len(ends))
    widths = np.minimum(ends - starts, max_width)
    first = np.repeat(starts, widths)
    offset = np.arange(len(first)) - np.repeat(np.cumsum(widths) - widths, widths)
    return np.stack([first, first + offset + 1], axis=1)


def prune_spans(spans: NDArray[np.int64], scores: NDArray[np.floating], number: int) -> list[int]:
    """Return the indices of the `number` best of `spans` (N, 2) that do not cross a better one, in ascending order.

    Two spans cross if they overlap and neither contains the other. Fewer are returned if there are no more.

    Source: Lee et al. 2017, sec. 5.
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
    """Return the clusters of at least two mentions that are formed by links.

    `antecedents` has for each mention the index of an earlier one, or -1.
    """
    clusters: list[list[Mention]] = []
    of: list[int] = []
    for mention, antecedent in zip(mentions, antecedents, strict=True):
        of.append(len(clusters) if antecedent < 0 else of[antecedent])
        if antecedent < 0:
            clusters.append([])
        clusters[of[-1]].append(mention)
    return tuple(tuple(cluster) for cluster in clusters if len(cluster) > 1)
