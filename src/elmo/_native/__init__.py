"""Native kernels in C++ for x86-64 CPUs, for inference and for training.

For inference, `Linear` and `Recurrence` compute products and LSTM recurrences with weights that are packed once;
`Convolution` and `highway` do what else a char encoder does. For training, `lstm_forward` and `lstm_backward` run a
whole layer, whose weights they pack at every call, `find_maxima` and `add_to_tables` are the convolutions both ways,
and `softmax` does the work between the products of the softmax. Arrays of bfloat16 are passed as uint16.

The extension module exists if the package was built with a compiler (see setup.py). At run time it uses the kernels
for the best instruction set of the CPU. `available()` tells what this machine can use; the environment variable
`ELMO_NATIVE=0` turns everything off. All arrays are NumPy arrays, contiguous in C order. The arrays of `Linear` and
`Recurrence` are float32, and these classes compute in one of three precisions:

- "float32": results differ from other float32 code by rounding only.
- "bf16": the operands of products are rounded to bfloat16; all else is float32.
- "int8": weights are rounded to 8 bits with one scale per output, the other operand with one scale per row and step.
  Without VNNI, x86 gets by with fewer steps, so that sums fit 16 bits (see `Int8` in `kernel_body.h`).

Several threads may use an object at the same time, because weights are only read and the GIL is released. This is the
best way to use two cores, one for each direction of a biLM. The threads of a single call (`num_threads`) wait for each
other twice per step when fewer than six rows are left for each, which takes a long time on a busy machine.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import inf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The extension is optional: where there is no compiler, or on another processor, torch does the same work more slowly.
try:
    from elmo._native import _kernel
except ImportError:  # the extension module was not built
    _kernel = None

Array = NDArray[np.float32]
Products = NDArray[np.float32] | NDArray[np.uint16]

_PRECISIONS = ("float32", "bf16", "int8")
"""The precisions in the order of the C++ enumeration."""

LEVELS: list[str] = [] if _kernel is None else _kernel.levels()
"""The instruction sets that this CPU has and the module has kernels for, best first. The first one is used."""

IS_INTEL = _kernel is not None and _kernel.is_intel()


def available() -> frozenset[str]:
    """Return the precisions ("float32", "bf16", "int8") that can be used; none if there is no extension module."""
    # The variable is read at each call, so that tests and programs can change it.
    return frozenset(_PRECISIONS if LEVELS and os.environ.get("ELMO_NATIVE") != "0" else ())


def multiplies_bf16() -> bool:
    """Return whether the CPU has instructions for bf16.

    Without them, unpacking bf16 takes longer than reading the smaller weights saves.
    """
    return "bf16" in available() and LEVELS[0].endswith("_bf16")


def gains_by_bf16() -> bool:
    """Return whether these kernels are faster in bf16 than in float32 even when they do not wait for memory.

    Intel's CPUs are excluded: their bf16 instructions multiply half as fast. (AMX, which is fast, is not used here.)
    So are Arm's, on which these kernels were only run under emulation, never measured.
    """
    return multiplies_bf16() and LEVELS[0].startswith("avx512") and not IS_INTEL


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
        # Everything is checked here and in the functions below: the extension trusts its arguments, and would read or
        # write beyond the end of an array.
        code = _code(precision)
        self.out_dim, self.in_dim = _weight_shape("weight", weight)
        if bias is not None:
            _check("bias", bias, (self.out_dim,))
        assert _kernel is not None  # for the type checker, here and below: `_code` has raised an error if it is None
        self._handle = _kernel.pack_linear(weight, bias, self.out_dim, self.in_dim, code, LEVELS[0])

    def run(self, x: Array, out: Array, num_threads: int = 1) -> None:
        """Write the products of `x` (N, K) to `out` (N, M), which must not overlap. Threads divide the M outputs."""
        _check("x", x, (len(x), self.in_dim))
        _check("out", out, (len(x), self.out_dim), written=True)
        assert _kernel is not None
        _kernel.run_linear(self._handle, x, out, len(x), _threads(num_threads))


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
        code = _code(precision)
        rows, self.out_dim = _weight_shape("weight_hh", weight_hh)
        self.dim = rows // 4
        if rows % 4 or (weight_hr is None and self.dim != self.out_dim):
            wanted = "(4H, P)" if weight_hr is not None else "(4H, H), as there is no projection"
            raise ValueError(f"weight_hh is {weight_hh.shape}, but must be {wanted}")
        if weight_hr is not None:
            _check("weight_hr", weight_hr, (self.out_dim, self.dim))
        elif proj_clip is not None:
            raise ValueError(f"proj_clip is {proj_clip}, but there is no projection: pass None")
        clips = _clip("cell_clip", cell_clip), _clip("proj_clip", proj_clip)
        assert _kernel is not None
        self._handle = _kernel.pack_recurrence(weight_hh, weight_hr, self.dim, self.out_dim, *clips, code, LEVELS[0])

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
        sizes, num_tokens, num_rows = _packed_sizes(batch_sizes)
        _check("gates", gates, (num_tokens, 4 * self.dim), written=True)
        _check("hidden", hidden, (num_rows, self.out_dim), written=True)
        _check("cell", cell, (num_rows, self.dim), written=True)
        _check("outputs", outputs, (num_tokens, self.out_dim), written=True)
        assert _kernel is not None
        threads = _threads(num_threads)
        _kernel.run_recurrence(self._handle, gates, sizes, hidden, cell, outputs, len(sizes), threads)


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
        for table, bias in zip(tables, biases, strict=True):
            if table.ndim != 3 or 0 in table.shape or len(table[0]) != len(tables[0][0]):
                raise ValueError(f"a table is {table.shape}, but must be (width, A, K), with the same A for all")
            _check("table", table, table.shape)
            _check("bias", bias, table.shape[2:])
        if activation not in ("relu", "tanh"):
            raise ValueError(f"activation is {activation!r}, but must be 'relu' or 'tanh'")
        self._filters, self._activation = list(zip(tables, biases, strict=True)), activation
        self.out_dim = sum(map(len, biases))

    def run(self, ids: NDArray[np.int32], lengths: NDArray[np.int32], out: Array, num_threads: int = 1) -> None:
        """Write the features of N words to `out` (N, F), the filters of all widths side by side.

        Args:
            ids: The characters of the words, (N, C), where C is no less than any width.
            lengths: How many characters a word has before its padding, which is the same character to the end, (N,).
            out: Where to write the features.
            num_threads: The number of threads, which divide the words.

        Raises:
            ValueError: If an argument is not as described.
        """
        rows, columns = ids.shape
        _check("lengths", lengths, (rows,), dtype=np.int32)
        _check("out", out, (rows, self.out_dim), written=True)
        alphabet = self._filters[0][0].shape[1]
        for table, _ in self._filters:
            _check_ids(ids, alphabet, len(table))
        if rows and not 0 <= lengths.min() <= lengths.max() <= columns:
            raise ValueError(f"lengths holds {lengths.min()} to {lengths.max()}, but there are {columns} columns")
        assert _kernel is not None
        offset, is_tanh, threads = 0, self._activation == "tanh", _threads(num_threads)
        for table, bias in self._filters if rows else ():
            width, _, filters = table.shape
            sizes = rows, columns, width, alphabet, filters, self.out_dim, offset
            _kernel.run_windows(table, bias, ids, lengths, out, None, *sizes, is_tanh, threads, LEVELS[0])
            offset += len(bias)


def highway(products: Array, x: Array, num_threads: int = 1) -> None:
    """Compute a highway layer after its products: x becomes x + sigmoid(g) * (relu(t) - x).

    Args:
        products: The transform t and the gate g of each row side by side, (N, 2F).
        x: The input, (N, F), which is replaced.
        num_threads: The number of threads, which divide the rows.
    """
    rows, size = x.shape
    _check("products", products, (rows, 2 * size))
    _check("x", x, (rows, size), written=True)
    assert _kernel is not None
    if rows:
        _kernel.run_highway(products, x, rows, size, _threads(num_threads), LEVELS[0])


def find_maxima(
    table: Array,
    ids: NDArray[np.int32],
    lengths: NDArray[np.int32],
    maxima: Array,
    places: NDArray[np.uint8],
    num_threads: int = 1,
) -> None:
    """Compute the convolutions of one filter width, and the maximum of each filter over the windows of each word.

    Args:
        table: The products of the K filters with the A characters at each place, (width, A, K).
        ids: As in `Convolution.run`, with 255 columns at most.
        lengths: As in `Convolution.run`.
        maxima: Where to write the maxima, (N, K). A maximum over NaN is NaN.
        places: Where to write the first place at which each filter has its maximum, (N, K).
        num_threads: The number of threads, which divide the words.

    Raises:
        ValueError: If an argument is not as described.
    """
    (width, alphabet, filters), (rows, columns) = table.shape, ids.shape
    _check("table", table, (width, alphabet, filters))
    _check("lengths", lengths, (rows,), dtype=np.int32)
    _check("maxima", maxima, (rows, filters), written=True)
    _check("places", places, (rows, filters), written=True, dtype=np.uint8)
    _check_ids(ids, alphabet, width)
    if rows and not 0 <= lengths.min() <= lengths.max() <= columns:
        raise ValueError(f"lengths holds {lengths.min()} to {lengths.max()}, but there are {columns} columns")
    assert _kernel is not None
    if rows:
        sizes = rows, columns, width, alphabet, filters, filters, 0
        threads = _threads(num_threads)
        _kernel.run_windows(table, None, ids, lengths, maxima, places, *sizes, False, threads, LEVELS[0])


def add_to_table(
    d_maxima: Array, ids: NDArray[np.int32], places: NDArray[np.uint8], d_table: Array, num_threads: int = 1
) -> None:
    """Run the backward pass of `find_maxima`: add the gradient of each maximum where its window was read.

    Args:
        d_maxima: The gradient of the maxima, (N, K).
        ids: As in `find_maxima`.
        places: What `find_maxima` wrote, (N, K).
        d_table: The gradient of the table, (width, A, K), to which is added.
        num_threads: The number of threads, which divide the filters. The order of the additions does not depend on it.

    Raises:
        ValueError: If an argument is not as described.
    """
    (width, alphabet, filters), (rows, columns) = d_table.shape, ids.shape
    _check("d_maxima", d_maxima, (rows, filters))
    _check("places", places, (rows, filters), dtype=np.uint8)
    _check("d_table", d_table, (width, alphabet, filters), written=True)
    _check_ids(ids, alphabet, width)
    if rows and places.max() > columns - width:
        raise ValueError(f"places holds {places.max()}, but the last window of {columns} columns is {columns - width}")
    assert _kernel is not None
    if rows:
        sizes = rows, columns, width, alphabet, filters
        _kernel.run_windows_backward(d_maxima, ids, places, d_table, *sizes, _threads(num_threads), LEVELS[0])


def lstm_forward(
    weight: Array,
    weight_hr: Array | None,
    bias: Array,
    batch_sizes: Sequence[int],
    cell_before: Array,
    joined: Products,
    gates: Array,
    cell: Array,
    mixed: Products | None,
    outputs: Array,
    clips: tuple[float | None, float | None],
    num_threads: int = 1,
) -> None:
    """Run one projected LSTM layer of training over a packed batch of N tokens (see `elmo.nn.lstm` for the equations).

    The threads divide the rows. A row's numbers do not depend on their number.

    Args:
        weight: [W_ih, W_hh] side by side, (4H, I + P).
        weight_hr: The projection W_hr, (P, H); None without one. Then P = H.
        bias: The bias of the gates with the forget bias included, (4H,).
        batch_sizes: The number of rows that have a token at each step, never more than at the step before, and at
            least one; B is batch_sizes[0] and N the sum.
        cell_before: The cells before step 0, (B, H).
        joined: The input of each token and the hidden state before it, side by side, (N, I + P), float32, or bf16 in
            uint16, to which the operands of all products are then rounded. The inputs, and the hidden states of step 0,
            must be there; the other hidden states are written. In bf16, I + P, P and H must be even.
        gates: Where to write the activations of the gates, (N, 4H), in an order of their own (see `gate_order`).
        cell: Where to write the clipped cells c, (N, H).
        mixed: Where to write m, the input of the projection, (N, H), in the type of `joined`; None without one.
        outputs: Where to write the outputs h, (N, P).
        clips: The limits of the absolute values of cells and of projected outputs; None for no limit.
        num_threads: The number of threads to use.

    Raises:
        ValueError: If an argument is not as described.
    """
    sizes, num_tokens, num_rows = _packed_sizes(batch_sizes)
    size, width, out_size = cell_before.shape[1], weight.shape[1], outputs.shape[1]
    precision = _training_precision(joined, (width, out_size, size))
    _check("weight", weight, (4 * size, width))
    _check("bias", bias, (4 * size,))
    _check("cell_before", cell_before, (num_rows, size))
    _check("joined", joined, (num_tokens, width), written=True, dtype=joined.dtype)
    _check("gates", gates, (num_tokens, 4 * size), written=True)
    _check("cell", cell, (num_tokens, size), written=True)
    _check("outputs", outputs, (num_tokens, out_size), written=True)
    _check_projection(weight_hr, mixed, "mixed", (num_tokens, size), joined.dtype, size, out_size)
    assert _kernel is not None
    arrays = weight, weight_hr, bias, sizes, cell_before, joined, gates, cell, mixed, outputs
    limits = _clip("cell_clip", clips[0]), _clip("proj_clip", clips[1])
    dims = size, width, out_size, len(sizes)
    _kernel.run_lstm_forward(*arrays, *dims, *limits, precision, _threads(num_threads), LEVELS[0])


def lstm_backward(
    weight: Array,
    weight_hr: Array | None,
    batch_sizes: Sequence[int],
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
    clips: tuple[float | None, float | None],
    num_threads: int = 1,
) -> None:
    """Run the backward pass of `lstm_forward`, except for the gradients of the weights and the bias.

    They are products over all steps of what is written here: [W_ih, W_hh] has the gradient d_gatesᵀ joined, W_hr has
    d_outᵀ mixed, and the bias the sum of d_gates. A clip passes gradients only inside its range.

    Args:
        weight: As in `lstm_forward`.
        weight_hr: As in `lstm_forward`.
        batch_sizes: As in `lstm_forward`.
        cell_before: As in `lstm_forward`.
        gates: What `lstm_forward` wrote, like `cell` and `outputs`.
        cell: See `gates`.
        outputs: See `gates`.
        d_outputs: The gradient of the outputs, (N, P).
        d_cells: The gradient of the cells, (N, H); None for zeros.
        d_cell: Zeros, (B, H); they are replaced by the gradient of `cell_before`.
        d_gates: Where to write the gradient of the gates' sums, (N, 4H), float32, or bf16 in uint16, in the order of
            `gate_order`.
        d_out: Where to write the gradient of the projections' sums, (N, P), in the type of `d_gates`; None without one.
        d_joined: Where to write the gradient of `joined`, (N, I + P). Its last P columns at step 0 are the gradient of
            the hidden state before.
        clips: As in `lstm_forward`.
        num_threads: The number of threads to use.

    Raises:
        ValueError: If an argument is not as described.
    """
    sizes, num_tokens, num_rows = _packed_sizes(batch_sizes)
    size, width, out_size = cell_before.shape[1], weight.shape[1], outputs.shape[1]
    precision = _training_precision(d_gates, (width, out_size, size))
    _check("weight", weight, (4 * size, width))
    _check("cell_before", cell_before, (num_rows, size))
    _check("gates", gates, (num_tokens, 4 * size))
    _check("cell", cell, (num_tokens, size))
    _check("outputs", outputs, (num_tokens, out_size))
    _check("d_outputs", d_outputs, (num_tokens, out_size))
    if d_cells is not None:
        _check("d_cells", d_cells, (num_tokens, size))
    _check("d_cell", d_cell, (num_rows, size), written=True)
    _check("d_gates", d_gates, (num_tokens, 4 * size), written=True, dtype=d_gates.dtype)
    _check("d_joined", d_joined, (num_tokens, width), written=True)
    _check_projection(weight_hr, d_out, "d_out", (num_tokens, out_size), d_gates.dtype, size, out_size)
    assert _kernel is not None
    kept = weight, weight_hr, sizes, cell_before, gates, cell, outputs
    limits = _clip("cell_clip", clips[0]), _clip("proj_clip", clips[1])
    arrays = *kept, d_outputs, d_cells, d_cell, d_gates, d_out, d_joined
    dims = size, width, out_size, len(sizes)
    _kernel.run_lstm_backward(*arrays, *dims, *limits, precision, _threads(num_threads), LEVELS[0])


def gate_order(size: int) -> tuple[int, int, int]:
    """Return the order in which `lstm_forward` and `lstm_backward` have the 4H gates of H = `size` cells.

    The gates i, j, f, o of some cells lie next to each other, then those of the next cells (see `kernel.h`).

    Returns:
        The shape (number of runs, 4 gates, cells in a run) of an axis of 4H gates in that order.
    """
    run = size if size % 16 else 16
    return size // run, 4, run


def softmax(
    products: Products,
    bias: Array,
    target_scores: Array,
    own: NDArray[np.int64],
    losses: Array,
    target_shares: Array,
    d_bias: Array,
) -> None:
    """Compute the softmax of training (see `elmo.nn.cross_entropy`), with one thread per row of `d_bias`.

    Args:
        products: The scores without the bias, (N, K), float32 or bf16 in uint16. They become probabilities.
        bias: The biases of the words, (K,).
        target_scores: The score of each row's target, (N,).
        own: The column of each row that is its own target and is left out, or -1, (N,).
        losses: Where to write each row's loss, (N,).
        target_shares: Where to write the probability of each row's target, (N,).
        d_bias: Where to add the probabilities of each word, (threads, K). Only the sum of the rows is meaningful.

    Raises:
        ValueError: If an argument is not as described.
    """
    rows, columns = products.shape
    _check("products", products, (rows, columns), written=True, dtype=products.dtype)
    _check("bias", bias, (columns,))
    _check("target_scores", target_scores, (rows,))
    _check("own", own, (rows,), dtype=np.int64)
    _check("losses", losses, (rows,), written=True)
    _check("target_shares", target_shares, (rows,), written=True)
    _check("d_bias", d_bias, (len(d_bias), columns), written=True)
    # An index beyond the row would be written to.
    if rows and not -1 <= own.min() <= own.max() < columns:
        raise ValueError(f"own holds {own.min()} to {own.max()}, but there are {columns} columns")
    bf16 = _is_bf16(products)
    assert _kernel is not None
    arrays = products, bias, target_scores, own, losses, target_shares, d_bias
    if rows:
        _kernel.run_softmax(*arrays, rows, columns, bf16, _threads(len(d_bias)), LEVELS[0])


def _packed_sizes(batch_sizes: Sequence[int]) -> tuple[NDArray[np.int64], int, int]:
    """Return the batch sizes as the extension takes them, and the numbers of tokens N and of rows B."""
    sizes = np.array(batch_sizes, dtype=np.int64)
    if sizes.ndim != 1 or (sizes < 1).any() or (sizes[1:] > sizes[:-1]).any():
        raise ValueError(f"batch_sizes must be positive and must not increase, but are {list(batch_sizes)}")
    return sizes, int(sizes.sum()), int(sizes[0]) if len(sizes) else 0


def _check_ids(ids: NDArray[np.int32], alphabet: int, width: int) -> None:
    """Refuse characters or windows that would be read from other memory."""
    _check("ids", ids, ids.shape, dtype=np.int32)
    if len(ids) and not 0 <= ids.min() <= ids.max() < alphabet:
        raise ValueError(f"ids holds {ids.min()} to {ids.max()}, but there are {alphabet} characters")
    if not width <= ids.shape[1] <= 255:
        raise ValueError(f"ids has {ids.shape[1]} columns, but must have {width}, the width of the filters, to 255")


def _is_bf16(products: NDArray[Any]) -> bool:
    """Return whether products are bf16, and raise ValueError for types that there are no kernels for."""
    if products.dtype.name not in ("float32", "uint16"):
        raise ValueError(f"products of {products.dtype}: there are kernels for float32 and for bf16 in uint16")
    return products.dtype == np.uint16


def _training_precision(products: Products, widths: tuple[int, ...]) -> int:
    if not _is_bf16(products):
        return _code("float32")
    if any(width % 2 for width in widths):  # two numbers of bf16 are one word
        raise ValueError(f"products of bf16 need even widths, but these are {widths}")
    return _code("bf16")


def _check_projection(
    weight_hr: Array | None,
    products: Products | None,
    name: str,
    shape: tuple[int, int],
    dtype: np.dtype[Any],
    size: int,
    out_size: int,
) -> None:
    if weight_hr is None:
        if size != out_size:
            raise ValueError(f"outputs are {out_size} wide, but must be {size}, as there is no projection")
    elif products is None:
        raise ValueError(f"{name} is None, but there is a projection")
    else:
        _check("weight_hr", weight_hr, (out_size, size))
        _check(name, products, shape, written=True, dtype=dtype)


def _code(precision: str) -> int:
    if precision not in available():
        usable = ", ".join(sorted(available())) or "none: the module is not built, or ELMO_NATIVE=0 is set"
        raise ValueError(f"precision {precision!r} is not among those of this machine's native kernels ({usable})")
    return _PRECISIONS.index(precision)


def _weight_shape(name: str, weight: Array) -> tuple[int, int]:
    if weight.ndim != 2 or 0 in weight.shape:
        raise ValueError(f"{name} is {weight.shape}, but must have two dimensions, none of them empty")
    _check(name, weight, weight.shape)
    return weight.shape[0], weight.shape[1]


def _check(
    name: str, array: NDArray[Any], shape: tuple[int, ...], written: bool = False, dtype: Any = np.float32
) -> None:
    if array.dtype != dtype:
        raise ValueError(f"{name} is {array.dtype}, but must be {np.dtype(dtype)}")
    if array.shape != shape:
        raise ValueError(f"{name} is {array.shape}, but must be {shape}")
    if not array.flags.c_contiguous:
        raise ValueError(f"{name} must be contiguous in C order")
    if written and not array.flags.writeable:
        raise ValueError(f"{name} is read-only, but must be writable")


def _clip(name: str, value: float | None) -> float:
    if value is not None and not value > 0:
        raise ValueError(f"{name} is {value}, but must be positive, or None for no clip")
    return inf if value is None else value


def _threads(number: int) -> int:
    if number < 1:
        raise ValueError(f"num_threads is {number}, but must be at least 1")
    return number
