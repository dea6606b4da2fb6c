"""The processes that train one run together, as `torchrun` starts them, and what they say to each other.

Every process holds the whole model and makes the same updates; of the global batch of B rows (streams), process r of
W reads rows r * B / W to (r + 1) * B / W - 1. Process 0 alone reads and writes the run folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from elmo.errors import ElmoError
from elmo.nn.devices import find_device, use_device

T = TypeVar("T")

_PATIENCE = timedelta(hours=2)
"""How long processes wait for one another: while process 0 measures held-out text, for as long as that takes."""

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Processes:
    """This process, number `rank` of `size`, and the `device` it trains on. One alone has nobody to talk to.

    All but `rows` must be called by every process, in the same order.
    """

    rank: int
    size: int
    device: torch.device

    @classmethod
    def join(cls, device: str) -> Processes:
        """Meet the others that `torchrun` started, if it did. `device` is as in `find_device`.

        With GPUs each process takes the one of its number on its machine.
        """
        size = started_together()
        if size == 1:
            return cls(0, 1, use_device(device))
        place = find_device(device)
        if on_cuda := place.type == "cuda":
            if ":" in device:
                raise ElmoError(f"device: {device!r} is one GPU, but torchrun starts a process for each; pass cuda")
            place = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            if place.index >= (found := torch.cuda.device_count()):
                raise ElmoError(f"this machine has {found} CUDA devices: start as many processes, or pass --device cpu")
            torch.cuda.set_device(place)
        if not dist.is_initialized():
            dist.init_process_group("cpu:gloo,cuda:nccl" if on_cuda else "gloo", timeout=_PATIENCE)
        return cls(dist.get_rank(), size, place)

    def leave(self) -> None:
        """Part from the others, at the end, when all have come to it."""
        if self.size > 1:
            dist.barrier()
            dist.destroy_process_group()

    @property
    def is_first(self) -> bool:
        """Whether this is process 0."""
        return self.rank == 0

    def rows(self, batch_size: int) -> range:
        """The rows of a global batch that this process reads; an `ElmoError` where they don't come out even."""
        if batch_size % self.size:
            raise ElmoError(
                f"training.batch_size: {batch_size} rows can't be shared out evenly to {self.size} processes; "
                f"it is the global batch and must be a multiple of {self.size}"
            )
        each = batch_size // self.size
        return range(self.rank * each, (self.rank + 1) * each)

    def on_first(self, action: Callable[[], T]) -> T:
        """Let process 0 alone do something while the others wait; all get its result, or raise its error."""
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
        """The value that each process gives, by rank."""
        values = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(values, value)
        return values

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """The sum of each of `numbers` over all processes."""
        total = torch.tensor(numbers, dtype=torch.double)
        if self.size > 1:
            dist.all_reduce(total)
        return total.tolist()

    def share(self, tensors: Iterable[Tensor]) -> None:
        """Give these tensors the values that they have on process 0."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor.detach(), 0)

    def share_out(self, whole: Mapping[str, Tensor], parts: Mapping[str, Tensor]) -> None:
        """Fill each process's rows, `parts`, from all rows, `whole`, of process 0 (shapes: see `gather`)."""
        for name, part in parts.items():
            dim = _row_dimension(part)
            rows = whole[name].to(part.device) if self.is_first else _empty(part, self.size)
            self.share([rows])
            part.copy_(rows.narrow(dim, self.rank * part.shape[dim], part.shape[dim]))

    def gather(self, parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """All rows of tensors of which each process has its rows, (B / W,) or (L, B / W, D): (B,) or (L, B, D)."""
        whole = dict(parts)
        if self.size > 1:
            for name, part in parts.items():
                pieces = [torch.empty_like(part) for _ in range(self.size)]
                dist.all_gather(pieces, part.contiguous())
                whole[name] = torch.cat(pieces, dim=_row_dimension(part))
        return whole


def started_together() -> int:
    """How many processes `torchrun` started, 1 without it."""
    return int(os.environ["WORLD_SIZE"]) if "LOCAL_RANK" in os.environ else 1


def _row_dimension(tensor: Tensor) -> int:
    return 1 if tensor.dim() == 3 else 0


def _empty(part: Tensor, size: int) -> Tensor:
    shape = list(part.shape)
    shape[_row_dimension(part)] *= size
    return part.new_empty(shape)
