"""Highway LSTMs that read a sentence forward and backward in turn (He et al. 2017, sec. 2.1 to 2.3).

*Packed* means the same as in `elmo.nn.lstm`: time-major, rows sorted from long to short, `batch_sizes[t]` of them at
step t, N tokens in all. A backward layer walks through the same packed tensor from its end, and rows join at their last
token. So no token has to be moved between layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elmo.nn.packing import Packing, step_slices
from elmo.nn.precision import add_product, product_dtype

_aten: Any = torch.ops.aten
"""PyTorch's operators, among them the derivatives of activations as single operations."""


class ReadingOrder(NamedTuple):
    """The order in which a layer reads packed tokens.

    Attributes:
        steps: The places of each step's tokens, those of the longest row first.
        tokens: The places of all tokens that are not the first that the layer reads of their row.
        predecessors: The places of the tokens that are read just before these.
    """

    steps: list[slice]
    tokens: Tensor
    predecessors: Tensor

    @classmethod
    def both(cls, batch_sizes: Sequence[int], device: torch.device) -> tuple[ReadingOrder, ReadingOrder]:
        """Return the forward and the backward order."""
        steps = step_slices(batch_sizes)
        numbers = torch.arange(sum(batch_sizes), device=device)
        # `later[:0]`, which is empty, is for batches whose sentences all have one token: torch.cat needs some tensor.
        later = numbers[batch_sizes[0] :]
        earlier = torch.cat([later[:0], *(numbers[a][: b.stop - b.start] for a, b in pairwise(steps))])
        return cls(steps, later, earlier), cls(steps[::-1], earlier, later)

    def previous(self, x: Tensor) -> Tensor:
        """Return for each token what `x` (N, H) holds at the token read before it, and zeros where there is none."""
        return torch.zeros_like(x).index_copy_(0, self.tokens, x[self.predecessors])


class _HighwayLSTM(torch.autograd.Function):
    """One layer over a whole packed batch, with a hand-written backward pass.

    The gates are blocks in the order j (candidate), i, f, o, t (transform) and k (what bypasses the LSTM). All except k
    also depend on the previous output. c = f * c_before + i * j and h = mask * (t * o * tanh(c) + (1 - t) * k).
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        weight_ih: Tensor,
        weight_hh: Tensor,
        bias: Tensor,
        mask: Tensor | None,
        order: ReadingOrder,
    ) -> Tensor:
        """Return the outputs (N, H) of `inputs` (N, I).

        `mask` (B, H) multiplies the outputs of each row at all steps.
        """
        H, dtype = weight_hh.shape[1], product_dtype(inputs)
        cells, tanh_cells, outputs = (bias.new_empty(len(inputs), H) for _ in range(3))
        inputs, weight_ih, weight_hh = (x.to(dtype) for x in (inputs, weight_ih, weight_hh))
        # What the gates get from the inputs is one product over all tokens. Only what they get from the outputs before
        # has to be computed step by step.
        gates = add_product(bias.repeat(len(inputs), 1), inputs, weight_ih.t())
        h_before = c_before = outputs[:0]
        for now in order.steps:
            gate, c, tanh_c, h = (x[now] for x in (gates, cells, tanh_cells, outputs))
            # Forward, rows end, so that fewer of them are left than before. Backward, rows join; those that join at
            # this step have nothing before them.
            rows = min(len(gate), len(h_before))
            add_product(gate[:rows, : 5 * H], h_before[:rows], weight_hh.t())
            j, i, f, o, t, k = gate.chunk(6, dim=1)
            # Everything is computed in place, in slices of the tensors that the backward pass needs.
            j.tanh_()
            gate[:, H : 5 * H].sigmoid_()
            torch.mul(i, j, out=c)[:rows].addcmul_(f[:rows], c_before[:rows])
            torch.tanh(c, out=tanh_c)
            torch.lerp(k, torch.mul(o, tanh_c, out=h), t, out=h)
            if mask is not None:
                h *= mask[: len(h)]
            h_before, c_before = h, c
        ctx.save_for_backward(inputs, weight_ih, weight_hh, mask, gates, cells, tanh_cells, outputs)
        ctx.order = order
        return outputs

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride] (the decorator hides the names)
        ctx: Any, *grad_outputs: Any
    ) -> tuple[Tensor | None, ...]:
        """Return the gradients of every tensor argument of `forward` except the mask.

        The factors of each gate's gradient are computed for all tokens at once. Then each step multiplies them by the
        gradient of the cell (the first three gates) or of the output (the others).
        """
        inputs, weight_ih, weight_hh, mask, gates, cells, tanh_cells, outputs = ctx.saved_tensors
        order: ReadingOrder = ctx.order
        H = weight_hh.shape[1]
        d_gates, d_cells = _gradient_factors(gates, order.previous(cells), tanh_cells)
        d_outputs = grad_outputs[0].clone()  # autograd's own tensor must not be changed, and each step adds to it
        f_after = d_c_after = cells[:0]
        for number in reversed(range(len(order.steps))):
            now = order.steps[number]
            d_gate, d_c, d_h = (x[now] for x in (d_gates, d_cells, d_outputs))
            if mask is not None:
                d_h *= mask[: len(d_h)]
            rows = min(len(d_c), len(d_c_after))
            d_c.mul_(d_h)[:rows].addcmul_(d_c_after[:rows], f_after[:rows])
            by_source = d_gate.unflatten(1, (2, 3, H))  # j, i and f act through the cell; o, t and k on the output
            by_source[:, 0] *= d_c.unsqueeze(1)
            by_source[:, 1] *= d_h.unsqueeze(1)
            if number:
                d_h_before = d_outputs[order.steps[number - 1]]
                rows = min(len(d_gate), len(d_h_before))
                add_product(d_h_before[:rows], d_gate[:rows, : 5 * H], weight_hh)
            f_after, d_c_after = gates[now, 2 * H : 3 * H], d_c
        # Each weight's gradient is a single product over all tokens; autograd would add to it at every step.
        wanted, low_gates, before = ctx.needs_input_grad, d_gates.to(weight_ih.dtype), order.previous(outputs)
        return (
            (low_gates @ weight_ih).to(gates.dtype) if wanted[0] else None,
            (low_gates.t() @ inputs).to(gates.dtype) if wanted[1] else None,
            (low_gates[:, : 5 * H].t() @ before.to(low_gates.dtype)).to(gates.dtype) if wanted[2] else None,
            d_gates.sum(dim=0) if wanted[3] else None,
            None,
            None,
        )


def _gradient_factors(gates: Tensor, c_before: Tensor, tanh_cells: Tensor) -> tuple[Tensor, Tensor]:
    """Return the factors of the gradients of the gates (N, 6H) and of the cells (N, H)."""
    result = torch.empty_like(gates)
    j, i, f, o, t, k = gates.chunk(6, dim=1)
    d_j, d_i, d_f, d_o, d_t, d_k = result.chunk(6, dim=1)
    # c = f * c_before + i * j, by the inputs of j, i and f. The operators multiply their first argument by the
    # activation's derivative, which they compute from its value, and write straight into the block of the gate.
    _aten.tanh_backward(i, j, grad_input=d_j)
    _aten.sigmoid_backward(j, i, grad_input=d_i)
    _aten.sigmoid_backward(c_before, f, grad_input=d_f)
    # h = t * o * tanh(c) + (1 - t) * k, by the inputs of o and t, and by k, which has no activation.
    _aten.sigmoid_backward(t * tanh_cells, o, grad_input=d_o)
    _aten.sigmoid_backward(torch.addcmul(-k, o, tanh_cells), t, grad_input=d_t)
    torch.sub(1, t, out=d_k)
    return result, _aten.tanh_backward(t * o, tanh_cells)


class HighwayLSTMLayer(nn.Module):
    """One layer. Each block of weights starts orthonormal, and biases start at 0, except the forget gate's at 1."""

    def __init__(self, in_dim: int, size: int) -> None:
        super().__init__()
        self.weight_ih = nn.Parameter(torch.empty(6 * size, in_dim))
        self.weight_hh = nn.Parameter(torch.empty(5 * size, size))
        self.bias = nn.Parameter(torch.zeros(6 * size))
        with torch.no_grad():
            # Gate by gate: one orthogonal matrix for all gates together would not make any gate's own block orthogonal.
            for block in (*self.weight_ih.split(size), *self.weight_hh.split(size)):
                nn.init.orthogonal_(block)
            self.bias[2 * size : 3 * size] = 1

    def forward(self, inputs: Tensor, mask: Tensor | None, order: ReadingOrder) -> Tensor:
        """Return packed outputs (N, H) of packed inputs (N, I).

        `mask` (B, H) multiplies them, in the packed order of rows.
        """
        return _HighwayLSTM.apply(inputs, self.weight_ih, self.weight_hh, self.bias, mask, order)  # pyright: ignore


class AlternatingLSTM(nn.Module):
    """A stack of highway LSTMs of `size` hidden units: the first reads forward, the second backward, and so on.

    `dropout` is applied to the outputs of each layer, with the same mask at all steps of a sentence, before the layer
    itself and the next one read them.

    Source: He et al. 2017, sec. 2.2.
    """

    def __init__(self, in_dim: int, size: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        self.width, self.dropout = size, dropout
        self.layers = nn.ModuleList(HighwayLSTMLayer(size if number else in_dim, size) for number in range(num_layers))

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Return the outputs (B, T, H) of the last layer, zeros at padding.

        Args:
            x: The input (B, T, D).
            lengths: The lengths (B,), a tensor on the CPU, at least one of them positive.
        """
        packing = Packing.of(lengths, x.shape[1], x.device)
        # Packed once in forward order for all layers. Backward layers walk through the same tensor from its end.
        orders, packed = ReadingOrder.both(packing.batch_sizes, x.device), packing.pack(x, 0)
        for number, layer in enumerate(self.layers):
            mask = None
            if self.training and self.dropout:
                mask = F.dropout(x.new_ones(len(packing.rows), self.width), self.dropout)
            packed = layer(packed, mask, orders[number % 2])
        return packing.unpack(packed, 0)
