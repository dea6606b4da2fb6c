"""Adagrad and clipping: dense and sparse gradients give the same, and both what the definitions say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from elmo.config import TrainingConfig
from elmo.pretrain.optimizer import clip_gradients, make_optimizer


def test_adagrad_follows_its_definition() -> None:
    """sum += g * g; x -= rate * g / sqrt(sum), from an accumulator of 1: TensorFlow's, without torch's 1e-10."""
    rng = np.random.default_rng(0)
    x, total = rng.normal(size=(3, 2)), np.ones((3, 2))
    parameter = nn.Parameter(torch.tensor(x))
    optimizer = make_optimizer(nn.ParameterList([parameter]), TrainingConfig(learning_rate=0.2))
    for _ in range(5):
        gradient = rng.normal(size=(3, 2))
        total += gradient**2
        x -= 0.2 * gradient / np.sqrt(total)
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
    np.testing.assert_allclose(parameter.detach().numpy(), x, rtol=1e-9)


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
        with torch.sparse.check_sparse_tensor_invariants(False):
            make_optimizer(nn.ParameterList([weight]), TrainingConfig()).step()
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
