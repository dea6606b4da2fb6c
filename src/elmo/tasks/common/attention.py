"""Soft alignment of two sentences: what each token finds in the other one."""

from __future__ import annotations

import torch
from torch import Tensor


def soft_align(a: Tensor, b: Tensor, mask_a: Tensor, mask_b: Tensor) -> tuple[Tensor, Tensor]:
    """For each token of either sentence, the mean of the other's, weighted by the softmax of dot products.

    `a` is (B, Ta, D) and `b` (B, Tb, D), their masks (B, Ta) and (B, Tb) bool, true at tokens, one in each row at
    least. Returns the means of `b` (B, Ta, D) and of `a` (B, Tb, D); at padding they are of no use, but finite.
    Source: Chen et al. 2017, sec. 3.2.
    """
    scores = a @ b.transpose(1, 2)
    to_b = masked_softmax(scores, mask_b.unsqueeze(1))
    to_a = masked_softmax(scores.transpose(1, 2), mask_a.unsqueeze(1))
    return to_b @ b, to_a @ a


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """The softmax over the last axis of what `mask` (bool, broadcast) is true at, 0 elsewhere.

    Where the mask is false all along, the weights are equal.
    """
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=-1)
