"""The LSTM with projection (Sak et al. 2014) of one direction, over packed sentences of falling length.

*Packed* is time-major: first the tokens of step 0, one per row of the batch, then those of step 1, and so on;
rows are sorted by falling length, so that `batch_sizes[t]` rows are still running at step t and nothing is padded.
N is the sum of `batch_sizes`, the number of tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elmo.config import LSTMConfig
from elmo.nn.precision import multiply, product_dtype

_aten: Any = torch.ops.aten
"""Holds the derivatives of the activations as one operation each."""

FORGET_BIAS = 1.0
"""Added to the forget gate at run time; the stored bias doesn't hold it."""


class LSTMState(NamedTuple):
    """The state of one direction's layers: `hidden` (L, B, P) and `cell` (L, B, H)."""

    hidden: Tensor
    cell: Tensor


class _ProjectedLSTM(torch.autograd.Function):
    """One layer over a whole packed batch, with the backward pass written out.

    Gates are in the order i, j (candidate), f, o. With c' the cell before its clip:
    c = clip(f * c_prev + i * j), m = o * tanh(c), h = clip(W_hr m). The clips pass gradients only inside their range.
    Autograd would add to each weight's gradient once a step; here it is one product over all steps.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        weight_ih: Tensor,
        weight_hh: Tensor,
        weight_hr: Tensor | None,
        bias: Tensor,
        hidden: Tensor,
        cell: Tensor,
        batch_sizes: Sequence[int],
        cell_clip: float | None,
        proj_clip: float | None,
    ) -> tuple[Tensor, Tensor]:
        """`inputs` (N, I), states (batch_sizes[0], P) and (batch_sizes[0], H) to outputs (N, P) and cells (N, H)."""
        size = cell.shape[1]
        dtype = product_dtype(inputs)
        weight_ih, weight_hh = weight_ih.to(dtype), weight_hh.to(dtype)
        weight_hr = None if weight_hr is None else weight_hr.to(dtype)
        gates = multiply(inputs, weight_ih.t(), onto=bias)
        gates[:, 2 * size : 3 * size] += FORGET_BIAS
        cells, tanh_cells = (inputs.new_empty(len(inputs), size) for _ in range(2))
        outputs = inputs.new_empty(len(inputs), hidden.shape[1])
        h, c_before = hidden, cell
        for start, rows in zip(_starts(batch_sizes), batch_sizes, strict=True):
            gate, c, tanh_c, out = (x[start : start + rows] for x in (gates, cells, tanh_cells, outputs))
            multiply(h[:rows], weight_hh.t(), onto=gate, out=gate)
            i, j, f, o = gate.chunk(4, dim=1)
            i.sigmoid_()
            j.tanh_()
            gate[:, 2 * size :].sigmoid_()
            torch.mul(f, c_before[:rows], out=c).addcmul_(i, j)
            if cell_clip is not None:
                c.clamp_(-cell_clip, cell_clip)
            torch.tanh(c, out=tanh_c)
            if weight_hr is None:
                torch.mul(o, tanh_c, out=out)
            else:
                multiply(o * tanh_c, weight_hr.t(), out=out)
            if proj_clip is not None:
                out.clamp_(-proj_clip, proj_clip)
            h, c_before = out, c
        ctx.save_for_backward(inputs, weight_ih, weight_hh, weight_hr, hidden, cell, gates, cells, tanh_cells, outputs)
        ctx.set_materialize_grads(False)
        ctx.constants = batch_sizes, cell_clip, proj_clip
        return outputs, cells

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride] (the decorator hides the names)
        ctx: Any, *grad_outputs: Any
    ) -> tuple[Tensor | None, ...]:
        """Gradients of every tensor argument of `forward`."""
        inputs, weight_ih, weight_hh, weight_hr, hidden, cell, gates, cells, tanh_cells, outputs = ctx.saved_tensors
        batch_sizes, cell_clip, proj_clip = ctx.constants
        d_outputs, d_cells = grad_outputs
        d_outputs = torch.zeros_like(outputs) if d_outputs is None else d_outputs
        d_out, d_gates = torch.empty_like(outputs), torch.empty_like(gates)
        d_h, d_c = torch.zeros_like(hidden), torch.zeros_like(cell)
        starts = _starts(batch_sizes)
        for step in reversed(range(len(starts))):
            rows = batch_sizes[step]
            now = slice(starts[step], starts[step] + rows)
            c_before = cells[starts[step - 1] :][:rows] if step else cell[:rows]
            torch.add(d_h[:rows], d_outputs[now], out=d_out[now])
            if proj_clip is not None:
                _through_clip(d_out[now], outputs[now], proj_clip)
            d_m = d_out[now] if weight_hr is None else multiply(d_out[now], weight_hr)
            i, j, f, o = gates[now].chunk(4, dim=1)
            d_i, d_j, d_f, d_o = d_gates[now].chunk(4, dim=1)
            d_cell = d_c[:rows].add_(_aten.tanh_backward(d_m * o, tanh_cells[now]))
            if d_cells is not None:
                d_cell += d_cells[now]
            if cell_clip is not None:
                _through_clip(d_cell, cells[now], cell_clip)
            _aten.sigmoid_backward(d_cell * j, i, grad_input=d_i)
            _aten.tanh_backward(d_cell * i, j, grad_input=d_j)
            _aten.sigmoid_backward(d_cell * c_before, f, grad_input=d_f)
            _aten.sigmoid_backward(d_m * tanh_cells[now], o, grad_input=d_o)
            d_cell *= f
            multiply(d_gates[now], weight_hh, out=d_h[:rows])
        wanted, dtype = ctx.needs_input_grad, weight_ih.dtype
        before_projection = gates[:, 3 * cell.shape[1] :] * tanh_cells
        h_before = torch.cat([hidden, outputs])[_rows_before(batch_sizes, len(hidden), gates.device)]
        return (
            multiply(d_gates, weight_ih) if wanted[0] else None,
            multiply(d_gates.t(), inputs.to(dtype)) if wanted[1] else None,
            multiply(d_gates.t(), h_before.to(dtype)) if wanted[2] else None,
            multiply(d_out.t(), before_projection.to(dtype)) if weight_hr is not None and wanted[3] else None,
            d_gates.sum(dim=0) if wanted[4] else None,
            d_h,
            d_c,
            None,
            None,
            None,
        )


def _through_clip(gradient: Tensor, clipped: Tensor, limit: float) -> Tensor:
    """Zero the gradient, in place, where a value was clipped to ±`limit`."""
    return _aten.hardtanh_backward(gradient, clipped, -limit, limit, grad_input=gradient)


def _starts(batch_sizes: Sequence[int]) -> list[int]:
    """Where each step begins in a packed tensor."""
    return list(accumulate(batch_sizes, initial=0))[:-1]


def _rows_before(batch_sizes: Sequence[int], num_rows: int, device: torch.device) -> Tensor:
    """For each packed token the index of the one before it in [initial state; packed tokens]."""
    starts = [0, *(num_rows + start for start in _starts(batch_sizes))]
    return torch.cat(
        [torch.arange(start, start + rows, device=device) for start, rows in zip(starts, batch_sizes, strict=False)]
    )


class LSTMLayer(nn.Module):
    """One projected LSTM layer. Weights are stored as in `nn.LSTM`: (gates, inputs), gates in the order i, j, f, o."""

    def __init__(self, in_dim: int, config: LSTMConfig) -> None:
        super().__init__()
        self.config = config
        self.weight_ih = nn.Parameter(torch.empty(4 * config.dim, in_dim))
        self.weight_hh = nn.Parameter(torch.empty(4 * config.dim, config.projection_dim))
        self.weight_hr = nn.Parameter(torch.empty(config.projection_dim, config.dim)) if config.has_projection else None
        self.bias = nn.Parameter(torch.zeros(4 * config.dim))
        # Glorot over the stacked [input; hidden] weight, as TensorFlow's cell, which holds both in one matrix.
        bound = (6 / (in_dim + config.projection_dim + 4 * config.dim)) ** 0.5
        nn.init.uniform_(self.weight_ih, -bound, bound)
        nn.init.uniform_(self.weight_hh, -bound, bound)
        if self.weight_hr is not None:
            nn.init.xavier_uniform_(self.weight_hr)

    def forward(
        self, inputs: Tensor, batch_sizes: Sequence[int], hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Packed `inputs` (N, I) and the state before step 0 to packed outputs (N, P) and cells (N, H)."""
        outputs, cells = _ProjectedLSTM.apply(  # pyright: ignore[reportUnknownMemberType, reportGeneralTypeIssues]
            inputs,
            self.weight_ih,
            self.weight_hh,
            self.weight_hr,
            self.bias,
            hidden,
            cell,
            batch_sizes,
            self.config.cell_clip,
            self.config.proj_clip if self.config.has_projection else None,
        )
        return outputs, cells


class LSTMStack(nn.Module):
    """All layers of one direction; from layer 2 on, a layer's input is added to its output (sec. 3.4)."""

    def __init__(self, config: LSTMConfig) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(LSTMLayer(config.projection_dim, config) for _ in range(config.n_layers))

    def forward(
        self, inputs: Tensor, batch_sizes: Sequence[int], state: LSTMState, masks: Sequence[Tensor] = ()
    ) -> tuple[list[Tensor], LSTMState]:
        """Run all layers.

        `inputs` is packed (N, P); `state` has one row per sentence, B = batch_sizes[0], sorted like the batch.
        `masks`, one (N, P) for each layer, multiply its input, as the residual connection sees it too: dropout as
        published. Returns each layer's output, packed (N, P), and the state after each row's last token.
        """
        last = _last_tokens(batch_sizes, inputs.device)
        outputs: list[Tensor] = []
        hidden: list[Tensor] = []
        cell: list[Tensor] = []
        for number, layer in enumerate(self.layers):
            inputs = inputs * masks[number] if masks else inputs
            h, c = layer(inputs, batch_sizes, state.hidden[number], state.cell[number])
            hidden.append(h.index_select(0, last))
            cell.append(c.index_select(0, last))
            inputs = h + inputs if number > 0 and self.config.use_skip_connections else h
            outputs.append(inputs)
        return outputs, LSTMState(torch.stack(hidden), torch.stack(cell))


def _last_tokens(batch_sizes: Sequence[int], device: torch.device) -> Tensor:
    """The packed index of each row's last token: (batch_sizes[0],). Made on `device`: a copy would wait for it."""
    ended = [*batch_sizes[1:], 0]
    steps = list(zip(_starts(batch_sizes), batch_sizes, ended, strict=True))
    return torch.cat(
        [torch.arange(start + after, start + rows, device=device) for start, rows, after in reversed(steps)]
    )
