"""Muon: an optimizer that moves matrices by the orthogonal part of their averaged gradient (Jordan et al. 2024)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import reduce

import torch
from torch import Tensor, nn

from elmo.nn.devices import run_together
from elmo.nn.precision import fast_dtype

COEFFICIENTS, ITERATIONS = (3.4445, -4.7750, 2.0315), 5
"""The published Newton-Schulz iteration: five steps bring every singular value that is not tiny close to 1."""

LONG = 4
"""From this ratio of sides on, iterating on the small matrix X X^T costs less than iterating on X."""

BLOCK = 192
"""How many rows of a symmetric product are computed at once (see `_gram`)."""

ADAM_SIZE = 0.2
"""The usual root mean square of an Adam step, as a multiple of the learning rate. Muon's steps are scaled to the same
size (Liu et al. 2025)."""


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov momentum and decoupled weight decay.

    Its steps are those of torch's Muon with `adjust_lr_fn="match_rms_adamw"`, except for how the orthogonal part is
    computed (see `orthogonalize`).

    Args:
        parameters: The matrices to train.
        lr: The learning rate.
        momentum: The decay of the average of gradients.
        weight_decay: The factor of the weight decay, which is multiplied by the learning rate.

    Source:
        Jordan et al. 2024; the size of the steps is that of Liu et al. 2025.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float, momentum: float, weight_decay: float) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Update the parameters, and overwrite their gradients.

        `closure` is only there because torch's signature has it, and is not called.
        """
        for group in self.param_groups:
            moved = [parameter for parameter in group["params"] if parameter.grad is not None]
            for parameter in moved:
                average = self.state[parameter]["momentum_buffer"]
                average.lerp_(parameter.grad, 1 - group["momentum"])
                # Nesterov momentum: the average as it will be if the next gradient is like this one.
                parameter.grad.lerp_(average, group["momentum"])
            directions = orthogonalize([parameter.grad for parameter in moved])
            for parameter, direction in zip(moved, directions, strict=True):
                if group["weight_decay"]:
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                # A matrix (M, N) whose singular values are all 1 has a root mean square of 1 / sqrt(max(M, N)).
                parameter.add_(direction, alpha=-group["lr"] * ADAM_SIZE * math.sqrt(max(parameter.shape)))


def orthogonalize(matrices: Sequence[Tensor], dtype: torch.dtype | None = None) -> list[Tensor]:
    """Bring the singular values of matrices close to 1 by the Newton-Schulz iteration of Muon.

    Each step multiplies X by a polynomial of A = X X^T. For a long matrix, the polynomials of all steps are computed
    from the first A, which is small, and X is multiplied once, by their product: a third of the work at a ratio of 16.

    Args:
        matrices: The matrices, each (M, N), all on one device.
        dtype: The type of the matrix products, by default the one that the device multiplies fastest. Long matrices use
            their own type instead, since their method needs float32. (torch's own Muon always uses bfloat16, which
            takes ten times as long on processors without instructions for it.)

    Returns:
        For each matrix another (M, N) of the same type.
    """
    if not matrices:
        return []
    # Rows are never more than columns, so that A is the smaller one of both squares.
    wide = [matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T for matrix in matrices]
    # Long matrices of one shape are treated together: their small products by themselves would not keep a device busy.
    alike: dict[torch.Size, list[int]] = defaultdict(list)
    others: list[int] = []
    for number, matrix in enumerate(wide):
        is_long = matrix.shape[1] >= LONG * matrix.shape[0]
        (alike[matrix.shape] if is_long else others).append(number)
    device = wide[0].device
    products = dtype or fast_dtype(device)
    # Each core has matrices of its own, which takes less time than to share each product.
    pieces = min(torch.get_num_threads(), len(wide)) if device.type == "cpu" else 1

    @torch.no_grad()
    def work(piece: int) -> dict[int, Tensor]:
        done = {number: _orthogonalize_step_by_step(wide[number], products) for number in others[piece::pieces]}
        for numbers in alike.values():
            mine = numbers[piece::pieces]
            done.update(zip(mine, _orthogonalize_long([wide[number] for number in mine]), strict=True))
        return done

    parts = run_together(work, pieces, device) if pieces > 1 else [work(0)]
    done = {number: found for part in parts for number, found in part.items()}
    return [done[number] if matrix is wide[number] else done[number].T for number, matrix in enumerate(matrices)]


def _orthogonalize_step_by_step(matrix: Tensor, dtype: torch.dtype) -> Tensor:
    x = (matrix / _norm(matrix)).to(dtype)
    for _ in range(ITERATIONS):
        gram = _gram(x)
        x = torch.addmm(x, _beyond_linear(gram, _gram(gram)), x, beta=COEFFICIENTS[0])
    return x.to(matrix.dtype)


def _orthogonalize_long(matrices: Sequence[Tensor]) -> list[Tensor]:
    if not matrices:
        return []
    norms = [_norm(matrix) for matrix in matrices]
    gram = torch.stack([matrix @ matrix.T / norm.square() for matrix, norm in zip(matrices, norms, strict=True)])
    factors = _product_of_steps(gram)
    parts = zip(factors, matrices, norms, strict=True)
    return [(factor / norm) @ matrix for factor, matrix, norm in parts]


def _norm(matrix: Tensor) -> Tensor:
    """Return the Frobenius norm, which no singular value exceeds: the iteration needs values of at most 1."""
    return torch.linalg.vector_norm(matrix).clamp(min=1e-7)


def _gram(x: Tensor) -> Tensor:
    """Return X X^T of `x` (M, N), which is symmetric: on a CPU, only the blocks on and below the diagonal are computed.

    Of a symmetric matrix, this is its square.
    """
    size = len(x)
    if not x.is_cpu or size < 2 * BLOCK:
        return x @ x.T
    gram = x.new_empty(size, size)
    for start in range(0, size, BLOCK):
        end = min(start + BLOCK, size)
        torch.mm(x[start:end], x[:end].T, out=gram[start:end, :end])
        gram[:start, start:end] = gram[start:end, :start].T
    return gram


def _beyond_linear(gram: Tensor, square: Tensor) -> Tensor:
    """Return b A + c A^2, overwriting A^2: the factor of a step without its constant term."""
    return square.mul_(COEFFICIENTS[2]).add_(gram, alpha=COEFFICIENTS[1])


def _product_of_steps(gram: Tensor) -> Tensor:
    """Return the product of the factors of all steps, for several matrices A (…, M, M) of the same size.

    A step with the factor F turns A = X X^T into F A F. All these matrices commute, since they are polynomials of the
    first A.
    """
    factors: list[Tensor] = []
    for _ in range(ITERATIONS):
        if factors:
            gram = factors[-1] @ gram @ factors[-1]
        factors.append(_beyond_linear(gram, gram @ gram))
        factors[-1].diagonal(dim1=-2, dim2=-1).add_(COEFFICIENTS[0])
    return reduce(lambda total, factor: factor @ total, factors)
