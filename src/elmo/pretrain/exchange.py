"""Averages gradients over processes; of the softmax's gradient, only the rows that are not zero are exchanged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn


class Volume(NamedTuple):
    """The number of bytes that a process gave to collective operations.

    Attributes:
        dense: For dense gradients.
        rows: For row-sparse gradients: their rows and the ids of the rows.
    """

    dense: int = 0
    rows: int = 0


def average_gradients(parameters: Iterable[nn.Parameter], size: int) -> Volume:
    """Replace each gradient by its mean over all processes, which is bit for bit the same in each of them.

    All dense gradients are sent in one buffer; a gradient that only some processes have counts as zero in the others.
    Of a row-sparse gradient (V, P), only the rows that any process has are sent, and the result is coalesced.

    Args:
        parameters: The parameters, in the same order in every process.
        size: The number of processes, all of which must call this.

    Returns:
        The bytes that this process sent.
    """
    if size == 1:
        return Volume()
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    sparse = [p for p in trained if p.grad is not None and p.grad.is_sparse]
    dense = [p for p in trained if p.grad is None or not p.grad.is_sparse]
    num_bytes = _average_dense(dense, size) if dense else 0
    return Volume(num_bytes, sum(_average_rows(parameter, size) for parameter in sparse))


def _average_dense(parameters: list[nn.Parameter], size: int) -> int:
    """Average the gradients, which become views of one buffer.

    The end of the buffer holds a number for each parameter, from which every process learns whether any of them has a
    gradient. Where none has, the gradient stays None.
    """
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    present = gradients[0].new_tensor([p.grad is not None for p in parameters])
    buffer = torch.cat([*(gradient.flatten() for gradient in gradients), present])
    dist.all_reduce(buffer)
    buffer.div_(size)
    *means, present = buffer.split([p.numel() for p in parameters] + [len(parameters)])
    for parameter, mean, share in zip(parameters, means, present.tolist(), strict=True):
        parameter.grad = mean.view_as(parameter) if share else None
    return buffer.nbytes


def _average_rows(parameter: nn.Parameter, size: int) -> int:
    assert parameter.grad is not None
    gradient = parameter.grad.coalesce()
    ids = gradient.indices()[0]
    union, num_bytes = _union(ids, size)
    rows = gradient.values().new_zeros(len(union), *gradient.shape[1:])
    rows[torch.searchsorted(union, ids)] = gradient.values()
    dist.all_reduce(rows)
    parameter.grad = torch.sparse_coo_tensor(
        union.unsqueeze(0), rows.div_(size), gradient.shape, is_coalesced=True, check_invariants=False
    )
    return num_bytes + rows.nbytes


def _union(ids: Tensor, size: int) -> tuple[Tensor, int]:
    """Return the sorted union of all processes' ids, and the bytes sent for it. The length of `ids` (n,) may differ."""
    number = ids.new_tensor([len(ids)])
    numbers = ids.new_empty(size)
    dist.all_gather_single(numbers, number)
    padded = F.pad(ids, (0, int(numbers.max()) - len(ids)), value=-1)
    everyone = padded.new_empty(size * len(padded))
    dist.all_gather_single(everyone, padded)
    union = everyone.unique()
    return union[union >= 0], number.nbytes + padded.nbytes
