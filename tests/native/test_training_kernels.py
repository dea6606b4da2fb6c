"""The native kernels of training compared with plain NumPy in float64, for every instruction set that this machine has.

Gradients are compared with differences of the loss, so that no derivative is written down twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from elmo._native import training_kernels
from levels import needs_native
from oracle import clip, sigmoid

pytestmark = needs_native

Array = np.ndarray


class Layer:
    """A layer, a packed batch whose rows end at different steps, and a loss of its outputs and cells."""

    def __init__(self, size: int, in_size: int, out_size: int | None, clips: tuple[float | None, float | None]) -> None:
        random = np.random.default_rng(size)
        self.sizes, self.size, self.in_size, self.clips = [3, 3, 2, 1], size, in_size, clips
        self.out_size = out_size or size
        N, rows, width = sum(self.sizes), self.sizes[0], in_size + self.out_size
        self.given: dict[str, Array] = {
            "weight": random.standard_normal((4 * size, width)) * width**-0.5,
            "bias": random.standard_normal(4 * size),
            "inputs": random.standard_normal((N, in_size)),
            "hidden": random.standard_normal((rows, self.out_size)),
            "cell": random.standard_normal((rows, size)),
        }
        if out_size:
            self.given["weight_hr"] = random.standard_normal((out_size, size)) * size**-0.5
        self.given = {name: array.astype(np.float32).astype(np.float64) for name, array in self.given.items()}
        self.d_outputs = random.standard_normal((N, self.out_size)).astype(np.float32)
        self.d_cells = random.standard_normal((N, size)).astype(np.float32)

    def reference(self, given: dict[str, Array]) -> tuple[Array, Array]:
        """Compute outputs and cells by the equations of Sak et al. 2014."""
        hidden, cell, outputs, cells, start = given["hidden"], given["cell"], [], [], 0
        for rows in self.sizes:
            joined = np.hstack([given["inputs"][start : start + rows], hidden[:rows]])
            i, j, f, o = np.split(joined @ given["weight"].T + given["bias"], 4, axis=1)
            cell = clip(sigmoid(f) * cell[:rows] + sigmoid(i) * np.tanh(j), self.clips[0])
            hidden = sigmoid(o) * np.tanh(cell)
            if "weight_hr" in given:
                hidden = clip(hidden @ given["weight_hr"].T, self.clips[1])
            outputs.append(hidden)
            cells.append(cell)
            start += rows
        return np.concatenate(outputs), np.concatenate(cells)

    def loss(self, given: dict[str, Array]) -> float:
        outputs, cells = self.reference(given)
        return float((outputs * self.d_outputs).sum() + (cells * self.d_cells).sum())

    def native(self, num_threads: int = 1) -> tuple[Array, Array, dict[str, Array]]:
        """Return outputs, cells and the gradients of everything that is given, by name."""
        given = {name: array.astype(np.float32) for name, array in self.given.items()}
        N, rows, size, width = sum(self.sizes), self.sizes[0], self.size, self.in_size + self.out_size
        weight_hr, has_projection = given.get("weight_hr"), "weight_hr" in given
        joined = np.full((N, width), np.nan, np.float32)
        joined[:, : self.in_size], joined[:rows, self.in_size :] = given["inputs"], given["hidden"]
        gates, cells, mixed = (np.full((N, n), np.nan, np.float32) for n in (4 * size, size, size))
        outputs, d_out = (np.full((N, self.out_size), np.nan, np.float32) for _ in range(2))
        d_gates, d_joined, d_cell = np.empty_like(gates), np.empty_like(joined), np.zeros_like(given["cell"])
        training_kernels.lstm_forward(
            *(given["weight"], weight_hr, given["bias"], self.sizes, given["cell"], joined, gates, cells),
            *(mixed if has_projection else None, outputs, self.clips, num_threads),
        )
        training_kernels.lstm_backward(
            *(given["weight"], weight_hr, self.sizes, given["cell"], gates, cells, outputs, self.d_outputs),
            *(self.d_cells, d_cell, d_gates, d_out if has_projection else None, d_joined, self.clips, num_threads),
        )
        ordered = d_gates.reshape(N, *training_kernels.gate_order(size)).swapaxes(1, 2).reshape(N, 4 * size)
        gradients = {
            "weight": ordered.T @ joined,
            "bias": ordered.sum(axis=0),
            "inputs": d_joined[:, : self.in_size],
            "hidden": d_joined[:rows, self.in_size :],
            "cell": d_cell,
        }
        return outputs, cells, gradients | ({"weight_hr": d_out.T @ mixed} if has_projection else {})


def differences(loss: Callable[[dict[str, Array]], float], given: dict[str, Array], name: str) -> Array:
    """Compute the gradient of a loss by each number of an array from differences that are exact to about 1e-8."""
    gradient, step = np.empty(given[name].size), 1e-5
    for place in range(len(gradient)):
        moved = []
        for sign in (1, -1):
            other = given[name].copy()
            other.flat[place] += sign * step
            moved.append(loss({**given, name: other}))
        gradient[place] = (moved[0] - moved[1]) / (2 * step)
    return gradient.reshape(given[name].shape)


LAYERS = [(5, 3, 2, (0.6, 0.2)), (16, 2, 5, (0.9, None)), (20, 2, None, (None, None)), (16, 3, 3, (None, 0.3))]


@pytest.fixture(scope="module", params=LAYERS, ids=str)
def layer(request: pytest.FixtureRequest) -> tuple[Layer, dict[str, Array]]:
    """Return a layer, made from H, I, P (None without a projection) and the clips, and its gradients by differences."""
    layer = Layer(*request.param)
    return layer, {name: differences(layer.loss, layer.given, name) for name in layer.given}


def test_a_layer_of_training_follows_the_equations(level: str, layer: tuple[Layer, dict[str, Array]]) -> None:
    """2e-6 is float32 rounding over four steps. Gradients are larger and are sums of more numbers, hence their 2e-5."""
    problem, wanted = layer
    for num_threads in (1, 2, 3):
        outputs, cells, gradients = problem.native(num_threads)
        for got, expected in zip((outputs, cells), problem.reference(problem.given), strict=True):
            np.testing.assert_allclose(got, expected, rtol=0, atol=2e-6)
        for name, gradient in gradients.items():
            np.testing.assert_allclose(gradient, wanted[name], rtol=0, atol=2e-5, err_msg=name)


def test_a_batch_without_steps_runs_nothing(level: str) -> None:
    """If it ran, the extension would read the number of rows from an empty list."""
    nothing = {n: np.empty((0, n), np.float32) for n in (2, 4, 6, 16)}
    weight, weight_hr, bias = np.ones((16, 6), np.float32), np.ones((2, 4), np.float32), np.ones(16, np.float32)
    arrays = weight, weight_hr, bias, [], nothing[4], nothing[6], nothing[16], nothing[4], nothing[4], nothing[2]
    training_kernels.lstm_forward(*arrays, (None, None))
    arrays = weight, weight_hr, [], nothing[4], nothing[16], nothing[4], nothing[2], nothing[2], None, nothing[4]
    training_kernels.lstm_backward(*arrays, nothing[16], nothing[2], nothing[6], (None, None))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"weight": (0, 6)}, r"weight is \(0, 6\), but must have two dimensions, none of them empty"),
        ({"weight": (16,)}, r"weight is \(16,\), but must have two dimensions"),
        ({"cell_before": (4,)}, r"cell_before is \(4,\), but must have two dimensions"),
        ({"outputs": (4,)}, r"outputs is \(4,\), but must have two dimensions"),
    ],
    ids=str,
)
def test_a_layer_without_cells_or_a_dimension_is_refused(shapes: dict[str, tuple[int, ...]], message: str) -> None:
    """Without cells, the backward pass would leave the gradient of `joined` as it was."""
    usual = {"weight": (16, 6), "cell_before": (1, 4), "outputs": (1, 4), "joined": (1, 6), "gates": (1, 16)}
    usual |= {"bias": (16,), "cell": (1, 4)}
    arrays = {name: np.zeros(shape, np.float32) for name, shape in (usual | shapes).items()}
    with pytest.raises(ValueError, match=message):
        training_kernels.lstm_forward(**arrays, weight_hr=None, batch_sizes=[1], mixed=None, clips=(None, None))


def test_the_clips_of_these_layers_matter() -> None:
    for size, in_size, out_size, clips in LAYERS:
        outputs, cells = (problem := Layer(size, in_size, out_size, clips)).reference(problem.given)
        for values, limit in ((cells, clips[0]), (outputs, clips[1])):
            assert limit is None or 0.02 < (np.abs(values) == limit).mean() < 0.98


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("filters", [1, 16, 70])
def test_features_and_their_gradient_are_those_of_look_ups(level: str, filters: int, activation: str) -> None:
    """The filters fill a wider array from column 2 on, and its other columns stay as they are."""
    random = np.random.default_rng(0)
    table, bias = random.standard_normal((3, 20, filters)).astype(np.float32), random.standard_normal(filters)
    ids, lengths = random.integers(0, 19, (9, 12)).astype(np.int32), random.integers(0, 13, 9).astype(np.int32)
    for row, length in zip(ids, lengths, strict=True):
        row[length:] = 19
    windows = np.stack([sum(table[i][ids[:, place + i]] for i in range(3)) for place in range(10)])
    bias = (bias - 2).astype(np.float32)  # so that relu cuts some of the maxima, which are mostly positive
    sums = windows.max(axis=0) + bias
    wanted, slope = (np.tanh(sums), 1 - np.tanh(sums) ** 2) if activation == "tanh" else (sums * (sums > 0), sums > 0)
    columns = slice(2, 2 + filters)
    gradient = random.standard_normal((9, filters + 3)).astype(np.float32)
    out, places = np.full((9, filters + 3), 7, np.float32), np.empty((9, filters), np.uint8)
    training_kernels.find_maxima(table, bias, ids, lengths, out, 2, places, activation)
    np.testing.assert_allclose(out[:, columns], wanted, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(np.delete(out, np.arange(2, 2 + filters), axis=1), 7)
    np.testing.assert_array_equal(places, windows.argmax(axis=0))
    d_table, d_bias, inner = np.ones_like(table), np.ones_like(bias), gradient[:, columns] * slope
    training_kernels.add_to_table(out, gradient, 2, ids, places, activation, d_table, d_bias)
    wanted = np.ones(table.shape)
    for row in range(9):
        for k in range(filters):
            for i in range(3):
                wanted[i, ids[row, windows[:, row, k].argmax() + i], k] += inner[row, k]
    np.testing.assert_allclose(d_table, wanted, rtol=0, atol=2e-6)
    np.testing.assert_allclose(d_bias, 1 + inner.sum(axis=0), rtol=0, atol=2e-6)


def reference_highway(given: dict[str, Array]) -> Array:
    transformed, gate = np.split(given["products"] + given["bias"], 2, axis=1)
    return given["x"] + sigmoid(gate) * (np.maximum(transformed, 0) - given["x"])


@pytest.mark.parametrize("size", [1, 16, 37])
def test_a_highway_of_training_follows_its_equation(level: str, size: int) -> None:
    """5e-7 is float32 rounding; no number is so close to 0 that differences would cross the bend of relu."""
    random = np.random.default_rng(size)
    shapes = {"products": (5, 2 * size), "bias": (2 * size,), "x": (5, size)}
    given = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    exact = {name: array.astype(np.float64) for name, array in given.items()}
    d_out = random.standard_normal((5, size)).astype(np.float32)
    wanted = {name: differences(lambda g: float((reference_highway(g) * d_out).sum()), exact, name) for name in exact}
    for num_threads in (1, 2, 3):
        out, d_x = np.full((5, size), np.nan, np.float32), np.full((5, size), np.nan, np.float32)
        d_products, d_bias = np.full((5, 2 * size), np.nan, np.float32), np.zeros((num_threads, 2 * size), np.float32)
        training_kernels.highway_forward(given["products"], given["bias"], given["x"], out, num_threads)
        training_kernels.highway_backward(given["products"], given["bias"], given["x"], d_out, d_products, d_x, d_bias)
        np.testing.assert_allclose(out, reference_highway(exact), rtol=0, atol=5e-7)
        for got, name in ((d_products, "products"), (d_x, "x"), (d_bias.sum(axis=0), "bias")):
            np.testing.assert_allclose(got, wanted[name], rtol=0, atol=2e-6, err_msg=name)


def test_a_highway_reads_and_writes_products_of_bf16(level: str) -> None:
    """Results are those of the rounded products in float32, but what is written may be off by half a bf16 step."""
    random = np.random.default_rng(0)
    words = (random.standard_normal((4, 40)).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    products = (words.astype(np.uint32) << 16).view(np.float32)
    bias, x, d_out = (random.standard_normal(shape).astype(np.float32) for shape in ((40,), (4, 20), (4, 20)))
    results = []
    for given in (words, products):
        out, d_x, d_bias, d_products = np.empty_like(x), np.empty_like(x), np.zeros((1, 40), np.float32), given.copy()
        training_kernels.highway_forward(given, bias, x, out)
        training_kernels.highway_backward(given, bias, x, d_out, d_products, d_x, d_bias)
        results.append((out, d_x, d_bias, d_products))
    for narrow, wide in zip(results[0][:3], results[1][:3], strict=True):
        np.testing.assert_array_equal(narrow, wide)
    narrow, wide = (results[0][3].astype(np.uint32) << 16).view(np.float32), results[1][3]
    assert (np.abs(narrow - wide) <= 2**-8 * np.abs(wide)).all()


def test_bf16_keeps_nan_of_all_bits(level: str) -> None:
    """Rounding 0x7fffffff up would give the bits of -0."""
    products, bias, x = np.full((1, 64), 0x3F80, np.uint16), np.zeros(64, np.float32), np.zeros((1, 32), np.float32)
    d_out, d_products, d_bias = np.ones_like(x), np.zeros_like(products), np.zeros((1, 64), np.float32)
    d_out[:, ::2] = np.array(0x7FFFFFFF, np.uint32).view(np.float32)
    training_kernels.highway_backward(products, bias, x, d_out, d_products, np.empty_like(x), d_bias)
    found = (d_products.astype(np.uint32) << 16).view(np.float32).reshape(2, 32)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(d_out).repeat(2, axis=0))


@pytest.mark.parametrize("columns", [1, 16, 37])
def test_the_softmax_of_training_follows_its_definition(level: str, columns: int) -> None:
    """Each row has its own target score, whose column, if it is among the columns, is left out of the sum."""
    random = np.random.default_rng(columns)
    scores, bias = random.standard_normal((5, columns)).astype(np.float32), random.standard_normal(columns)
    bias, targets = bias.astype(np.float32), (3 * random.standard_normal(5)).astype(np.float32)
    own = np.array([-1, 0, columns - 1, -1, columns // 2])
    powers = np.exp((scores + bias).astype(np.float64))
    powers[np.flatnonzero(own >= 0), own[own >= 0]] = 0
    total = powers.sum(axis=1) + np.exp(targets.astype(np.float64))
    for num_threads in (1, 2):
        products, losses, target_probs = scores.copy(), np.empty(5, np.float32), np.empty(5, np.float32)
        d_bias = np.zeros((num_threads, columns), np.float32)
        training_kernels.softmax(products, bias, targets, own, losses, target_probs, d_bias)
        np.testing.assert_allclose(products, powers / total[:, None], rtol=0, atol=5e-7)
        np.testing.assert_allclose(losses, np.log(total) - targets, rtol=0, atol=2e-6)
        np.testing.assert_allclose(target_probs, np.exp(targets) / total, rtol=0, atol=5e-7)
        np.testing.assert_allclose(d_bias.sum(axis=0), (powers / total[:, None]).sum(axis=0), rtol=0, atol=1e-6)


def test_native_maxima_keep_nan_and_do_not_depend_on_threads(level: str) -> None:
    random = np.random.default_rng(0)
    table, bias = random.standard_normal((3, 20, 70)).astype(np.float32), np.zeros(70, np.float32)
    table[:, 5, 1] = np.nan
    ids, lengths = random.integers(0, 20, (9, 12)).astype(np.int32), np.full(9, 12, np.int32)
    gradient = random.standard_normal((9, 70)).astype(np.float32)
    results = []
    for num_threads in (1, 3):
        out, places, d_table = np.empty((9, 70), np.float32), np.empty((9, 70), np.uint8), np.zeros_like(table)
        d_bias = np.zeros_like(bias)
        training_kernels.find_maxima(table, bias, ids, lengths, out, 0, places, "relu", num_threads)
        training_kernels.add_to_table(out, gradient, 0, ids, places, "relu", d_table, d_bias, num_threads)
        results.append((out, places, d_table, d_bias))
    for alone, together in zip(*results, strict=True):
        np.testing.assert_array_equal(alone, together)
    np.testing.assert_array_equal(np.isnan(results[0][0][:, 1]), (ids == 5).any(axis=1))
    assert np.isfinite(np.delete(results[0][0], 1, axis=1)).all()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ids": np.full((3, 12), 20, np.int32)}, "ids holds 20 to 20, but there are 20 characters"),
        (
            {"ids": np.zeros((3, 256), np.int32)},
            "ids has 256 columns, but must have 7, the width of the filters, to 255",
        ),
        ({"places": np.full((3, 4), 6, np.uint8)}, "places holds 6, but the last window of 12 columns is 5"),
        ({"places": np.zeros((3, 5), np.uint8)}, r"places is \(3, 5\), but must be \(3, 4\)"),
        ({"d_out": np.zeros((3, 6))}, "d_out is float64, but must be float32"),
        ({"offset": 3}, "out has 6 columns, but 4 filters begin at column 3"),
        ({"activation": "selu"}, "activation is 'selu', but must be 'relu' or 'tanh'"),
        ({"d_table": np.zeros((7, 20, 0), np.float32)}, r"d_table is \(7, 20, 0\), but must have three dimensions"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_the_native_backward_pass_refuses_what_it_would_write_elsewhere(changed: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {name: np.zeros((3, 6), np.float32) for name in ("out", "d_out")}
    arguments |= {"offset": 2, "ids": np.zeros((3, 12), np.int32), "activation": "relu"}
    arguments |= {"places": np.zeros((3, 4), np.uint8), "d_table": np.zeros((7, 20, 4), np.float32)}
    arguments |= {"d_bias": np.zeros(4, np.float32), **changed}
    with pytest.raises(ValueError, match=message):
        training_kernels.add_to_table(**arguments)


def test_a_gradient_without_a_row_for_a_thread_is_refused() -> None:
    products, bias, x = np.zeros((3, 8), np.float32), np.zeros(8, np.float32), np.zeros((3, 4), np.float32)
    none = np.zeros((0, 8), np.float32)
    with pytest.raises(ValueError, match=r"^d_bias has no rows, but must have one for each thread$"):
        training_kernels.highway_backward(products, bias, x, x.copy(), products.copy(), x.copy(), none)
    scores, own = np.zeros(3, np.float32), np.zeros(3, np.int64)
    with pytest.raises(ValueError, match=r"^d_bias has no rows, but must have one for each thread$"):
        training_kernels.softmax(products, bias, scores, own, scores.copy(), scores.copy(), none)
