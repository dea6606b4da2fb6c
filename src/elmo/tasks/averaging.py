"""An exponential moving average of a model's weights, which is evaluated and kept in place of the weights."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Averages:
    """The averages of a model's trained parameters, by name, in `tensors`; empty if `decay` is None.

    They start at the initial weights. Each update multiplies them by `decay` and adds `1 - decay` times the current
    weights; there is no correction for a small number of updates.
    """

    def __init__(self, model: nn.Module, decay: float | None) -> None:
        self._decay = decay or 0.0
        self._parameters = {} if decay is None else {n: p for n, p in model.named_parameters() if p.requires_grad}
        self.tensors: dict[str, Tensor] = {name: p.detach().clone() for name, p in self._parameters.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Include the weights of the current step."""
        for name, average in self.tensors.items():
            average.lerp_(self._parameters[name], 1 - self._decay)

    @contextmanager
    def in_place(self) -> Generator[None]:
        """Put the averages into the model for the duration of the context, and then the weights back, to the bit."""
        weights = {name: p.detach().clone() for name, p in self._parameters.items()}
        self._put(self.tensors)
        try:
            yield
        finally:
            self._put(weights)

    @torch.no_grad()
    def _put(self, tensors: dict[str, Tensor]) -> None:
        for name, parameter in self._parameters.items():
            parameter.copy_(tensors[name])
