"""Turns lists of sentences into padded tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def lengths_of(sentences: Sequence[Sequence[object]]) -> Tensor:
    """Return the lengths of sentences (B,), a tensor on the CPU."""
    return torch.tensor([len(sentence) for sentence in sentences], dtype=torch.long)


def padding_mask(lengths: Tensor, device: torch.device) -> Tensor:
    """Return a bool mask (B, T), true at tokens, where T is the longest of `lengths` (B,)."""
    longest = int(lengths.max()) if len(lengths) else 0
    return (torch.arange(longest) < lengths.unsqueeze(1)).to(device)


def spread_out(tokens: Tensor, mask: Tensor) -> Tensor:
    """Put the vectors (N, D) of tokens, row by row, where `mask` (B, T) is true: (B, T, D), zeros at padding."""
    return tokens.new_zeros(*mask.shape, tokens.shape[1]).masked_scatter(mask.unsqueeze(2), tokens)


def pad_ids(rows: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Put rows of ids into one tensor (B, T), 0 at padding."""
    longest = max(map(len, rows), default=0)
    padded = [[*row, *[0] * (longest - len(row))] for row in rows]
    return torch.tensor(padded, dtype=torch.long, device=device).view(len(rows), longest)


def number_distinct_words(sentences: Sequence[Sequence[str]], device: torch.device) -> tuple[list[str], Tensor]:
    """Return the distinct words, and the index of each token's word (B, T), 0 at padding.

    The first word is the empty one, which stands for padding. So the list is never empty.
    """
    places: dict[str, int] = {"": 0}
    rows = [[places.setdefault(word, len(places)) for word in sentence] for sentence in sentences]
    return list(places), pad_ids(rows, device)
