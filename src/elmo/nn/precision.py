"""The names of number types, the precision of matrix products, and whether native kernels compute between them.

Under `torch.autocast` to bfloat16, the operands and the result of every product are rounded to bfloat16, while
weights, states, activations, sums and losses stay float32. Autograd functions that have their own backward pass take
no part in autocast by themselves. Those of this package call `product_dtype` to find out the type. `own_products`
sets it for them alone, without affecting torch's own operations.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from elmo import _native

TORCH_TYPES = {"float32": torch.float32, "float16": torch.float16, "bf16": torch.bfloat16}
"""The types by the names that options, recipes and commands have for them. (`"int8"` is a precision of the native
kernels alone: it is a way to compute, not a type of tensors.)"""

PRODUCTS = {name: TORCH_TYPES[name] for name in ("float32", "bf16")}
"""The type that the operands of products are rounded to, for each value of a recipe's `training.precision`. float16 is
not among them: its range is so small that gradients would need a scaled loss, which bfloat16 does not."""

# A context variable, so that a setting holds for the thread that made it, and not for others that compute meanwhile.
_OWN: ContextVar[torch.dtype | None] = ContextVar("own", default=None)


@contextmanager
def own_products(dtype: torch.dtype | None) -> Generator[None]:
    """Set the type of products in this package's own autograd functions.

    In task models, these are the recurrent layers, except those that torch runs (the GRUs of question answering and, on
    a GPU, the biLSTMs), and the scorer of antecedents in coreference. torch's own products are not affected.

    Args:
        dtype: The type that operands are rounded to; None for the same as outside of all such blocks.
    """
    before = _OWN.set(dtype)
    try:
        yield
    finally:
        _OWN.reset(before)


def product_dtype(like: Tensor) -> torch.dtype:
    """Return the type that the operands of products are rounded to.

    It is the type set by `own_products`, otherwise that of autocast if it is enabled for the device of `like`,
    otherwise the type of `like`.
    """
    device = like.device.type
    by_autocast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else like.dtype
    return _OWN.get() or by_autocast


def add_product(total: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Add `x @ y` to `total` in place, multiplying in the type of `y` and adding in the type of `total`."""
    return total.addmm_(x, y) if y.dtype == total.dtype else total.add_(x.to(y.dtype) @ y)


def device_multiplies_bf16(device: torch.device) -> bool:
    """Return whether `device` has instructions for bfloat16 products (GPUs do from compute capability 8.0 on)."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    return device.type == "cpu" and _native.multiplies_bf16()


def device_gains_by_bf16(device: torch.device) -> bool:
    """Return whether training on `device` is faster in bf16 than in float32.

    It is on GPUs with such instructions and on most processors with them. On a processor without them it took ten times
    as long (docs/lab-notes.md).
    """
    return _native.gains_by_bf16() if device.type == "cpu" else device_multiplies_bf16(device)


def fast_dtype(device: torch.device) -> torch.dtype:
    """Return the type that `device` multiplies fastest: bfloat16 if it has instructions for it, otherwise float32."""
    return torch.bfloat16 if device_multiplies_bf16(device) else torch.float32


def uses_native(like: Tensor, product: torch.dtype) -> bool:
    """Return whether the native kernels can compute on float32 CPU tensors such as `like`.

    Args:
        like: A tensor of the computation.
        product: The type of the matrix products that the kernels read and write.
    """
    # float16 (which autocast can also choose) and float64 (in tests of gradients) are left to torch.
    is_known = like.dtype == torch.float32 and product in (torch.float32, torch.bfloat16)
    return like.is_cpu and is_known and bool(_native.available())


def as_arrays(**tensors: Tensor | None) -> dict[str, Any]:
    """Return the memory of CPU tensors as NumPy arrays, by the same names. None stays None.

    NumPy has no bfloat16, so that becomes uint16.
    """
    return {name: None if tensor is None else _as_array(tensor) for name, tensor in tensors.items()}


def _as_array(tensor: Tensor) -> NDArray[Any]:
    return (tensor.detach().view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor.detach()).numpy()
