"""Adagrad and clipping: dense and sparse gradients give the same, and both what the definitions say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from elmo.pretrain.optimizer import Adagrad, clip_gradients


def test_adagrad_follows_its_definition() -> None:
    """sum += g * g; x -= rate * g / sqrt(sum), from an accumulator of 1 (TensorFlow's, no epsilon)."""
    rng = np.random.default_rng(0)
    x, total = rng.normal(size=(3, 2)), np.ones((3, 2))
    parameter = nn.Parameter(torch.tensor(x))
    optimizer = Adagrad([parameter], learning_rate=0.2, initial_accumulator_value=1.0)
    for _ in range(5):
        gradient = rng.normal(size=(3, 2))
        total += gradient**2
        x -= 0.2 * gradient / np.sqrt(total)
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
    np.testing.assert_allclose(parameter.detach().numpy(), x, rtol=1e-12)


def test_adagrad_agrees_with_torch() -> None:
    """torch's own adds 1e-10 to the root: nothing at float32 beside roots of 1 and more."""
    ours, theirs = (nn.Parameter(torch.linspace(-1, 1, 6).view(3, 2)) for _ in range(2))
    optimizers = (Adagrad([ours], 0.1), torch.optim.Adagrad([theirs], lr=0.1, initial_accumulator_value=1.0))
    for step in range(4):
        for parameter, optimizer in zip((ours, theirs), optimizers, strict=True):
            parameter.grad = torch.sin(torch.arange(6.0) * (step + 1)).view(3, 2)
            optimizer.step()
    torch.testing.assert_close(ours, theirs)


def embedding_gradients(sparse: bool) -> nn.Parameter:
    weight = nn.Parameter(torch.randn(6, 3, generator=torch.Generator().manual_seed(1), dtype=torch.double))
    ids = torch.tensor([4, 1, 4, 5])
    (F.embedding(ids, weight, sparse=sparse) ** 3).sum().backward()
    return weight


def test_sparse_rows_are_updated_as_dense_ones_are() -> None:
    """A word that stands twice in the batch has one gradient, the sum; words that don't stand in it stay."""
    results = []
    for sparse in (False, True):
        weight = embedding_gradients(sparse)
        before = weight.detach().clone()
        assert clip_gradients([weight], max_norm=0.5) > 0.5
        Adagrad([weight], 0.2).step()
        assert torch.equal(weight[[0, 2, 3]], before[[0, 2, 3]])
        results.append(weight.detach())
    torch.testing.assert_close(*results, rtol=1e-12, atol=0)


@pytest.mark.parametrize(("max_norm", "expected"), [(2.5, 2.5), (10.0, 5.0)])
def test_clipping_scales_all_gradients_by_their_common_norm(max_norm: float, expected: float) -> None:
    a, b = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    frozen = nn.Parameter(torch.zeros(1))
    a.grad, b.grad = torch.tensor([3.0]), torch.tensor([-4.0])
    assert clip_gradients([a, b, frozen], max_norm) == pytest.approx(5.0)
    assert torch.stack([a.grad, b.grad]).norm().item() == pytest.approx(expected)
    assert frozen.grad is None
