"""What is found out about the processor without torch agrees with torch."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest
import torch

from elmo.errors import ElmoError
from elmo.nn import processor
from elmo.nn.processor import means_processor, num_threads, prepare_device, run_in_threads
from threads import torch_threads


def test_names_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "GPU_FILES", ())
    monkeypatch.setattr(sys, "platform", "linux")
    assert means_processor("cpu")
    assert means_processor("auto")
    assert not means_processor("cuda")
    assert not means_processor("nonsense")
    assert prepare_device("auto") == "cpu"
    with pytest.raises(ElmoError, match="'nonsense' is unknown"):
        prepare_device("nonsense")


def test_torch_is_asked_where_there_may_be_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "GPU_FILES", ("/nothing", sys.executable))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert not means_processor("auto")
    for hidden in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert means_processor("auto")


@pytest.mark.parametrize(
    "variables",
    [{}, {"OMP_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": "2,1"}, {"MKL_NUM_THREADS": "1"}, {"MKL_NUM_THREADS": "1000"}],
    ids=lambda variables: " ".join(variables.values()) or "none",
)
def test_threads_are_as_many_as_those_of_torch(variables: dict[str, str]) -> None:
    """The numbers agree in a process without torch, and in the same process after torch is imported."""
    if "MKL_NUM_THREADS" in variables and not torch.backends.mkl.is_available():
        pytest.skip("this torch has no MKL")
    code = """
from elmo.nn.processor import num_threads
before = num_threads()
import torch
from elmo.nn.devices import find_device
find_device("cpu")
print(before, torch.get_num_threads(), num_threads())
"""
    own = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**own, **variables}
    )
    assert len(set(done.stdout.split())) == 1, done.stdout


def test_a_chosen_number_is_that_of_torch_too() -> None:
    """Torch uses the chosen number, whether it is imported before or after the choice."""
    code = """
import sys
from elmo.nn.processor import num_threads, use_threads
use_threads(3)
assert num_threads() == 3 and "torch" not in sys.modules
import torch
assert num_threads() == torch.get_num_threads() == 3
use_threads(2)
assert num_threads() == torch.get_num_threads() == 2
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize(("total", "share"), [(1, 1), (2, 1), (5, 2)])
def test_work_shares_the_threads(total: int, share: int) -> None:
    """Two calls run at a time if there are two threads. Otherwise one follows the other."""
    both = threading.Barrier(2)

    def work(number: int, threads: int) -> tuple[int, int]:
        if total > 1:
            both.wait(timeout=60)
        return number, threads

    with torch_threads(total):
        assert num_threads() == total
        assert run_in_threads(work, 2) == [(0, share), (1, share)]


def test_an_error_is_raised_when_all_work_has_ended() -> None:
    """Otherwise a caller that goes on would be changed under its hands, and other errors would be lost."""
    both, ended = threading.Barrier(2), []

    def work(number: int, threads: int) -> None:
        both.wait(timeout=60)
        if number == 0:
            raise MemoryError("too large")
        time.sleep(0.2)
        ended.append(number)
        raise ValueError("too small")

    with torch_threads(2), pytest.raises(MemoryError, match="too large") as raised:
        run_in_threads(work, 2)
    assert ended == [1]
    assert raised.value.__notes__ == ["and at the same time: ValueError('too small')"]


IN_A_THREAD = """
import sys, threading
from elmo.nn.processor import run_in_threads, use_threads

def here(number, num_threads=1):
    return number, num_threads

def fail(number, num_threads):
    raise ValueError(f"{number} fails")

def go_on():
    threading.main_thread().join()
    print(run_in_threads(here, 2))
    try:
        run_in_threads(fail, 2)
    except ValueError as error:
        print(error, error.__notes__)
    if sys.argv[1] == "torch":
        from elmo.nn.devices import run_together
        print(run_together(here, 2, torch.device("cpu")), torch.get_num_threads())

use_threads(4)
if sys.argv[1] == "torch":
    import torch
    torch.set_num_threads(4)
if sys.argv[2] == "again":
    run_in_threads(here, 2)
    if sys.argv[1] == "torch":
        from elmo.nn.devices import run_together
        run_together(here, 2, torch.device("cpu"))
threading.Thread(target=go_on).start()
"""


@pytest.mark.parametrize("uses", ["first", "again"])
@pytest.mark.parametrize("package", ["numpy", "torch"])
def test_a_thread_goes_on_when_the_main_one_has_ended(package: str, uses: str) -> None:
    """Pools refuse all work by then, whether they have threads already or not."""
    command = [sys.executable, "-c", IN_A_THREAD, package, uses]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    expected = "[(0, 2), (1, 2)]\n0 fails [\"and at the same time: ValueError('1 fails')\"]\n"
    if package == "torch":
        expected += "[(0, 1), (1, 1)] 4\n"
    assert (done.stdout, done.stderr) == (expected, "")


IN_A_DAEMON = """
import threading
from elmo.nn.processor import run_in_threads, use_threads

def go_on():
    threading.main_thread().join()
    try:
        run_in_threads(lambda number, num_threads: number, 2)
    except RuntimeError as error:
        print(error)

use_threads(2)
daemon = threading.Thread(target=go_on, daemon=True)
daemon.start()
threading.Thread(target=daemon.join).start()
"""


def test_a_daemon_thread_does_not_go_on_when_the_main_one_has_ended() -> None:
    """Python doesn't wait for it, and the process would abort if torch still computed in it then."""
    done = subprocess.run([sys.executable, "-c", IN_A_DAEMON], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("cannot schedule new futures after interpreter shutdown\n", "")
