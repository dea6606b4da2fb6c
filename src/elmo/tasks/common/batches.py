"""Which examples share a batch, and in what order batches come: a function of seed and epoch alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

POOL_BATCHES = 50
"""The number of batches whose examples are sorted by length together.

It is large enough for little padding, and small enough that an example meets others in each epoch.
"""


def plan_epoch(lengths: Sequence[int], batch_size: int, seed: int, epoch: int) -> list[list[int]]:
    """Plan the batches of an epoch: every example once, in batches of about the same length.

    Examples are shuffled, pools of `POOL_BATCHES` batches are sorted by length and cut, and the batches are shuffled.

    Args:
        lengths: The number of tokens of each example.
        batch_size: The number of examples in a batch.
        seed: The seed of the training.
        epoch: The number of the epoch.

    Returns:
        The batches, as indices into `lengths`.
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
    """Return batches of all examples in the order of their keys (see `Task.order`)."""
    return cut(sorted(range(len(keys)), key=keys.__getitem__), batch_size)


def cut_to_fit(costs: Sequence[int], most: int) -> Iterator[slice]:
    """Cut consecutive examples into as few pieces as possible that each cost at most `most`.

    Every example of a piece costs as much as the most expensive one in it, because of padding. A piece of a single
    example may cost more than `most`.
    """
    start = dearest = 0
    for place, cost in enumerate(costs):
        dearest = max(dearest, cost)
        if place > start and (place + 1 - start) * dearest > most:
            yield slice(start, place)
            start, dearest = place, cost
    if start < len(costs):
        yield slice(start, len(costs))


def cut(indices: list[int], batch_size: int) -> list[list[int]]:
    """Cut a list into consecutive pieces of `batch_size`; the last one may be shorter."""
    return [indices[start : start + batch_size] for start in range(0, len(indices), batch_size)]
