"""Products of matrices in the precision that `torch.autocast` asks for.

Under autocast to bfloat16 the operands of every product are rounded to it, and so is its result; weights, states,
activations, sums and losses stay float32. Autograd functions with a backward pass of their own don't take part in
autocast by themselves: those of this package ask here.
"""

import torch
from torch import Tensor


def product_dtype(like: Tensor) -> torch.dtype:
    """The type of the operands of products: autocast's where it is on for the device of `like`, else its own."""
    device = like.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else like.dtype


def multiply(a: Tensor, b: Tensor, *, onto: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """`a @ b` of (M, K) and (K, N) with operands in the type of `b`, in the type of `a`.

    `onto` (M, N) or (N,) is added to it; `out` (M, N) receives it, and may be `onto`.
    """
    if a.dtype == b.dtype:
        if onto is None:
            return torch.mm(a, b, out=out)
        return torch.addmm(onto, a, b, out=out)
    product = a.to(b.dtype) @ b
    if out is None:
        return product.to(a.dtype) if onto is None else onto + product
    return out.copy_(product) if onto is None else torch.add(onto, product, out=out)
