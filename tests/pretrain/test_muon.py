from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from elmo.pretrain.muon import COEFFICIENTS, Muon, orthogonalize
from threads import torch_threads


def plain(matrix: Tensor) -> Tensor:
    """Return the result of the iteration as it was published, on the whole matrix, in float64."""
    a, b, c = COEFFICIENTS
    x = matrix.double() / matrix.double().norm()
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


@pytest.mark.parametrize("shape", [(64, 64), (16, 40), (128, 16), (16, 200), (1, 5), (9, 1), (500, 410)])
@pytest.mark.parametrize("decay", [0, -3])
def test_equals_the_plain_iteration(shape: tuple[int, int], decay: int) -> None:
    """The singular values of the matrices are alike, or fall to a thousandth, where rounding in the small matrices of
    the iteration matters most. Rounding in float32 leaves errors of 1e-4 in values near 1.
    """
    generator = torch.Generator().manual_seed(shape[0])
    matrix = torch.randn(shape, generator=generator) @ torch.diag(torch.logspace(0, decay, shape[1]))
    (direction,) = orthogonalize([matrix], torch.float32)  # by default bfloat16 on some processors
    torch.testing.assert_close(direction, plain(matrix).float(), atol=2e-4, rtol=0)


def test_nothing_stays_nothing() -> None:
    """A matrix whose gradient is zero neither moves nor becomes NaN."""
    assert torch.equal(orthogonalize([torch.zeros(4, 8)])[0], torch.zeros(4, 8))


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    with torch_threads(request.param):
        yield


@pytest.mark.usefixtures("threads")
def test_moves_as_torch_does() -> None:
    """Momentum, step size and weight decay agree for three matrices over several steps, and a matrix without a gradient
    stays. Torch orthogonalises in bfloat16, which has 8 bits, hence the tolerance."""
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(shape, generator=generator) for shape in [(32, 12), (8, 8), (12, 40), (4, 4)]]
    ours, theirs = ([nn.Parameter(matrix.clone()) for matrix in start] for _ in range(2))
    muon = Muon(ours, lr=0.05, momentum=0.95, weight_decay=0.1)
    for matrix in ours:
        muon.state[matrix]["momentum_buffer"] = torch.zeros_like(matrix)
    other = torch.optim.Muon(theirs, lr=0.05, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    for _ in range(4):
        for own, its in list(zip(ours, theirs, strict=True))[:3]:
            own.grad = torch.randn(own.shape, generator=generator)
            its.grad = own.grad.clone()
        muon.step()
        other.step()
    for own, its, before in zip(ours[:3], theirs, start, strict=False):
        assert (own - before).abs().mean() > 0.02
        torch.testing.assert_close(own, its, atol=5e-3, rtol=0)
    assert torch.equal(ours[3], start[3])
