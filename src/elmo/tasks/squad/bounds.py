"""Spans by their bounds: a score for each token as the first one, and one as the last one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

Bounds = tuple[int, int]
"""A span's first and last token."""


def bounds_loss(starts: Tensor, ends: Tensor, spans: Sequence[Sequence[Bounds]]) -> Tensor:
    """The mean over the rows of -log p(start) - log p(end), a scalar in nats.

    `starts` and `ends` (B, T) are scores before the softmax, minus infinity at padding. The `spans` of a row are all
    right: the probabilities of their starts are summed, and those of their ends, apart from one another.
    Source: Clark and Gardner 2017, sec. 3.3, the summed objective; of one span it is the common one.
    """
    losses: list[Tensor] = []
    for side, scores in enumerate((starts, ends)):
        rows = [row for row, bounds in enumerate(spans) for _ in bounds]
        right = torch.zeros_like(scores, dtype=torch.bool)
        right[rows, [bound[side] for bounds in spans for bound in bounds]] = True
        losses.append(scores.logsumexp(dim=1) - scores.masked_fill(~right, -torch.inf).logsumexp(dim=1))
    return (losses[0] + losses[1]).mean()


def best_spans(starts: Tensor, ends: Tensor, longest: int) -> tuple[list[Bounds], list[float]]:
    """The span of at most `longest` tokens with the highest p(start) p(end) in each row, and this product.

    `starts` and `ends` (B, T) are probabilities, 0 at padding.
    """
    pairs = starts.unsqueeze(2) * F.pad(ends, (0, longest - 1)).unfold(1, longest, 1)
    scores, places = pairs.flatten(1).max(dim=1)
    bounds = [(place // longest, place // longest + place % longest) for place in places.tolist()]
    return bounds, scores.tolist()
