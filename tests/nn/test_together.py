"""Work done at once: the same results, and torch's number of threads as it was."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from elmo.nn.together import run_together

CPU = torch.device("cpu")


@pytest.fixture(params=[1, 2, 5])
def num_threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_cores_are_shared(num_threads: int) -> None:
    """Both calls meet at a barrier, which one after the other they never would."""
    barrier = threading.Barrier(2 if num_threads > 1 else 1)

    def work(number: int) -> tuple[int, int]:
        barrier.wait(timeout=10)
        return number, torch.get_num_threads()

    for _ in range(3):
        assert run_together(work, 2, CPU) == [(number, max(1, num_threads // 2)) for number in range(2)]
        assert torch.get_num_threads() == num_threads


def test_an_error_comes_through(num_threads: int) -> None:
    def work(number: int) -> int:
        return 1 // number

    with pytest.raises(ZeroDivisionError):
        run_together(work, 2, CPU)
    assert torch.get_num_threads() == num_threads
