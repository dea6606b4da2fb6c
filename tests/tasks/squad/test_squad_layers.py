"""Attention for reading comprehension and spans by their bounds, against plain loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from elmo.tasks.squad.bidaf import BiAttention, SelfAttention, TriLinear
from elmo.tasks.squad.bounds import best_spans, bounds_loss

LENGTHS = [(5, 2), (1, 4), (3, 1)]


def fit(scores: TriLinear, x: Tensor, y: Tensor) -> float:
    u, v, w = scores.weight.detach()
    return float(u @ x + v @ y + w @ (x * y))


def mean(weights: list[float], vectors: Tensor) -> Tensor:
    return (torch.tensor(weights) / sum(weights)) @ vectors


def batch() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    masks = [torch.arange(n) < torch.tensor(LENGTHS)[:, side, None] for side, n in enumerate((5, 4))]
    return torch.randn(3, 5, 6), torch.randn(3, 4, 6), *masks


def test_biattention_is_what_a_plain_loop_gives() -> None:
    """Each pair alone and without padding; 1e-5 is float32 rounding."""
    x, y, x_mask, y_mask = batch()
    attention = BiAttention(6)
    outputs = attention(x, y, x_mask, y_mask).detach()
    assert outputs.shape == (3, 5, attention.width)
    assert outputs.isfinite().all()
    for row, (T, J) in enumerate(LENGTHS):
        tokens, others = x[row, :T], y[row, :J]
        scores = [[fit(attention.scores, token, other) for other in others] for token in tokens]
        asked = mean([math.exp(max(line)) for line in scores], tokens)
        for place, token in enumerate(tokens):
            found = mean([math.exp(score) for score in scores[place]], others)
            wanted = torch.cat([token, found, token * found, token * asked])
            assert_close(outputs[row, place], wanted, atol=1e-5, rtol=1e-5)


def test_self_attention_is_what_a_plain_loop_gives() -> None:
    """No token sees itself; the score of nothing takes its share, all of it where there is one token alone."""
    x, _, mask, _ = batch()
    attention = SelfAttention(6)
    outputs = attention(x, mask).detach()
    assert outputs.shape == (3, 5, attention.width)
    for row, (T, _) in enumerate(LENGTHS):
        tokens = x[row, :T]
        for place, token in enumerate(tokens):
            others = [other for other in range(T) if other != place]
            weights = [math.exp(fit(attention.scores, token, tokens[other])) for other in others]
            nothing = math.exp(attention.nothing.item())
            found = sum((w * tokens[o] for w, o in zip(weights, others, strict=True)), torch.zeros(6))
            found = found / (nothing + sum(weights))
            assert_close(outputs[row, place], torch.cat([token, found, token * found]), atol=1e-5, rtol=1e-5)
    attention(x, mask)[mask].sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in attention.parameters())


def test_the_loss_sums_the_spans_of_each_row_for_start_and_end_apart() -> None:
    """Of one span it is the common cross-entropy of its bounds; 1e-6 is float32 rounding."""
    torch.manual_seed(0)
    starts, ends = torch.randn(2, 2, 5)
    starts[1, 3:], ends[1, 3:] = -torch.inf, -torch.inf
    p, q = starts.softmax(1), ends.softmax(1)
    one = bounds_loss(starts, ends, [[(1, 3)], [(0, 2)]])
    wanted = -(p[0, 1].log() + q[0, 3].log() + p[1, 0].log() + q[1, 2].log()) / 2
    assert_close(one, wanted, atol=1e-6, rtol=0)
    several = bounds_loss(starts, ends, [[(1, 3), (1, 4), (0, 3)], [(0, 2)]])
    wanted = -((p[0, 0] + p[0, 1]).log() + (q[0, 3] + q[0, 4]).log() + p[1, 0].log() + q[1, 2].log()) / 2
    assert_close(several, wanted, atol=1e-6, rtol=0)


def test_the_loss_of_padded_rows_has_gradients() -> None:
    """Minus infinity at padding makes no NaN, neither of right tokens nor of others."""
    scores = torch.randn(2, 2, 4).requires_grad_()
    is_padding = torch.tensor([[False] * 4, [False, False, True, True]])
    starts, ends = (side.masked_fill(is_padding, -torch.inf) for side in scores)
    bounds_loss(starts, ends, [[(3, 3)], [(0, 1)]]).backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize("longest", [1, 3, 20])
def test_the_best_span_is_the_best_of_all(longest: int) -> None:
    """Short enough and not backwards; 20 is more than there are tokens."""
    torch.manual_seed(longest)
    starts, ends = torch.rand(2, 30, 7)
    starts[:, 5:], ends[:, 5:] = 0, 0
    for row, (bounds, score) in enumerate(zip(*best_spans(starts, ends, longest), strict=True)):
        pairs = [(a, b) for a in range(7) for b in range(a, min(a + longest, 7))]
        products = {(a, b): float(starts[row, a] * ends[row, b]) for a, b in pairs}
        assert bounds == max(products, key=products.__getitem__)
        assert score == pytest.approx(products[bounds])
