"""Muon: matrices that move by the orthogonal part of their averaged gradient (Jordan et al. 2024)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from elmo.nn.precision import fast_dtype

COEFFICIENTS, ITERATIONS = (3.4445, -4.7750, 2.0315), 5
"""Of the Newton-Schulz iteration as published: five steps bring every singular value that is not tiny near 1."""

LONG = 8
"""From this ratio of sides on, steps on the small matrix cost less than such on the whole one."""

ADAM_SIZE = 0.2
"""The root mean square of a usual step of Adam, in learning rates; Muon's steps are made as large (Liu et al. 2025)."""


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov momentum and decoupled weight decay.

    It differs from torch's in how it computes alone: see `orthogonalize`.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float, momentum: float, weight_decay: float) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Update the parameters; there is no `closure`, which torch's signature has."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, parameter.grad, group)

    def _move(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        average = self.state[parameter]["momentum_buffer"]
        average.lerp_(gradient, 1 - group["momentum"])
        direction = orthogonalize(gradient.lerp(average, group["momentum"]), fast_dtype(gradient.device))
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.add_(direction, alpha=-group["lr"] * ADAM_SIZE * math.sqrt(max(parameter.shape)))


def orthogonalize(matrix: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """`matrix` with singular values near 1: the Newton-Schulz iteration of Muon, (M, N) to (M, N).

    A step multiplies X from its shorter side by a polynomial of A = X X^T. For a long matrix, all these polynomials
    are made from the first A alone, which is small, and X is multiplied once, by their product: a third of the work
    at a ratio of 16. That needs float32; the products of others are in `dtype`, and torch's Muon knows bfloat16 alone,
    which takes ten times as long on processors without instructions for it.
    """
    if matrix.shape[0] > matrix.shape[1]:
        return orthogonalize(matrix.T, dtype).T
    matrix = matrix / torch.linalg.vector_norm(matrix).clamp(min=1e-7)
    if matrix.shape[1] >= LONG * matrix.shape[0]:
        return _product_of_steps(matrix @ matrix.T) @ matrix
    x = matrix.to(dtype)
    for _ in range(ITERATIONS):
        x = torch.addmm(x, _beyond_linear(x @ x.T), x, beta=COEFFICIENTS[0])
    return x.to(matrix.dtype)


def _beyond_linear(gram: Tensor) -> Tensor:
    """b A + c A^2: what a step multiplies by, but for the constant."""
    return torch.addmm(gram, gram, gram, beta=COEFFICIENTS[1], alpha=COEFFICIENTS[2])


def _product_of_steps(gram: Tensor) -> Tensor:
    """What all steps together multiply by: each one's polynomial F makes F A F of A, as all of them commute."""
    factors: list[Tensor] = []
    for _ in range(ITERATIONS):
        if factors:
            gram = factors[-1] @ gram @ factors[-1]
        factors.append(_beyond_linear(gram))
        factors[-1].diagonal().add_(COEFFICIENTS[0])
    return reduce(lambda total, factor: factor @ total, factors)
