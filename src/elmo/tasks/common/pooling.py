"""Pooling: one vector for a whole sentence."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elmo.tasks.common.attention import masked_softmax


def pool(x: Tensor, mask: Tensor) -> Tensor:
    """Return the mean and the maximum over the tokens of each row, concatenated: (B, 2D).

    Args:
        x: The tokens (B, T, D).
        mask: Bool (B, T), true at tokens; at least one in each row.
    """
    is_token = mask.unsqueeze(2)
    mean = (x * is_token).sum(dim=1) / is_token.sum(dim=1)
    return torch.cat([mean, x.masked_fill(~is_token, -torch.inf).amax(dim=1)], dim=1)


class AttentivePooling(nn.Module):
    """The mean, maximum and minimum over the tokens, and a mean weighted by a learned score of each token.

    The scores have no bias, unlike those of the paper: a softmax cancels it.

    Source: McCann et al. 2017, sec. 5.
    """

    def __init__(self, in_width: int) -> None:
        super().__init__()
        self.width = 4 * in_width
        self.score = nn.Linear(in_width, 1, bias=False)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Pool `x` (B, T, D) to (B, 4D). `mask` is bool (B, T), true at tokens; at least one in each row."""
        least = x.masked_fill(~mask.unsqueeze(2), torch.inf).amin(dim=1)
        weights = masked_softmax(self.score(x).squeeze(2), mask)
        attended = (weights.unsqueeze(1) @ x).squeeze(1)
        return torch.cat([pool(x, mask), least, attended], dim=1)
