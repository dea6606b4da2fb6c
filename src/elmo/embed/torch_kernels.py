"""The kernels of `elmo.embed.kernels` made of torch's operations, for processors without native ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from elmo.embed.kernels import Array, Kernels
from elmo.nn.char_encoder import Filters
from elmo.nn.devices import find_device, run_together

T = TypeVar("T")

_onednn: Any = torch.ops.mkldnn
"""oneDNN's product with a weight that was packed in advance. Not every build of torch has it."""


def make_torch_kernels() -> Kernels:
    """Return the functions of this module. They use as many threads as torch has."""
    return Kernels(TorchLinear, TorchRecurrence, TorchConvolution, _highway, _run_in_threads)


def _run_in_threads(work: Callable[[int, int], T], num: int) -> list[T]:
    return run_together(lambda number: work(number, torch.get_num_threads()), num, find_device("cpu"))


class TorchLinear:
    """Torch's version of `elmo._native.Linear`, with torch's number of threads. In bf16 it also rounds the products."""

    def __init__(self, weight: Array, bias: Array | None, precision: str) -> None:
        self._weight = _PackedWeight(weight, precision)
        self._bias = None if bias is None else torch.from_numpy(bias).clone()

    def run(self, x: Array, out: Array, num_threads: int = 1) -> None:
        """Do as `elmo._native.Linear.run` does, but ignore `num_threads` and use torch's number."""
        result, product = torch.from_numpy(out), self._weight.multiply(torch.from_numpy(x))
        if self._bias is None:
            result.copy_(product)
        else:
            torch.add(product, self._bias, out=result)


class TorchRecurrence:
    """Torch's version of `elmo._native.Recurrence`, with torch's number of threads. In bf16 it also rounds products."""

    def __init__(
        self,
        weight_hh: Array,
        weight_hr: Array | None,
        cell_clip: float | None,
        proj_clip: float | None,
        precision: str,
    ) -> None:
        self._weight_hh = _PackedWeight(weight_hh, precision)
        self._weight_hr = None if weight_hr is None else _PackedWeight(weight_hr, precision)
        self._cell_clip, self._proj_clip = cell_clip, proj_clip

    @torch.inference_mode()
    def run(
        self,
        gates: Array,
        batch_sizes: Sequence[int],
        hidden: Array,
        cell: Array,
        outputs: Array,
        num_threads: int = 1,
    ) -> None:
        """Do as `elmo._native.Recurrence.run` does, but ignore `num_threads` and use torch's number."""
        h, c, out = (torch.from_numpy(array) for array in (hidden, cell, outputs))
        steps = torch.from_numpy(gates).split(list(batch_sizes))
        for gate, step_out in zip(steps, out.split(list(batch_sizes)), strict=True):
            rows = len(gate)
            step_out.copy_(self._step(gate, h[:rows], c[:rows]))
            h[:rows] = step_out

    def _step(self, gate: Tensor, h: Tensor, c: Tensor) -> Tensor:
        """Compute the output of one step (rows, P), and replace `c` by the new cell. The gates' order is i, j, f, o."""
        gate += self._weight_hh.multiply(h)
        i, j, f, o = gate.chunk(4, dim=1)
        gate[:, 2 * c.shape[1] :].sigmoid_()
        c.mul_(f).addcmul_(i.sigmoid_(), j.tanh_())
        if self._cell_clip is not None:
            c.clamp_(-self._cell_clip, self._cell_clip)
        m = c.tanh().mul_(o)
        if self._weight_hr is None:
            return m
        out = self._weight_hr.multiply(m)
        return out if self._proj_clip is None else out.clamp_(-self._proj_clip, self._proj_clip)


class TorchConvolution:
    """Torch's version of `elmo._native.Convolution`, with torch's number of threads."""

    def __init__(self, tables: Sequence[Array], biases: Sequence[Array], activation: str) -> None:
        as_tensors = [[torch.from_numpy(array) for array in arrays] for arrays in (tables, biases)]
        self._filters = Filters(as_tensors[0], as_tensors[1], activation)

    @torch.inference_mode()
    def run(self, ids: NDArray[np.int32], lengths: NDArray[np.int32], out: Array, num_threads: int = 1) -> None:
        """Do as `elmo._native.Convolution.run` does, but ignore `num_threads` and use torch's number."""
        order = np.argsort(lengths, kind="stable")
        characters, sorted_lengths = torch.from_numpy(ids[order]).long(), torch.from_numpy(lengths[order])
        out[order] = self._filters.convolve(characters, sorted_lengths).numpy()


def _highway(products: Array, x: Array, num_threads: int) -> None:
    transformed, gate = torch.from_numpy(products).chunk(2, dim=1)
    torch.from_numpy(x).lerp_(transformed.relu(), gate.sigmoid())


class _PackedWeight:
    """A weight (M, K), in the layout in which oneDNN multiplies it if oneDNN is available."""

    def __init__(self, weight: Array, precision: str) -> None:
        self._dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self._packed = packs_weights(self._dtype)
        # Without a copy the weight would share memory with the model, and change when the model is trained further.
        self._weight = torch.from_numpy(weight).to(self._dtype, copy=not self._packed)
        if self._packed:
            self._weight = _onednn._reorder_linear_weight(self._weight)

    @torch.inference_mode()
    def multiply(self, x: Tensor) -> Tensor:
        """Compute `x W^T` of `x` (N, K) as a new float32 tensor (N, M)."""
        x = x.to(self._dtype)
        if self._packed:
            product: Tensor = _onednn._linear_pointwise(x, self._weight, None, "none", [], "")
        else:
            product = F.linear(x, self._weight)
        return product.float()


def packs_weights(dtype: torch.dtype) -> bool:
    """Tell whether oneDNN is available, and multiplies numbers of this type on this processor."""
    if not torch.backends.mkldnn.is_available() or not hasattr(_onednn, "_linear_pointwise"):
        return False
    return dtype == torch.float32 or bool(_onednn._is_mkldnn_bf16_supported())
