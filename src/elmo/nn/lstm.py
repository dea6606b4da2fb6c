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
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elmo.config import LSTMConfig

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
        gates = torch.addmm(bias, inputs, weight_ih.t())
        gates[:, 2 * size : 3 * size] += FORGET_BIAS
        cells = inputs.new_empty(len(inputs), size)
        outputs = inputs.new_empty(len(inputs), hidden.shape[1])
        h, c_before = hidden, cell
        for start, rows in zip(_starts(batch_sizes), batch_sizes, strict=True):
            gate, c, out = (x[start : start + rows] for x in (gates, cells, outputs))
            gate.addmm_(h[:rows], weight_hh.t())
            i, j, f, o = gate.chunk(4, dim=1)
            i.sigmoid_()
            j.tanh_()
            gate[:, 2 * size :].sigmoid_()
            torch.mul(f, c_before[:rows], out=c).addcmul_(i, j)
            if cell_clip is not None:
                c.clamp_(-cell_clip, cell_clip)
            if weight_hr is None:
                torch.mul(o, c.tanh(), out=out)
            else:
                torch.mm(c.tanh().mul_(o), weight_hr.t(), out=out)
            if proj_clip is not None:
                out.clamp_(-proj_clip, proj_clip)
            h, c_before = out, c
        ctx.save_for_backward(inputs, weight_ih, weight_hh, weight_hr, hidden, cell, gates, cells, outputs)
        ctx.set_materialize_grads(False)
        ctx.constants = batch_sizes, cell_clip, proj_clip
        return outputs, cells

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride] (the decorator hides the names)
        ctx: Any, *grad_outputs: Any
    ) -> tuple[Tensor | None, ...]:
        """Gradients of every tensor argument of `forward`."""
        inputs, weight_ih, weight_hh, weight_hr, hidden, cell, gates, cells, outputs = ctx.saved_tensors
        batch_sizes, cell_clip, proj_clip = ctx.constants
        d_outputs = _owned(grad_outputs[0], outputs)
        d_cells = _owned(grad_outputs[1], cells)
        i, j, f, o = gates.chunk(4, dim=1)
        before = _rows_before(batch_sizes, len(hidden), gates.device)
        h_before = torch.cat([hidden, outputs])[before]
        c_before = torch.cat([cell, cells])[before]
        tanh_c = cells.tanh()

        # Everything that doesn't wait for the later step, for all steps at once: the gates' own derivatives.
        d_gates = torch.cat(
            [j * i * (1 - i), i * (1 - j * j), c_before * f * (1 - f), tanh_c * o * (1 - o)], dim=1
        ).unflatten(1, (4, -1))
        through_tanh = o * (1 - tanh_c * tanh_c)
        if proj_clip is not None:
            free_outputs = (outputs.abs() < proj_clip).to(outputs.dtype)
        if cell_clip is not None:
            free_cells = (cells.abs() < cell_clip).to(cells.dtype)

        d_h, d_c = torch.zeros_like(hidden), torch.zeros_like(cell)
        for start, rows in reversed(list(zip(_starts(batch_sizes), batch_sizes, strict=True))):
            now = slice(start, start + rows)
            d_out = d_outputs[now].add_(d_h[:rows])
            if proj_clip is not None:
                d_out.mul_(free_outputs[now])  # pyright: ignore[reportPossiblyUnboundVariable]
            d_m = d_out if weight_hr is None else d_out @ weight_hr
            d_cell = d_cells[now].add_(d_c[:rows]).addcmul_(d_m, through_tanh[now])
            if cell_clip is not None:
                d_cell.mul_(free_cells[now])  # pyright: ignore[reportPossiblyUnboundVariable]
            d_gates[now, :3].mul_(d_cell.unsqueeze(1))
            d_gates[now, 3].mul_(d_m)
            torch.mul(d_cell, f[now], out=d_c[:rows])
            torch.mm(d_gates[now].flatten(1), weight_hh, out=d_h[:rows])

        d_flat = d_gates.flatten(1)
        wanted = ctx.needs_input_grad
        return (
            d_flat @ weight_ih if wanted[0] else None,
            d_flat.t() @ inputs if wanted[1] else None,
            d_flat.t() @ h_before if wanted[2] else None,
            d_outputs.t() @ (o * tanh_c) if weight_hr is not None and wanted[3] else None,
            d_flat.sum(dim=0) if wanted[4] else None,
            d_h,
            d_c,
            None,
            None,
            None,
        )


def _owned(gradient: Tensor | None, like: Tensor) -> Tensor:
    """A copy that may be written to; zeros where nothing downstream used the output."""
    return torch.zeros_like(like) if gradient is None else gradient.clone()


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
        self, inputs: Tensor, batch_sizes: Sequence[int], state: LSTMState, dropout: float = 0.0
    ) -> tuple[list[Tensor], LSTMState]:
        """Run all layers.

        `inputs` is packed (N, P); `state` has one row per sentence, B = batch_sizes[0], sorted like the batch.
        `dropout` is applied to each layer's input. Returns each layer's output, packed (N, P), and the state
        after each row's last token.
        """
        last = _last_tokens(batch_sizes, inputs.device)
        outputs: list[Tensor] = []
        hidden: list[Tensor] = []
        cell: list[Tensor] = []
        for number, layer in enumerate(self.layers):
            inputs = F.dropout(inputs, dropout, training=dropout > 0)
            h, c = layer(inputs, batch_sizes, state.hidden[number], state.cell[number])
            hidden.append(h[last])
            cell.append(c[last])
            inputs = h + inputs if number > 0 and self.config.use_skip_connections else h
            outputs.append(inputs)
        return outputs, LSTMState(torch.stack(hidden), torch.stack(cell))


def _last_tokens(batch_sizes: Sequence[int], device: torch.device) -> Tensor:
    """The packed index of each row's last token: (batch_sizes[0],)."""
    last = torch.empty(batch_sizes[0], dtype=torch.long)
    for start, rows in zip(_starts(batch_sizes), batch_sizes, strict=True):
        last[:rows] = torch.arange(start, start + rows)
    return last.to(device)
