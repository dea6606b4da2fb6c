"""The extension module behind `elmo._native`, which checks what these functions are given."""

from typing import NewType

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Handle = NewType("Handle", object)

def levels() -> list[str]: ...
def pack_linear(
    weight: Array, bias: Array | None, columns: int, depth: int, precision: int, level: str, /
) -> Handle: ...
def pack_recurrence(
    weight_hh: Array,
    weight_hr: Array | None,
    size: int,
    out_size: int,
    cell_clip: float,
    proj_clip: float,
    precision: int,
    level: str,
    /,
) -> Handle: ...
def run_linear(handle: Handle, x: Array, out: Array, rows: int, num_threads: int, /) -> None: ...
def run_recurrence(
    handle: Handle,
    gates: Array,
    batch_sizes: NDArray[np.int64],
    hidden: Array,
    cell: Array,
    outputs: Array,
    steps: int,
    num_threads: int,
    /,
) -> None: ...
