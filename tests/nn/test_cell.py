"""The native step of an LSTM in training against the same by torch's operations, which tests/nn/test_lstm.py holds
against the oracle, on every instruction set that this machine has kernels for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from comparing import count_calls
from elmo import _native
from elmo.nn.cell import Cells, step, step_backward

pytestmark = pytest.mark.skipif(
    not _native.available(), reason="the native module is not built, not for this CPU, or turned off by ELMO_NATIVE=0"
)

TYPES = [(torch.float32, torch.float32), (torch.bfloat16, torch.bfloat16), (torch.bfloat16, torch.float32)]
"""Of products and of what the projection reads."""


@pytest.fixture(params=_native._levels or ["none"])  # pyright: ignore[reportPrivateUsage]
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(_native, "_levels", [request.param])
    return request.param


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


@pytest.mark.parametrize("clip", [0.7, None])
@pytest.mark.parametrize(("products", "mixed"), TYPES)
@pytest.mark.parametrize(("num_rows", "size"), [(1, 1), (3, 16), (5, 37), (2, 100)])
def test_equals_torch(
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


def test_the_clip_bites_in_these_tests() -> None:
    """Else they would say nothing about it."""
    cells, *_ = Problem(5, 37, *TYPES[0], clip=0.7).solve()
    assert 0.1 < (cells.cell.abs() == 0.7).double().mean() < 0.9


def test_threads_change_nothing(level: str) -> None:
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


def test_what_is_not_a_number_stays_so(level: str) -> None:
    """A clip must not hide it: training would go on with a wrong value."""
    problem = Problem(2, 20, *TYPES[0], clip=0.7)
    problem.before[1, 3] = torch.nan
    cells, d_gates, _ = problem.solve()
    assert cells.cell[1, 3].isnan()
    assert cells.mixed[1, 3].isnan()
    assert d_gates[1, 2 * 20 + 3].isnan()
    assert torch.isfinite(cells.cell[0]).all()


def test_refuses_what_it_would_read_wrongly() -> None:
    """Of another type or shape, in another order."""
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
