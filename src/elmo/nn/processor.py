"""The processor as a device, without importing torch: which names mean it, and how many threads compute on it.

The native kernels need no torch, and importing it takes longer than embedding some sentences. Once a program has
imported it, its number of threads (`torch.set_num_threads`) is that of the kernels too.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from elmo.cores import available_cores, physical_cores

T = TypeVar("T")

THREAD_VARIABLES = ("MKL_NUM_THREADS", "OMP_NUM_THREADS")
"""The environment variables that set torch's number of threads. The first one that is set counts."""

GPU_FILES = ("/dev/nvidiactl", "/dev/nvmap", "/dev/kfd", "/dev/dxg")
"""The files by which programs reach GPUs on Linux: NVIDIA's, those of its boards with Arm, AMD's, Windows'."""

_chosen: int | None = None


def name_of(device: object) -> str:
    """Return the name of a device, which may be one of torch's. Among those, the processor may have a number."""
    return "cpu" if not isinstance(device, str) and str(device) == "cpu:0" else str(device)


def means_processor(name: str) -> bool:
    """Return whether a device's name is `cpu`, or `auto` on a machine that can't have a GPU.

    Where there may be one, only torch can tell (`elmo.nn.devices.find_device`).
    """
    return name == "cpu" or (name == "auto" and not _may_have_gpu())


def prepare_device(name: str) -> str:
    """Return the name of a device after it is made torch's current one if it is a GPU.

    Raises:
        ElmoError: If there is no such device.
    """
    if means_processor(name):
        return "cpu"
    from elmo.nn.devices import use_device

    return str(use_device(name))


def _may_have_gpu() -> bool:
    if sys.platform == "linux":
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
        return not hidden and any(Path(path).exists() for path in GPU_FILES)
    return sys.platform != "darwin"  # torch's `cuda`, the only GPUs that are used here, is not on Macs


def num_threads() -> int:
    """Return how many threads to compute with: as many as torch has, or would have if it were imported."""
    torch = sys.modules.get("torch")
    if hasattr(torch, "get_num_threads"):
        from elmo.nn.devices import limit_threads

        return limit_threads()
    return _chosen or _default_threads()


def use_threads(number: int) -> None:
    """Set the number of threads to compute with, also for torch."""
    global _chosen
    _chosen = number
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(number)


def used_threads() -> int | None:
    """Return the number that `use_threads` has set, or None."""
    return _chosen


@cache
def _default_threads() -> int:
    for name in THREAD_VARIABLES:
        value = os.environ.get(name, "").partition(",")[0].strip()
        if value.isdecimal() and int(value):
            return min(int(value), physical_cores())  # MKL starts no more either, whatever it is told
    return min(available_cores(), physical_cores())


def run_in_threads(work: Callable[[int, int], T], num: int) -> list[T]:
    """Run `work(0, n)`, … `work(num - 1, n)` at the same time and return their results in order.

    Each may use n threads, an equal share of all. If there are fewer than `num` threads, they run one after the other
    with all of them.

    Raises:
        Exception: The first error of the work, when all of it has ended.
    """
    total = num_threads()
    if num == 1 or total < num:
        return [work(number, total) for number in range(num)]
    return run_all(_workers(num), lambda number: work(number, total // num), num)


def run_all(threads: ThreadPoolExecutor, work: Callable[[int], T], num: int) -> list[T]:
    """Run `work(0)`, … `work(num - 1)` in `threads` and return their results in order.

    Raises:
        Exception: The first error of the work, with the others as its notes. All work has ended by then: a caller that
            goes on, for instance with a smaller batch, must not find it still adding to gradients.
    """
    running = [submit(threads, work, number) for number in range(num)]
    errors = [error for each in running if (error := each.exception()) is not None]
    if errors:
        for other in errors[1:]:
            errors[0].add_note(f"and at the same time: {other!r}")
        raise errors[0]
    return [each.result() for each in running]


def submit(threads: ThreadPoolExecutor, work: Callable[..., T], *arguments: Any) -> Future[T]:
    """Let `threads` do some work, or do it here and now if Python is ending.

    Python ends when the main thread does. From then on, no pool takes any work, but the other threads of a program go
    on, and so does the work that its own pools took before.
    """
    try:
        return threads.submit(work, *arguments)
    except RuntimeError as error:
        if not means_ending(error):
            raise
    done: Future[T] = Future()
    try:
        done.set_result(work(*arguments))
    except Exception as error:
        done.set_exception(error)
    return done


def means_ending(error: RuntimeError) -> bool:
    """Return whether a pool of threads has refused work because Python is ending, and Python waits for this thread.

    Python doesn't wait for a daemon thread, which has to end by the error instead: if torch still computed in it when
    Python is gone, the process would abort.
    """
    # A thread that can't be started gives a RuntimeError, too. After these words, the message goes on with "interpreter
    # shutdown", or only "shutdown" once a thread of the pool has seen that Python is ending.
    refused = str(error).startswith("cannot schedule new futures after")
    return refused and not threading.current_thread().daemon


@cache
def _workers(num: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(num, thread_name_prefix="elmo")


if hasattr(os, "register_at_fork"):
    # A fork copies the pool but not its threads: the first call in a child would wait for them forever.
    os.register_at_fork(after_in_child=_workers.cache_clear)
