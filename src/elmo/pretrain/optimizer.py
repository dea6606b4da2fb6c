"""The optimizers of pretraining with their learning-rate schedule, and clipping that handles sparse gradients."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from elmo.errors import ElmoError
from elmo.nn.row_adam import RowAdam
from elmo.pretrain.muon import Muon
from elmo.pretrain.recipe import PretrainingConfig
from elmo.training.schedule import schedule

BETAS = (0.9, 0.99)
"""The decay of Adam's two averages. With these values a row that gets its first gradient late in the run moves by the
learning rate, like one that gets it in the first step: (1 - 0.9) / sqrt(1 - 0.99) = 1."""

MOMENTUM = 0.95
"""The decay of Muon's average of gradients, with its usual value."""


class Optimizer:
    """Several optimizers, each for some of the parameters, under one schedule of the learning rate.

    Args:
        parts: The optimizers, which share no parameter. The schedule multiplies the learning rate of each.
        warmup: The share of the run, from 0 to 1, in which the rate rises from zero at the beginning.
        decay: The share of the run, from 0 to 1, in which the rate falls to zero at the end.
    """

    def __init__(self, parts: Sequence[torch.optim.Optimizer], warmup: float = 0.0, decay: float = 0.0) -> None:
        self._parts = parts
        self._rates = [[group["lr"] for group in part.param_groups] for part in parts]
        self._warmup, self._decay = warmup, decay

    @property
    def state(self) -> dict[Tensor, dict[str, Tensor]]:
        """The tensors that the optimizers keep for each parameter; all of them exist before the first step."""
        return {parameter: state for part in self._parts for parameter, state in part.state.items()}

    @property
    def learning_rate(self) -> float:
        """The learning rate of the last step; that of the recipe before the first one since the start."""
        return self._parts[0].param_groups[0]["lr"]

    def zero_grad(self) -> None:
        """Remove all gradients."""
        for part in self._parts:
            part.zero_grad()

    def step(self, done: float = 0.0) -> None:
        """Update the parameters once.

        Args:
            done: The share of the run that is over, from 0 to 1, on which the learning rate depends.
        """
        factor = schedule(done, self._warmup, self._decay)
        for part, rates in zip(self._parts, self._rates, strict=True):
            for group, rate in zip(part.param_groups, rates, strict=True):
                group["lr"] = rate * factor
            with torch.sparse.check_sparse_tensor_invariants(False):  # explicitly, or torch warns in every step
                part.step()


def make_optimizer(
    module: nn.Module, training: PretrainingConfig, row_sparse: Collection[nn.Parameter] = ()
) -> Optimizer:
    """Make the optimizer that `training.optimizer` names, for all parameters of a module that require a gradient.

    - `adagrad` is the published one, whose accumulators do not start at zero. With a row-sparse gradient it reads and
      writes only those rows. torch adds 1e-10 to the root of an accumulator, and TensorFlow does not; next to roots of
      1 and more that is nothing.
    - `adamw` is Adam with decoupled weight decay of matrices. Parameters with row-sparse gradients get the form of Adam
      that leaves rows without a gradient as they are, and no weight decay.
    - `muon` is the same, but matrices that map vectors to vectors (in LSTMs, highways and the projection) move by the
      orthogonal part of their averaged gradient, scaled to the usual size of an Adam step, so that one learning rate
      serves all parameters.

    Args:
        module: The module to train, an `Objective`.
        training: The settings of the training.
        row_sparse: The parameters of `module` whose gradients are row-sparse.

    Source:
        AdamW: Loshchilov and Hutter 2019. Muon: Jordan et al. 2024.
    """
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    rate, decay, rows = training.learning_rate, training.weight_decay, set(row_sparse)
    # A fused step is one pass over memory, where torch's others make several. There is none for sparse gradients. On a
    # GPU, torch updates all parameters together by default (None), which False would forbid.
    fused = True if all(p.is_cpu for p in trained.values()) else None
    if training.optimizer == "adagrad":
        start = training.initial_accumulator_value
        dense = [p for p in trained.values() if p not in rows]
        sparse = [p for p in trained.values() if p in rows]
        parts: list[torch.optim.Optimizer] = [
            torch.optim.Adagrad(group, lr=rate, initial_accumulator_value=start, fused=is_fused)
            for group, is_fused in ((dense, fused), (sparse, None))
            if group
        ]
    elif training.optimizer in ("adamw", "muon"):
        groups: dict[str, list[nn.Parameter]] = {"rows": [], "orthogonal": [], "matrices": [], "vectors": []}
        # An embedding's rows are looked up, not multiplied: Muon is for maps between vectors, and leaves them to Adam.
        for name, p in trained.items():
            is_inner = p.dim() == 2 and name.startswith("bilm.") and "embedding" not in name
            orthogonal = is_inner and training.optimizer == "muon"
            kind = "rows" if p in rows else "orthogonal" if orthogonal else "matrices" if p.dim() > 1 else "vectors"
            groups[kind].append(p)
        adam: dict[str, Any] = {"lr": rate, "betas": BETAS}
        kinds: dict[str, tuple[Callable[..., torch.optim.Optimizer], dict[str, Any]]] = {
            "rows": (RowAdam, adam),
            "matrices": (torch.optim.AdamW, {**adam, "weight_decay": decay, "fused": fused}),
            "vectors": (torch.optim.AdamW, {**adam, "weight_decay": 0.0, "fused": fused}),
            "orthogonal": (Muon, {"lr": rate, "momentum": MOMENTUM, "weight_decay": decay}),
        }
        parts = [make(groups[kind], **settings) for kind, (make, settings) in kinds.items() if groups[kind]]
        for part in parts:
            if not isinstance(part, Muon):
                _make_adam_state(part)
    else:  # a choice that was added to the recipe alone must not train as another one
        raise ElmoError(f"training.optimizer: {training.optimizer!r} has no case in make_optimizer")
    return Optimizer(parts, training.warmup, training.decay)


def _make_adam_state(part: torch.optim.Optimizer) -> None:
    """Make the state that torch would make in the first step: a checkpoint must be loaded into it before that."""
    for group in part.param_groups:
        for p in group["params"]:
            part.state[p] = {"step": torch.zeros(()), "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}


@torch.no_grad()
def clip_gradients(parameters: Iterable[nn.Parameter], max_norm: float) -> float:
    """Scale all gradients in place so that their global norm is at most `max_norm`.

    Unlike torch's own function, it handles sparse gradients, too: rows that are repeated count as their sum.

    Returns:
        The global norm before scaling.
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
