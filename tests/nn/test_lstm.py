"""The LSTMs against the oracle, and on every instruction set of this machine their native steps against torch's."""

from itertools import groupby

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import functional_call

from bridge import build, state_of
from comparing import count_calls
from elmo import _native
from elmo.config import LSTMConfig
from elmo.nn.lstm import Cells, LSTMLayer, LSTMStack, LSTMState, step, step_backward
from oracle import Oracle

needs_native = pytest.mark.skipif(
    not _native.available(), reason="the native module is not built, not for this CPU, or turned off by ELMO_NATIVE=0"
)
VARIANTS = ["base", "no_projection", "no_skip_connections", "no_clips", "one_layer", "three_layers"]


def packed(rows: list[np.ndarray]) -> tuple[Tensor, list[int], list[tuple[int, int]]]:
    """Rows of falling length, time-major; batch sizes; and (row, step) of each packed token."""
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
    """Every row, from a state of its own, equals that row computed alone; float64 leaves rounding."""
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
    """Otherwise the other tests here would say nothing about the clips."""
    bilm, _ = build()
    inputs = torch.from_numpy(np.random.default_rng(0).normal(size=(40, 6)))
    outputs, after = bilm.forward_lstm(inputs, [4] * 10, bilm.initial_state(4)[0])
    assert 0.1 < (outputs[0].abs() == 0.5).double().mean() < 0.9
    assert 0.1 < (after.cell.abs() == 0.7).double().mean() < 0.9


def test_without_projection_only_the_cell_is_clipped() -> None:
    """TensorFlow's cell, which made the published models, clips the projection where there is one, nothing else."""
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
def test_gradients(dim: int, projection_dim: int, cell_clip: float | None, proj_clip: float | None, skip: bool) -> None:
    """Analytic against numeric gradients in float64 of everything that has one: inputs, weights, both parts of the
    initial state; through outputs and through the final state; with rows that end at different steps.
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
    if cell_clip is not None:  # some cells clipped, some not; none so near the kink that the step crosses it
        assert 0 < (outputs[-1].abs() == cell_clip).double().mean() < 1
    if proj_clip is not None and config.has_projection:
        assert 0 < (outputs[0].abs() == proj_clip).double().mean() < 1
    assert torch.autograd.gradcheck(run, (inputs, hidden, cell, *weights), eps=1e-7, atol=1e-6, rtol=1e-4)


def test_initial_weights_are_those_of_tensorflows_cell() -> None:
    """Glorot's bound for inputs and hidden state as one matrix, and for the projection; the largest of thousands of
    numbers comes within 2 % of it."""
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
    """A loss of the final cell alone, of one layer alone: the rest is zero, not an error."""
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
    """ELMo as a frozen part of a task model, with something trained below it."""
    stack = LSTMStack(LSTMConfig(5, 3, 2, 3.0, 3.0, True)).requires_grad_(False)
    inputs = torch.randn(4, 3, requires_grad=True)
    outputs, _ = stack(inputs, [2, 2], LSTMState(torch.zeros(2, 2, 3), torch.zeros(2, 2, 5)))
    outputs[-1].sum().backward()
    assert inputs.grad is not None
    assert inputs.grad.any()
    assert all(weight.grad is None for weight in stack.parameters())


def test_running_twice_gives_the_same_and_does_not_change_the_arguments() -> None:
    """In-place arithmetic inside must not reach the caller's tensors, nor may a second backward pass change."""
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
    """With all masked, a layer sees its bias and its state alone; the residual connection sees what is left."""
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


TYPES = [(torch.float32, torch.float32), (torch.bfloat16, torch.bfloat16), (torch.bfloat16, torch.float32)]
"""Of products and of what the projection reads."""


class Problem:
    """A step of B rows of H cells, some of whose values meet the clip, and gradients of what it writes."""

    def __init__(self, num_rows: int, size: int, products: torch.dtype, mixed: torch.dtype, clip: float | None) -> None:
        generator = torch.Generator().manual_seed(num_rows * 1000 + size)

        def normal(*shape: int, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
            return (scale * torch.randn(*shape, generator=generator)).to(dtype)

        self.sums = normal(num_rows, 4 * size, dtype=products), normal(num_rows, 4 * size, dtype=products)
        self.bias, self.before = normal(4 * size), normal(num_rows, size)
        self.d_mixed, self.d_cell = normal(num_rows, size, dtype=mixed), normal(num_rows, size)
        self.products, self.mixed, self.clip = products, mixed, clip

    def solve(self) -> tuple[Cells, Tensor, Tensor]:
        """What the step writes, the gradients of its gates' sums, and that of the cell before."""
        out = Cells.empty(len(self.before), self.before.shape[1], self.before, self.mixed)
        step(*self.sums, self.bias, self.before, self.clip, out)
        d_cell, d_gates = self.d_cell.clone(), torch.full_like(out.gates, torch.nan, dtype=self.products)
        step_backward(out, self.before, self.d_mixed, self.clip, d_cell, d_gates)
        return out, d_gates, d_cell


@needs_native
@pytest.mark.parametrize("clip", [0.7, None])
@pytest.mark.parametrize(("products", "mixed"), TYPES)
@pytest.mark.parametrize(("num_rows", "size"), [(1, 1), (3, 16), (5, 37), (2, 100)])
def test_a_native_step_equals_torch(
    num_rows: int,
    size: int,
    products: torch.dtype,
    mixed: torch.dtype,
    clip: float | None,
    level: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sigmoid and tanh are within 2e-7; a result in bf16, of 8 bits, may be rounded to its neighbour, 2^-8 away."""
    problem = Problem(num_rows, size, products, mixed, clip)
    native = [count_calls(monkeypatch, _native, name) for name in ("lstm_cell", "lstm_cell_backward")]
    cells, d_gates, d_cell = problem.solve()
    assert all(native), "torch would be compared with itself"
    monkeypatch.setenv("ELMO_NATIVE", "0")
    wanted, wanted_d_gates, wanted_d_cell = problem.solve()
    close = torch.testing.assert_close
    for name in ("gates", "cell", "squashed"):
        close(getattr(cells, name), getattr(wanted, name), atol=1e-6, rtol=1e-6)
    # torch adds two bf16 products to their float32 sum as the kernel does, so that only results are in bf16
    close(cells.mixed.float(), wanted.mixed.float(), atol=1e-6, rtol=1e-6 if mixed == torch.float32 else 2**-7)
    close(d_gates.float(), wanted_d_gates.float(), atol=1e-6, rtol=2e-6 if products == torch.float32 else 2**-7)
    close(d_cell, wanted_d_cell, atol=2e-6, rtol=2e-6)


@needs_native
def test_the_clip_matters_to_these_steps() -> None:
    """Otherwise they would say nothing about it."""
    cells, *_ = Problem(5, 37, *TYPES[0], clip=0.7).solve()
    assert 0.1 < (cells.cell.abs() == 0.7).double().mean() < 0.9


@needs_native
def test_a_native_step_does_not_depend_on_the_number_of_threads(level: str) -> None:
    problem = Problem(7, 33, *TYPES[1], clip=0.7)
    alone = problem.solve()
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        together = problem.solve()
    finally:
        torch.set_num_threads(threads)
    for ours, theirs in zip([*alone[0], *alone[1:]], [*together[0], *together[1:]], strict=True):
        assert torch.equal(ours, theirs)


@needs_native
def test_a_native_step_keeps_nan(level: str) -> None:
    """A clip must not hide it: training would go on with a wrong value."""
    problem = Problem(2, 20, *TYPES[0], clip=0.7)
    problem.before[1, 3] = torch.nan
    cells, d_gates, _ = problem.solve()
    assert cells.cell[1, 3].isnan()
    assert cells.mixed[1, 3].isnan()
    assert d_gates[1, 2 * 20 + 3].isnan()
    assert torch.isfinite(cells.cell[0]).all()


@needs_native
def test_a_native_step_refuses_other_types_shapes_and_orders() -> None:
    """It would read their memory wrongly."""
    problem = Problem(2, 4, *TYPES[0], clip=None)
    out = Cells.empty(2, 4, problem.before, torch.float32)
    with pytest.raises(ValueError, match=r"from_hidden is \(2, 12\), but must be \(2, 16\)"):
        step(problem.sums[0], problem.sums[1][:, :12].contiguous(), problem.bias, problem.before, None, out)
    with pytest.raises(ValueError, match="from_hidden is uint16, but must be float32"):
        step(problem.sums[0], problem.sums[1].bfloat16(), problem.bias, problem.before, None, out)
    with pytest.raises(ValueError, match="cell_before must be contiguous"):
        step(*problem.sums, problem.bias, torch.zeros(4, 2).T, None, out)
    with pytest.raises(ValueError, match="products of float32 with uint16"):
        step(*problem.sums, problem.bias, problem.before, None, Cells.empty(2, 4, problem.before, torch.bfloat16))
