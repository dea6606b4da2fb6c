"""Answer spans: scores for each token as the first and as the last one of the span."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

Bounds = tuple[int, int]
"""The first and the last token of a span."""


def bounds_loss(starts: Tensor, ends: Tensor, spans: Sequence[Sequence[Bounds]]) -> Tensor:
    """Return the mean over the rows of -log p(start) - log p(end), a scalar in nats.

    Args:
        starts: The scores (B, T) of tokens as the first one, before the softmax; minus infinity at padding.
        ends: The same for the last token.
        spans: The correct spans of each row. The probabilities of their starts are summed, and separately those of
            their ends. With one span, this is the usual cross-entropy.

    Source: Clark and Gardner 2017, sec. 3.3, the summed objective.
    """
    losses: list[Tensor] = []
    for side, scores in enumerate((starts, ends)):
        rows = [row for row, bounds in enumerate(spans) for _ in bounds]
        right = torch.zeros_like(scores, dtype=torch.bool)
        right[rows, [bound[side] for bounds in spans for bound in bounds]] = True
        losses.append(scores.logsumexp(dim=1) - scores.masked_fill(~right, -torch.inf).logsumexp(dim=1))
    return (losses[0] + losses[1]).mean()


def best_spans(starts: Tensor, ends: Tensor, longest: int) -> tuple[list[Bounds], list[float]]:
    """Return the span of at most `longest` tokens with the highest p(start) p(end) in each row, and this product.

    `starts` and `ends` (B, T) are probabilities, 0 at padding.
    """
    pairs = starts.unsqueeze(2) * F.pad(ends, (0, longest - 1)).unfold(1, longest, 1)
    scores, places = pairs.flatten(1).max(dim=1)
    bounds = [(place // longest, place // longest + place % longest) for place in places.tolist()]
    return bounds, scores.tolist()
