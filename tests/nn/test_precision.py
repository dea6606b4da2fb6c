"""bfloat16 products change values by what bfloat16 rounds, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from bridge import build
from elmo.config import LSTMConfig
from elmo.nn.bilm import BiLM
from elmo.nn.lstm import LSTMStack, LSTMState
from elmo.nn.precision import product_dtype
from elmo.nn.softmax import Negatives, Softmax
from oracle import encode

LOW = torch.bfloat16


def autocast() -> torch.autocast:
    return torch.autocast("cpu", LOW)


def test_products_are_asked_for_by_autocast() -> None:
    x = torch.zeros(1)
    assert product_dtype(x) == torch.float32
    with autocast():
        assert product_dtype(x) == LOW


def loss_of(bilm: BiLM, softmax: Softmax, sampled: bool) -> Tensor:
    """Compute a loss that depends on everything that training runs."""
    words = ["<S>", "play", "a", "supercalifragilistic", "the"]
    characters = torch.from_numpy(np.stack([encode(word) for word in words]))
    tokens = torch.arange(20).view(4, 5) % len(words)
    state = bilm.initial_state(4)
    hidden, orders, _ = bilm.predictors(characters, [tokens, tokens], torch.full((4,), 5), state)
    targets = (tokens * 7 % 30).flatten()
    negatives = Negatives(torch.arange(1, 25), 60)
    losses = [
        softmax.sampled_loss(h, targets[order], negatives) if sampled else softmax.loss(h, targets[order])
        for h, order in zip(hidden, orders, strict=True)
    ]
    return torch.stack(losses).mean()


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("sampled", [True, False])
def test_training_in_half_follows_float32(sampled: bool, low: torch.dtype) -> None:
    """The loss is within 1 %, gradients have the same direction, and everything that is kept stays float32. Native
    kernels can only multiply bfloat16, so that torch computes the products of float16."""
    bilm, _ = build(dtype=torch.float32)
    torch.manual_seed(1)
    softmax = Softmax(30, bilm.config.lstm.projection_dim)
    parameters = [*bilm.parameters(), *softmax.parameters()]
    exact = loss_of(bilm, softmax, sampled)
    wanted = torch.autograd.grad(exact, parameters)
    with torch.autocast("cpu", low):
        loss = loss_of(bilm, softmax, sampled)
    found = torch.autograd.grad(loss, parameters)
    assert loss.dtype == torch.float32
    assert not torch.equal(loss, exact)
    torch.testing.assert_close(loss, exact, rtol=1e-2, atol=0)
    for a, b in zip(found, wanted, strict=True):
        a, b = (x.to_dense() if x.is_sparse else x for x in (a, b))
        assert a.dtype == torch.float32
        assert torch.cosine_similarity(a.flatten(), b.flatten(), dim=0) > 0.99


def test_states_stay_float32() -> None:
    stack = LSTMStack(LSTMConfig(dim=16, projection_dim=8, n_layers=2))
    state = LSTMState(torch.zeros(2, 3, 8), torch.zeros(2, 3, 16))
    with autocast():
        outputs, after = stack(torch.randn(6, 8), [3, 3], state)
    assert {x.dtype for x in (*outputs, *after)} == {torch.float32}
