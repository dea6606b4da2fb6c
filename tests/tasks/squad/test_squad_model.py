"""The loss of an answer is that of its bounds, and the best span is chosen from them."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from elmo.tasks.squad.model import best_prediction, bounds_loss


def test_the_loss_sums_the_starts_and_the_ends_of_each_row_separately() -> None:
    """With one right span, the loss is the usual cross-entropy of its bounds; 1e-6 is float32 rounding."""
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
    """Minus infinity at padding causes no NaN, whether a row has padding or not."""
    scores = torch.randn(2, 2, 4).requires_grad_()
    is_padding = torch.tensor([[False] * 4, [False, False, True, True]])
    starts, ends = (side.masked_fill(is_padding, -torch.inf) for side in scores)
    bounds_loss(starts, ends, [[(3, 3)], [(0, 1)]]).backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize("longest", [1, 3, 20])
def test_the_best_span_is_the_best_of_all(longest: int) -> None:
    """A span is short enough and doesn't end before it begins. 20 is more than the number of tokens."""
    torch.manual_seed(longest)
    starts, ends = torch.rand(2, 30, 7)
    starts[:, 5:], ends[:, 5:] = 0, 0
    for row in range(len(starts)):
        bounds, score, *_ = best_prediction(starts[row].numpy(), ends[row].numpy(), longest)
        pairs = [(a, b) for a in range(7) for b in range(a, min(a + longest, 7))]
        products = {(a, b): float(starts[row, a] * ends[row, b]) for a, b in pairs}
        assert bounds == max(products, key=products.__getitem__)
        assert score == pytest.approx(products[bounds])
