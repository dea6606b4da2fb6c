"""Optimizers under one schedule of the learning rate, and clipping that takes the sparse gradients of the softmax."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from elmo.pretrain.muon import Muon
from elmo.pretrain.recipe import PretrainingConfig

BETAS = (0.9, 0.99)
"""Decay of Adam's two averages. A row that is touched for the first time late in the run then moves by the rate, as one
that is touched at the first step does: (1 - 0.9) / sqrt(1 - 0.99) = 1."""

MOMENTUM = 0.95
"""Decay of Muon's average, the usual one."""


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

    @property
    def learning_rate(self) -> float:
        """That of the step before."""
        return self._parts[0].param_groups[0]["lr"]

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


def make_optimizer(
    module: nn.Module, training: PretrainingConfig, row_sparse: Collection[nn.Parameter] = ()
) -> Optimizer:
    """The optimizer of what is to be trained in `module`, of the kind that `training.optimizer` names.

    `adagrad` is the published one, whose accumulators don't start at zero. Of a row-sparse gradient it reads and
    writes only the rows. torch adds 1e-10 to the root of an accumulator, which TensorFlow doesn't: nothing beside
    roots of 1 and more. `adamw` is Adam with decoupled weight decay (Loshchilov and Hutter 2019) of matrices; the
    parameters `row_sparse`, whose gradients are so, get the form that leaves untouched rows as they are. With `muon`,
    the matrices that map vectors to vectors, in LSTMs, highways and the projection, move by the orthogonal part of
    their averaged gradient instead (Jordan et al. 2024), scaled to an Adam step's usual size: one rate serves all.
    """
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    rate, decay = training.learning_rate, training.weight_decay
    if training.optimizer == "adagrad":
        start = training.initial_accumulator_value
        parts: list[torch.optim.Optimizer] = [
            torch.optim.Adagrad(trained.values(), lr=rate, initial_accumulator_value=start)
        ]
    else:
        groups: dict[str, list[nn.Parameter]] = {"rows": [], "orthogonal": [], "matrices": [], "vectors": []}
        rows = set(row_sparse)
        for name, p in trained.items():
            is_inner = p.dim() == 2 and name.startswith("bilm.") and "embedding" not in name
            orthogonal = is_inner and training.optimizer == "muon"
            kind = "rows" if p in rows else "orthogonal" if orthogonal else "matrices" if p.dim() > 1 else "vectors"
            groups[kind].append(p)
        adam: dict[str, Any] = {"lr": rate, "betas": BETAS}
        muon: dict[str, Any] = {"lr": rate, "momentum": MOMENTUM}
        made = [
            _make(torch.optim.SparseAdam, groups["rows"], _adam_state, **adam),
            _make(torch.optim.AdamW, groups["matrices"], _adam_state, weight_decay=decay, **adam),
            _make(torch.optim.AdamW, groups["vectors"], _adam_state, weight_decay=0.0, **adam),
            _make(Muon, groups["orthogonal"], _muon_state, weight_decay=decay, **muon),
        ]
        parts = [part for part in made if part is not None]
    return Optimizer(parts, training.warmup, training.decay)


def _make(
    kind: Callable[..., torch.optim.Optimizer],
    parameters: list[nn.Parameter],
    state: Callable[[Tensor], dict[str, Tensor]],
    **settings: Any,
) -> torch.optim.Optimizer | None:
    """An optimizer of this kind, where there are parameters, with its state, which torch would make at the first step.

    That would be too late to resume into.
    """
    if not parameters:
        return None
    part = kind(parameters, **settings)
    part.state.update({parameter: state(parameter) for parameter in parameters})
    return part


def _adam_state(parameter: Tensor) -> dict[str, Tensor]:
    averages = {key: torch.zeros_like(parameter) for key in ("exp_avg", "exp_avg_sq")}
    return {"step": torch.zeros(()), **averages}


def _muon_state(parameter: Tensor) -> dict[str, Tensor]:
    return {"momentum_buffer": torch.zeros_like(parameter)}


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
