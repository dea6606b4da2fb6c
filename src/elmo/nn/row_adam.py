"""Adam on the rows of a matrix that have a gradient, in one pass of a native kernel."""

from __future__ import annotations

import math

import torch
from torch import nn

from elmo._native.optimizer import adam_rows
from elmo.nn.precision import as_arrays, uses_native


class RowAdam(torch.optim.SparseAdam):
    """torch's SparseAdam, with native kernels on a CPU: 3 ms instead of 40 for 10,000 rows of 192 numbers.

    torch makes sparse tensors of what each of its operations computes. The state is the same, and so are the results
    but for rounding. The state has to be there: `step` does not make it.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Update the parameters.

        `closure` is only there because torch's signature has it, and is not called.
        """
        moved = [(group, p) for group in self.param_groups for p in group["params"] if p.grad is not None]
        if not all(p.dim() == 2 and p.grad.is_sparse and uses_native(p, p.dtype) for _, p in moved):
            super().step()
            return
        for group, parameter in moved:
            self._update(parameter, group["lr"], group["betas"], group["eps"])

    def _update(self, parameter: nn.Parameter, rate: float, betas: tuple[float, float], epsilon: float) -> None:
        assert parameter.grad is not None
        state, gradient = self.state[parameter], parameter.grad.coalesce()
        state["step"] += 1
        # Both averages start from zero, which is corrected as in Adam, but epsilon is added to the divisor as it is.
        step_size = rate * math.sqrt(1 - betas[1] ** int(state["step"])) / (1 - betas[0] ** int(state["step"]))
        arrays = as_arrays(
            weight=parameter,
            average=state["exp_avg"],
            average_square=state["exp_avg_sq"],
            rows=gradient.indices()[0],
            gradient=gradient.values().contiguous(),
        )
        threads = torch.get_num_threads()
        adam_rows(**arrays, betas=betas, step_size=step_size, epsilon=epsilon, num_threads=threads)
