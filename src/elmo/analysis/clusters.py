"""Groups of similar vectors, by spherical k-means: the senses of a word, or the groups of its uses in a picture."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmo.analysis.vectors import ROUNDING, Vectors
from elmo.extras import import_extra

Groups = NDArray[np.int64]


def cluster(units: Vectors, num_groups: int) -> Groups:
    """Return the group of each vector, (N,), by spherical k-means. The largest group is number 0.

    Args:
        units: Vectors of length 1, (N, D).
        num_groups: How many groups to look for, at most N. Some may be empty.
    """
    if num_groups == 1:  # needs no faiss, so that the page without an index doesn't either
        return np.zeros(len(units), np.int64)
    faiss = import_extra("faiss", "groups of similar vectors")
    settings: dict[str, Any] = {"spherical": True, "seed": 1, "min_points_per_centroid": 1}
    means = faiss.Kmeans(units.shape[1], num_groups, **settings)
    means.train(units)
    groups: Groups = means.index.search(units, 1)[1][:, 0]
    # K-means numbers its groups in no order; by size, the same colors go to the most frequent uses of any word.
    order = np.argsort(-np.bincount(groups, minlength=num_groups), kind="stable")
    return np.argsort(order)[groups]


def cluster_as_needed(units: Vectors, most: int, least_silhouette: float) -> Groups:
    """Cluster as `cluster` does, into the number of groups that separates the vectors best.

    Args:
        units: Vectors of length 1, (N, D).
        most: The largest number of groups to try; 2 is the smallest.
        least_silhouette: The mean silhouette that groups must have. If no number of groups reaches it, all vectors
            are one group.

    Source:
        Rousseeuw 1987.
    """
    best, best_score = np.zeros(len(units), np.int64), least_silhouette
    for num_groups in range(2, min(most, len(units) - 1) + 1):
        groups = cluster(units, num_groups)
        score = mean_silhouette(units, groups)
        if score >= best_score:
            best, best_score = groups, score
    return best


def mean_silhouette(units: Vectors, groups: Groups) -> float:
    """Return the mean silhouette of N vectors of length 1, by the cosine distance: from -1 to 1, and 1 is best.

    The silhouette of a vector compares its mean distance to its own group, a, with that to the nearest other group, b:
    (b - a) / max(a, b). That of a vector alone in its group is 0, and so is the mean if there is only one group. It is
    about 0 for vectors whose distances are no more than rounding, as those of a word in equal sentences.

    Source:
        Rousseeuw 1987.
    """
    is_in = np.eye(groups.max() + 1, dtype=np.float32)[groups]
    is_in = is_in[:, is_in.any(axis=0)]
    sizes = is_in.sum(axis=0)
    if len(sizes) < 2:
        return 0.0
    # The cosine distances of a vector to the members of a group add up to the group's size minus its product with the
    # sum of the group, so that no matrix of all pairs is needed.
    distances = sizes - units @ (units.T @ is_in)
    own = is_in.astype(bool)
    own_sizes = (is_in @ sizes).astype(np.float32)
    within = np.maximum(distances[own], 0) / np.maximum(own_sizes - 1, 1)
    others = np.maximum(np.where(own, np.inf, distances / sizes).min(axis=1), 0)
    silhouettes = (others - within) / np.maximum(np.maximum(within, others), ROUNDING)
    return float(np.where(own_sizes > 1, silhouettes, 0).mean())
