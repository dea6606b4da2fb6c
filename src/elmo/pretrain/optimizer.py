"""The published optimizer, which touches only those rows of the softmax that a batch used."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn


class Adagrad(torch.optim.Optimizer):
    """Adagrad (Duchi et al. 2011) as in TensorFlow: accumulators start at `initial_accumulator_value`, no epsilon.

    Sparse gradients must be coalesced, as `clip_gradients` leaves them; only their rows are read and written.
    (torch's own Adagrad warns at each sparse gradient and takes several times as long for it.)
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], learning_rate: float, initial_accumulator_value: float = 1.0
    ) -> None:
        super().__init__(parameters, {"lr": learning_rate})
        for parameter in self._parameters():
            self.state[parameter]["sum"] = torch.full_like(parameter, initial_accumulator_value)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Apply the gradients there are."""
        assert closure is None, "the loss is computed by the loop"
        rate = self.param_groups[0]["lr"]
        for parameter in self._parameters():
            gradient, total = parameter.grad, self.state[parameter]["sum"]
            if gradient is None:
                continue
            if gradient.is_sparse:
                rows, values = gradient.indices()[0], gradient.values()
                sums = total.index_select(0, rows).addcmul_(values, values)
                total.index_copy_(0, rows, sums)
                parameter.index_add_(0, rows, values / sums.sqrt_(), alpha=-rate)
            else:
                total.addcmul_(gradient, gradient)
                parameter.addcdiv_(gradient, total.sqrt(), value=-rate)

    def _parameters(self) -> list[nn.Parameter]:
        return self.param_groups[0]["params"]


@torch.no_grad()
def clip_gradients(parameters: Iterable[nn.Parameter], max_norm: float) -> float:
    """Scale all gradients so that their global norm is at most `max_norm`; returns the norm before.

    Unlike torch's own, it takes sparse gradients too, whose repeated rows count as their sum.
    """
    values: list[Tensor] = []
    for parameter in parameters:
        if parameter.grad is not None:
            if parameter.grad.is_sparse:
                parameter.grad = parameter.grad.coalesce()
            values.append(parameter.grad.values() if parameter.grad.is_sparse else parameter.grad)
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(value) for value in values]))
    if norm > max_norm:
        for value in values:
            value.mul_(max_norm / norm)
    return float(norm)
