"""Attention for reading comprehension: of a paragraph to a question, and of a paragraph to itself."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elmo.tasks.common.attention import masked_softmax

NOTHING = -1.0
"""What the score of attending to nothing starts from."""


class TriLinear(nn.Module):
    """How well a pair of vectors fits: u·x + v·y + w·(x * y) (Seo et al. 2017, eq. 1, with the weight in three)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        limit = (3 / width) ** 0.5
        self.weight = nn.Parameter(torch.empty(3, width).uniform_(-limit, limit))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """`x` (B, T, D) and `y` (B, J, D) to (B, T, J)."""
        u, v, w = self.weight
        return (x * w) @ y.transpose(1, 2) + (x @ u).unsqueeze(2) + (y @ v).unsqueeze(1)


class BiAttention(nn.Module):
    """What a paragraph's tokens find in a question, and which of them the question is about.

    Source: Seo et al. 2017, sec. 2, item 4, as Clark and Gardner 2017, sec. 2.1, have it.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scores, self.width = TriLinear(width), 4 * width

    def forward(self, x: Tensor, y: Tensor, x_mask: Tensor, y_mask: Tensor) -> Tensor:
        """Paragraphs `x` (B, T, D) and questions `y` (B, J, D) to (B, T, 4D).

        The masks, (B, T) and (B, J), are true at tokens, one in each row at least. What stands at padding is finite
        and of no use.
        """
        scores = self.scores(x, y)
        found = masked_softmax(scores, y_mask.unsqueeze(1)) @ y
        best = scores.masked_fill(~y_mask.unsqueeze(1), -torch.inf).amax(dim=2)
        asked = masked_softmax(best, x_mask).unsqueeze(1) @ x
        return torch.cat([x, found, x * found, x * asked], dim=2)


class SelfAttention(nn.Module):
    """What each token finds in all other ones; it may attend to nothing, which has a learned score.

    Source: Clark and Gardner 2017, sec. 2.1; that a token may attend to nothing is in their code alone.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scores, self.width = TriLinear(width), 3 * width
        self.nothing = nn.Parameter(torch.tensor(NOTHING))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """`x` (B, T, D) and `mask` (B, T), true at tokens, to (B, T, 3D), of no use at padding."""
        is_self = torch.eye(x.shape[1], dtype=torch.bool, device=x.device)
        scores = self.scores(x, x).masked_fill(is_self | ~mask.unsqueeze(1), -torch.inf)
        nothing = self.nothing.expand(*x.shape[:2], 1)
        weights = torch.cat([scores, nothing], dim=2).softmax(dim=2)[:, :, :-1]
        found = weights @ x
        return torch.cat([x, found, x * found], dim=2)
