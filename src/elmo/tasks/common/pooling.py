"""One vector for a whole sentence."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elmo.tasks.common.attention import masked_softmax


def pool(x: Tensor, mask: Tensor) -> Tensor:
    """Mean and maximum over the tokens of each row, side by side.

    `x` is (B, T, D), `mask` (B, T) bool, true at one token at least. Returns (B, 2D).
    """
    is_token = mask.unsqueeze(2)
    mean = (x * is_token).sum(dim=1) / is_token.sum(dim=1)
    return torch.cat([mean, x.masked_fill(~is_token, -torch.inf).amax(dim=1)], dim=1)


class AttentivePooling(nn.Module):
    """Mean, maximum and minimum over the tokens, and a mean weighted by a learned score of each token.

    Source: McCann et al. 2017, sec. 5; their scores' bias is left out, which a softmax doesn't see.
    """

    def __init__(self, in_width: int) -> None:
        super().__init__()
        self.width = 4 * in_width
        self.score = nn.Linear(in_width, 1, bias=False)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """`x` (B, T, D) and `mask` (B, T), bool, true at one token at least, to (B, 4D)."""
        least = x.masked_fill(~mask.unsqueeze(2), torch.inf).amin(dim=1)
        weights = masked_softmax(self.score(x).squeeze(2), mask)
        attended = (weights.unsqueeze(1) @ x).squeeze(1)
        return torch.cat([pool(x, mask), least, attended], dim=1)
