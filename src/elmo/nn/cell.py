"""What a projected LSTM does with the gates of a time step, forward and back, for training (Sak et al. 2014).

A step has B rows of H cells. Its four gates are i, j (candidate), f, o; with c' the cell before its clip,
c = clip(sigmoid(f) c_before + sigmoid(i) tanh(j)), and m = sigmoid(o) tanh(c) is what the projection reads.
On the processor the native kernels make one pass over memory of it, elsewhere torch's operations do.
"""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elmo import _native
from elmo.nn.precision import as_array, uses_native

_aten: Any = torch.ops.aten
"""Holds the derivatives of the activations as one operation each."""


class Cells(NamedTuple):
    """What the way back needs of one step or of several, one after the other: N rows.

    `gates` (N, 4H), the activations; `cell` (N, H), clipped; `squashed` (N, H), tanh of it; `mixed` (N, H), which may
    be bfloat16: m.
    """

    gates: Tensor
    cell: Tensor
    squashed: Tensor
    mixed: Tensor

    @classmethod
    def empty(cls, num_rows: int, size: int, like: Tensor, mixed: torch.dtype) -> Cells:
        """Room for N rows of H cells, on the device of `like`."""
        gates, cell, squashed = (like.new_empty(num_rows, width) for width in (4 * size, size, size))
        return cls(gates, cell, squashed, like.new_empty(num_rows, size, dtype=mixed))

    def rows(self, where: slice) -> Cells:
        """Those of some rows, as views."""
        return Cells(self.gates[where], self.cell[where], self.squashed[where], self.mixed[where])


def step(
    from_input: Tensor, from_hidden: Tensor, bias: Tensor, cell_before: Tensor, clip: float | None, out: Cells
) -> None:
    """Write to `out` what the step makes of its gates' sums: `from_input` + `from_hidden` + `bias`.

    The products (B, 4H) are float32 or bfloat16, `bias` (4H,) holds the forget bias too; `cell_before` is (B, H).
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
    """The way back through `step`: writes the gradients of the gates' sums to `d_gates` (B, 4H).

    `d_mixed` (B, H) is that of m; `d_cell` (B, H), that of c, becomes that of `cell_before`. A clip passes gradients
    only inside its range.
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
    """Zero the gradient, in place, where a value was clipped to ±`limit`."""
    return _aten.hardtanh_backward(gradient, clipped, -limit, limit, grad_input=gradient)
