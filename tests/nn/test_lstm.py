"""The LSTMs equal the oracle, and their native steps equal torch's on every instruction set of this machine."""

from itertools import groupby
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call

from bridge import build, state_of
from comparing import count_calls
from elmo._native import training_kernels
from elmo.config import LSTMConfig
from elmo.nn.lstm import LSTMLayer, LSTMStack, LSTMState
from elmo.nn.precision import PRODUCTS, own_products
from levels import needs_native
from oracle import Oracle
from threads import torch_threads

VARIANTS = ["base", "no_projection", "no_skip_connections", "no_clips", "one_layer", "three_layers"]


def packed(rows: list[np.ndarray]) -> tuple[Tensor, list[int], list[tuple[int, int]]]:
    """Return rows of falling length, packed step by step, with the batch sizes and (row, step) of each packed token."""
    places = [(row, step) for step in range(len(rows[0])) for row in range(len(rows)) if step < len(rows[row])]
    sizes = [len(list(group)) for _, group in groupby(places, key=lambda place: place[1])]
    return torch.tensor(np.stack([rows[row][step] for row, step in places])), sizes, places


def random_state(oracle: Oracle, generator: np.random.Generator) -> list[list[tuple[np.ndarray, np.ndarray]]]:
    P, H = oracle.lstm["projection_dim"], oracle.lstm["dim"]
    layers = range(oracle.lstm["n_layers"])
    return [
        [(generator.uniform(-0.5, 0.5, P), generator.uniform(-0.7, 0.7, H)) for _ in layers]
        for _ in range(oracle.num_directions)
    ]


@pytest.mark.parametrize("variant", VARIANTS)
@given(lengths=st.lists(st.integers(1, 7), min_size=1, max_size=5), seed=st.integers(0, 1000))
def test_matches_the_oracle(variant: str, lengths: list[int], seed: int) -> None:
    """Every row starts from its own state and equals that row computed alone, but for float64 rounding."""
    bilm, oracle = build(variant)
    generator = np.random.default_rng(seed)
    rows = [generator.normal(size=(n, oracle.lstm["projection_dim"])) for n in sorted(lengths, reverse=True)]
    states = [random_state(oracle, generator) for _ in rows]
    inputs, batch_sizes, places = packed(rows)
    outputs, after = bilm.forward_lstm(inputs, batch_sizes, state_of(states)[0])
    wanted = [oracle.run_direction(row, state[0], 0) for row, state in zip(rows, states, strict=True)]
    for layer, output in enumerate(outputs):
        expected = np.stack([wanted[row][0][layer][step] for row, step in places])
        np.testing.assert_allclose(output.detach().numpy(), expected, atol=1e-12, rtol=0)
    expected_after = state_of([[final] for _, final in wanted])[0]
    torch.testing.assert_close(after.hidden, expected_after.hidden, atol=1e-12, rtol=0)
    torch.testing.assert_close(after.cell, expected_after.cell, atol=1e-12, rtol=0)


def test_both_clips_matter_to_these_tests() -> None:
    """If the clips changed nothing, the other tests here would say nothing about them."""
    bilm, _ = build()
    inputs = torch.from_numpy(np.random.default_rng(0).normal(size=(40, 6)))
    outputs, after = bilm.forward_lstm(inputs, [4] * 10, bilm.initial_state(4)[0])
    assert 0.1 < (outputs[0].abs() == 0.5).double().mean() < 0.9
    assert 0.1 < (after.cell.abs() == 0.7).double().mean() < 0.9


def test_without_projection_only_the_cell_is_clipped() -> None:
    """TensorFlow's cell, which the published models use, clips the projection if it has one, and no other output."""
    bilm, _ = build("no_projection")
    inputs = torch.from_numpy(np.random.default_rng(0).normal(size=(40, 6)))
    outputs, _ = bilm.forward_lstm(inputs, [4] * 10, bilm.initial_state(4)[0])
    assert outputs[0].abs().max() > 0.5


@pytest.mark.parametrize(
    ("dim", "projection_dim", "cell_clip", "proj_clip", "skip"),
    [
        (3, 2, 0.5, 0.4, True),
        (3, 2, 0.5, 0.4, False),
        (3, 2, None, None, True),
        (3, 2, 0.5, None, True),
        (3, 2, None, 0.4, True),
        (3, 3, 0.5, 0.4, True),
    ],
)
def test_gradients_are_those_of_finite_differences(
    dim: int, projection_dim: int, cell_clip: float | None, proj_clip: float | None, skip: bool
) -> None:
    """Analytic gradients equal numeric ones in float64, for inputs, weights and both parts of the initial state.

    The loss depends on outputs and on the final state, and rows end at different steps.
    """
    torch.manual_seed(1)
    config = LSTMConfig(dim, projection_dim, 2, cell_clip, proj_clip, skip)
    stack = LSTMStack(config).double()
    batch_sizes = [3, 3, 2, 1]
    names = [name for name, _ in stack.named_parameters()]
    weights = [torch.randn_like(weight, requires_grad=True) for weight in stack.parameters()]
    inputs = torch.randn(sum(batch_sizes), projection_dim, dtype=torch.float64, requires_grad=True)
    hidden = (0.5 * torch.randn(2, 3, projection_dim, dtype=torch.float64)).requires_grad_()
    cell = torch.randn(2, 3, dim, dtype=torch.float64, requires_grad=True)

    def run(inputs: Tensor, hidden: Tensor, cell: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        parameters = dict(zip(names, weights, strict=True))
        outputs, after = functional_call(stack, parameters, (inputs, batch_sizes, LSTMState(hidden, cell)))
        return *outputs, after.hidden, after.cell

    outputs = run(inputs, hidden, cell, *weights)
    if cell_clip is not None:  # some cells are clipped, and none is so near the kink that a step crosses it
        assert 0 < (outputs[-1].abs() == cell_clip).double().mean() < 1
    if proj_clip is not None and config.has_projection:
        assert 0 < (outputs[0].abs() == proj_clip).double().mean() < 1
    assert torch.autograd.gradcheck(run, (inputs, hidden, cell, *weights), eps=1e-7, atol=1e-6, rtol=1e-4)


def test_torch_runs_a_layer_by_its_weights() -> None:
    """From the weights in its own order, torch computes the same outputs, and gradients reach the layer's weights."""
    torch.manual_seed(0)
    layer, inputs, state = (
        LSTMLayer(3, LSTMConfig(5, 5)).double(),
        torch.randn(9, 3).double(),
        torch.zeros(4, 5).double(),
    )
    nn.init.normal_(layer.bias)
    batch_sizes = [4, 3, 2]
    wanted, _ = layer(inputs, batch_sizes, state, state)
    states = (state.unsqueeze(0),) * 2
    found, _, _ = torch.lstm(
        inputs, torch.tensor(batch_sizes), states, layer.torch_weights(), True, 1, 0.0, True, False
    )
    torch.testing.assert_close(found, wanted)
    gradients = [torch.autograd.grad(part.square().sum(), list(layer.parameters())) for part in (found, wanted)]
    torch.testing.assert_close(*gradients)


def test_initial_weights_are_those_of_tensorflows_cell() -> None:
    """The bound is Glorot's, with inputs and hidden state as one matrix. The largest of thousands of numbers comes
    within 2 % of it."""
    layer = LSTMLayer(30, LSTMConfig(dim=64, projection_dim=32))
    for weight, bound in (
        (layer.weight_ih, (6 / (30 + 32 + 4 * 64)) ** 0.5),
        (layer.weight_hh, (6 / (30 + 32 + 4 * 64)) ** 0.5),
        (layer.weight_hr, (6 / (64 + 32)) ** 0.5),
    ):
        assert weight is not None
        assert 0.98 * bound < weight.abs().max() <= bound
    assert not layer.bias.any()


def test_unused_outputs_add_nothing_to_the_gradient() -> None:
    """If the loss depends on one layer's final cell alone, other gradients are zero, which must not be an error."""
    stack = LSTMStack(LSTMConfig(5, 3, 2, 0.5, 0.4, True)).double()
    inputs = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    state = LSTMState(torch.zeros(2, 3, 3).double(), torch.zeros(2, 3, 5).double())
    _, after = stack(inputs, [3, 2], state)
    after.cell[0, 2].sum().backward()  # row 2 has only step 0
    assert inputs.grad is not None
    assert inputs.grad[2].any()
    assert not inputs.grad[[0, 1, 3, 4]].any()
    assert all(weight.grad is None or not weight.grad.any() for weight in stack.layers[1].parameters())


def test_frozen_weights_get_no_gradient_but_inputs_do() -> None:
    """ELMo may be a frozen part of a task model, with something trained below it."""
    stack = LSTMStack(LSTMConfig(5, 3, 2, 3.0, 3.0, True)).requires_grad_(False)
    inputs = torch.randn(4, 3, requires_grad=True)
    outputs, _ = stack(inputs, [2, 2], LSTMState(torch.zeros(2, 2, 3), torch.zeros(2, 2, 5)))
    outputs[-1].sum().backward()
    assert inputs.grad is not None
    assert inputs.grad.any()
    assert all(weight.grad is None for weight in stack.parameters())


@pytest.mark.parametrize(("dtype", "clip"), [(torch.bfloat16, 0.7), (torch.float16, 0.4), (torch.float32, 0.7)])
def test_clips_stop_gradients_in_types_that_round_the_limit(dtype: torch.dtype, clip: float) -> None:
    """In these types of few bits, a clipped value is below the limit as the configuration has it."""
    layer = LSTMLayer(2, LSTMConfig(4, 3, 1, clip, clip, True)).to(dtype)
    projection = layer.weight_hr
    assert projection is not None
    nn.init.constant_(projection, 10.0)
    cell = torch.full((1, 4), 5.0, dtype=dtype, requires_grad=True)
    outputs, cells = layer(torch.zeros(1, 2, dtype=dtype), [1], torch.zeros(1, 3, dtype=dtype), cell)
    for clipped, reached in ((cells, cell), (outputs, projection)):
        assert (clipped == torch.tensor(clip, dtype=dtype)).all()
        (gradient,) = torch.autograd.grad(clipped.sum(), reached, retain_graph=True)
        assert not gradient.any()


def test_running_twice_gives_the_same_and_does_not_change_the_arguments() -> None:
    """In-place arithmetic must not reach the caller's tensors, and a second backward pass must not differ."""
    torch.manual_seed(0)
    stack = LSTMStack(LSTMConfig(5, 3, 2, 0.5, 0.4, True))
    inputs = torch.randn(4, 3, requires_grad=True)
    state = LSTMState(torch.randn(2, 2, 3), torch.randn(2, 2, 5))
    kept = [inputs.detach().clone(), state.hidden.clone(), state.cell.clone()]
    outputs, after = stack(inputs, [2, 2], state)
    loss = outputs[-1].square().sum() + after.cell.sum()
    first = torch.autograd.grad(loss, [inputs, *stack.parameters()], retain_graph=True)
    second = torch.autograd.grad(loss, [inputs, *stack.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(kept, [inputs, *state], strict=True))
    with torch.no_grad():
        again, _ = stack(inputs, [2, 2], state)
    assert all(torch.equal(a, b) for a, b in zip(outputs, again, strict=True))


def test_masks_multiply_each_layers_input() -> None:
    """A layer with masked input sees only its bias and state; the residual connection sees what the mask leaves."""
    torch.manual_seed(0)
    stack = LSTMStack(LSTMConfig(5, 3, 2, 3.0, 3.0, True)).double()
    state = LSTMState(torch.zeros(2, 2, 3).double(), torch.zeros(2, 2, 5).double())
    nothing, everything = torch.zeros(4, 3).double(), torch.ones(4, 3).double()
    inputs = torch.randn(4, 3).double()
    silent, _ = stack(nothing, [2, 2], state)
    plain, _ = stack(inputs, [2, 2], state)
    first, _ = stack(inputs, [2, 2], state, [nothing, everything])
    assert all(torch.equal(a, b) for a, b in zip(first, silent, strict=True))
    second, _ = stack(inputs, [2, 2], state, [everything, nothing])
    alone, _ = stack.layers[1](nothing, [2, 2], state.hidden[1], state.cell[1])
    assert torch.equal(second[0], plain[0])
    assert torch.equal(second[1], alone)
    halved, _ = stack(inputs, [2, 2], state, [everything / 2, everything])
    assert torch.equal(halved[0], stack(inputs / 2, [2, 2], state)[0][0])


PROJ_CLIP = 0.2


class Problem:
    """A layer and a batch whose rows end at different steps; some cells and outputs meet their clips."""

    def __init__(self, size: int, out_size: int, precision: str, clip: float | None = 0.7, rows: int = 7) -> None:
        generator = torch.Generator().manual_seed(size * 1000 + out_size)

        def normal(*shape: int, scale: float = 1.0) -> Tensor:
            return scale * torch.randn(*shape, generator=generator)

        self.layer = LSTMLayer(out_size + 2, LSTMConfig(size, out_size, 1, clip, clip and PROJ_CLIP, True))
        for parameter in self.layer.parameters():
            parameter.data = normal(*parameter.shape, scale=0.5 if parameter.dim() == 1 else parameter.shape[1] ** -0.5)
        self.batch_sizes = [rows, rows, max(1, rows - 2), max(1, rows // 2), 1]
        num_tokens = sum(self.batch_sizes)
        self.arguments = normal(num_tokens, out_size + 2), normal(rows, out_size), normal(rows, size)
        self.d_outputs, self.d_cells = normal(num_tokens, out_size), normal(num_tokens, size)
        self.products = PRODUCTS[precision]

    def solve(self, *, with_cells: bool = True) -> dict[str, Tensor]:
        """Return outputs, cells, and the gradients of all arguments and weights, by name."""
        inputs, hidden, cell = (tensor.clone().requires_grad_() for tensor in self.arguments)
        with own_products(self.products):
            outputs, cells = self.layer(inputs, self.batch_sizes, hidden, cell)
            loss = (outputs * self.d_outputs).sum() + ((cells * self.d_cells).sum() if with_cells else 0)
            given = {"inputs": inputs, "hidden": hidden, "cell": cell, **dict(self.layer.named_parameters())}
            gradients = torch.autograd.grad(loss, list(given.values()))
        return {"outputs": outputs, "cells": cells, **dict(zip(given, gradients, strict=True))}


SIZES = [(1, 1), (16, 8), (37, 5), (100, 34), (70, 70), (272, 66), (48, 48)]
"""H and P; if they are equal, there is no projection. Some H are multiples of 16, which the kernels interleave by, few
are multiples of a block's numbers, and some are odd."""


@needs_native
@pytest.mark.parametrize("clip", [0.7, None])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_native_layer_equals_torch(
    sizes: tuple[int, int], precision: str, clip: float | None, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float32, only rounding over five steps differs.

    In bf16, torch also rounds each product and the kernels only operands, so numbers differ by 2^-8 of the largest. A
    number that this moves across a clip gets or loses its gradient.
    """
    problem = Problem(*sizes, precision, clip)
    calls = [count_calls(monkeypatch, training_kernels, name) for name in ("lstm_forward", "lstm_backward")]
    found = problem.solve()
    is_odd = any(size % 2 for size in sizes)
    assert [len(made) for made in calls] == ([0, 0] if precision == "bf16" and is_odd else [1, 1])
    monkeypatch.setenv("ELMO_NATIVE", "0")
    for name, wanted in problem.solve().items():
        error = (found[name] - wanted).abs()
        scale = wanted.abs().max()
        if precision == "float32" or clip is None:
            assert error.max() <= (5e-6 if precision == "float32" else 0.05) * scale, name
        assert error.mean() <= (1e-6 if precision == "float32" else 0.01) * scale, name


@needs_native
def test_the_native_layer_without_a_gradient_of_its_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(20, 6, "float32")
    calls = count_calls(monkeypatch, training_kernels, "lstm_backward")
    found = problem.solve(with_cells=False)
    assert calls, "torch would be compared with itself"
    monkeypatch.setenv("ELMO_NATIVE", "0")
    for name, wanted in problem.solve(with_cells=False).items():
        torch.testing.assert_close(found[name], wanted, atol=5e-6, rtol=5e-6)


@needs_native
def test_the_clips_matter_to_these_layers() -> None:
    """If the clips changed nothing, the tests of the native layer would say nothing about them."""
    found = Problem(37, 5, "float32").solve()
    for name, clip in (("outputs", PROJ_CLIP), ("cells", 0.7)):
        assert 0.01 < (found[name].abs() == torch.tensor(clip)).double().mean() < 0.9


@needs_native
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_the_native_layer_does_not_depend_on_the_number_of_threads(level: str, precision: str) -> None:
    """Threads divide the rows, and each row's sums have one order. Products over all rows are torch's."""
    problem = Problem(130, 66, precision, rows=17)
    alone = problem.solve()
    with torch_threads(3):
        together = problem.solve()
    for name in ("outputs", "cells", "inputs", "hidden", "cell"):
        assert torch.equal(alone[name], together[name]), name


def test_a_projection_may_lie_in_memory_in_any_order() -> None:
    problem = Problem(20, 6, "float32")
    wanted = problem.solve()
    projection = problem.layer.weight_hr
    assert projection is not None
    projection.data = projection.data.t().contiguous().t()
    assert not projection.is_contiguous()
    for name, found in problem.solve().items():
        assert torch.equal(found, wanted[name]), name


@needs_native
def test_the_native_layer_keeps_nan(level: str) -> None:
    """If a clip hid NaN, training would continue with a wrong value. Other rows must not get the NaN."""
    problem = Problem(20, 6, "float32")
    problem.arguments[2][1, 3] = torch.nan
    found = problem.solve()
    assert found["cells"][1, 3].isnan()
    assert found["outputs"][1].isnan().all()
    assert found["weight_hh"].isnan().any()
    assert torch.isfinite(found["outputs"][0]).all()
    assert torch.isfinite(found["inputs"][0]).all()


@needs_native
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"joined": np.zeros((5, 6))}, "products of float64: there are kernels for float32 and for bf16 in uint16"),
        ({"joined": np.zeros((5, 7), np.float32)}, r"joined is \(5, 7\), but must be \(5, 6\)"),
        ({"joined": np.zeros((5, 6), np.uint16)}, r"mixed is float32, but must be uint16"),
        ({"weight": np.zeros((30, 6), np.float32)}, r"weight is \(30, 6\), but must be \(32, 6\)"),
        ({"weight_hr": None}, "outputs are 4 wide, but must be 8, as there is no projection"),
        ({"mixed": None}, "mixed is None, but there is a projection"),
        ({"batch_sizes": [2, 3]}, r"batch_sizes must be positive and must not increase, but are \[2, 3\]"),
        ({"cell_before": np.zeros((8, 3), np.float32).T}, "cell_before must be contiguous in C order"),
        ({"clips": (0.0, None)}, "cell_clip is 0.0, but must be positive, or None for no clip"),
        (
            {
                **{"weight_hr": None, "mixed": None, "clips": (None, 3.0), "outputs": np.zeros((5, 8), np.float32)},
                **{"weight": np.zeros((32, 10), np.float32), "joined": np.zeros((5, 10), np.float32)},
            },
            "proj_clip is 3.0, but there is no projection: pass None",
        ),
        (
            {"weight": np.zeros((32, 2), np.float32), "joined": np.zeros((5, 2), np.float32)},
            "weight has 2 columns, fewer than the 4 of the hidden state",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_the_native_layer_refuses_other_types_and_shapes(changed: dict[str, Any], message: str) -> None:
    """With other types or shapes, the kernel would read or write beyond the end of an array."""
    shapes: dict[str, tuple[int, ...]] = {"weight": (32, 6), "weight_hr": (4, 8), "bias": (32,), "cell_before": (3, 8)}
    shapes |= {"joined": (5, 6), "gates": (5, 32), "cell": (5, 8), "mixed": (5, 8)}
    arguments: dict[str, Any] = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    arguments |= {"batch_sizes": [3, 2], "outputs": np.zeros((5, 4), np.float32), "clips": (None, None), **changed}
    with pytest.raises(ValueError, match=message):
        training_kernels.lstm_forward(**arguments)
