"""The extension module behind `elmo._native`. It does not check its arguments: `elmo._native` does that."""

from typing import NewType

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Products = NDArray[np.float32] | NDArray[np.uint16]
Handle = NewType("Handle", object)

def end() -> None: ...
def levels() -> list[str]: ...
def is_intel() -> bool: ...
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
def run_lstm_forward(
    weight: Array,
    weight_hr: Array | None,
    bias: Array,
    batch_sizes: NDArray[np.int64],
    cell_before: Array,
    joined: Products,
    gates: Array,
    cell: Array,
    mixed: Products | None,
    outputs: Array,
    size: int,
    width: int,
    out_size: int,
    steps: int,
    cell_clip: float,
    proj_clip: float,
    precision: int,
    num_threads: int,
    level: str,
    /,
) -> None: ...
def run_lstm_backward(
    weight: Array,
    weight_hr: Array | None,
    batch_sizes: NDArray[np.int64],
    cell_before: Array,
    gates: Array,
    cell: Array,
    outputs: Array,
    d_outputs: Array,
    d_cells: Array | None,
    d_cell: Array,
    d_gates: Products,
    d_out: Products | None,
    d_joined: Array,
    size: int,
    width: int,
    out_size: int,
    steps: int,
    cell_clip: float,
    proj_clip: float,
    precision: int,
    num_threads: int,
    level: str,
    /,
) -> None: ...
def run_softmax(
    products: Products,
    bias: Array,
    target_scores: Array,
    own: NDArray[np.int64],
    losses: Array,
    target_probs: Array,
    d_bias: Array,
    rows: int,
    columns: int,
    bf16: bool,
    num_threads: int,
    level: str,
    /,
) -> None: ...
def run_windows(
    table: Array,
    bias: Array,
    ids: NDArray[np.int32],
    lengths: NDArray[np.int32],
    out: Array,
    places: NDArray[np.uint8] | None,
    rows: int,
    columns: int,
    width: int,
    alphabet: int,
    filters: int,
    stride: int,
    offset: int,
    tanh: bool,
    num_threads: int,
    level: str,
    /,
) -> None: ...
def run_windows_backward(
    out: Array,
    d_out: Array,
    ids: NDArray[np.int32],
    places: NDArray[np.uint8],
    d_table: Array,
    d_bias: Array,
    rows: int,
    columns: int,
    width: int,
    alphabet: int,
    filters: int,
    stride: int,
    offset: int,
    tanh: bool,
    num_threads: int,
    level: str,
    /,
) -> None: ...
def run_highway(
    products: Products,
    bias: Array | None,
    x: Array,
    out: Array,
    rows: int,
    size: int,
    bf16: bool,
    num_threads: int,
    level: str,
    /,
) -> None: ...
def run_highway_backward(
    products: Products,
    bias: Array,
    x: Array,
    d_out: Array,
    d_products: Products,
    d_x: Array,
    d_bias: Array,
    rows: int,
    size: int,
    bf16: bool,
    num_threads: int,
    level: str,
    /,
) -> None: ...
def run_adam_rows(
    weight: Array,
    average: Array,
    average_square: Array,
    rows: NDArray[np.int64],
    gradient: Array,
    count: int,
    width: int,
    share: float,
    share_of_square: float,
    step_size: float,
    epsilon: float,
    num_threads: int,
    level: str,
    /,
) -> None: ...
