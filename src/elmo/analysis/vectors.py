"""Arithmetic of vectors that the analyses share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

# Without context, as in layer 0, all uses of a form have the same vector. If cosines were compared exactly, rounding
# would decide which of them, and so which sense, is nearest.
ROUNDING = 1e-5
"""Vectors whose cosines differ by less than this are taken to be equally near."""


def unit(vectors: Vectors) -> Vectors:
    """Scale vectors, which lie along the last axis, to length 1. Vectors of zeros stay zeros."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(norms, np.finfo(np.float32).tiny)


def run_vectors(vectors: Vectors, starts: Sequence[int], length: int) -> Vectors:
    """Return the vectors (N, D), of length 1, of sequences of tokens, given those of all tokens (T, D).

    Each is in the direction of the mean of the vectors of `length` tokens from one of `starts` (N,) on, each scaled to
    length 1.
    """
    first, *rest = (unit(vectors[[start + offset for start in starts]]) for offset in range(length))
    return unit(sum(rest, first)) if rest else first


def add_to_rows(sums: NDArray[np.float64], rows: NDArray[np.int64], vectors: Vectors) -> None:
    """Add vectors (N, D) to the rows of `sums` (R, D) that are named in `rows` (N,). Row -1 stands for none."""
    # Sorted, so that the vectors of each row are added up at once: `np.add.at` adds one after the other.
    order = np.argsort(rows, kind="stable")
    order = order[np.searchsorted(rows[order], 0) :]
    found, starts = np.unique(rows[order], return_index=True)
    if len(found):
        sums[found] += np.add.reduceat(vectors[order], starts, axis=0, dtype=np.float64)


def project(vectors: Vectors) -> tuple[Vectors, list[float]]:
    """Project the directions of `vectors` (N, D) on their first two principal components.

    The sign of a component is arbitrary; it is chosen so that the largest coordinate is positive, which makes the
    result reproducible.

    Returns:
        The points (N, 2), and the share of the variance that each component explains.
    """
    units = unit(vectors)
    left, sizes, _ = np.linalg.svd(units - units.mean(axis=0), full_matrices=False)
    if len(sizes) < 2:  # a single vector, or a single number for each
        left, sizes = np.pad(left, [(0, 0), (0, 1)]), np.pad(sizes, (0, 1))
    points = left[:, :2] * sizes[:2]
    points *= np.sign(np.take_along_axis(points, np.abs(points).argmax(axis=0)[None], axis=0))
    return points, (sizes[:2] ** 2 / max((sizes**2).sum(), np.finfo(np.float32).tiny)).tolist()
