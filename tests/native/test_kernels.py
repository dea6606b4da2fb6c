"""The native kernels compared with plain NumPy, for every instruction set that this machine has.

The reference rounds operands as the kernels do ("bf16", "int8") and computes everything else in float64. What differs
is float32 rounding, and now and then an operand that this rounding moves to the next number of its precision.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from elmo import _native
from levels import needs_native
from oracle import clip, sigmoid

pytestmark = needs_native

PRECISIONS = ["float32", "bf16", "int8"]
Array = np.ndarray


# --- the reference


def to_bf16(x: Array) -> Array:
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def quantized(x: Array, steps: int, least: Array | float = 0.0) -> tuple[Array, Array]:
    """Return integers of at most `steps` and each row's scale. Its largest number counts as `least` or more."""
    largest = np.maximum(np.abs(x).max(axis=1, keepdims=True), least).astype(np.float32)
    factor = np.where(largest > 0, np.float32(steps) / np.where(largest > 0, largest, 1), 0).astype(np.float32)
    return np.rint(x.astype(np.float64) * factor), largest / np.float32(steps)


def room_for_sums(weight: Array) -> Array:
    """Return what the largest number of a column must count as, so that sums of four products fit 16 bits.

    Without VNNI, rows have steps of 1/89 and 90 added, so weights of one sign in such a sum may come to 32767 / 179,
    which is 183. Rounding four of them adds up to 2. The four are two neighbours in a group of four numbers, and the
    two in the same places of the next group.
    """
    padded = np.pad(weight, ((0, 0), (0, -weight.shape[1] % 8))).reshape(len(weight), -1, 2, 2, 2)
    sums = [np.maximum(signed, 0).sum(axis=(2, 4)).max(axis=(1, 2)) for signed in (padded, -padded)]
    return np.maximum(*sums)[:, None] * np.float32(127 / 181)


def multiply(x: Array, weight: Array, precision: str) -> Array:
    """Compute X W^T in float64, of operands rounded to `precision` as the kernels of the level under test do."""
    if precision == "int8":
        narrow = _native.LEVELS[0] in ("avx2", "avx512")
        x, x_scale = quantized(x.astype(np.float32), 89 if narrow else 127)
        weight, weight_scale = quantized(weight, 127, room_for_sums(weight) if narrow else 0.0)
        return (x @ weight.T) * x_scale * weight_scale.T
    if precision == "bf16":
        x, weight = to_bf16(x), to_bf16(weight)
    return x.astype(np.float64) @ weight.astype(np.float64).T


class Layer(NamedTuple):
    weight_hh: Array
    weight_hr: Array | None
    cell_clip: float | None
    proj_clip: float | None

    def reference(self, batch: Batch, precision: str) -> tuple[Array, Array, Array]:
        """Compute outputs and last states step by step (Sak et al. 2014)."""
        hidden, cell = batch.hidden.astype(np.float64), batch.cell.astype(np.float64)
        outputs, start = [], 0
        for rows in batch.sizes:
            gates = batch.gates[start : start + rows] + multiply(hidden[:rows], self.weight_hh, precision)
            i, j, f, o = np.split(gates, 4, axis=1)
            cell[:rows] = clip(sigmoid(f) * cell[:rows] + sigmoid(i) * np.tanh(j), self.cell_clip)
            out = sigmoid(o) * np.tanh(cell[:rows])
            if self.weight_hr is not None:
                out = clip(multiply(out, self.weight_hr, precision), self.proj_clip)
            hidden[:rows] = out
            outputs.append(out)
            start += rows
        return np.concatenate(outputs), hidden, cell

    def native(self, batch: Batch, precision: str, num_threads: int = 1) -> tuple[Array, Array, Array]:
        kernel = _native.Recurrence(*self, precision)
        return run(kernel, batch, self.weight_hh.shape[1], num_threads)


class Batch(NamedTuple):
    gates: Array
    sizes: Sequence[int]
    hidden: Array
    cell: Array


def run(kernel: Any, batch: Batch, out_dim: int, num_threads: int = 1) -> tuple[Array, Array, Array]:
    hidden, cell = batch.hidden.copy(), batch.cell.copy()
    outputs = np.full((len(batch.gates), out_dim), np.nan, np.float32)
    kernel.run(batch.gates.copy(), batch.sizes, hidden, cell, outputs, num_threads)
    return outputs, hidden, cell


def normal(seed: int, *shape: int, scale: float = 1.0) -> Array:
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def make_layer(size: int, out_size: int | None, cell_clip: float | None = 3.0, proj_clip: float | None = 3.0) -> Layer:
    """Make a layer with weights as large as trained ones, so that rounding errors fade from step to step."""
    weight_hh = normal(1, 4 * size, out_size or size, scale=(out_size or size) ** -0.5)
    weight_hr = normal(2, out_size, size, scale=size**-0.5) if out_size else None
    return Layer(weight_hh, weight_hr, cell_clip, proj_clip if out_size else None)


def make_batch(layer: Layer, sizes: Sequence[int]) -> Batch:
    columns, out_size = layer.weight_hh.shape
    hidden, cell = normal(4, sizes[0], out_size), normal(5, sizes[0], columns // 4)
    return Batch(normal(3, sum(sizes), columns), sizes, hidden, cell)


SHAPES = [(64, 16), (48, None), (100, 33), (7, 5), (1, 1), (31, None), (130, 70)]
"""H and P; few of them are multiples of a register's 8 or 16 numbers or of a block's 32 or 64."""

BATCHES = [[1] * 7, [3, 1], [6, 6, 5, 5], [13, 12, 11, 7, 2, 1], [40, 38, 21, 14, 9, 4, 1, 1]]

TOLERANCES = {"float32": 1e-6, "bf16": 2e-3, "int8": 1e-2}
"""Bounds for values up to 3. They allow float32 rounding over eight steps, and an operand that is rounded the other
way: a unit of bf16 (1/256 of the operand) or of int8 (1/127 or 1/89 of the largest of its row), times a weight. Wrong
sums are off by far more."""


# --- agreement


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_recurrence_matches_the_equations(level: str, shape: tuple[int, int | None], precision: str) -> None:
    layer = make_layer(*shape)
    for sizes in BATCHES:
        batch = make_batch(layer, sizes)
        for got, wanted in zip(layer.native(batch, precision), layer.reference(batch, precision), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=0, atol=TOLERANCES[precision], err_msg=str(sizes))


@pytest.mark.parametrize("clips", [(None, None), (0.3, None), (None, 0.1), (0.3, 0.1)], ids=str)
def test_clips_are_optional_and_independent(level: str, clips: tuple[float | None, float | None]) -> None:
    layer = make_layer(40, 24, *clips)
    batch = make_batch(layer, [5, 4, 2])
    got, wanted = layer.native(batch, "float32"), layer.reference(batch, "float32")
    for ours, theirs in zip(got, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCES["float32"])
    assert clips[0] is None or np.abs(got[2]).max() == np.float32(clips[0])
    assert clips[1] is None or np.abs(got[0]).max() == np.float32(clips[1])


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 3, 2), (8, 16, 64), (100, 37, 83), (300, 64, 130)], ids=str)
def test_linear_matches_the_product(level: str, shape: tuple[int, int, int], precision: str) -> None:
    """Integers are multiplied exactly and bf16 products are exact in float32, so that only sums are rounded."""
    rows, depth, columns = shape
    x, weight, bias = normal(1, rows, depth), normal(2, columns, depth), normal(3, columns)
    x[0] = 0
    wanted = multiply(x, weight, precision)
    for b in (None, bias):
        for num_threads in (1, 2, 3):
            out = np.full((rows, columns), np.nan, np.float32)
            _native.Linear(weight, b, precision).run(x, out, num_threads)
            np.testing.assert_allclose(out, wanted if b is None else wanted + b, rtol=0, atol=2e-5)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("depth", [1, 6, 8, 333])
def test_the_largest_sums_of_int8_fit(level: str, sign: int, depth: int) -> None:
    """Nothing saturates, even if all numbers are as large as the largest of their row, of one sign or of two."""
    x, weight = np.full((2, depth), 2.0, np.float32), np.full((3, depth), sign * 0.7, np.float32)
    x[1] *= sign
    weight[1, ::3] *= -1
    weight[2, 1:] *= 0.4
    out = np.empty((2, 3), np.float32)
    _native.Linear(weight, None, "int8").run(x, out)
    np.testing.assert_allclose(out, multiply(x, weight, "int8"), rtol=1e-6)
    np.testing.assert_allclose(out, x @ weight.T, rtol=0, atol=0.01 * 1.4 * depth)


def test_nonlinearities_are_exact_to_float32(level: str) -> None:
    """Without recurrent weights, the gates alone determine the results; 3e-7 is two roundings at 1."""
    values = np.concatenate([np.linspace(-12, 12, 1001), [-1e30, -200, -1e-5, 1e-5, 200, 1e30]]).astype(np.float32)
    layer = Layer(np.zeros((4 * len(values), len(values)), np.float32), None, None, None)
    for gate in range(4):
        gates = normal(gate, 1, 4 * len(values))
        gates[0, gate * len(values) : (gate + 1) * len(values)] = values
        batch = Batch(gates, [1], np.zeros((1, len(values)), np.float32), normal(9, 1, len(values)))
        for got, wanted in zip(layer.native(batch, "float32"), layer.reference(batch, "float32"), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=3e-7, atol=3e-7)


WIDTHS = [(1, 4), (2, 32), (3, 64), (7, 130), (5, 17)]
"""Widths and numbers of filters, few of which are multiples of a register's numbers or of a block's."""


def make_words(rows: int, columns: int) -> tuple[Array, Array]:
    """Return random characters, out of 20, and the lengths of words without padding; the first has no padding."""
    lengths = np.random.default_rng(7).integers(0, columns, rows).astype(np.int32)
    lengths[:1] = columns
    ids = np.random.default_rng(8).integers(0, 20, (rows, columns)).astype(np.int32)
    ids[np.arange(columns) >= lengths[:, None]] = 19
    return ids, lengths


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_convolution_matches_the_windows(level: str, activation: str) -> None:
    """2e-6 is float32 rounding of sums of up to seven numbers near 1."""
    tables = [normal(width, width, 20, filters) for width, filters in WIDTHS]
    biases = [normal(width, filters) for width, filters in WIDTHS]
    kernel = _native.Convolution(tables, biases, activation)
    for rows in (0, 1, 2, 33):
        ids, lengths = make_words(rows, 12)
        wanted = np.empty((rows, 0))
        for table, bias in zip(tables, biases, strict=True):
            places = range(12 - len(table) + 1)
            windows = [
                sum(row[ids[:, place + i]].astype(np.float64) for i, row in enumerate(table)) for place in places
            ]
            value = np.max(windows, axis=0) + bias
            wanted = np.hstack([wanted, np.tanh(value) if activation == "tanh" else np.maximum(value, 0)])
        for num_threads in (1, 2, 3):
            out = np.full((rows, kernel.out_dim), np.nan, np.float32)
            kernel.run(ids, lengths, out, num_threads)
            np.testing.assert_allclose(out, wanted, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ids": np.full((3, 12), 20, np.int32)}, "ids holds 20 to 20, but there are 20 characters"),
        ({"ids": np.full((3, 12), -1, np.int32)}, "ids holds -1 to -1"),
        ({"ids": np.zeros((3, 6), np.int32)}, "ids has 6 columns, but must have 7, the width of the filters, to 255"),
        ({"ids": np.zeros((3, 0), np.int32)}, "ids has 0 columns"),
        ({"ids": np.zeros(3, np.int32)}, r"ids is \(3,\), but must have two dimensions"),
        ({"ids": np.zeros((3, 12))}, "ids is float64, but must be int32"),
        ({"lengths": np.full(3, 13, np.int32)}, "lengths holds 13 to 13, but there are 12 columns"),
        ({"lengths": np.zeros(2, np.int32)}, r"lengths is \(2,\), but must be \(3,\)"),
        ({"out": np.zeros((3, 8), np.float32)}, r"out is \(3, 8\), but must be \(3, 7\)"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_bad_words_are_refused(changed: dict[str, Any], message: str) -> None:
    arguments = {"ids": np.zeros((3, 12), np.int32), "lengths": np.full(3, 6, np.int32)}
    kernel = _native.Convolution([normal(1, 7, 20, 4), normal(2, 1, 20, 3)], [normal(3, 4), normal(4, 3)], "relu")
    with pytest.raises(ValueError, match=message):
        kernel.run(**{**arguments, "out": np.zeros((3, 7), np.float32), **changed})


def test_bad_tables_are_refused() -> None:
    table, bias = normal(1, 3, 20, 4), normal(2, 4)
    with pytest.raises(ValueError, match=r"a table is \(2, 21, 4\), but must be \(width, A, K\)"):
        _native.Convolution([table, normal(1, 2, 21, 4)], [bias, bias], "relu")
    with pytest.raises(ValueError, match=r"bias is \(3,\), but must be \(4,\)"):
        _native.Convolution([table], [bias[:3].copy()], "relu")
    with pytest.raises(ValueError, match="activation is 'gelu'"):
        _native.Convolution([table], [bias], "gelu")
    with pytest.raises(ValueError, match="tables is empty"):
        _native.Convolution([], [], "relu")


def test_highway_matches_the_equation(level: str) -> None:
    """1e-6 is float32 rounding of numbers up to 3; gates far from 0 are open or closed."""
    for rows, size in [(0, 5), (1, 1), (3, 40), (9, 130)]:
        x, products = normal(1, rows, size), normal(2, rows, 2 * size, scale=2)
        products[:1, size:] = [[-1e30, 1e30][size % 2]]
        transformed, gate = np.maximum(products[:, :size], 0).astype(np.float64), sigmoid(products[:, size:])
        for num_threads in (1, 2):
            out = x.copy()
            _native.highway(products, out, num_threads)
            np.testing.assert_allclose(out, gate * transformed + (1 - gate) * x, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("precision", "cosine"), [("bf16", 0.9999), ("int8", 0.999)])
def test_lower_precision_costs_no_more_than_rounding_the_operands(level: str, precision: str, cosine: float) -> None:
    """Compared with the exact product: bf16 has 8 bits for each number, int8 7 or 6.5 for the largest of a row."""
    layer = make_layer(256, 64)
    batch = make_batch(layer, [8] * 10)
    got, wanted = layer.native(batch, precision)[0].ravel(), layer.reference(batch, "float32")[0].ravel()
    assert got @ wanted / np.sqrt(got @ got * (wanted @ wanted)) > cosine


# --- what must not change a bit


@pytest.mark.parametrize("precision", PRECISIONS)
def test_rows_do_not_depend_on_their_batch_or_on_threads(level: str, precision: str) -> None:
    """Each number is summed in the same order whatever tile it is in, so not a bit may differ."""
    layer = make_layer(72, 40)
    batch = make_batch(layer, [27, 25, 19, 12, 11, 6, 3, 1])
    whole = layer.native(batch, precision)
    for num_threads in (2, 3):
        for ours, theirs in zip(layer.native(batch, precision, num_threads), whole, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    starts = np.cumsum([0, *batch.sizes[:-1]])
    for row in (0, 5, 11, 26):
        tokens = [int(start) + row for start, rows in zip(starts, batch.sizes, strict=True) if row < rows]
        own = slice(row, row + 1)
        alone = Batch(batch.gates[tokens], [1] * len(tokens), batch.hidden[own], batch.cell[own])
        outputs, hidden, cell = layer.native(alone, precision)
        np.testing.assert_array_equal(outputs, whole[0][tokens])
        np.testing.assert_array_equal(hidden, whole[1][own])
        np.testing.assert_array_equal(cell, whole[2][own])


@pytest.mark.parametrize("is_flushed", [False, True])
def test_threads_flush_subnormal_numbers_as_their_caller_does(is_flushed: bool) -> None:
    """The threads of a pool are older than the call, and may have been started in the other mode."""
    torch = pytest.importorskip("torch", reason="needs torch, which sets the mode")
    tiny = np.float32(2**-130)  # below 2^-126, the smallest normal number
    product = _native.Linear(np.full((1000, 1), tiny, np.float32), None, "float32")
    ones = np.ones((3, 1), np.float32)
    for mode in (not is_flushed, is_flushed):
        if not torch.set_flush_denormal(mode):
            pytest.skip("this processor can't flush subnormal numbers")
        try:
            out = np.full((3, 1000), np.nan, np.float32)
            product.run(ones, out, 3)
        finally:
            torch.set_flush_denormal(False)
        np.testing.assert_array_equal(out, np.float32(0) if mode else tiny)


def test_calls_of_several_threads_do_not_disturb_each_other() -> None:
    """Six threads use one object at the same time, each with two threads of the pool."""
    layer = make_layer(96, 32)
    kernel = _native.Recurrence(*layer, "bf16")
    batches = [make_batch(layer, [rows] * 20) for rows in (1, 3, 14, 2, 17, 1)]
    wanted = [run(kernel, batch, 32) for batch in batches]
    with ThreadPoolExecutor(len(batches)) as pool:
        for _ in range(3):
            for got, own in zip(pool.map(lambda batch: run(kernel, batch, 32, 2), batches), wanted, strict=True):
                for ours, theirs in zip(got, own, strict=True):
                    np.testing.assert_array_equal(ours, theirs)


def test_nan_does_not_spread_to_other_rows(level: str) -> None:
    layer = make_layer(20, 12)
    batch = make_batch(layer, [4, 4])
    batch.gates[1, 3] = np.nan
    for precision in PRECISIONS:
        outputs, hidden, cell = layer.native(batch, precision)
        assert np.isnan(cell[1, 3])
        assert np.isnan(hidden[1]).all()
        assert np.isfinite(np.delete(outputs, [1, 5], axis=0)).all()


@pytest.mark.parametrize("bits", [0x7FC00000, 0xFFC00000, 0x7FFFFFFF, 0x7F800001], ids=hex)
def test_nan_in_a_weight_or_a_row_is_not_rounded_to_a_number(level: str, bits: int) -> None:
    """There are several bit patterns of NaN. Rounding that of GPUs (0x7FFFFFFF) to bf16 would carry into its sign."""
    nan = np.array([bits], np.uint32).view(np.float32)[0]
    for precision in PRECISIONS:
        weight, rows = np.ones((3, 40), np.float32), np.ones((3, 40), np.float32)
        weight[1, 5] = rows[2, 7] = nan
        out = np.empty((3, 3), np.float32)
        _native.Linear(weight, None, precision).run(rows, out)
        np.testing.assert_array_equal(np.isnan(out), [[False, True, False]] * 2 + [[True] * 3])
        np.testing.assert_allclose(out[:2, ::2], 40, rtol=1e-2)


@pytest.mark.parametrize("sign", [1, -1])
def test_an_infinite_number_gives_none_of_the_wrong_sign(level: str, sign: int) -> None:
    """int8 has no infinity, so it gives NaN."""
    weight, rows = np.float32([[1, 2, 3, 4], [-1, 2, 3, 4]]), np.ones((2, 4), np.float32)
    rows[1, 0] = sign * np.inf
    for precision in PRECISIONS:
        out = np.empty((2, 2), np.float32)
        _native.Linear(weight, None, precision).run(rows, out)
        assert np.isfinite(out[0]).all()
        assert np.isnan(out[1]).all() if precision == "int8" else out[1].tolist() == [sign * np.inf, -sign * np.inf]


@pytest.mark.skipif(not hasattr(signal, "sigwait"), reason="only Unix has sigwait")
def test_workers_take_no_signals() -> None:
    """A program may block a signal and wait for it. One that reached a worker would kill it."""
    code = """
import os, signal
import numpy as np
from elmo import _native
kernel = _native.Linear(np.eye(256, dtype=np.float32), None, "float32")
kernel.run(np.ones((3, 256), np.float32), np.zeros((3, 256), np.float32), 2)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
os.kill(os.getpid(), signal.SIGUSR1)
assert signal.sigwait({signal.SIGUSR1}) == signal.SIGUSR1
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_forked_process_starts_its_own_threads() -> None:
    """A fork does not copy threads: a child that waited for its parent's threads would hang."""
    code = """
import os
import numpy as np
from elmo import _native
kernel = _native.Linear(np.eye(256, dtype=np.float32), None, "float32")
x, out = np.ones((3, 256), np.float32), np.zeros((3, 256), np.float32)
kernel.run(x, out, 2)
child = os.fork()
if child == 0:
    out[:] = 0
    kernel.run(x, out, 2)
    os._exit(0 if (out == 1).all() else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# --- arguments and switches


def test_batches_without_tokens() -> None:
    layer = make_layer(8, 4)
    outputs, hidden, cell = (np.empty((0, n), np.float32) for n in (4, 4, 8))
    _native.Recurrence(*layer, "float32").run(np.empty((0, 32), np.float32), [], hidden, cell, outputs)
    _native.Linear(layer.weight_hh, None, "float32").run(hidden, np.empty((0, 32), np.float32))


def test_empty_arrays_begin_at_a_cache_line() -> None:
    for shape in [(3, 5), (1,), (7, 2, 9)]:
        array = _native.empty(*shape)
        assert array.shape == shape
        assert array.dtype == np.float32
        assert array.flags.c_contiguous
        assert array.__array_interface__["data"][0] % 64 == 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sizes": [2, 3]}, r"batch_sizes must be positive and must not increase, but are \[2, 3\]"),
        ({"sizes": [3, 0]}, "batch_sizes must be positive"),
        ({"sizes": [3, 2.5]}, r"batch_sizes must be whole numbers, but are \[3, 2\.5\]"),
        ({"sizes": [3, 1]}, r"gates is \(5, 32\), but must be \(4, 32\)"),
        ({"gates": np.zeros((5, 32))}, "gates is float64, but must be float32"),
        ({"hidden": np.zeros((4, 4), np.float32)}, r"hidden is \(4, 4\), but must be \(3, 4\)"),
        ({"cell": np.zeros((8, 3), np.float32).T}, "cell must be contiguous in C order"),
        ({"outputs": np.broadcast_to(np.float32(0), (5, 4))}, "outputs must be contiguous"),
        ({"cell": np.zeros(97, np.uint8)[1:].view(np.float32).reshape(3, 8)}, "cell must be aligned to its numbers"),
        ({"outputs": np.frombuffer(bytes(80), np.float32).reshape(5, 4)}, "outputs is read-only, but must be writable"),
        ({"num_threads": 0}, "num_threads is 0, but must be at least 1"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_bad_arguments_are_refused(changed: dict[str, Any], message: str) -> None:
    shapes = {"gates": (5, 32), "hidden": (3, 4), "cell": (3, 8), "outputs": (5, 4)}
    arguments: dict[str, Any] = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    arguments = {**arguments, "sizes": [3, 2], **changed}
    kernel = _native.Recurrence(*make_layer(8, 4), "float32")
    with pytest.raises(ValueError, match=message):
        kernel.run(batch_sizes=arguments.pop("sizes"), **arguments)


def test_results_are_not_written_where_arguments_are_read() -> None:
    x = np.zeros((4, 4), np.float32)
    with pytest.raises(ValueError, match="out and x must not overlap"):
        _native.Linear(normal(1, 4, 4), None, "float32").run(x, x)
    cells = np.zeros((5, 8), np.float32)
    outputs, gates, hidden = cells.reshape(-1)[:20].reshape(5, 4), np.zeros((5, 32), np.float32), np.zeros((3, 4))
    kernel = _native.Recurrence(*make_layer(8, 4), "float32")
    with pytest.raises(ValueError, match="outputs and cell must not overlap"):
        kernel.run(gates, [3, 2], hidden.astype(np.float32), cells[:3], outputs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros((10, 4), np.float32), None, None, None), "weight_hh is .*, as there is no projection"),
        ((np.zeros((8, 4), np.float32), None, None, None), "weight_hh is .*, as there is no projection"),
        ((np.zeros((8, 4), np.float32), np.zeros((2, 4), np.float32), None, None), "weight_hr is"),
        ((np.zeros((8, 2), np.float32), None, None, 3.0), "proj_clip is 3.0, but there is no projection"),
        ((np.zeros((8, 2), np.float32), None, -1.0, None), "cell_clip is -1.0, but must be positive"),
        ((np.zeros((0, 2), np.float32), None, None, None), "none of them empty"),
    ],
)
def test_bad_weights_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _native.Recurrence(*arguments, "float32")


@pytest.mark.parametrize("level", ["avx512_amx", "avx512_bf16", "avx512_vnni", "avx2", "neon_bf16", "neon_dot", "neon"])
def test_only_some_instruction_sets_multiply_bf16(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "LEVELS", [level])
    assert _native.multiplies_bf16() == (level in ("avx512_amx", "avx512_bf16", "neon_bf16"))


@pytest.mark.parametrize("level", ["avx512_amx", "avx512_bf16", "avx512_vnni", "neon_bf16"])
@pytest.mark.parametrize("is_intel", [True, False])
def test_bf16_gains_where_its_instructions_are_fast(
    level: str, is_intel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_native, "LEVELS", [level, "avx2"])
    monkeypatch.setattr(_native, "IS_INTEL", is_intel)
    assert _native.gains_by_bf16() == (level == "avx512_amx" or (level == "avx512_bf16" and not is_intel))


@pytest.mark.skipif(
    platform.machine() != "x86_64" or not Path("/proc/cpuinfo").exists(), reason="asks Linux about an x86-64 processor"
)
def test_the_maker_of_the_processor_is_recognized() -> None:
    names_intel = "GenuineIntel" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    assert names_intel == _native.IS_INTEL


def test_int8_refuses_more_products_than_a_sum_can_hold() -> None:
    """2 ** 31 / 127 ** 2 is 133,144.05. The sum of one more product of the largest numbers would turn negative."""
    deep, message = np.ones((4, 133_145), np.float32), "has a depth of 133145, but int8 sums up to 133144 products"
    with pytest.raises(ValueError, match=f"weight {message}"):
        _native.Linear(deep, None, "int8")
    with pytest.raises(ValueError, match=f"weight_hh {message}"):
        _native.Recurrence(deep, np.ones((133_145, 1), np.float32), None, None, "int8")
    deep = deep[:, 1:].copy()
    product, out = _native.Linear(deep, None, "int8"), np.empty((1, 4), np.float32)
    product.run(deep[:1], out)
    np.testing.assert_allclose(out, multiply(deep[:1], deep, "int8"), rtol=1e-6)
    np.testing.assert_allclose(out, 133_144, rtol=0.01)


def test_a_thread_that_computes_does_not_keep_python_from_ending() -> None:
    """Until 3.14, Python ends other threads by unwinding their stacks, which C++ may take for an error and abort."""
    program = """
import threading, time
import numpy as np
from elmo import _native

x, out = np.ones((64, 64), np.float32), np.empty((64, 64), np.float32)
product = _native.Linear(x, None, "float32")
def compute():
    while True:
        product.run(x, out)
threading.Thread(target=compute, daemon=True).start()
time.sleep(0.2)
"""
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_program_may_wait_for_its_threads_when_it_ends() -> None:
    """A thread that the program stops at exit comes out of its last call: kernels hold back none before that."""
    pytest.importorskip("elmo.embed", reason="needs more than the kernels")
    program = """
import atexit, sys, threading, time
import elmo

stop = threading.Event()
atexit.register(lambda: (stop.set(), thread.join(), print("joined")))
model = elmo.load(sys.argv[1])

def embed():
    while not stop.is_set():
        model.embed([["They", "saw", "it"]])

thread = threading.Thread(target=embed, daemon=True)
thread.start()
time.sleep(0.2)
"""
    command = [sys.executable, "-c", program, "en"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert (done.returncode, done.stdout) == (0, "joined\n"), done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="only Unix forks")
def test_a_fork_may_pack_weights_while_another_thread_does() -> None:
    """The child has no thread that would open a lock which was copied shut. (Of 200 forks, 3 used to hang.)"""
    program = """
import os, sys, threading, time
import numpy as np
from elmo import _native
from elmo._native import training_kernels

def layer(size, width):
    shapes = (4 * size, width + size), (4 * size,), (1, size), (1, width + size), (1, 4 * size), (1, size), (1, size)
    weight, bias, before, joined, gates, cell, outputs = (np.zeros(shape, np.float32) for shape in shapes)
    return weight, None, bias, [1], before, joined, gates, cell, None, outputs, (None, None)

for number in range(8):  # from then on, weights that are given back replace others
    training_kernels.lstm_forward(*layer(16, 16 + 16 * number))
is_done = False
def train():
    arguments = layer(64, 8192)
    while not is_done:
        training_kernels.lstm_forward(*arguments)
thread = threading.Thread(target=train)
thread.start()
end, hung = time.monotonic() + 8, 0
while time.monotonic() < end and not hung:
    child = os.fork()
    if child == 0:
        _native.Linear(np.zeros((16, 16), np.float32), None, "float32")
        os._exit(0)
    late = time.monotonic() + 5
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > late:
            os.kill(child, 9)
            hung += 1
            os.waitpid(child, 0)
            break
        time.sleep(0.0005)
is_done = True
thread.join()
sys.exit(hung)
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=120).returncode == 0


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'float16' is not among .* \(bf16, float32, int8\)"):
        _native.Linear(np.zeros((2, 2), np.float32), None, "float16")


def test_a_processor_without_kernels_has_no_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "LEVELS", [])
    assert _native.available() == frozenset()
    with pytest.raises(ValueError, match="is not built, does not support this processor, or ELMO_NATIVE=0 is set"):
        _native.Linear(np.zeros((2, 2), np.float32), None, "float32")


def test_environment_turns_the_kernels_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELMO_NATIVE", "0")
    assert _native.available() == frozenset()
    assert not _native.multiplies_bf16()
    assert not _native.gains_by_bf16()
    with pytest.raises(ValueError, match="ELMO_NATIVE=0 is set"):
        _native.Linear(np.zeros((2, 2), np.float32), None, "float32")
