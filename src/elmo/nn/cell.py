"""One time step of a projected LSTM between its matrix products, forward and backward, for training (Sak et al. 2014).

A step has B rows of H cells. From the sums of its four gates, i, j (candidate), f and o, it computes the cells
c = clip(sigmoid(f) c_before + sigmoid(i) tanh(j)), and m = sigmoid(o) tanh(c), which is the input of the projection.
On a CPU, the native kernels do all of this in one pass over memory. Elsewhere, or without them, torch's operations do.
"""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elmo import _native
from elmo.nn.precision import as_array, uses_native

_aten: Any = torch.ops.aten
"""torch's operators, among them the derivative of each activation as a single operation."""


class Cells(NamedTuple):
    """What the backward pass needs of one step, or of several steps one after the other, with N rows in all.

    Attributes:
        gates: The activations of the gates i, j, f, o, (N, 4H).
        cell: The clipped cells c, (N, H).
        squashed: tanh(c), (N, H).
        mixed: m, the input of the projection, (N, H); float32 or bfloat16.
    """

    gates: Tensor
    cell: Tensor
    squashed: Tensor
    mixed: Tensor

    @classmethod
    def empty(cls, num_rows: int, size: int, like: Tensor, mixed: torch.dtype) -> Cells:
        """Allocate `num_rows` (N) rows of `size` (H) cells on the device of `like`, with `mixed` of the given type."""
        gates, cell, squashed = (like.new_empty(num_rows, width) for width in (4 * size, size, size))
        return cls(gates, cell, squashed, like.new_empty(num_rows, size, dtype=mixed))

    def rows(self, where: slice) -> Cells:
        """Return the rows `where` as views."""
        return Cells(self.gates[where], self.cell[where], self.squashed[where], self.mixed[where])


def step(
    from_input: Tensor, from_hidden: Tensor, bias: Tensor, cell_before: Tensor, clip: float | None, out: Cells
) -> None:
    """Compute one step from the sums of its gates, `from_input` + `from_hidden` + `bias`.

    Args:
        from_input: The product of the input and its weight, (B, 4H), float32 or bfloat16.
        from_hidden: The product of the previous hidden state and its weight, like `from_input`.
        bias: The bias of the gates, including the forget bias, (4H,) float32.
        cell_before: The cells before the step, (B, H).
        clip: The limit of the cells' absolute values; None for no limit.
        out: Where to write the results, B rows.
    """
    if uses_native(bias, from_input.dtype):
        _native.lstm_cell(
            *(as_array(from_input), as_array(from_hidden), as_array(bias), as_array(cell_before)),
            *(as_array(out.gates), as_array(out.cell), as_array(out.squashed), as_array(out.mixed)),
            *(inf if clip is None else clip, torch.get_num_threads()),
        )
        return
    torch.add(bias, from_input, out=out.gates).add_(from_hidden)
    i, j, f, o = out.gates.chunk(4, dim=1)
    i.sigmoid_()
    j.tanh_()
    out.gates[:, 2 * cell_before.shape[1] :].sigmoid_()
    torch.mul(f, cell_before, out=out.cell).addcmul_(i, j)
    if clip is not None:
        out.cell.clamp_(-clip, clip)
    torch.tanh(out.cell, out=out.squashed)
    torch.mul(o, out.squashed, out=out.mixed)


def step_backward(
    cells: Cells, cell_before: Tensor, d_mixed: Tensor, clip: float | None, d_cell: Tensor, d_gates: Tensor
) -> None:
    """Compute the backward pass of `step`. The clip passes gradients only inside its range.

    Args:
        cells: What `step` wrote, B rows.
        cell_before: The cells before the step, (B, H).
        d_mixed: The gradient of m, (B, H).
        clip: As in `step`.
        d_cell: The gradient of c from later steps, (B, H). It is replaced by the gradient of `cell_before`.
        d_gates: Where to write the gradient of the gates' sums, (B, 4H).
    """
    if uses_native(d_cell, d_gates.dtype):
        _native.lstm_cell_backward(
            *(as_array(cells.gates), as_array(cell_before), as_array(cells.cell), as_array(cells.squashed)),
            *(as_array(d_mixed), as_array(d_cell), as_array(d_gates)),
            *(inf if clip is None else clip, torch.get_num_threads()),
        )
        return
    d_mixed = d_mixed.to(d_cell.dtype)
    i, j, f, o = cells.gates.chunk(4, dim=1)
    d_cell += _aten.tanh_backward(d_mixed * o, cells.squashed)
    if clip is not None:
        through_clip(d_cell, cells.cell, clip)
    parts = [
        _aten.sigmoid_backward(d_cell * j, i),
        _aten.tanh_backward(d_cell * i, j),
        _aten.sigmoid_backward(d_cell * cell_before, f),
        _aten.sigmoid_backward(d_mixed * cells.squashed, o),
    ]
    torch.cat(parts, dim=1, out=d_gates) if d_gates.dtype == d_cell.dtype else d_gates.copy_(torch.cat(parts, dim=1))
    d_cell *= f


def through_clip(gradient: Tensor, clipped: Tensor, limit: float) -> Tensor:
    """Set the gradient to zero, in place, where a value was clipped to ±`limit`."""
    return _aten.hardtanh_backward(gradient, clipped, -limit, limit, grad_input=gradient)
