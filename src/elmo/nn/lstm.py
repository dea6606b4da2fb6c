"""The projected LSTM of one direction (Sak et al. 2014; Peters et al. 2018, sec. 3.1 and 3.4), over packed sentences.

A step computes from its input x, the hidden state h' and the cells c' before it

    i, j, f, o = W_ih x + W_hh h' + b                      (4H sums, in this order)
    c = clip(sigmoid(f + 1) * c' + sigmoid(i) * tanh(j))   (H cells)
    m = sigmoid(o) * tanh(c)
    h = clip(W_hr m)                                       (P, or m itself if there is no projection)

Everything follows bilm-tf, whose cell is TensorFlow's `LSTMCell`:

- The order of the gates is that of its files, so that its matrices are used as they are. `nn.LSTM` and AllenNLP have
  i, f, j, o.
- The constant 1 of the forget gate is added at run time and is not in the stored bias. It keeps the cells' memory open
  in an untrained network (Jozefowicz et al. 2015).
- The cells are clipped before the output gate reads them, and the projection after its product (both to ±3 in the
  published models). A trained model needs the clips that it was trained with: they change its vectors.

In *packed* order the tokens of step 0 come first, one per row of the batch, then those of step 1, and so on. Rows are
sorted by falling length, so that the first `batch_sizes[t]` rows have a token at step t, and there is no padding to
compute or to mask. N is the number of tokens, the sum of `batch_sizes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elmo import _native
from elmo.config import FORGET_BIAS, LSTMConfig
from elmo.nn.packing import step_slices
from elmo.nn.precision import as_array, product_dtype, uses_native

_aten: Any = torch.ops.aten
"""torch's operators, among them the derivative of each activation as a single operation."""


class LSTMState(NamedTuple):
    """The state of all layers of one direction.

    Attributes:
        hidden: The projected outputs, (L, B, P).
        cell: The cells, (L, B, H).
    """

    hidden: Tensor
    cell: Tensor


class LSTMStack(nn.Module):
    """All layers of one direction. From layer 2 on, a layer's input is added to its output.

    Source:
        Peters et al. 2018, sec. 3.4.
    """

    def __init__(self, config: LSTMConfig) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(LSTMLayer(config.projection_dim, config) for _ in range(config.n_layers))

    def forward(
        self, inputs: Tensor, batch_sizes: Sequence[int], state: LSTMState, masks: Sequence[Tensor] = ()
    ) -> tuple[list[Tensor], LSTMState]:
        """Run all layers (see `run_layers`)."""
        return run_layers(self.layers, self.config, inputs, batch_sizes, state, masks)


def run_layers(
    layers: Iterable[nn.Module],
    config: LSTMConfig,
    inputs: Tensor,
    batch_sizes: Sequence[int],
    state: LSTMState,
    masks: Sequence[Tensor] = (),
) -> tuple[list[Tensor], LSTMState]:
    """Run the layers of one direction, each on the output of the layer before it.

    Args:
        layers: Modules with the arguments and results of `LSTMLayer`.
        config: The configuration of the LSTM.
        inputs: Packed token vectors, (N, P).
        batch_sizes: The number of rows that have a token at each step; B is batch_sizes[0].
        state: The state before each row's first token, rows sorted like the batch.
        masks: For each layer a dropout mask (N, P) that multiplies the layer's input. As in the published training,
            the residual connection adds the masked input.

    Returns:
        Each layer's output, packed (N, P), and the state after each row's last token.
    """
    last = _last_tokens(batch_sizes, inputs.device)
    outputs: list[Tensor] = []
    hidden: list[Tensor] = []
    cell: list[Tensor] = []
    for number, layer in enumerate(layers):
        inputs = inputs * masks[number] if masks else inputs
        h, c = layer(inputs, batch_sizes, state.hidden[number], state.cell[number])
        # The state that is carried is the cell's own output, before the residual connection. It is looked up by
        # `index_select`: the backward pass of indexing adds in any order, so a resumed run would not be bit-equal.
        hidden.append(h.index_select(0, last))
        cell.append(c.index_select(0, last))
        inputs = h + inputs if number > 0 and config.use_skip_connections else h
        outputs.append(inputs)
    return outputs, LSTMState(torch.stack(hidden), torch.stack(cell))


def _last_tokens(batch_sizes: Sequence[int], device: torch.device) -> Tensor:
    """Return the packed index of each row's last token, (batch_sizes[0],).

    It is computed on `device`, because copying it there would wait for the device.
    """
    ended = [*batch_sizes[1:], 0]
    steps = list(zip(step_slices(batch_sizes), ended, strict=True))
    return torch.cat([torch.arange(step.start + after, step.stop, device=device) for step, after in reversed(steps)])


class LSTMLayer(nn.Module):
    """One projected LSTM layer.

    Weights are stored as (gates, inputs) like those of `nn.LSTM`, but with the gates in the order i, j (candidate),
    f, o.

    Args:
        in_dim: The width of the input, I.
        config: The sizes and clips of the LSTM.

    Source:
        Sak et al. 2014.
    """

    def __init__(self, in_dim: int, config: LSTMConfig) -> None:
        super().__init__()
        self.config = config
        self.weight_ih = nn.Parameter(torch.empty(4 * config.dim, in_dim))
        self.weight_hh = nn.Parameter(torch.empty(4 * config.dim, config.projection_dim))
        self.weight_hr = nn.Parameter(torch.empty(config.projection_dim, config.dim)) if config.has_projection else None
        self.bias = nn.Parameter(torch.zeros(4 * config.dim))
        # Glorot over both weights together, because TensorFlow's cell has them in one [input; hidden] matrix.
        # `xavier_uniform_` of each by itself would draw from wider ranges.
        bound = (6 / (in_dim + config.projection_dim + 4 * config.dim)) ** 0.5
        nn.init.uniform_(self.weight_ih, -bound, bound)
        nn.init.uniform_(self.weight_hh, -bound, bound)
        if self.weight_hr is not None:
            nn.init.xavier_uniform_(self.weight_hr)

    def forward(
        self, inputs: Tensor, batch_sizes: Sequence[int], hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Run the layer over a packed batch.

        Args:
            inputs: Packed, (N, I).
            batch_sizes: The number of rows that have a token at each step.
            hidden: The hidden state before step 0, (batch_sizes[0], P).
            cell: The cells before step 0, (batch_sizes[0], H).

        Returns:
            The outputs (N, P) and the cells (N, H), both packed.
        """
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


class _ProjectedLSTM(torch.autograd.Function):
    """One layer over a whole packed batch, with a backward pass of its own (the equations are at the top).

    `nn.LSTM` can't be used, because it has no clips. Autograd over the steps would be correct but slow: it would add to
    each weight's gradient at every step, where here it is a single product over all steps. What no step depends on is
    also taken out of the loops: the products of all inputs with W_ih are one large product before the first step. Only
    the product with the hidden state remains in the loop, and it shrinks as the shorter rows end.
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
        """Return the outputs (N, P) and cells (N, H).

        `inputs` is (N, I); `hidden` and `cell`, the state before step 0, are (batch_sizes[0], P) and
        (batch_sizes[0], H).
        """
        size, dtype, cell = cell.shape[1], product_dtype(inputs), cell.contiguous()
        # Only the operands of products are rounded (to bfloat16, if asked for). The state stays as precise as it was.
        weight_ih, weight_hh = weight_ih.to(dtype), weight_hh.to(dtype)
        weight_hr = None if weight_hr is None else weight_hr.to(dtype)
        inputs = inputs.to(dtype)
        bias = bias.clone()
        bias[2 * size : 3 * size] += FORGET_BIAS
        from_inputs = inputs @ weight_ih.t()
        cells = Cells.empty(len(inputs), size, cell, dtype if weight_hr is not None else cell.dtype)
        outputs = cells.mixed if weight_hr is None else hidden.new_empty(len(inputs), hidden.shape[1])
        h, c_before = hidden, cell
        for now, rows in zip(step_slices(batch_sizes), batch_sizes, strict=True):
            here, out = cells.rows(now), outputs[now]
            step(from_inputs[now], h[:rows].to(dtype) @ weight_hh.t(), bias, c_before[:rows], cell_clip, here)
            if weight_hr is not None:
                out.copy_(here.mixed @ weight_hr.t())
            if proj_clip is not None:
                out.clamp_(-proj_clip, proj_clip)
            h, c_before = out, here.cell
        ctx.save_for_backward(inputs, weight_ih, weight_hh, weight_hr, hidden, cell, outputs, *cells)
        ctx.set_materialize_grads(False)  # None instead of zeros for an output that nothing uses, mostly the cells
        ctx.constants = batch_sizes, cell_clip, proj_clip
        return outputs, cells.cell

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride] (the decorator hides the names)
        ctx: Any, *grad_outputs: Any
    ) -> tuple[Tensor | None, ...]:
        """Return the gradients of all tensor arguments of `forward`."""
        inputs, weight_ih, weight_hh, weight_hr, hidden, cell, outputs, *saved = ctx.saved_tensors
        cells, (batch_sizes, cell_clip, proj_clip) = Cells(*saved), ctx.constants
        d_outputs, d_cells = grad_outputs
        d_outputs = torch.zeros_like(outputs) if d_outputs is None else d_outputs
        dtype = weight_ih.dtype
        # The gradients of all steps are kept, for the products after the loop.
        d_out, d_gates = torch.empty_like(outputs, dtype=dtype), torch.empty_like(cells.gates, dtype=dtype)
        # What flows from step to step. Rows that have no token at a step keep the zeros with which they begin, since
        # the loop runs backward: a row is reached first at its own last token.
        d_h, d_c = torch.zeros_like(hidden), torch.zeros_like(cell)
        steps = step_slices(batch_sizes)
        for number in reversed(range(len(steps))):
            now, rows = steps[number], batch_sizes[number]
            c_before = cells.cell[steps[number - 1]][:rows] if number else cell[:rows]
            d_h[:rows] += d_outputs[now]
            if proj_clip is not None:
                through_clip(d_h[:rows], outputs[now], proj_clip)
            d_out[now] = d_h[:rows]
            d_mixed = d_h[:rows] if weight_hr is None else d_out[now] @ weight_hr
            if d_cells is not None:
                d_c[:rows] += d_cells[now]
            step_backward(cells.rows(now), c_before, d_mixed, cell_clip, d_c[:rows], d_gates[now])
            d_h[:rows] = d_gates[now] @ weight_hh
        wanted = ctx.needs_input_grad
        h_before = torch.cat([hidden, outputs])[_rows_before(batch_sizes, len(hidden), outputs.device)].to(dtype)
        return (
            (d_gates @ weight_ih).to(hidden.dtype) if wanted[0] else None,
            (d_gates.t() @ inputs).to(hidden.dtype) if wanted[1] else None,
            (d_gates.t() @ h_before).to(hidden.dtype) if wanted[2] else None,
            (d_out.t() @ cells.mixed).to(hidden.dtype) if weight_hr is not None and wanted[3] else None,
            # A product with ones, since summing bfloat16 to float32 would first copy all of it as float32.
            (d_gates.new_ones(1, len(d_gates)) @ d_gates).squeeze(0).to(hidden.dtype) if wanted[4] else None,
            d_h,
            d_c,
            None,
            None,
            None,
        )


def _rows_before(batch_sizes: Sequence[int], num_rows: int, device: torch.device) -> Tensor:
    """Return for each packed token the index of the token before it in [initial state; packed tokens]."""
    starts = [0, *(num_rows + step.start for step in step_slices(batch_sizes))]
    return torch.cat(
        [torch.arange(start, start + rows, device=device) for start, rows in zip(starts, batch_sizes, strict=False)]
    )


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
    # All is written in place: the caller has one tensor for all steps, which the backward pass needs as a whole.
    torch.add(bias, from_input, out=out.gates).add_(from_hidden)
    i, j, f, o = out.gates.chunk(4, dim=1)
    i.sigmoid_()
    j.tanh_()
    out.gates[:, 2 * cell_before.shape[1] :].sigmoid_()  # f and o lie side by side: one pass for both
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
    # torch's own derivatives of activations: each is one operation, where y * (1 - y) written out would be three.
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
    """Set the gradient to zero, in place, where a value was clipped to ±`limit`.

    Only the clipped value is known by then. Values of exactly ±`limit` count as clipped, as for torch's hardtanh.
    """
    return _aten.hardtanh_backward(gradient, clipped, -limit, limit, grad_input=gradient)
