"""Layers whose products are rounded to bfloat16 stay close to exact ones, and nothing else is rounded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
import torch
from torch import Tensor, nn

from elmo.nn.packing import Packing
from elmo.nn.precision import own_products, product_dtype
from elmo.tasks.common.modules import BiLSTM
from elmo.tasks.coref.layers import AntecedentScorer, CoupledBiLSTM
from elmo.tasks.srl.highway_lstm import AlternatingLSTM

LENGTHS = torch.tensor([3, 5, 1, 4])
IS_TOKEN = torch.arange(5) < LENGTHS.unsqueeze(1)


def packed(module: nn.Module, x: Tensor) -> Tensor:
    return module(x, Packing.of(LENGTHS, 5, x.device))


def in_rows(module: nn.Module, x: Tensor) -> Tensor:
    return module(x, LENGTHS)


def in_line(module: nn.Module, x: Tensor) -> Tensor:
    return module(x[IS_TOKEN], LENGTHS)


def as_mentions(module: nn.Module, x: Tensor) -> Tensor:
    mentions, number = x[IS_TOKEN], int(LENGTHS.sum())
    blocks = module(mentions, mentions[:, 0], torch.arange(number) % 2, torch.tensor(1))
    return torch.cat([scores[scores.isfinite()] for _, _, scores in blocks])


@pytest.mark.parametrize(
    ("module", "run"),
    [
        (BiLSTM(16, 12), packed),
        (AlternatingLSTM(16, 12, 2, 0.0), in_rows),
        (CoupledBiLSTM(16, 12, 0.0), in_line),
        (AntecedentScorer(16, 2, features=4, hidden=[12, 12], dropout=0.0, max_antecedents=9), as_mentions),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_bf16_stays_close_to_float32(module: nn.Module, run: Callable[[nn.Module, Tensor], Tensor]) -> None:
    """Outputs differ by the rounding of eight bits, gradients have the same direction, and both stay float32."""
    torch.manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    x = torch.randn(4, 5, 16, requires_grad=True)
    weights = torch.randn(())

    def compute() -> tuple[Tensor, list[Tensor]]:
        outputs = run(module, x)
        return outputs, list(torch.autograd.grad((outputs * weights).square().sum(), [x, *module.parameters()]))

    wanted, exact = compute()
    with own_products(torch.bfloat16):
        outputs, gradients = compute()
    assert outputs.dtype == torch.float32
    assert not torch.equal(outputs, wanted)
    torch.testing.assert_close(outputs, wanted, rtol=0, atol=0.03)
    for found, gradient in zip(gradients, exact, strict=True):
        assert found.dtype == torch.float32
        assert torch.cosine_similarity(found.flatten(), gradient.flatten(), dim=0) > 0.999


def test_only_our_own_products_within_the_block_are_rounded() -> None:
    x, linear = torch.randn(3, 4), nn.Linear(4, 2)
    with suppress(KeyError), own_products(torch.bfloat16):
        assert product_dtype(x) == torch.bfloat16
        assert linear(x).dtype == torch.float32
        raise KeyError
    assert product_dtype(x) == torch.float32
