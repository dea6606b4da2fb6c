"""The processes that `torchrun` starts for one run, how they communicate, and how they average their gradients.

Every process holds the whole model and makes the same updates. Of the B rows (streams) of the global batch, process r
of W reads rows r * B / W to (r + 1) * B / W - 1. Only process 0 reads and writes the run folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.errors import ElmoError
from elmo.nn.devices import find_device, use_device

T = TypeVar("T")

_LONGEST_WAIT = timedelta(hours=2)
"""How long processes wait for each other. All others wait while process 0 measures the perplexity of held-out text."""

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Processes:
    """The processes that train together, as this one of them sees them. Without `torchrun`, there is only this one.

    All methods except `rows` must be called by every process, in the same order.

    Attributes:
        rank: The number of this process, from 0 to size - 1.
        size: The number of processes.
        device: The device that this process trains on.
    """

    rank: int
    size: int
    device: torch.device

    @classmethod
    def join(cls, device: str | torch.device) -> Processes:
        """Join the processes that `torchrun` started, if it started this one.

        Args:
            device: The device to train on, as `find_device` takes it. Under `torchrun`, each process on a machine with
                GPUs takes a GPU of its own.

        Raises:
            ElmoError: If the device is not there, if there are fewer GPUs than processes on this machine, or if
                `device` names a single GPU under `torchrun`.
        """
        size = started_together()
        if size == 1:
            return cls(0, 1, use_device(device))
        place = find_device(device)
        if on_cuda := place.type == "cuda":
            if ":" in str(device):
                raise ElmoError(f"`device`: '{device}' is one GPU, but torchrun needs one for each process; pass cuda")
            place = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            if place.index >= (found := torch.cuda.device_count()):
                raise ElmoError(
                    f"this machine has {found} CUDA devices, fewer than processes: start as many processes as devices, "
                    "or use the device cpu"
                )
            torch.cuda.set_device(place)
        if not dist.is_initialized():
            # The functions of this module have the group that exists at its import as a default argument. torch's
            # optimizers import it. If they were the first to do so, the group would outlive `leave`, with threads that
            # can abort a process that has come to its end.
            import_module("torch.distributed.nn.functional")
            # NCCL exchanges what is on GPUs, such as gradients, and gloo what is on the CPU, such as numbers to `sum`.
            dist.init_process_group("cpu:gloo,cuda:nccl" if on_cuda else "gloo", timeout=_LONGEST_WAIT)
        return cls(dist.get_rank(), size, place)

    def leave(self) -> None:
        """Wait until all processes have come to their end, and disconnect from them."""
        if self.size > 1:
            dist.barrier()
            dist.destroy_process_group()

    @property
    def is_first(self) -> bool:
        """Whether this is process 0."""
        return self.rank == 0

    def rows(self, batch_size: int) -> range:
        """Return the rows of a global batch that this process reads.

        Raises:
            ElmoError: If the number of rows is not a multiple of the number of processes.
        """
        if batch_size % self.size:
            raise ElmoError(
                f"training.batch_size: {batch_size} rows cannot be divided evenly among {self.size} processes; it is "
                f"the size of the global batch and must be a multiple of {self.size}"
            )
        each = batch_size // self.size
        return range(self.rank * each, (self.rank + 1) * each)

    def on_first(self, action: Callable[[], T]) -> T:
        """Call `action` in process 0 alone while the others wait.

        Returns:
            Its result, in every process.

        Raises:
            ElmoError, OSError: If `action` raises it; then every process does.
        """
        if self.size == 1:
            return action()
        outcome: list[Any] = [None, None]
        if self.is_first:
            try:
                outcome[0] = action()
            except (ElmoError, OSError) as error:
                outcome[1] = error
        dist.broadcast_object_list(outcome, device=_CPU)
        if outcome[1] is not None:
            raise outcome[1]
        return outcome[0]

    def collect(self, value: T) -> list[T]:
        """Return the values that all processes pass, by rank."""
        values = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(values, value)
        return values

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """Return the sum of each of `numbers` over all processes."""
        total = torch.tensor(numbers, dtype=torch.double)
        if self.size > 1:
            dist.all_reduce(total)
        return total.tolist()

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Set tensors, in place, to the values that they have in process 0."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor.detach(), 0)

    def scatter(self, whole: Mapping[str, Tensor], parts: Mapping[str, Tensor]) -> None:
        """Distribute the rows of process 0's tensors: the inverse of `gather`.

        Args:
            whole: The tensors with the rows of all processes, by name. Only process 0 needs them.
            parts: The tensors of this process's rows, which are filled in place; shapes as in `gather`.
        """
        for name, part in parts.items():
            dim = _row_dimension(part)
            rows = whole[name].to(part.device) if self.is_first else part.new_empty(_whole_shape(part, self.size))
            self.broadcast([rows])
            part.copy_(rows.narrow(dim, self.rank * part.shape[dim], part.shape[dim]))

    def shapes_of(self, parts: Mapping[str, Tensor]) -> dict[str, torch.Size]:
        """Return the shapes that tensors have with the rows of all processes, by name; `parts` as in `gather`."""
        return {name: _whole_shape(part, self.size) for name, part in parts.items()}

    def gather(self, parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return tensors with the rows of all processes.

        Args:
            parts: The tensors of this process's rows, (B / W,) or (L, B / W, D), by name.

        Returns:
            The tensors (B,) or (L, B, D) of all rows, by name.
        """
        whole = dict(parts)
        if self.size > 1:
            for name, part in parts.items():
                pieces = [torch.empty_like(part) for _ in range(self.size)]
                dist.all_gather(pieces, part.contiguous())
                whole[name] = torch.cat(pieces, dim=_row_dimension(part))
        return whole


def started_together() -> int:
    """Return the number of processes that `torchrun` started, which is 1 without it."""
    return int(os.environ.get("WORLD_SIZE", 1)) if "LOCAL_RANK" in os.environ else 1


def _row_dimension(tensor: Tensor) -> int:
    return 1 if tensor.dim() == 3 else 0


def _whole_shape(part: Tensor, size: int) -> torch.Size:
    """Return the shape that a tensor has with the rows of all `size` processes, of which each has one such part."""
    shape = list(part.shape)
    shape[_row_dimension(part)] *= size
    return torch.Size(shape)


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
    # One exchange for all of them, because each costs a round trip.
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
    """Average a row-sparse gradient over its rows in any process, and return the bytes sent."""
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


def _all_gather(output: Tensor, part: Tensor) -> None:
    """Put the parts of all processes into `output`, one after the other."""
    # The second name is that of torch before 2.13.
    name = "all_gather_single" if hasattr(dist, "all_gather_single") else "all_gather_into_tensor"
    getattr(dist, name)(output, part)


def _union(ids: Tensor, size: int) -> tuple[Tensor, int]:
    """Return the sorted union of all processes' ids, and the bytes sent for it. The length of `ids` (n,) may differ."""
    number = ids.new_tensor([len(ids)])
    numbers = ids.new_empty(size)
    _all_gather(numbers, number)
    # All processes must send the same number of ids: -1, which is no id, fills up the shorter lists.
    padded = F.pad(ids, (0, int(numbers.max()) - len(ids)), value=-1)
    everyone = padded.new_empty(size * len(padded))
    _all_gather(everyone, padded)
    union = everyone.unique()
    return union[union >= 0], number.nbytes + padded.nbytes
