"""Checks whether vectors are equal up to rounding, what losses and gradients depend on, and which calls are made."""

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


def adds_by_index(loss: torch.Tensor) -> bool:
    """Return whether the backward pass of a loss adds up gradients of indexing, as it does where an index repeats.

    On several threads it adds them in any order, but whether that shows depends on which of them run at the same time.
    """
    found, left = {loss.grad_fn}, [loss.grad_fn]
    while left:
        node: Any = left.pop()
        if node.name() == "IndexBackward0":
            indices = [index for index in node._saved_indices if index is not None and index.dtype != torch.bool]
            places = torch.stack(torch.broadcast_tensors(*indices)).flatten(1) if indices else torch.zeros(1, 0)
            if places.unique(dim=1).shape[1] < places.shape[1]:
                return True
        new = {following for following, _ in node.next_functions if following is not None} - found
        found |= new
        left += new
    return False


def count_calls(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> list[str]:
    """Return a list that grows with each call of a function, which still does its work."""
    calls: list[str] = []
    function = getattr(module, name)

    def counted(*arguments: Any, **options: Any) -> Any:
        calls.append(name)
        return function(*arguments, **options)

    monkeypatch.setattr(module, name, counted)
    return calls
