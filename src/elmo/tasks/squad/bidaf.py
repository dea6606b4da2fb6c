"""Attention for reading comprehension: from a paragraph to a question, and from a paragraph to itself."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elmo.tasks.common.attention import masked_softmax

NOTHING = -1.0
"""The initial score of attending to nothing."""


class TriLinear(nn.Module):
    """Scores how well two vectors fit: u·x + v·y + w·(x * y).

    Source: Seo et al. 2017, eq. 1, whose weight vector is split into u, v and w here.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        limit = (3 / width) ** 0.5
        self.weight = nn.Parameter(torch.empty(3, width).uniform_(-limit, limit))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the scores (B, T, J) of `x` (B, T, D) and `y` (B, J, D)."""
        u, v, w = self.weight
        return (x * w) @ y.transpose(1, 2) + (x @ u).unsqueeze(2) + (y @ v).unsqueeze(1)


class BiAttention(nn.Module):
    """Attention between a paragraph and a question, in both directions.

    Source: Seo et al. 2017, sec. 2, item 4, in the form of Clark and Gardner 2017, sec. 2.1.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scores, self.width = TriLinear(width), 4 * width

    def forward(self, x: Tensor, y: Tensor, x_mask: Tensor, y_mask: Tensor) -> Tensor:
        """Return the paragraph's tokens with what they attend to, (B, T, 4D). Padding gets finite, meaningless numbers.

        Args:
            x: The paragraphs (B, T, D).
            y: The questions (B, J, D).
            x_mask: Bool (B, T), true at tokens; at least one in each row.
            y_mask: Bool (B, J), the same for `y`.
        """
        scores = self.scores(x, y)
        found = masked_softmax(scores, y_mask.unsqueeze(1)) @ y
        best = scores.masked_fill(~y_mask.unsqueeze(1), -torch.inf).amax(dim=2)
        asked = masked_softmax(best, x_mask).unsqueeze(1) @ x
        return torch.cat([x, found, x * found, x * asked], dim=2)


class SelfAttention(nn.Module):
    """Attention of each token to all other ones, or to nothing, which has a learned score.

    Source: Clark and Gardner 2017, sec. 2.1; attending to nothing is found only in their code.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scores, self.width = TriLinear(width), 3 * width
        self.nothing = nn.Parameter(torch.tensor(NOTHING))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the tokens with what they attend to, (B, T, 3D). Numbers at padding are meaningless.

        Args:
            x: The tokens (B, T, D).
            mask: Bool (B, T), true at tokens.
        """
        is_self = torch.eye(x.shape[1], dtype=torch.bool, device=x.device)
        scores = self.scores(x, x).masked_fill(is_self | ~mask.unsqueeze(1), -torch.inf)
        nothing = self.nothing.expand(*x.shape[:2], 1)
        weights = torch.cat([scores, nothing], dim=2).softmax(dim=2)[:, :, :-1]
        found = weights @ x
        return torch.cat([x, found, x * found], dim=2)
