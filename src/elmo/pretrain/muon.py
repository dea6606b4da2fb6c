"""Muon: an optimizer that moves matrices by the orthogonal part of their averaged gradient (Jordan et al. 2024)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from elmo.nn.precision import fast_dtype

COEFFICIENTS, ITERATIONS = (3.4445, -4.7750, 2.0315), 5
"""The published Newton-Schulz iteration: five steps bring every singular value that is not tiny close to 1."""

LONG = 8
"""From this ratio of sides on, iterating on the small matrix X X^T costs less than iterating on X."""

ADAM_SIZE = 0.2
"""The usual root mean square of an Adam step, as a multiple of the learning rate. Muon's steps are scaled to the same
size (Liu et al. 2025)."""


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov momentum and decoupled weight decay.

    It differs from torch's Muon only in how the orthogonal part is computed: see `orthogonalize`.

    Args:
        parameters: The matrices to train. The state of each must be set before the first step, as `make_optimizer`
            does.
        lr: The learning rate.
        momentum: The decay of the average of gradients.
        weight_decay: The factor of the weight decay, which is multiplied by the learning rate.

    Source:
        Jordan et al. 2024; the size of the steps is that of Liu et al. 2025.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float, momentum: float, weight_decay: float) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Update the parameters. `closure` is only there because torch's signature has it, and is not called."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, parameter.grad, group)

    def _move(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        average = self.state[parameter]["momentum_buffer"]
        average.lerp_(gradient, 1 - group["momentum"])
        # Nesterov momentum: the average as it will be if the next gradient is like this one.
        direction = orthogonalize(gradient.lerp(average, group["momentum"]), fast_dtype(gradient.device))
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        # A matrix (M, N) whose singular values are all 1 has a root mean square of 1 / sqrt(max(M, N)).
        parameter.add_(direction, alpha=-group["lr"] * ADAM_SIZE * math.sqrt(max(parameter.shape)))


def orthogonalize(matrix: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Bring the singular values of a matrix close to 1 by the Newton-Schulz iteration of Muon.

    Each step multiplies X by a polynomial of A = X X^T. For a long matrix, the polynomials of all steps are computed
    from the first A, which is small, and X is multiplied once, by their product: a third of the work at a ratio of 16.

    Args:
        matrix: The matrix (M, N).
        dtype: The type of the matrix products. Long matrices use the type of `matrix` instead, since their method
            needs float32. (torch's own Muon always uses bfloat16, which takes ten times as long on processors without
            instructions for it.)

    Returns:
        A matrix (M, N) of the same type as `matrix`.
    """
    if matrix.shape[0] > matrix.shape[1]:
        return orthogonalize(matrix.T, dtype).T
    # The iteration needs singular values of at most 1. None of them is larger than the Frobenius norm.
    matrix = matrix / torch.linalg.vector_norm(matrix).clamp(min=1e-7)
    if matrix.shape[1] >= LONG * matrix.shape[0]:
        return _product_of_steps(matrix @ matrix.T) @ matrix
    x = matrix.to(dtype)
    for _ in range(ITERATIONS):  # x becomes a x + b A x + c A^2 x, with A = x x^T and the three coefficients
        x = torch.addmm(x, _beyond_linear(x @ x.T), x, beta=COEFFICIENTS[0])
    return x.to(matrix.dtype)


def _beyond_linear(gram: Tensor) -> Tensor:
    """Return b A + c A^2: the factor of a step without its constant term."""
    return torch.addmm(gram, gram, gram, beta=COEFFICIENTS[1], alpha=COEFFICIENTS[2])


def _product_of_steps(gram: Tensor) -> Tensor:
    """Return the product of the factors of all steps.

    A step with the factor F turns A = X X^T into F A F. All these matrices commute, since they are polynomials of the
    first A.
    """
    factors: list[Tensor] = []
    for _ in range(ITERATIONS):
        if factors:
            gram = factors[-1] @ gram @ factors[-1]
        factors.append(_beyond_linear(gram))
        factors[-1].diagonal().add_(COEFFICIENTS[0])
    return reduce(lambda total, factor: factor @ total, factors)
