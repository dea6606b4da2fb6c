"""Highway layers (Srivastava et al. 2015), by torch or with native kernels between their products."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elmo._native import training_kernels
from elmo.nn.memory import LayerMemory
from elmo.nn.precision import add_product, as_arrays, product_dtype, uses_native


class Highway(nn.Module):
    """A highway layer: `g * relu(W_t x + b_t) + (1 - g) * x` with `g = sigmoid(W_g x + b_g)`.

    `gate` computes g. Published files call it *carry*, but it lets the transformed part through, not the input.

    Args:
        dim: The width of the input and the output, F.

    Source:
        Srivastava et al. 2015.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.transform = nn.Linear(dim, dim)
        self.gate = nn.Linear(dim, dim)

    def forward(self, x: Tensor, memory: LayerMemory | None = None) -> Tensor:
        """Map `x` (N, F) to (N, F).

        `memory` is where to compute, if the caller keeps memory from one batch to the next.
        """
        transform, gate = self.transform, self.gate
        # An adapter in the place of a map has to be called: its weight may be that of the map alone.
        if uses_native(x, product_dtype(x)) and type(transform) is type(gate) is nn.Linear:
            weights = transform.weight, gate.weight, transform.bias, gate.bias
            return _NativeHighway.apply(x, *weights, memory)  # pyright: ignore[reportReturnType]
        # `lerp(x, y, g)` is x + g * (y - x): one operation. Under autocast both products are bfloat16, `x` is not.
        return torch.lerp(x, F.relu(transform(x).type_as(x)), torch.sigmoid(gate(x).type_as(x)))


class _NativeHighway(torch.autograd.Function):
    """A highway layer with one pass of a native kernel after its products, and one before those of the backward pass.

    torch's single operations make ten passes over matrices that are too large for the caches. For 2,200 types of
    `small` on two cores they take 57 ms, next to 406 ms of products, and the kernels 15.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        transform: Tensor,
        gate: Tensor,
        transform_bias: Tensor,
        gate_bias: Tensor,
        memory: LayerMemory | None,
    ) -> Tensor:
        """Return the output (N, F) of `x` (N, F), with weights (F, F) and biases (F,)."""
        ctx.memory = memory
        memory = memory or LayerMemory()
        (rows, size), dtype, x = x.shape, product_dtype(x), x.contiguous()
        rounded = x.to(dtype)
        products = memory.take("products", (rows, 2 * size), x, dtype)
        for weight, columns in zip((transform, gate), products.split(size, dim=1), strict=True):
            torch.mm(rounded, weight.to(dtype).t(), out=columns)
        bias, out = torch.cat([transform_bias, gate_bias]), memory.take("out", (rows, size), x)
        arrays = as_arrays(products=products, bias=bias, x=x, out=out)
        training_kernels.highway_forward(**arrays, num_threads=torch.get_num_threads())
        ctx.save_for_backward(x, products, transform, gate, bias)
        return out

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride] (the decorator hides the names)
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Return the gradients of all tensor arguments of `forward`."""
        x, products, transform, gate, bias = ctx.saved_tensors
        size, memory, dtype = x.shape[1], ctx.memory or LayerMemory(), products.dtype
        d_products, d_x = memory.take("d_products", products.shape, products), memory.take("d_x", x.shape, x)
        # A row for each thread of the native kernel, so that no two threads add to the same number.
        d_bias = bias.new_zeros(torch.get_num_threads(), len(bias))
        d_out = grad_outputs[0].contiguous()
        arrays = as_arrays(
            products=products, bias=bias, x=x, d_out=d_out, d_products=d_products, d_x=d_x, d_bias=d_bias
        )
        training_kernels.highway_backward(**arrays)
        halves = d_products.split(size, dim=1)
        if ctx.needs_input_grad[0]:
            for weight, columns in zip((transform, gate), halves, strict=True):
                add_product(d_x, columns, weight.to(dtype))
        d_weights: list[Tensor | None] = [None, None]
        for number, columns in enumerate(halves):
            if ctx.needs_input_grad[1 + number]:
                d_weight = memory.take(f"d_weight_{number}", (size, size), x, dtype)
                d_weights[number] = torch.mm(columns.t(), x.to(dtype), out=d_weight).to(x.dtype)
        return d_x, *d_weights, *d_bias.sum(dim=0).split(size), None
