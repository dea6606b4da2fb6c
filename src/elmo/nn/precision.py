"""Products of matrices in the precision that `torch.autocast` asks for, and what computes between them.

Under autocast to bfloat16 the operands of every product are rounded to it, and so is its result; weights, states,
activations, sums and losses stay float32. Autograd functions with a backward pass of their own don't take part in
autocast by themselves: those of this package ask here. `own_products` speaks to them alone.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from elmo import _native

PRODUCTS = {"float32": torch.float32, "bf16": torch.bfloat16}
"""What a recipe's `training.precision` has operands of products rounded to."""

_OWN: ContextVar[torch.dtype | None] = ContextVar("own", default=None)


@contextmanager
def own_products(dtype: torch.dtype | None) -> Generator[None]:
    """Has the package's own autograd functions, in task models their recurrent layers, round what they multiply to
    `dtype`; with None they compute as outside of all such blocks. Torch's own products stay as they are.
    """
    before = _OWN.set(dtype)
    try:
        yield
    finally:
        _OWN.reset(before)


def product_dtype(like: Tensor) -> torch.dtype:
    """The type of the operands of products: that of `own_products`; or autocast's, where it is on for the device of
    `like`; or its own."""
    device = like.device.type
    by_autocast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else like.dtype
    return _OWN.get() or by_autocast


def add_product(total: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Add `x @ y` to `total`, in place: a product in the type of `y`, a sum in that of `total`."""
    return total.addmm_(x, y) if y.dtype == total.dtype else total.add_(x.to(y.dtype) @ y)


def device_multiplies_bf16(device: torch.device) -> bool:
    """Whether `device` has instructions for products of bfloat16: GPUs have from compute capability 8.0 on."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    return device.type == "cpu" and _native.multiplies_bf16()


def fast_dtype(device: torch.device) -> torch.dtype:
    """The type that `device` multiplies fastest: bfloat16, where it has instructions for it."""
    return torch.bfloat16 if device_multiplies_bf16(device) else torch.float32


def uses_native(like: Tensor, product: torch.dtype) -> bool:
    """Whether the native kernels compute on tensors as `like`: float32, on a CPU, beside products of this type."""
    is_known = like.dtype == torch.float32 and product in (torch.float32, torch.bfloat16)
    return like.is_cpu and is_known and bool(_native.available())


def as_array(tensor: Tensor) -> NDArray[Any]:
    """The tensor's memory as NumPy's; bfloat16, which it doesn't know, as whole numbers of 16 bits."""
    return (tensor.detach().view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor.detach()).numpy()
