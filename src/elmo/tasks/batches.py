"""Which examples are trained on together, and when: a function of seed and epoch alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

POOL_BATCHES = 50
"""Batches that are sorted by length together: enough for little padding, few enough that neighbours change."""


def plan_epoch(lengths: Sequence[int], batch_size: int, seed: int, epoch: int) -> list[list[int]]:
    """An epoch's batches, indices into `lengths`: every example once, in batches of about the same length.

    Examples are shuffled, pools of many batches sorted by length and cut, and the batches shuffled.
    """
    rng = np.random.default_rng([seed, epoch])
    shuffled = rng.permutation(len(lengths)).tolist()
    size = batch_size * POOL_BATCHES
    batches: list[list[int]] = []
    for start in range(0, len(shuffled), size):
        pool = sorted(shuffled[start : start + size], key=lambda index: lengths[index])
        batches += cut(pool, batch_size)
    return [batches[number] for number in rng.permutation(len(batches))]


def plan_evaluation(lengths: Sequence[int], batch_size: int) -> list[list[int]]:
    """Batches of all examples, the longest first."""
    return cut(sorted(range(len(lengths)), key=lambda index: -lengths[index]), batch_size)


def cut(indices: list[int], batch_size: int) -> list[list[int]]:
    """Consecutive pieces of `batch_size`, the last one shorter."""
    return [indices[start : start + batch_size] for start in range(0, len(indices), batch_size)]
