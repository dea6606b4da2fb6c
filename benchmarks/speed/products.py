"""Record the matrix products of a computation, and measure how long they take alone: the least time it can take."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_PRODUCTS = ("aten::mm", "aten::addmm", "aten::addmm_", "aten::bmm", "aten::baddbmm")

Layout = tuple[tuple[int, ...], tuple[int, ...], torch.dtype, torch.device]
"""Shape, strides, type and device of a tensor."""


class Products(TorchDispatchMode):
    """Records every matrix product within its context, by the layouts of its operands."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[tuple[Layout, ...]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.name in _PRODUCTS:
            self.calls[tuple(_layout(operand) for operand in args[-2:])] += 1
        return func(*args, **(kwargs or {}))

    @property
    def num_operations(self) -> int:
        """The number of multiplications and additions."""
        return sum(
            2 * count * torch.Size(a[0]).numel() * b[0][-1]  # (…, M, K) by (…, K, N)
            for (a, b), count in self.calls.items()
        )

    def seconds(self, repeats: int = 5) -> float:
        """Return the median time of all products alone, with operands and results that are allocated beforehand."""
        return sum(count * _time(a, b, repeats) for (a, b), count in self.calls.items())


def _layout(x: Tensor) -> Layout:
    return tuple(x.shape), x.stride(), x.dtype, x.device


def _time(a: Layout, b: Layout, repeats: int) -> float:
    x, y = _tensor(a), _tensor(b)
    out = x @ y
    seconds: list[float] = []
    for _ in range(repeats + 1):  # the first one warms up
        start = time.perf_counter()
        torch.matmul(x, y, out=out)
        if out.is_cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


def _tensor(layout: Layout) -> Tensor:
    shape, stride, dtype, device = layout
    size = 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
    return torch.randn(size, device=device).to(dtype).as_strided(shape, stride)
