"""Work that is done at the same time gives the same results, and leaves torch's number of threads unchanged."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
import torch

from elmo.nn.devices import run_together
from threads import torch_threads

CPU = torch.device("cpu")


@pytest.fixture(params=[1, 2, 5])
def num_threads(request: pytest.FixtureRequest) -> Iterator[int]:
    with torch_threads(request.param):
        yield request.param


def test_cores_are_shared(num_threads: int) -> None:
    """Both calls meet at a barrier, which they would never do one after the other."""
    barrier = threading.Barrier(2 if num_threads > 1 else 1)

    def work(number: int) -> tuple[int, int]:
        barrier.wait(timeout=60)
        return number, torch.get_num_threads()

    for _ in range(3):
        assert run_together(work, 2, CPU) == [(number, max(1, num_threads // 2)) for number in range(2)]
        assert torch.get_num_threads() == num_threads


def test_errors_are_raised_in_the_caller(num_threads: int) -> None:
    def work(number: int) -> int:
        return 1 // number

    with pytest.raises(ZeroDivisionError):
        run_together(work, 2, CPU)
    assert torch.get_num_threads() == num_threads


SLOW_START = """
import threading
import time
import torch
from elmo.nn.devices import run_together

torch.set_num_threads(3)
started, set_num_threads = [], torch.set_num_threads

def set_slowly(number):
    if threading.current_thread() is not threading.main_thread():
        time.sleep(0.1 * len(started))
        started.append(number)
    set_num_threads(number)

torch.set_num_threads = set_slowly
assert run_together(lambda number: list(started), 3, torch.device("cpu")) == [[1, 1, 1]] * 3
"""


def test_all_threads_start_before_the_first_work() -> None:
    """A thread that started later would change torch's number of threads after it was restored.

    Threads are kept, so that they start slowly only in a process that has not used them before.
    """
    subprocess.run([sys.executable, "-c", SLOW_START], check=True, timeout=120)


FORK = """
import os
import threading
import torch
from elmo.nn.devices import run_together

torch.set_num_threads(2)
both = threading.Barrier(2)
work = lambda: run_together(lambda number: both.wait(), 2, torch.device("cpu"))
work()
if (child := os.fork()) == 0:
    os._exit(sorted(work()) != [0, 1])
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_starts_threads_of_its_own() -> None:
    """Threads do not survive a fork: a child that used its parent's would wait forever."""
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=120)


NO_MORE_THREADS = """
import threading
import torch
from elmo.nn.devices import run_together

start = threading.Thread.start

def start_one(thread):
    if threading.active_count() > 1:
        raise RuntimeError("can't start new thread")
    start(thread)

threading.Thread.start = start_one
torch.set_num_threads(2)
try:
    run_together(lambda number: number, 2, torch.device("cpu"))
except RuntimeError as error:
    print(error)
"""


def test_a_thread_that_is_refused_is_not_waited_for() -> None:
    """The other one would wait for it forever, and so would Python at its end."""
    done = subprocess.run(
        [sys.executable, "-c", NO_MORE_THREADS], check=True, timeout=120, capture_output=True, text=True
    )
    assert done.stdout == "can't start new thread\n"
