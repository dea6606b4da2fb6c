"""Optimizers under one schedule of the learning rate, and clipping that takes the sparse gradients of the softmax."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from elmo.config import TrainingConfig

BETAS = (0.9, 0.99)
"""Decay of Adam's two averages. A row that is touched for the first time late in the run then moves by the rate, as one
that is touched at the first step does: (1 - 0.9) / sqrt(1 - 0.99) = 1."""


class Optimizer:
    """The optimizers of all parameters, under one schedule.

    `parts` share no parameter; each keeps its own rate, which the schedule's factor multiplies.
    """

    def __init__(self, parts: Sequence[torch.optim.Optimizer], warmup: float = 0.0, decay: float = 0.0) -> None:
        self._parts = parts
        self._rates = [[group["lr"] for group in part.param_groups] for part in parts]
        self._warmup, self._decay = warmup, decay

    @property
    def state(self) -> dict[Tensor, dict[str, Tensor]]:
        """What is kept of each parameter from step to step; all of it is there before the first one."""
        return {parameter: state for part in self._parts for parameter, state in part.state.items()}

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for part in self._parts:
            part.zero_grad()

    def step(self, done: float = 0.0) -> None:
        """Update the parameters, when the share `done` of the run is behind."""
        factor = schedule(done, self._warmup, self._decay)
        for part, rates in zip(self._parts, self._rates, strict=True):
            for group, rate in zip(part.param_groups, rates, strict=True):
                group["lr"] = rate * factor
            with torch.sparse.check_sparse_tensor_invariants(False):  # said aloud, or torch warns at every step
                part.step()


def schedule(done: float, warmup: float, decay: float) -> float:
    """The factor of the learning rate when the share `done` of the run is behind.

    It rises from 0 to 1 over the share `warmup`, and falls to 0 over the last share `decay`, both on a line.
    """
    rise = 1.0 if done >= warmup else done / warmup
    fall = 1.0 if decay == 0 else min(1.0, (1 - done) / decay)
    return max(0.0, min(rise, fall))


def make_optimizer(module: nn.Module, training: TrainingConfig, row_sparse: Sequence[nn.Parameter] = ()) -> Optimizer:
    """The optimizer of what is to be trained in `module`.

    `adagrad` is the published one, whose accumulators don't start at zero. Of a row-sparse gradient it reads and
    writes only the rows. torch adds 1e-10 to the root of an accumulator, which TensorFlow doesn't: nothing beside
    roots of 1 and more. `adamw` is Adam with decoupled weight decay (Loshchilov and Hutter 2019) of matrices; the
    parameters `row_sparse`, whose gradients are so, get the form that leaves untouched rows as they are.
    """
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    rate = training.learning_rate
    if training.optimizer == "adagrad":
        start = training.initial_accumulator_value
        parts = [torch.optim.Adagrad(trained, lr=rate, initial_accumulator_value=start)]
    else:
        rows = {id(parameter) for parameter in row_sparse}
        dense = [p for p in trained if id(p) not in rows]
        groups: list[dict[str, Any]] = [
            {"params": [p for p in dense if p.dim() > 1], "weight_decay": training.weight_decay},
            {"params": [p for p in dense if p.dim() <= 1], "weight_decay": 0.0},
        ]
        parts = [torch.optim.AdamW(groups, lr=rate, betas=BETAS)] if dense else []
        parts += [torch.optim.SparseAdam([p], lr=rate, betas=BETAS) for p in trained if id(p) in rows]
        for part in parts:
            _start_adam(part)
    return Optimizer(parts, training.warmup, training.decay)


def _start_adam(part: torch.optim.Optimizer) -> None:
    """Put Adam's state in its place, which torch would make at the first step: too late to resume into."""
    for group in part.param_groups:
        for parameter in group["params"]:
            averages = {key: torch.zeros_like(parameter) for key in ("exp_avg", "exp_avg_sq")}
            part.state[parameter] = {"step": torch.zeros(()), **averages}


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
