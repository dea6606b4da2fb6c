"""MUC, B³, CEAF-e and their mean, as the official CoNLL scorer computes them (v8.01; Pradhan et al. 2014)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from elmo.tasks.common.scores import percent
from elmo.tasks.coref.data import Cluster, Mention

AVERAGED = ("muc", "b3", "ceafe")
"""The metrics whose mean F1 is the score of the shared task."""

Counts = NDArray[np.float64]
"""Four numbers (4,): the denominator and the numerator of recall, and those of precision."""


def score_clusters(key: Iterable[Sequence[Cluster]], response: Iterable[Sequence[Cluster]]) -> dict[str, float]:
    """Score the `response` to each document's `key`, over all documents together, in percent.

    Clusters of one mention are counted as they are. If a mention of the key occurs twice in a response, only the first
    occurrence counts. A score whose denominator is 0 is 0. The official scorer counts a mention that occurs twice in a
    cluster of the key twice; our reader keeps it once.

    Returns:
        "f1", the mean of the F1 of MUC, B³ and CEAF-e; then "muc_recall", "muc_precision" and "muc_f1", and the same
        for "b3", "ceafe" and "mentions".
    """
    totals = {name: np.zeros(4) for name in (*AVERAGED, "mentions")}
    for wanted, found in zip(key, response, strict=True):
        for name, counts in _count(wanted, list(_without_repeats(found, wanted))):
            totals[name] += counts
    scores: dict[str, float] = {}
    for name, counts in totals.items():
        of_key, covered, of_response, right = counts.tolist()
        recall, precision = percent(covered, of_key), percent(right, of_response)
        f1 = percent(2 * recall * precision / 100, recall + precision)
        scores |= {f"{name}_recall": recall, f"{name}_precision": precision, f"{name}_f1": f1}
    return {"f1": sum(scores[f"{name}_f1"] for name in AVERAGED) / len(AVERAGED), **scores}


def _count(key: Sequence[Cluster], response: Sequence[Cluster]) -> Iterator[tuple[str, Counts]]:
    """Yield the counts of one document, with the name of each metric.

    For MUC and B³, a mention in two clusters of the key belongs to the last one, as in the official scorer.
    """
    from scipy.optimize import linear_sum_assignment  # takes a while to import, and only scores of coreference need it

    cluster_of = {mention: number for number, cluster in enumerate(key) for mention in cluster}
    num_key, num_response = sum(map(len, key)), sum(map(len, response))
    distinct = set(chain.from_iterable(response))
    right = len(cluster_of.keys() & distinct)
    common = _common(key, response)
    links, shares = 0, np.zeros(2)
    for place, cluster in enumerate(response):
        for number, size in Counter(cluster_of[mention] for mention in cluster if mention in cluster_of).items():
            # `size` mentions are in both clusters. MUC counts the links that hold them together, which are the same
            # for recall and precision; B³ counts for each mention the share of either cluster that is in both.
            links += size - 1
            shares += size * common[number, place] / np.array([len(key[number]), len(cluster)])
    sizes = np.array([*map(len, key)])[:, None] + np.array([*map(len, response)])
    # CEAF-e pairs each cluster of the key with at most one of the response, such that pairs share most overall.
    similarity = 2 * common / sizes
    similar = similarity[linear_sum_assignment(similarity, maximize=True)].sum()
    yield "mentions", np.array([len(cluster_of), right, len(distinct), right])
    yield "muc", np.array([num_key - len(key), links, num_response - len(response), links])
    yield "b3", np.array([num_key, shares[0], num_response, shares[1]])
    yield "ceafe", np.array([len(key), similar, len(response), similar])


def _common(key: Sequence[Cluster], response: Sequence[Cluster]) -> NDArray[np.float64]:
    """Return how many mentions each cluster of the key (rows) shares with each one of the response (columns)."""
    clusters_with: defaultdict[Mention, list[int]] = defaultdict(list)
    for number, cluster in enumerate(key):
        for mention in set(cluster):
            clusters_with[mention].append(number)
    common = np.zeros((len(key), len(response)))
    for place, cluster in enumerate(response):
        for mention in cluster:
            common[clusters_with.get(mention, []), place] += 1
    return common


def _without_repeats(response: Iterable[Cluster], key: Iterable[Cluster]) -> Iterator[Cluster]:
    """Yield the clusters of a response with the first occurrence only of each mention that the key has."""
    counted_once, seen = set(chain.from_iterable(key)), set[Mention]()
    for cluster in response:
        rest: list[Mention] = []
        for mention in cluster:
            if mention not in seen:
                rest.append(mention)
            if mention in counted_once:
                seen.add(mention)
        if rest:
            yield tuple(rest)
