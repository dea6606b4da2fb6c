"""The native softmax of training equals torch's operations on every instruction set of this machine.

`tests/nn/test_softmax.py` compares torch's operations with the definition.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from comparing import count_calls
from elmo._native import training_kernels
from elmo.nn.cross_entropy import cross_entropy
from levels import needs_native
from threads import torch_threads


class Problem:
    """N rows, of which about a third have their target among the K words."""

    def __init__(self, num_rows: int = 30, num_words: int = 37, scale: float = 1.0) -> None:
        generator = torch.Generator().manual_seed(num_words)
        sizes = ((num_rows, 8), (num_rows,), (num_words, 8), (num_words,))
        self.hidden, self.target_scores, self.weight, self.bias = (
            (scale * torch.randn(*size, generator=generator)).requires_grad_() for size in sizes
        )
        self.words = torch.randperm(3 * num_words, generator=generator)[:num_words]
        self.targets = torch.randint(3 * num_words, (num_rows,), generator=generator)

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The tensors that have gradients."""
        return self.hidden, self.target_scores, self.weight, self.bias

    def solve(self) -> list[Tensor]:
        """Return the loss and its gradients."""
        loss = cross_entropy(*self.parts, self.targets, self.words)
        return [loss.detach(), *torch.autograd.grad(3 * loss, self.parts)]


@pytest.mark.parametrize("rows", [1, 4, 30])
def test_blocks_of_rows_give_the_loss_and_the_gradients_of_the_definition(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The 30 rows are in blocks of 2, of 8 (with 6 in the last one) or in one block. Autograd has all scores at once,
    in float64."""
    monkeypatch.setattr("elmo.nn.cross_entropy.CACHED_NUMBERS", 37 * rows)
    problem = Problem()
    parts = [part.detach().double().requires_grad_() for part in problem.parts]
    hidden, target_scores, weight, bias = parts
    found = cross_entropy(hidden, target_scores, weight, bias, problem.targets, problem.words)
    scores = (hidden @ weight.t() + bias).masked_fill(problem.targets[:, None] == problem.words, -torch.inf)
    wanted = (torch.cat([scores, target_scores[:, None]], dim=1).logsumexp(dim=1) - target_scores).mean()
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=0)
    gradients = [torch.autograd.grad(3 * loss, parts) for loss in (found, wanted)]
    torch.testing.assert_close(*gradients, atol=1e-12, rtol=0)


@needs_native
@pytest.mark.parametrize("scale", [1.0, 10.0])
@pytest.mark.parametrize(("num_rows", "num_words"), [(1, 1), (30, 37), (7, 64), (300, 9000)])
def test_equals_torch(num_rows: int, num_words: int, scale: float, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows may fill several blocks. Exponents are exact to 2e-7, and sums of K of them add in another order."""
    problem = Problem(num_rows, num_words, scale)
    native = count_calls(monkeypatch, training_kernels, "softmax")
    found = problem.solve()
    assert native, "torch would be compared with itself"
    monkeypatch.setenv("ELMO_NATIVE", "0")
    for ours, theirs in zip(found, problem.solve(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-6 * scale, rtol=1e-5)


@needs_native
def test_equals_torch_in_bfloat16(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both round products and probabilities to the 8 bits of bfloat16, now and then to neighbouring numbers."""
    problem = Problem()
    with torch.autocast("cpu", torch.bfloat16):
        native = count_calls(monkeypatch, training_kernels, "softmax")
        found = problem.solve()
        assert native, "torch would be compared with itself"
        monkeypatch.setenv("ELMO_NATIVE", "0")
        wanted = problem.solve()
    torch.testing.assert_close(found[0], wanted[0], atol=1e-6, rtol=1e-6)
    for ours, theirs in zip(found[1:], wanted[1:], strict=True):
        torch.testing.assert_close(ours, theirs, atol=2**-8 * theirs.abs().max().item(), rtol=0)


@needs_native
def test_the_number_of_threads_changes_only_the_rounding(level: str) -> None:
    problem = Problem(50, 100)
    alone = problem.solve()
    with torch_threads(3):
        together = problem.solve()
    for ours, theirs in zip(alone, together, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)


@needs_native
def test_nan_reaches_the_loss(level: str) -> None:
    problem = Problem()
    with torch.no_grad():
        problem.hidden[4, 2] = torch.nan
    loss, d_hidden, *_ = problem.solve()
    assert loss.isnan()
    assert d_hidden.isnan().any(dim=1).nonzero().flatten().tolist() == [4], "and where it came from"


@pytest.mark.parametrize("native", ["0", "1"])
def test_very_different_scores(native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The highest score decides alone, whether it is the target's or not, and nothing overflows."""
    monkeypatch.setenv("ELMO_NATIVE", native)
    hidden, weight, bias = torch.zeros(2, 1), torch.zeros(3, 1), torch.tensor([0.0, 500.0, -500.0])
    loss = cross_entropy(hidden, torch.tensor([1000.0, 0.0]), weight, bias, torch.tensor([7, 8]), torch.arange(3))
    assert loss.item() == pytest.approx((0 + 500) / 2)


@needs_native
def test_columns_that_do_not_exist_are_refused() -> None:
    """The kernel would write to columns that don't exist."""

    def run(own: list[int], num_losses: int = 2) -> None:
        products, bias, targets, losses, shares, d_bias = (
            np.zeros(shape, np.float32) for shape in ((2, 3), 3, 2, num_losses, 2, (1, 3))
        )
        training_kernels.softmax(products, bias, targets, np.array(own), losses, shares, d_bias)

    with pytest.raises(ValueError, match="own holds 0 to 3, but there are 3 columns"):
        run([0, 3])
    with pytest.raises(ValueError, match=r"losses is \(1,\), but must be \(2,\)"):
        run([0, -1], num_losses=1)
