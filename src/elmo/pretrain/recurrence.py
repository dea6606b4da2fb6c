"""The LSTM stack of one direction as training runs it: rows of one length, on a GPU as a recorded graph."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn

from elmo.nn.lstm import LSTMStack, LSTMState

Recurrence = Callable[..., tuple[Tensor, Tensor, Tensor]]
"""Packed inputs (T * B, P), the state's two tensors, and masks as `LSTMStack` takes them, to the top layer's outputs
(T * B, P) and the state after the last step."""


class _Unrolled(nn.Module):
    """A stack over B rows of T tokens; tensors alone come in and go out, as a graph wants it."""

    def __init__(self, stack: LSTMStack, batch_size: int, num_steps: int) -> None:
        super().__init__()
        self.stack = stack
        self.batch_sizes = [batch_size] * num_steps

    def forward(self, inputs: Tensor, hidden: Tensor, cell: Tensor, *masks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        outputs, after = self.stack(inputs, self.batch_sizes, LSTMState(hidden, cell), masks)
        return outputs[-1], after.hidden, after.cell


def make_recurrence(
    stack: LSTMStack, batch_size: int, num_steps: int, num_masks: int, device: torch.device
) -> Recurrence:
    """The recurrence of `stack` for B rows of T tokens and this number of masks, under the autocast in force.

    On a GPU, where a step is hundreds of kernels so short that starting them takes longer than they do, all of them
    are recorded once, forward and backward, and then started as two graphs.
    """
    unrolled = _Unrolled(stack, batch_size, num_steps)
    trained = all(parameter.requires_grad for parameter in stack.parameters())
    if device.type != "cuda" or not trained:
        return unrolled
    lstm, N = stack.config, batch_size * num_steps
    inputs = torch.zeros(N, lstm.projection_dim, device=device, requires_grad=True)
    hidden = torch.zeros(lstm.n_layers, batch_size, lstm.projection_dim, device=device)
    cell = torch.zeros(lstm.n_layers, batch_size, lstm.dim, device=device)
    masks = [torch.ones(N, lstm.projection_dim, device=device) for _ in range(num_masks)]
    # Recording leaves a stream behind that gradients are then said to come from; torch waits for it rightly, and would
    # warn in the first step: off for the whole process.
    torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
    gc.collect()  # graphs of earlier runs are in cycles, and own memory that this recording might be given
    with _own_workspace(device):
        return cast("Recurrence", torch.cuda.make_graphed_callables(unrolled, (inputs, hidden, cell, *masks)))


@contextmanager
def _own_workspace(device: torch.device) -> Generator[None]:
    """Have what is recorded here take memory for cuBLAS of its own, as torch's compiler does: the directions' graphs
    run at once, and all recordings are made on one stream, whose memory they would share."""
    torch.cuda.synchronize(device)
    torch._C._cuda_clearCublasWorkspaces()  # pyright: ignore[reportPrivateUsage] (torch has no other)
    try:
        yield
    finally:
        torch._C._cuda_clearCublasWorkspaces()  # pyright: ignore[reportPrivateUsage]
