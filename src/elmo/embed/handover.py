"""Arrays from one process to another, through memory that both see where the system has that (Linux)."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

KEPT = 256
"""Memory files that a process keeps open: more than any other process has yet to read from."""

_open_files: deque[int] = deque()


@dataclass(frozen=True)
class Parcel:
    """Arrays, or where they are: file `number` of process `pid`. A pipe would carry a third of a gigabyte a second."""

    arrays: list[Array] | None
    pid: int = 0
    number: int = 0
    shapes: Sequence[tuple[int, ...]] = ()


def pack(arrays: list[Array]) -> Parcel:
    """Have arrays ready for another process, which must `unpack` them while this one lives."""
    if not hasattr(os, "memfd_create"):
        return Parcel(arrays)
    # No name in the file system: whatever is killed, nothing is left behind.
    number = os.memfd_create("elmo")
    _open_files.append(number)
    if len(_open_files) > KEPT:
        os.close(_open_files.popleft())
    for array in arrays:
        _write(number, array)
    return Parcel(None, os.getpid(), number, [array.shape for array in arrays])


def unpack(parcel: Parcel) -> list[Array]:
    """The arrays, whose memory at the sender is freed; they are parts of one array. OSError if the sender is gone."""
    if parcel.arrays is not None:
        return parcel.arrays
    with open(f"/proc/{parcel.pid}/fd/{parcel.number}", "r+b", buffering=0) as file:  # noqa: PTH123 - no path
        whole: Array = np.fromfile(file, np.float32)
        file.truncate(0)
    ends = list(accumulate(map(math.prod, parcel.shapes)))
    return [part.reshape(shape) for part, shape in zip(np.split(whole, ends[:-1]), parcel.shapes, strict=True)]


def _write(number: int, array: Array) -> None:
    """Write an array to an open file, also one that takes more than one call (2 GB)."""
    data: memoryview = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    while data:
        data = data[os.write(number, data) :]
