"""The layers of the model for question answering: a bidirectional GRU, and attention.

A paragraph attends to its question, and then to itself.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from elmo.tasks.common.modules import masked_softmax, scattered_weights


class BiGRU(nn.Module):
    """A forward and a backward GRU of `size` hidden units each, computed by PyTorch (or cuDNN, on a GPU).

    Weights start at random near zero, and biases at zero. The products are in float32 for every value of a recipe's
    `training.precision`: under `torch.autocast`, PyTorch adds up the gradient of a weight in bfloat16, step after step.
    In sentences of 700 tokens, that put errors of 3 to 25 % into the gradients of the recurrent weights. cuDNN rounds
    their operands to the ten bits of TF32, unless `torch.backends.cudnn.allow_tf32` is False.

    Source: Cho et al. 2014; the initialization is that of Clark and Gardner's code (2017), a normal distribution with a
    standard deviation of 0.05 that is cut off at 0.1.

    Args:
        in_dim: The width of a token's vector, D.
        size: The number of hidden units of each direction, H.
    """

    def __init__(self, in_dim: int, size: int) -> None:
        super().__init__()
        # Only the weights of `GRUCell` are used. They have the names that run folders have; `nn.GRU` appends "_l0".
        self.directions = nn.ModuleList(nn.utils.skip_init(nn.GRUCell, in_dim, size) for _ in range(2))
        self.width = 2 * size
        for name, parameter in self.named_parameters():
            if "bias" in name:
                nn.init.zeros_(parameter)
            else:
                nn.init.trunc_normal_(parameter, std=0.05, a=-0.1, b=0.1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the outputs (B, T, 2H) for `x` (B, T, D), zeros at padding.

        `mask` (B, T) is true at tokens. Padding stands behind them, and what `x` holds there has no influence. A
        sentence may be empty.
        """
        # Packed sequences would leave out the padding, but their backward pass fills a gradient of the whole batch at
        # each step, and takes more than twice the time. Padding at the end doesn't reach the tokens before it, so it is
        # enough to turn each sentence around within its length for the second direction. Turning twice is no change.
        steps = torch.arange(mask.shape[1], device=mask.device)
        turned = torch.where(mask, mask.sum(dim=1, keepdim=True) - 1 - steps, steps)
        forward, backward = (cast(nn.GRUCell, direction) for direction in self.directions)
        halves = [_run(forward, x), _take_tokens(_run(backward, _take_tokens(x, turned)), turned)]
        return torch.cat(halves, dim=2).masked_fill(~mask.unsqueeze(2), 0)


def _take_tokens(x: Tensor, places: Tensor) -> Tensor:
    """Return the tokens of `x` (B, T, D) that stand at `places` (B, T) of their sentences."""
    # The same as `take_along_dim`, which takes eight times as long, because it has an index for each number of a token.
    first = x.shape[1] * torch.arange(len(x), device=x.device).unsqueeze(1)
    return x.flatten(0, 1).index_select(0, (first + places).flatten()).view_as(x)


def _run(cell: nn.GRUCell, x: Tensor) -> Tensor:
    """Return the outputs (B, T, H) of one direction that starts from zeros, for `x` (B, T, D)."""
    weights = [cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh]
    with scattered_weights():
        start = x.new_zeros(1, len(x), cell.hidden_size)
        outputs, _ = torch.gru(
            x,
            start,
            weights,
            has_biases=True,
            num_layers=1,
            dropout=0.0,
            train=torch.is_grad_enabled(),  # in evaluation mode, too: cuDNN keeps nothing for gradients otherwise
            bidirectional=False,
            batch_first=True,
        )
    return outputs


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
        # Three products in place of one with the vectors of all pairs, (B, T, J, 3D), which would take far more memory.
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
        # From paragraph to question: a mean of the question for each token. From question to paragraph: one mean of the
        # paragraph for all tokens, weighted by how well the best word of the question fits each.
        attended = masked_softmax(scores, y_mask.unsqueeze(1)) @ y
        best = scores.masked_fill(~y_mask.unsqueeze(1), -torch.inf).amax(dim=2)
        summary = masked_softmax(best, x_mask).unsqueeze(1) @ x
        return torch.cat([x, attended, x * attended, x * summary], dim=2)


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
        # A token in a paragraph of one token can attend to nothing only: without that column its softmax would be NaN.
        nothing = self.nothing.expand(*x.shape[:2], 1)
        weights = torch.cat([scores, nothing], dim=2).softmax(dim=2)[:, :, :-1]
        attended = weights @ x
        return torch.cat([x, attended, x * attended], dim=2)
