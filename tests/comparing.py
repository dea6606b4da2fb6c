"""Checks that vectors are the same except for rounding, that a loss is random, and that a function was called."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

ROUNDING = 2e-6
"""In other batches the same matrix products have other shapes, so float32 sums of numbers near 1 have another order."""


def assert_same(got: list[np.ndarray], expected: list[np.ndarray], atol: float = ROUNDING) -> None:
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=atol)


def loss_depends_on_seed(model: Any, examples: Sequence[Any]) -> bool:
    """Return whether a task model's loss in training depends on the seed, as dropout makes it."""
    losses: list[float] = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        losses.append(model.train().loss(examples).item())
    assert losses[0] == losses[1]
    return losses[0] != losses[2]


def count_calls(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> list[str]:
    """Return a list that grows with each call of a function, which still does its work."""
    calls: list[str] = []
    function = getattr(module, name)

    def counted(*arguments: Any, **options: Any) -> Any:
        calls.append(name)
        return function(*arguments, **options)

    monkeypatch.setattr(module, name, counted)
    return calls
