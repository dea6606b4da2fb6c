"""The kernels of training: LSTM layers, convolutions and highways, forward and back, and the softmax.

They pack weights at every call, since training changes them. Arrays of bfloat16 are passed as uint16. As for the
kernels of inference, `elmo._native.LEVELS` says which instruction set is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmo import _native
from elmo._native import extension, precision_code
from elmo._native.arguments import (
    check_array,
    check_ids,
    check_lengths,
    clip_limits,
    is_bf16,
    is_tanh,
    matrix_shape,
    packed_sizes,
    table_shape,
    thread_count,
    threads_of,
    weight_shape,
)

Array = NDArray[np.float32]
Products = NDArray[np.float32] | NDArray[np.uint16]


def find_maxima(
    table: Array,
    bias: Array,
    ids: NDArray[np.int32],
    lengths: NDArray[np.int32],
    out: Array,
    offset: int,
    places: NDArray[np.uint8],
    activation: str,
    num_threads: int = 1,
) -> None:
    """Compute the convolutions of one filter width, and the features from the maximum of each filter over a word.

    Args:
        table: The products of the K filters with the A characters at each place, (width, A, K).
        bias: The bias that is added to each maximum, (K,).
        ids: As in `Convolution.run`.
        lengths: As in `Convolution.run`.
        out: Where to write the features, (N, F), those of these filters from column `offset` on. A feature is NaN
            if one of its windows is.
        offset: See `out`.
        places: Where to write the first place at which each filter has its maximum, (N, K).
        activation: "relu" or "tanh", which is applied to the sum of maximum and bias.
        num_threads: The number of threads, which divide the words.

    Raises:
        ValueError: If an argument is not as described.
    """
    (width, alphabet, filters), (rows, columns) = table_shape("table", table), matrix_shape("ids", ids)
    check_array("table", table, (width, alphabet, filters))
    check_array("bias", bias, (filters,))
    check_array("places", places, (rows, filters), written=True, dtype=np.uint8)
    check_ids(ids, alphabet, width)
    check_lengths(lengths, ids)
    stride, tanh = _check_features(out, rows, filters, offset, written=True), is_tanh(activation)
    if rows:
        sizes = rows, columns, width, alphabet, filters, stride, offset
        threads = thread_count(num_threads)
        extension().run_windows(table, bias, ids, lengths, out, places, *sizes, tanh, threads, _level())


def add_to_table(
    out: Array,
    d_out: Array,
    offset: int,
    ids: NDArray[np.int32],
    places: NDArray[np.uint8],
    activation: str,
    d_table: Array,
    d_bias: Array,
    num_threads: int = 1,
) -> None:
    """Run the backward pass of `find_maxima`: add the gradient of each maximum where its window was read.

    Args:
        out: What `find_maxima` wrote, (N, F).
        d_out: The gradient of the features, (N, F).
        offset: As in `find_maxima`.
        ids: As in `find_maxima`.
        places: What `find_maxima` wrote, (N, K).
        activation: As in `find_maxima`.
        d_table: The gradient of the table, (width, A, K), to which is added.
        d_bias: The gradient of the bias, (K,), to which is added.
        num_threads: The number of threads, which divide the filters. The order of the additions does not depend on it.

    Raises:
        ValueError: If an argument is not as described.
    """
    (width, alphabet, filters), (rows, columns) = table_shape("d_table", d_table), matrix_shape("ids", ids)
    stride, tanh = _check_features(out, rows, filters, offset), is_tanh(activation)
    check_array("d_out", d_out, (rows, stride))
    check_array("places", places, (rows, filters), dtype=np.uint8)
    check_array("d_table", d_table, (width, alphabet, filters), written=True)
    check_array("d_bias", d_bias, (filters,), written=True)
    check_ids(ids, alphabet, width)
    if rows and places.max() > columns - width:
        raise ValueError(f"places holds {places.max()}, but the last window of {columns} columns is {columns - width}")
    if rows:
        sizes = rows, columns, width, alphabet, filters, stride, offset
        arrays = out, d_out, ids, places, d_table, d_bias
        extension().run_windows_backward(*arrays, *sizes, tanh, thread_count(num_threads), _level())


def highway_forward(products: Products, bias: Array, x: Array, out: Array, num_threads: int = 1) -> None:
    """Compute a highway layer after its products: out = x + sigmoid(g) * (relu(t) - x).

    Args:
        products: The transform t and the gate g of each row side by side, without the bias, (N, 2F), float32 or bf16 in
            uint16.
        bias: The bias of t and g, (2F,).
        x: The input, (N, F).
        out: Where to write the output, (N, F).
        num_threads: The number of threads, which divide the rows.

    Raises:
        ValueError: If an argument is not as described.
    """
    rows, size, bf16 = _check_highway(products, bias, x)
    check_array("out", out, (rows, size), written=True)
    if rows:
        extension().run_highway(products, bias, x, out, rows, size, bf16, thread_count(num_threads), _level())


def highway_backward(
    products: Products, bias: Array, x: Array, d_out: Array, d_products: Products, d_x: Array, d_bias: Array
) -> None:
    """Run the backward pass of `highway_forward`, with one thread per row of `d_bias`, which divide the rows.

    Args:
        products: As in `highway_forward`.
        bias: As in `highway_forward`.
        x: As in `highway_forward`.
        d_out: The gradient of the output, (N, F).
        d_products: Where to write the gradient of the products, (N, 2F), in the type of `products`.
        d_x: Where to write the gradient of the input, (N, F), without what it gets through the products.
        d_bias: Where to add the gradient of the bias, (threads, 2F). Only the sum of the rows is meaningful.

    Raises:
        ValueError: If an argument is not as described.
    """
    rows, size, bf16 = _check_highway(products, bias, x)
    check_array("d_out", d_out, (rows, size))
    check_array("d_products", d_products, (rows, 2 * size), written=True, dtype=products.dtype)
    check_array("d_x", d_x, (rows, size), written=True)
    check_array("d_bias", d_bias, (threads_of(d_bias), 2 * size), written=True)
    arrays = products, bias, x, d_out, d_products, d_x, d_bias
    if rows:
        extension().run_highway_backward(*arrays, rows, size, bf16, len(d_bias), _level())


def _check_highway(products: Products, bias: Array, x: Array) -> tuple[int, int, bool]:
    """Check what a highway's two directions have in common, and return N, F and whether the products are bf16."""
    rows, size = matrix_shape("x", x)
    bf16 = is_bf16(products)
    check_array("products", products, (rows, 2 * size), dtype=products.dtype)
    check_array("bias", bias, (2 * size,))
    check_array("x", x, (rows, size))
    return rows, size, bf16


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
        batch_sizes: The number of rows that have a token at each step, never more than at the step before; B is
            batch_sizes[0] and N the sum.
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
    sizes, num_tokens, num_rows = packed_sizes(batch_sizes)
    size, width, out_size = _lstm_widths(cell_before, weight, outputs)
    precision = _training_precision(joined, (width, out_size, size))
    check_array("weight", weight, (4 * size, width))
    check_array("bias", bias, (4 * size,))
    check_array("cell_before", cell_before, (num_rows, size))
    check_array("joined", joined, (num_tokens, width), written=True, dtype=joined.dtype)
    check_array("gates", gates, (num_tokens, 4 * size), written=True)
    check_array("cell", cell, (num_tokens, size), written=True)
    check_array("outputs", outputs, (num_tokens, out_size), written=True)
    _check_projection(weight_hr, mixed, "mixed", (num_tokens, size), joined.dtype, size, out_size)
    arrays = weight, weight_hr, bias, sizes, cell_before, joined, gates, cell, mixed, outputs
    limits = clip_limits(*clips, has_projection=weight_hr is not None)
    dims = size, width, out_size, len(sizes)
    if num_rows:
        extension().run_lstm_forward(*arrays, *dims, *limits, precision, thread_count(num_threads), _level())


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
    sizes, num_tokens, num_rows = packed_sizes(batch_sizes)
    size, width, out_size = _lstm_widths(cell_before, weight, outputs)
    precision = _training_precision(d_gates, (width, out_size, size))
    check_array("weight", weight, (4 * size, width))
    check_array("cell_before", cell_before, (num_rows, size))
    check_array("gates", gates, (num_tokens, 4 * size))
    check_array("cell", cell, (num_tokens, size))
    check_array("outputs", outputs, (num_tokens, out_size))
    check_array("d_outputs", d_outputs, (num_tokens, out_size))
    if d_cells is not None:
        check_array("d_cells", d_cells, (num_tokens, size))
    check_array("d_cell", d_cell, (num_rows, size), written=True)
    check_array("d_gates", d_gates, (num_tokens, 4 * size), written=True, dtype=d_gates.dtype)
    check_array("d_joined", d_joined, (num_tokens, width), written=True)
    _check_projection(weight_hr, d_out, "d_out", (num_tokens, out_size), d_gates.dtype, size, out_size)
    kept = weight, weight_hr, sizes, cell_before, gates, cell, outputs
    limits = clip_limits(*clips, has_projection=weight_hr is not None)
    arrays = *kept, d_outputs, d_cells, d_cell, d_gates, d_out, d_joined
    dims = size, width, out_size, len(sizes)
    if num_rows:
        extension().run_lstm_backward(*arrays, *dims, *limits, precision, thread_count(num_threads), _level())


def _lstm_widths(cell_before: Array, weight: Array, outputs: Array) -> tuple[int, int, int]:
    """Return H, I + P and P of a layer."""
    (_, size), (_, out_size) = matrix_shape("cell_before", cell_before), matrix_shape("outputs", outputs)
    _, width = weight_shape("weight", weight)
    if width < out_size:  # the hidden state would lie before the row
        raise ValueError(f"weight has {width} columns, fewer than the {out_size} of the hidden state")
    return size, width, out_size


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
    target_probs: Array,
    d_bias: Array,
) -> None:
    """Compute the softmax of training (see `elmo.nn.cross_entropy`), with one thread per row of `d_bias`.

    Args:
        products: The scores without the bias, (N, K), float32 or bf16 in uint16. They become probabilities.
        bias: The biases of the words, (K,).
        target_scores: The score of each row's target, (N,).
        own: The column of each row that is its own target and is left out, or -1, (N,).
        losses: Where to write each row's loss, (N,).
        target_probs: Where to write the probability of each row's target, (N,).
        d_bias: Where to add the probabilities of each word, (threads, K). Only the sum of the rows is meaningful.

    Raises:
        ValueError: If an argument is not as described.
    """
    rows, columns = matrix_shape("products", products)
    check_array("products", products, (rows, columns), written=True, dtype=products.dtype)
    check_array("bias", bias, (columns,))
    check_array("target_scores", target_scores, (rows,))
    check_array("own", own, (rows,), dtype=np.int64)
    check_array("losses", losses, (rows,), written=True)
    check_array("target_probs", target_probs, (rows,), written=True)
    check_array("d_bias", d_bias, (threads_of(d_bias), columns), written=True)
    # An index beyond the row would be written to.
    if rows and not -1 <= own.min() <= own.max() < columns:
        raise ValueError(f"own holds {own.min()} to {own.max()}, but there are {columns} columns")
    bf16 = is_bf16(products)
    arrays = products, bias, target_scores, own, losses, target_probs, d_bias
    if rows:
        extension().run_softmax(*arrays, rows, columns, bf16, len(d_bias), _level())


def _check_features(out: Array, rows: int, filters: int, offset: int, written: bool = False) -> int:
    """Refuse features (N, F) without the columns of the filters, and return F."""
    _, columns = matrix_shape("out", out)
    check_array("out", out, (rows, columns), written=written)
    if not 0 <= offset <= columns - filters:
        raise ValueError(f"out has {columns} columns, but {filters} filters begin at column {offset}")
    return columns


def _training_precision(products: Products, widths: tuple[int, ...]) -> int:
    if not is_bf16(products):
        return precision_code("float32")
    if any(width % 2 for width in widths):  # two numbers of bf16 are one word
        raise ValueError(f"products of bf16 need even widths, but these are {widths}")
    return precision_code("bf16")


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
        check_array("weight_hr", weight_hr, (out_size, size))
        check_array(name, products, shape, written=True, dtype=dtype)


def _level() -> str:
    return _native.LEVELS[0]
