"""The LSTM stack of one direction as training runs it: all rows have the same length, and a GPU replays a graph."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn

from elmo.nn.lstm import LSTMStack, LSTMState
from elmo.nn.memory import LayerMemory

RunRecurrence = Callable[..., tuple[Tensor, Tensor, Tensor]]
"""A function from packed inputs (T * B, P), the two tensors of the state, and the dropout masks of `LSTMStack`, to the
outputs of the top layer (T * B, P) and the two tensors of the state after the last token."""


class _Unrolled(nn.Module):
    """An LSTM stack for B rows of T tokens, whose inputs and outputs are all tensors, as a CUDA graph requires."""

    def __init__(self, stack: LSTMStack, batch_size: int, num_steps: int) -> None:
        super().__init__()
        self.stack = stack
        self.batch_sizes = [batch_size] * num_steps
        self.memory: list[LayerMemory] = []

    def forward(self, inputs: Tensor, hidden: Tensor, cell: Tensor, *masks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        outputs, after = self.stack(inputs, self.batch_sizes, LSTMState(hidden, cell), masks, self.memory)
        return outputs[-1], after.hidden, after.cell


def make_recurrence(
    stack: LSTMStack, batch_size: int, num_steps: int, num_masks: int, device: torch.device
) -> RunRecurrence:
    """Make the function that runs an LSTM stack over a batch in training.

    On a GPU, a step consists of hundreds of kernels that take less time to run than to launch. So they are recorded
    once, under the autocast that is active now, and then launched as two graphs, one forward and one backward.

    Args:
        stack: The LSTMs of one direction. If some of its parameters are frozen, nothing is recorded.
        batch_size: The number of rows B.
        num_steps: The number of tokens T of every row.
        num_masks: The number of dropout masks that the function will be called with.
        device: The device that the stack is on.
    """
    unrolled = _Unrolled(stack, batch_size, num_steps)
    trained = all(parameter.requires_grad for parameter in stack.parameters())
    if device.type != "cuda" or not trained:
        unrolled.memory = [LayerMemory() for _ in stack.layers]  # a graph keeps its memory by itself
        return unrolled
    lstm, N = stack.config, batch_size * num_steps
    inputs = torch.zeros(N, lstm.projection_dim, device=device, requires_grad=True)
    hidden = torch.zeros(lstm.n_layers, batch_size, lstm.projection_dim, device=device)
    cell = torch.zeros(lstm.n_layers, batch_size, lstm.dim, device=device)
    masks = [torch.ones(N, lstm.projection_dim, device=device) for _ in range(num_masks)]
    # After recording, gradients come from the stream that was recorded on. torch synchronizes with it correctly, but
    # would warn about it in the first step, so the warning is switched off for the whole process.
    if hasattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch"):  # torch before 2.10 has no warning
        torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
    gc.collect()  # graphs of earlier runs, which are in cycles, own memory that this recording might be given
    # torch records all graphs on one stream, of the device of the first. Nothing would be recorded on another.
    recorded_on = torch.cuda.graph.default_capture_stream
    if recorded_on is not None and recorded_on.device != device:
        torch.cuda.graph.default_capture_stream = None
    with torch.cuda.device(device), _own_workspace(device):
        return cast("RunRecurrence", torch.cuda.make_graphed_callables(unrolled, (inputs, hidden, cell, *masks)))


@contextmanager
def _own_workspace(device: torch.device) -> Generator[None]:
    """Give the graph recorded in this block a cuBLAS workspace of its own, as torch's compiler does.

    All graphs are recorded on one stream and would share its workspace, but those of both directions run at once.
    """
    torch.cuda.synchronize(device)
    torch._C._cuda_clearCublasWorkspaces()  # pyright: ignore[reportPrivateUsage] (torch has no other)
    try:
        yield
    finally:
        torch._C._cuda_clearCublasWorkspaces()  # pyright: ignore[reportPrivateUsage]
