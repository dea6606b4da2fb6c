"""The exponential moving average of a model's weights, which is measured and kept instead of them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Averages:
    """The averages of what is trained of a model, by name, in `tensors`; none if `decay` is None.

    They start as the weights are, and each update leaves them `decay` of what they were, without correction for how
    few updates there have been.
    """

    def __init__(self, model: nn.Module, decay: float | None) -> None:
        self._decay = decay or 0.0
        self._parameters = {} if decay is None else {n: p for n, p in model.named_parameters() if p.requires_grad}
        self.tensors: dict[str, Tensor] = {name: p.detach().clone() for name, p in self._parameters.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights of this step."""
        for name, average in self.tensors.items():
            average.lerp_(self._parameters[name], 1 - self._decay)

    @contextmanager
    def in_place(self) -> Generator[None]:
        """Have the averages in the model, which gets its weights back afterwards, to the bit."""
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
