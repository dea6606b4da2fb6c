"""Native kernels in C++ for x86-64 and 64-bit Arm CPUs: those of inference, and which ones this machine has.

`Linear` and `Recurrence` compute products and LSTM recurrences with weights that are packed once; `Convolution` and
`highway` do what else a char encoder does. The kernels of training are in `elmo._native.training_kernels`.

The extension module exists if the package was built with a compiler (see setup.py). At run time it uses the kernels
for the best instruction set of the CPU. `available()` tells what this machine can use, and is what callers have to ask
first: with the environment variable `ELMO_NATIVE=0` it is empty, so that torch computes. All arrays are NumPy arrays,
contiguous in C order. The arrays of `Linear` and `Recurrence` are float32, and these classes compute in one of three
precisions:

- "float32": results differ from other float32 code by rounding only.
- "bf16": the operands of products are rounded to bfloat16; all else is float32.
- "int8": weights are rounded to 8 bits with one scale per output, the other operand with one scale per row and step.
  Without VNNI, x86 rounds to fewer levels, so that sums fit 16 bits (see `Int8` in `kernel_body.h`).

Several threads may use an object at the same time, because weights are only read and the GIL is released. This is the
best way to use two cores, one for each direction of a biLM. The threads of a single call (`num_threads`) wait for each
other at each step (twice if there is a projection) when fewer than six rows are left for each, which takes a long time
on a busy machine.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from math import prod

import numpy as np
from numpy.typing import NDArray

from elmo._native.arguments import (
    check_apart,
    check_array,
    check_depth,
    check_ids,
    check_lengths,
    clip_limits,
    is_tanh,
    matrix_shape,
    packed_sizes,
    thread_count,
    weight_shape,
)

# The extension is optional: where there is no compiler, or on another processor, torch does the same work more slowly.
try:
    from elmo._native import _kernel
except ImportError as error:
    if find_spec("elmo._native._kernel") is not None:  # it was built
        warnings.warn(f"the native kernels can't be loaded, so everything is slower: {error}", stacklevel=2)
    _kernel = None

Array = NDArray[np.float32]

_PRECISIONS = ("float32", "bf16", "int8")
"""The precisions in the order of the C++ enumeration."""

LEVELS: list[str] = [] if _kernel is None else _kernel.levels()
"""The instruction sets that this CPU has and the module has kernels for, best first. The first one is used."""

IS_INTEL = _kernel is not None and _kernel.is_intel()


def available() -> frozenset[str]:
    """Return the precisions ("float32", "bf16", "int8") that can be used; none if there is no extension module."""
    # The variable is read at each call, so that tests and programs can change it.
    return frozenset(_PRECISIONS if LEVELS and os.environ.get("ELMO_NATIVE") != "0" else ())


def precision_code(precision: str) -> int:
    """Return the number by which the extension knows a precision, and refuse one that is not available."""
    if precision not in available():
        none = "none: the module is not built, does not support this processor, or ELMO_NATIVE=0 is set"
        usable = ", ".join(sorted(available())) or none
        raise ValueError(f"precision {precision!r} is not among those of this machine's native kernels ({usable})")
    return _PRECISIONS.index(precision)


def extension():
    """Return the extension module. Callers have found by `available` that there is one."""
    assert _kernel is not None
    return _kernel


def multiplies_bf16() -> bool:
    """Return whether the CPU has instructions for bf16.

    Without them, unpacking bf16 takes longer than reading the smaller weights saves.
    """
    return "bf16" in available() and LEVELS[0].endswith(("_bf16", "_amx"))


def gains_by_bf16() -> bool:
    """Return whether these kernels are faster in bf16 than in float32 even when they do not wait for memory.

    Intel's CPUs without AMX are excluded, since they start a bf16 instruction only every other cycle. So are Arm's, on
    which these kernels were only run under emulation, never measured.
    """
    fast = ("avx512_amx",) if IS_INTEL else ("avx512_amx", "avx512_bf16")
    return multiplies_bf16() and LEVELS[0] in fast


def empty(*shape: int) -> Array:
    """Return an uninitialized array that begins at a cache line, over which recurrences are up to 1.5x faster.

    NumPy's own arrays mostly begin 16 bytes after the start of a cache line. torch's tensors are aligned already.
    """
    size = prod(shape)
    # NumPy cannot be asked for an alignment, so up to 15 numbers are left unused at the start.
    room = np.empty(size + 16, np.float32)
    start = -room.__array_interface__["data"][0] % 64 // 4
    return room[start : start + size].reshape(shape)


class Linear:
    """A product with a weight that is packed once: out = x Wᵀ + b.

    Args:
        weight: W, (M, K). It is copied.
        bias: b, (M,), or None. It is copied.
        precision: "float32", "bf16" or "int8", one of `available()`.

    Raises:
        ValueError: If the precision is not available, or an array has the wrong shape or type.
    """

    def __init__(self, weight: Array, bias: Array | None, precision: str) -> None:
        """Pack the weight; see the class."""
        code = precision_code(precision)
        self.out_dim, self.in_dim = weight_shape("weight", weight)
        check_depth("weight", self.in_dim, precision)
        if bias is not None:
            check_array("bias", bias, (self.out_dim,))
        self._handle = extension().pack_linear(weight, bias, self.out_dim, self.in_dim, code, LEVELS[0])

    def run(self, x: Array, out: Array, num_threads: int = 1) -> None:
        """Write the products of `x` (N, K) to `out` (N, M), which must not overlap. Threads divide the M outputs."""
        check_array("x", x, (len(x), self.in_dim))
        check_array("out", out, (len(x), self.out_dim), written=True)
        check_apart("out", out, x=x)
        extension().run_linear(self._handle, x, out, len(x), thread_count(num_threads))


class Recurrence:
    """The recurrent half of one projected LSTM layer in one direction, with weights that are packed once.

    As in `elmo.nn.lstm`, the gates are i, j (candidate), f, o, and c = clip(σ(f) c + σ(i) tanh(j)),
    h = clip(W_hr (σ(o) tanh(c))). Without a projection W_hr, h is σ(o) tanh(c), and P = H.

    Args:
        weight_hh: The recurrent weight, (4H, P). It is copied.
        weight_hr: The projection W_hr, (P, H), or None. It is copied.
        cell_clip: The limit of the cells' absolute values, positive; None for no limit.
        proj_clip: The same for the projected outputs. It must be None if there is no projection.
        precision: "float32", "bf16" or "int8", one of `available()`.

    Raises:
        ValueError: If the precision is not available, or an array or a clip is not as described.

    Source:
        Sak et al. 2014.
    """

    def __init__(
        self,
        weight_hh: Array,
        weight_hr: Array | None,
        cell_clip: float | None,
        proj_clip: float | None,
        precision: str,
    ) -> None:
        """Pack the weights; see the class."""
        code = precision_code(precision)
        rows, self.out_dim = weight_shape("weight_hh", weight_hh)
        self.dim = rows // 4
        check_depth("weight_hh", max(self.out_dim, self.dim), precision)
        if rows % 4 or (weight_hr is None and self.dim != self.out_dim):
            wanted = "(4H, P)" if weight_hr is not None else "(4H, H), as there is no projection"
            raise ValueError(f"weight_hh is {weight_hh.shape}, but must be {wanted}")
        if weight_hr is not None:
            check_array("weight_hr", weight_hr, (self.out_dim, self.dim))
        limits = clip_limits(cell_clip, proj_clip, has_projection=weight_hr is not None)
        self._handle = extension().pack_recurrence(
            weight_hh, weight_hr, self.dim, self.out_dim, *limits, code, LEVELS[0]
        )

    def run(
        self,
        gates: Array,
        batch_sizes: Sequence[int],
        hidden: Array,
        cell: Array,
        outputs: Array,
        num_threads: int = 1,
    ) -> None:
        """Run over a packed batch of N tokens. The arrays must not overlap.

        Args:
            gates: The input's half of the gates, W_ih x + b including the forget bias, (N, 4H). It may be overwritten.
            batch_sizes: The number of rows that have a token at each step, never more than at the step before;
                B is batch_sizes[0] and N the sum.
            hidden: The hidden state before step 0, (B, P). It is replaced by the state after each row's last token.
            cell: The cells before step 0, (B, H). They are replaced likewise.
            outputs: Where to write the outputs, (N, P).
            num_threads: The number of threads to use.

        Raises:
            ValueError: If an argument is not as described.
        """
        sizes, num_tokens, num_rows = packed_sizes(batch_sizes)
        check_array("gates", gates, (num_tokens, 4 * self.dim), written=True)
        check_array("hidden", hidden, (num_rows, self.out_dim), written=True)
        check_array("cell", cell, (num_rows, self.dim), written=True)
        check_array("outputs", outputs, (num_tokens, self.out_dim), written=True)
        check_apart("outputs", outputs, gates=gates, hidden=hidden, cell=cell)
        threads = thread_count(num_threads)
        extension().run_recurrence(self._handle, gates, sizes, hidden, cell, outputs, len(sizes), threads)


class Convolution:
    """The convolutions of a char encoder as sums of look-ups (see `elmo.nn.char_encoder`).

    Args:
        tables: For each filter width the products of its K filters with the A characters at each place, (width, A, K).
        biases: For each width the biases, (K,).
        activation: "relu" or "tanh".

    Raises:
        ValueError: If an array is not as described.
    """

    def __init__(self, tables: Sequence[Array], biases: Sequence[Array], activation: str) -> None:
        """Check and keep the arrays; see the class."""
        if not tables:
            raise ValueError("tables is empty, but there must be at least one filter width")
        for table, bias in zip(tables, biases, strict=True):
            if table.ndim != 3 or 0 in table.shape or len(table[0]) != len(tables[0][0]):
                raise ValueError(f"a table is {table.shape}, but must be (width, A, K), with the same A for all")
            check_array("table", table, table.shape)
            check_array("bias", bias, table.shape[2:])
        self._filters, self._is_tanh = list(zip(tables, biases, strict=True)), is_tanh(activation)
        self.out_dim = sum(map(len, biases))

    def run(self, ids: NDArray[np.int32], lengths: NDArray[np.int32], out: Array, num_threads: int = 1) -> None:
        """Write the features of N words to `out` (N, F), the filters of all widths side by side.

        Args:
            ids: The characters of the words, (N, C), where C is at least the largest width and at most 255.
            lengths: How many characters a word has before its padding, which is the same character to the end, (N,).
            out: Where to write the features.
            num_threads: The number of threads, which divide the words.

        Raises:
            ValueError: If an argument is not as described.
        """
        rows, columns = matrix_shape("ids", ids)
        check_array("out", out, (rows, self.out_dim), written=True)
        alphabet = self._filters[0][0].shape[1]
        check_ids(ids, alphabet, max(len(table) for table, _ in self._filters))
        check_lengths(lengths, ids)
        offset, threads = 0, thread_count(num_threads)
        for table, bias in self._filters if rows else ():
            width, _, filters = table.shape
            sizes = rows, columns, width, alphabet, filters, self.out_dim, offset
            extension().run_windows(table, bias, ids, lengths, out, None, *sizes, self._is_tanh, threads, LEVELS[0])
            offset += len(bias)


def highway(products: Array, x: Array, num_threads: int = 1) -> None:
    """Compute a highway layer after its products: x becomes x + sigmoid(g) * (relu(t) - x).

    Args:
        products: The transform t and the gate g of each row side by side, (N, 2F).
        x: The input, (N, F), which is replaced.
        num_threads: The number of threads, which divide the rows.
    """
    rows, size = matrix_shape("x", x)
    check_array("products", products, (rows, 2 * size))
    check_array("x", x, (rows, size), written=True)
    if rows:
        extension().run_highway(products, None, x, x, rows, size, False, thread_count(num_threads), LEVELS[0])
