"""Soft alignment: for each token of one sentence, a weighted mean of the tokens of another one."""

from __future__ import annotations

import torch
from torch import Tensor


def soft_align(a: Tensor, b: Tensor, mask_a: Tensor, mask_b: Tensor) -> tuple[Tensor, Tensor]:
    """For each token of two sentences, return the mean of the other sentence, weighted by the softmax of dot products.

    Args:
        a: The tokens of the first sentences (B, Ta, D).
        b: The tokens of the second sentences (B, Tb, D).
        mask_a: Bool (B, Ta), true at the tokens of `a`; at least one in each row.
        mask_b: Bool (B, Tb), the same for `b`.

    Returns:
        The means of `b` (B, Ta, D), and the means of `a` (B, Tb, D). At padding they are finite but meaningless.

    Source: Chen et al. 2017, sec. 3.2.
    """
    scores = a @ b.transpose(1, 2)
    to_b = masked_softmax(scores, mask_b.unsqueeze(1))
    to_a = masked_softmax(scores.transpose(1, 2), mask_a.unsqueeze(1))
    return to_b @ b, to_a @ a


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Return the softmax over the last axis where `mask` (bool, broadcast to `scores`) is true, and 0 elsewhere.

    Where the mask is false along the whole axis, the weights are equal.
    """
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=-1)
