"""The published optimizer, and clipping that takes the sparse gradients of the softmax."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from elmo.config import TrainingConfig


def make_optimizer(module: nn.Module, training: TrainingConfig) -> torch.optim.Optimizer:
    """The published optimizer over what is to be trained: Adagrad, whose accumulators don't start at zero.

    Of a sparse gradient it reads and writes only the rows. torch adds 1e-10 to the root of an accumulator, which
    TensorFlow doesn't: nothing beside roots of 1 and more.
    """
    return torch.optim.Adagrad(
        (parameter for parameter in module.parameters() if parameter.requires_grad),
        lr=training.learning_rate,
        initial_accumulator_value=training.initial_accumulator_value,
    )


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
