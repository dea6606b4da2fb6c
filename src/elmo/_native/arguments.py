"""Checks of the arguments of kernels, in Python, where an error message is a line.

The extension trusts its arguments, and would read or write beyond the end of an array. All functions raise a
`ValueError` that says which argument is wrong and how.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


def packed_sizes(batch_sizes: Sequence[int]) -> tuple[NDArray[np.int64], int, int]:
    """Return the batch sizes as the extension takes them, and the numbers of tokens N and of rows B."""
    given = np.asarray(batch_sizes)
    if given.size and given.dtype.kind not in "iu":
        raise ValueError(f"batch_sizes must be whole numbers, but are {list(batch_sizes)}")
    sizes = given.astype(np.int64)
    if sizes.ndim != 1 or (sizes < 1).any() or (sizes[1:] > sizes[:-1]).any():
        raise ValueError(f"batch_sizes must be positive and must not increase, but are {list(batch_sizes)}")
    return sizes, int(sizes.sum()), int(sizes[0]) if len(sizes) else 0


def check_ids(ids: NDArray[np.int32], alphabet: int, width: int) -> None:
    """Refuse characters or windows that would be read from other memory."""
    check_array("ids", ids, ids.shape, dtype=np.int32)
    if not width <= ids.shape[1] <= 255:
        raise ValueError(f"ids has {ids.shape[1]} columns, but must have {width}, the width of the filters, to 255")
    if len(ids) and not 0 <= ids.min() <= ids.max() < alphabet:
        raise ValueError(f"ids holds {ids.min()} to {ids.max()}, but there are {alphabet} characters")


def check_lengths(lengths: NDArray[np.int32], ids: NDArray[np.int32]) -> None:
    """Refuse lengths of words (N,) that are not within the columns of their characters (N, C)."""
    rows, columns = ids.shape
    check_array("lengths", lengths, (rows,), dtype=np.int32)
    if rows and not 0 <= lengths.min() <= lengths.max() <= columns:
        raise ValueError(f"lengths holds {lengths.min()} to {lengths.max()}, but there are {columns} columns")


def is_tanh(activation: str) -> bool:
    """Return whether an activation is "tanh", and refuse one that is neither that nor "relu"."""
    if activation not in ("relu", "tanh"):
        raise ValueError(f"activation is {activation!r}, but must be 'relu' or 'tanh'")
    return activation == "tanh"


def is_bf16(products: NDArray[Any]) -> bool:
    """Return whether products are bf16, and refuse types that there are no kernels for."""
    if products.dtype.name not in ("float32", "uint16"):
        raise ValueError(f"products of {products.dtype}: there are kernels for float32 and for bf16 in uint16")
    return products.dtype == np.uint16


def matrix_shape(name: str, matrix: NDArray[Any]) -> tuple[int, int]:
    """Return the shape of an array that must have two dimensions, and may be empty."""
    if matrix.ndim != 2:
        raise ValueError(f"{name} is {matrix.shape}, but must have two dimensions")
    return matrix.shape[0], matrix.shape[1]


def weight_shape(name: str, weight: Array) -> tuple[int, int]:
    """Return the shape of a weight, which must have two dimensions."""
    if weight.ndim != 2 or 0 in weight.shape:
        raise ValueError(f"{name} is {weight.shape}, but must have two dimensions, none of them empty")
    check_array(name, weight, weight.shape)
    return weight.shape[0], weight.shape[1]


def table_shape(name: str, table: Array) -> tuple[int, int, int]:
    """Return the shape of a table of products, which must have three dimensions."""
    if table.ndim != 3 or 0 in table.shape:
        raise ValueError(f"{name} is {table.shape}, but must have three dimensions, none of them empty")
    return table.shape[0], table.shape[1], table.shape[2]


def threads_of(d_bias: Array) -> int:
    """Return the number of threads that add to an array with a row for each, which must not be empty."""
    if not len(d_bias):
        raise ValueError("d_bias has no rows, but must have one for each thread")
    return len(d_bias)


def check_depth(name: str, depth: int, precision: str) -> None:
    """Refuse int8 products that a sum of 32 bits can't hold."""
    most = 2**31 // 127**2
    if precision == "int8" and depth > most:
        raise ValueError(f"{name} has a depth of {depth}, but int8 sums up to {most} products")


def check_array(
    name: str, array: NDArray[Any], shape: tuple[int, ...], written: bool = False, dtype: Any = np.float32
) -> None:
    """Refuse an array of another shape or type, with gaps, not aligned, or read-only although it is to be written."""
    if array.dtype != dtype:
        raise ValueError(f"{name} is {array.dtype}, but must be {np.dtype(dtype)}")
    if array.shape != shape:
        raise ValueError(f"{name} is {array.shape}, but must be {shape}")
    if not array.flags.c_contiguous:
        raise ValueError(f"{name} must be contiguous in C order")
    if not array.flags.aligned:
        raise ValueError(f"{name} must be aligned to its numbers")
    if written and not array.flags.writeable:
        raise ValueError(f"{name} is read-only, but must be writable")


def check_apart(name: str, array: NDArray[Any], **others: NDArray[Any]) -> None:
    """Refuse an array to be written that shares memory with one that is still read."""
    for other, read in others.items():
        if np.may_share_memory(array, read):
            raise ValueError(f"{name} and {other} must not overlap")


def clip_limits(cell_clip: float | None, proj_clip: float | None, *, has_projection: bool) -> tuple[float, float]:
    """Return the limits of both clips as the extension takes them: infinite for none."""
    if proj_clip is not None and not has_projection:
        raise ValueError(f"proj_clip is {proj_clip}, but there is no projection: pass None")
    for name, value in (("cell_clip", cell_clip), ("proj_clip", proj_clip)):
        if value is not None and not value > 0:
            raise ValueError(f"{name} is {value}, but must be positive, or None for no clip")
    return inf if cell_clip is None else cell_clip, inf if proj_clip is None else proj_clip


def thread_count(number: int) -> int:
    """Return a number of threads that is at least 1."""
    if number < 1:
        raise ValueError(f"num_threads is {number}, but must be at least 1")
    return number
