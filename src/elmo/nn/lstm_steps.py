"""The steps of one LSTM layer over a packed batch, forward and back, by the native kernels or by torch.

`elmo.nn.lstm` has the equations, the meaning of packed order, and the modules that call this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmo._native import training_kernels
from elmo.config import FORGET_BIAS
from elmo.nn.memory import LayerMemory
from elmo.nn.packing import step_slices
from elmo.nn.precision import as_arrays, product_dtype, uses_native

_aten: Any = torch.ops.aten
"""torch's operators, among them the derivative of each activation as a single operation."""


class ProjectedLSTM(torch.autograd.Function):
    """One layer over a whole packed batch, with a backward pass of its own (see `elmo.nn.lstm` for the equations).

    `nn.LSTM` can't be used, because it has no clips. Autograd over the steps would be correct but slow: it would add to
    each weight's gradient at every step, where here it is a single product over all steps. The input and the hidden
    state before it lie side by side in one matrix, `joined`, so that both weights have one gradient product.

    On a CPU the native kernels run all steps, forward and back. Elsewhere torch does: what no step depends on, the
    product of all inputs with W_ih, is then one large product before the first step.
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
        memory: LayerMemory | None,
    ) -> tuple[Tensor, Tensor]:
        """Return the outputs (N, P) and cells (N, H).

        `inputs` is (N, I); `hidden` and `cell`, the state before step 0, are (batch_sizes[0], P) and
        (batch_sizes[0], H).
        """
        ctx.memory = memory
        memory = memory or LayerMemory()
        N, size, in_size, out_size = len(inputs), cell.shape[1], inputs.shape[1], hidden.shape[1]
        dtype, cell = product_dtype(inputs), cell.contiguous()
        weight_hr = None if weight_hr is None else weight_hr.contiguous()
        bias = bias.clone()
        bias[2 * size : 3 * size] += FORGET_BIAS
        # Only the operands of products are rounded (to bfloat16, if asked for). The state stays as precise as it was.
        joined = memory.take("joined", (N, in_size + out_size), inputs, dtype)
        joined[:, :in_size] = inputs
        joined[: len(hidden), in_size:] = hidden
        outputs = memory.take("outputs", (N, out_size), cell)
        activations = Activations(
            gates=memory.take("gates", (N, 4 * size), cell),
            cell=memory.take("cell", (N, size), cell),
            mixed=outputs if weight_hr is None else memory.take("mixed", (N, size), cell, dtype),
        )
        weight = torch.cat([weight_ih, weight_hh], dim=1)
        # The kernels read bfloat16 by words of two numbers.
        is_even = dtype == torch.float32 or not any(width % 2 for width in (size, out_size, in_size + out_size))
        native = is_even and uses_native(weight, dtype)
        settings = batch_sizes, cell_clip, proj_clip, native
        _Steps(weight, weight_hr, *settings).forward(bias, cell, joined, activations, outputs)
        ctx.save_for_backward(weight, weight_hr, cell, joined, outputs, *activations)
        ctx.set_materialize_grads(False)  # None instead of zeros for an output that nothing uses, mostly the cells
        ctx.settings = settings
        return outputs, activations.cell

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride] (the decorator hides the names)
        ctx: Any, *grad_outputs: Any
    ) -> tuple[Tensor | None, ...]:
        """Return the gradients of all tensor arguments of `forward`."""
        weight, weight_hr, cell, joined, outputs, *saved = ctx.saved_tensors
        steps, activations = _Steps(weight, weight_hr, *ctx.settings), Activations(*saved)
        (d_outputs, d_cells), memory = grad_outputs, ctx.memory or LayerMemory()
        d_outputs = torch.zeros_like(outputs) if d_outputs is None else d_outputs.contiguous()
        # The gradients of all steps are kept, for the products after the last one.
        d_gates = memory.take("d_gates", activations.gates.shape, cell, joined.dtype)
        d_out = memory.take("d_out", outputs.shape, cell, joined.dtype)
        d_joined, d_cell = memory.take("d_joined", joined.shape, cell), torch.zeros_like(cell)
        steps.backward(cell, activations, outputs, d_outputs, d_cells, d_gates, d_out, d_joined, d_cell)
        in_size, dtype = joined.shape[1] - outputs.shape[1], outputs.dtype
        wants_inputs, wants_ih, wants_hh, wants_hr, wants_bias, *_ = ctx.needs_input_grad
        d_ih, d_hh = None, None
        if wants_ih or wants_hh:
            d_weight = steps.in_weight_order(d_gates.t() @ joined).to(dtype)
            d_ih, d_hh = d_weight.split([in_size, outputs.shape[1]], dim=1)
        d_bias = None
        if wants_bias:
            # A product with ones, since summing bfloat16 to float32 would first copy all of it as float32.
            d_bias = steps.in_weight_order((d_gates.new_ones(1, len(d_gates)) @ d_gates).squeeze(0)).to(dtype)
        return (
            d_joined[:, :in_size] if wants_inputs else None,
            d_ih,
            d_hh,
            (d_out.t() @ activations.mixed).to(dtype) if weight_hr is not None and wants_hr else None,
            d_bias,
            d_joined[: len(cell), in_size:],
            d_cell,
            *(None,) * 4,
        )


class Activations(NamedTuple):
    """What the forward pass keeps of the steps of a layer for the backward pass, with N tokens in all.

    Attributes:
        gates: The activations of the gates i, j, f, o, (N, 4H), in the order of the code that computed them.
        cell: The clipped cells c, (N, H).
        mixed: m, the input of the projection, (N, H); float32 or bfloat16. Without a projection, it is the output.
    """

    gates: Tensor
    cell: Tensor
    mixed: Tensor

    def rows(self, where: slice) -> Activations:
        """Return the rows `where` as views."""
        return Activations(self.gates[where], self.cell[where], self.mixed[where])


class _Steps(NamedTuple):
    """The steps of a layer, forward and back, by the native kernels or by torch.

    Attributes:
        weight: [W_ih, W_hh] side by side, (4H, I + P).
        weight_hr: The projection W_hr, (P, H), or None.
        batch_sizes: The number of rows that have a token at each step.
        cell_clip: The limit of the cells' absolute values; None for no limit.
        proj_clip: The same for projected outputs.
        native: Whether the native kernels run them. They have an order of their own for the gates of a token.
    """

    weight: Tensor
    weight_hr: Tensor | None
    batch_sizes: Sequence[int]
    cell_clip: float | None
    proj_clip: float | None
    native: bool

    def forward(self, bias: Tensor, cell: Tensor, joined: Tensor, activations: Activations, outputs: Tensor) -> None:
        """Run all steps.

        Args:
            bias: The bias of the gates, including the forget bias, (4H,).
            cell: The cells before step 0, (B, H).
            joined: The input of each token and the hidden state before it, (N, I + P). The hidden states after step 0
                are written here.
            activations: Where to write what the backward pass needs, N rows.
            outputs: Where to write the outputs, (N, P); the tensor `activations.mixed` without a projection.
        """
        clips, has_projection = (self.cell_clip, self.proj_clip), self.weight_hr is not None
        if self.native:
            arrays = as_arrays(
                weight=self.weight,
                weight_hr=self.weight_hr,
                bias=bias,
                cell_before=cell,
                joined=joined,
                gates=activations.gates,
                cell=activations.cell,
                mixed=activations.mixed if has_projection else None,
                outputs=outputs,
            )
            training_kernels.lstm_forward(
                **arrays, batch_sizes=self.batch_sizes, clips=clips, num_threads=torch.get_num_threads()
            )
            return
        weight_ih, weight_hh, weight_hr = self._rounded(joined.dtype)
        in_size = weight_ih.shape[1]
        from_inputs = _apart(joined[:, :in_size]) @ weight_ih.t()
        steps = step_slices(self.batch_sizes)
        for number, (now, rows) in enumerate(zip(steps, self.batch_sizes, strict=True)):
            here, out = activations.rows(now), outputs[now]
            c_before = activations.cell[steps[number - 1]][:rows] if number else cell
            from_hidden = _apart(joined[now, in_size:]) @ weight_hh.t()
            _step(from_inputs[now], from_hidden, bias, c_before, self.cell_clip, here)
            if weight_hr is not None:
                out.copy_(here.mixed @ weight_hr.t())
            if self.proj_clip is not None:
                out.clamp_(-self.proj_clip, self.proj_clip)
            if number + 1 < len(steps):
                joined[steps[number + 1], in_size:] = out[: self.batch_sizes[number + 1]]

    def backward(
        self,
        cell: Tensor,
        activations: Activations,
        outputs: Tensor,
        d_outputs: Tensor,
        d_cells: Tensor | None,
        d_gates: Tensor,
        d_out: Tensor,
        d_joined: Tensor,
        d_cell: Tensor,
    ) -> None:
        """Run the backward pass of all steps. A clip passes gradients only inside its range.

        Args:
            cell: As in `forward`, like `activations` and `outputs`, which hold what it wrote.
            activations: See `cell`.
            outputs: See `cell`.
            d_outputs: The gradient of the outputs, (N, P).
            d_cells: The gradient of the cells, (N, H); None for zeros.
            d_gates: Where to write the gradients of the gates' sums, (N, 4H), in the type of products.
            d_out: Where to write those of the projection's products, (N, P), in the type of products.
            d_joined: Where to write those of [input; hidden state before], (N, I + P).
            d_cell: Zeros, to which the gradient of the cells before step 0 is written, (B, H).
        """
        clips, has_projection = (self.cell_clip, self.proj_clip), self.weight_hr is not None
        if self.native:
            arrays = as_arrays(
                weight=self.weight,
                weight_hr=self.weight_hr,
                cell_before=cell,
                gates=activations.gates,
                cell=activations.cell,
                outputs=outputs,
                d_outputs=d_outputs,
                d_cells=None if d_cells is None else d_cells.contiguous(),
                d_cell=d_cell,
                d_gates=d_gates,
                d_out=d_out if has_projection else None,
                d_joined=d_joined,
            )
            training_kernels.lstm_backward(
                **arrays, batch_sizes=self.batch_sizes, clips=clips, num_threads=torch.get_num_threads()
            )
            return
        weight_ih, weight_hh, weight_hr = self._rounded(d_gates.dtype)
        in_size, steps = weight_ih.shape[1], step_slices(self.batch_sizes)
        # The values were clipped to the limits as their type rounds them.
        cell_clip = _rounded_limit(self.cell_clip, activations.cell.dtype)
        proj_clip = _rounded_limit(self.proj_clip, outputs.dtype)
        # The gradient that flows from step to step. The loop runs backward, so a row keeps its initial zeros until the
        # loop reaches the row's last token.
        d_h = torch.zeros_like(outputs[: len(cell)])
        for number in reversed(range(len(steps))):
            now, rows = steps[number], self.batch_sizes[number]
            c_before = activations.cell[steps[number - 1]][:rows] if number else cell
            d_h[:rows] += d_outputs[now]
            if proj_clip is not None:
                _through_clip(d_h[:rows], outputs[now], proj_clip)
            d_out[now] = d_h[:rows]
            d_mixed = d_h[:rows] if weight_hr is None else d_out[now] @ weight_hr
            if d_cells is not None:
                d_cell[:rows] += d_cells[now]
            _step_backward(activations.rows(now), c_before, d_mixed, cell_clip, d_cell[:rows], d_gates[now])
            d_h[:rows] = d_gates[now] @ weight_hh
            d_joined[now, in_size:] = d_h[:rows]
        d_joined[:, :in_size] = d_gates @ weight_ih

    def in_weight_order(self, gates: Tensor) -> Tensor:
        """Return a tensor whose first axis holds the gates (4H, …), with this axis in the order of the weights."""
        if not self.native:
            return gates
        order = training_kernels.gate_order(len(gates) // 4)
        return gates.unflatten(0, order).transpose(0, 1).flatten(0, 2)

    def _rounded(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return W_ih, W_hh and W_hr in the type of the products."""
        out_size = len(self.weight) // 4 if self.weight_hr is None else len(self.weight_hr)
        in_size = self.weight.shape[1] - out_size
        weight_ih, weight_hh = self.weight.to(dtype).split([in_size, out_size], dim=1)
        return _apart(weight_ih), _apart(weight_hh), None if self.weight_hr is None else self.weight_hr.to(dtype)


def _apart(part: Tensor) -> Tensor:
    """Return some columns of a matrix, copied if torch's products would also read numbers of the columns after them.

    On processors with AMX, products of bfloat16 (torch 2.13) read a few numbers beyond each row. They multiply these by
    0, which doesn't help if one is NaN, as memory that is not written yet may be.
    """
    return part.contiguous() if part.dtype == torch.bfloat16 and part.is_cpu else part


def _step(
    from_input: Tensor, from_hidden: Tensor, bias: Tensor, cell_before: Tensor, clip: float | None, out: Activations
) -> None:
    """Compute one step from the sums of its gates, `from_input` + `from_hidden` + `bias` (B, 4H), by torch."""
    # All is written in place: the caller has one tensor for all steps, which the backward pass needs as a whole.
    torch.add(bias, from_input, out=out.gates).add_(from_hidden)
    i, j, f, o = out.gates.chunk(4, dim=1)
    i.sigmoid_()
    j.tanh_()
    out.gates[:, 2 * cell_before.shape[1] :].sigmoid_()  # f and o lie side by side: one pass for both
    torch.mul(f, cell_before, out=out.cell).addcmul_(i, j)
    if clip is not None:
        out.cell.clamp_(-clip, clip)
    torch.mul(o, out.cell.tanh(), out=out.mixed)


def _step_backward(
    activations: Activations,
    cell_before: Tensor,
    d_mixed: Tensor,
    clip: float | None,
    d_cell: Tensor,
    d_gates: Tensor,
) -> None:
    """Compute the backward pass of `_step`, by torch.

    It writes `d_gates` (B, 4H), and replaces `d_cell` (B, H) by the gradient of the cells before the step.
    """
    d_mixed = d_mixed.to(d_cell.dtype)
    # torch's own derivatives of activations: each is one operation, where y * (1 - y) written out would be three.
    i, j, f, o = activations.gates.chunk(4, dim=1)
    squashed = activations.cell.tanh()
    d_cell += _aten.tanh_backward(d_mixed * o, squashed)
    if clip is not None:
        _through_clip(d_cell, activations.cell, clip)
    parts = [
        _aten.sigmoid_backward(d_cell * j, i),
        _aten.tanh_backward(d_cell * i, j),
        _aten.sigmoid_backward(d_cell * cell_before, f),
        _aten.sigmoid_backward(d_mixed * squashed, o),
    ]
    if d_gates.dtype == d_cell.dtype:
        torch.cat(parts, dim=1, out=d_gates)
    else:
        d_gates.copy_(torch.cat(parts, dim=1))
    d_cell *= f


def _rounded_limit(limit: float | None, dtype: torch.dtype) -> float | None:
    """Return a clip's limit as it is in this type; in a type of few bits it may be below `limit`."""
    return None if limit is None else torch.tensor(limit, dtype=dtype).item()


def _through_clip(gradient: Tensor, clipped: Tensor, limit: float) -> None:
    """Set the gradient to zero, in place, where a value was clipped to ±`limit`, rounded to the values' type.

    Only the clipped value is known by then. Values of exactly ±`limit` count as clipped, as for torch's hardtanh.
    """
    _aten.hardtanh_backward(gradient, clipped, -limit, limit, grad_input=gradient)
