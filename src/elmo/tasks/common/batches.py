"""Which examples are trained on together, and when: a function of seed and epoch alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

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


def plan_evaluation(keys: Sequence[Any], batch_size: int) -> list[list[int]]:
    """Batches of all examples in the order of their keys (see `Task.order`)."""
    return cut(sorted(range(len(keys)), key=keys.__getitem__), batch_size)


def cut_to_fit(costs: Sequence[int], most: int) -> Iterator[slice]:
    """Consecutive examples, as many as together cost at most `most` if each costs as much as the dearest of them, as it
    does with padding; one alone may cost more."""
    start = dearest = 0
    for place, cost in enumerate(costs):
        dearest = max(dearest, cost)
        if place > start and (place + 1 - start) * dearest > most:
            yield slice(start, place)
            start, dearest = place, cost
    if start < len(costs):
        yield slice(start, len(costs))


def cut(indices: list[int], batch_size: int) -> list[list[int]]:
    """Consecutive pieces of `batch_size`, the last one shorter."""
    return [indices[start : start + batch_size] for start in range(0, len(indices), batch_size)]
