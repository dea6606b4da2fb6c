"""Batches: which examples share one, in what order batches come, and how sentences become padded tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmo.nn.elmo import mask_of

POOL_BATCHES = 50
"""The number of batches whose examples are sorted by length together.

It is large enough for little padding, and small enough that an example meets different ones in each epoch.
"""


def plan_epoch(lengths: Sequence[int], batch_size: int, seed: int, epoch: int) -> list[list[int]]:
    """Plan the batches of an epoch: every example once, in batches of about the same length.

    Args:
        lengths: The number of tokens of each example.
        batch_size: The number of examples in a batch.
        seed: The seed of the training.
        epoch: The number of the epoch.

    Returns:
        The batches, as indices into `lengths`.
    """
    # A generator of its own, made from seed and epoch: a run that is resumed in the middle of an epoch plans the same
    # batches again, whatever random numbers the model drew in the meantime.
    rng = np.random.default_rng([seed, epoch])
    shuffled = rng.permutation(len(lengths)).tolist()
    size = batch_size * POOL_BATCHES
    batches: list[list[int]] = []
    for start in range(0, len(shuffled), size):
        pool = sorted(shuffled[start : start + size], key=lambda index: lengths[index])
        batches += cut(pool, batch_size)
    # The batches of a pool are in order of length: without this shuffle, lengths would rise again in each pool.
    return [batches[number] for number in rng.permutation(len(batches))]


def plan_evaluation(keys: Sequence[Any], batch_size: int) -> list[list[int]]:
    """Return batches of all examples in the order of their keys (see `Task.order`)."""
    return cut(sorted(range(len(keys)), key=keys.__getitem__), batch_size)


def cut_to_fit(costs: Sequence[int], most: int) -> Iterator[slice]:
    """Cut consecutive examples into as few pieces as possible that each cost at most `most`.

    Every example of a piece costs as much as the most expensive one in it, because of padding. A piece of a single
    example may cost more than `most`.
    """
    start = highest = 0
    for place, cost in enumerate(costs):
        highest = max(highest, cost)
        if place > start and (place + 1 - start) * highest > most:
            yield slice(start, place)
            start, highest = place, cost
    if start < len(costs):
        yield slice(start, len(costs))


def cut(indices: list[int], batch_size: int) -> list[list[int]]:
    """Cut a list into consecutive pieces of `batch_size`; the last one may be shorter."""
    return [indices[start : start + batch_size] for start in range(0, len(indices), batch_size)]


def lengths_of(sentences: Sequence[Sequence[object]]) -> Tensor:
    """Return the lengths of sentences (B,), a tensor on the CPU."""
    return torch.tensor([len(sentence) for sentence in sentences], dtype=torch.long, device="cpu")


def padding_mask(lengths: Tensor, device: torch.device) -> Tensor:
    """Return a bool mask (B, T), true at tokens, where T is the longest of `lengths` (B,)."""
    longest = int(lengths.max()) if len(lengths) else 0
    return mask_of(lengths, longest).to(device)


def pad_ids(rows: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Put rows of ids into one tensor (B, T), 0 at padding."""
    longest = max(map(len, rows), default=0)
    padded = [[*row, *[0] * (longest - len(row))] for row in rows]
    # The view is for a batch without rows: from an empty list, torch makes a tensor with a single axis.
    return torch.tensor(padded, dtype=torch.long, device=device).view(len(rows), longest)


def spread_out(tokens: Tensor, mask: Tensor) -> Tensor:
    """Put the vectors (N, D) of tokens, row by row, where `mask` (B, T) is true: (B, T, D), zeros at padding.

    It is the inverse of `padded[mask]`, by which a model can leave padding out of layers that read each token alone.
    """
    return tokens.new_zeros(*mask.shape, tokens.shape[1]).masked_scatter(mask.unsqueeze(2), tokens)


def number_distinct_words(sentences: Sequence[Sequence[str]], device: torch.device) -> tuple[list[str], Tensor]:
    """Return the distinct words, and the index of each token's word (B, T), 0 at padding.

    The first word is the empty one, which stands for padding. So the list is never empty.
    """
    places: dict[str, int] = {"": 0}
    rows = [[places.setdefault(word, len(places)) for word in sentence] for sentence in sentences]
    return list(places), pad_ids(rows, device)
