"""The devices to compute on: finding those that users name, and running several pieces of work on one at a time.

A biLM has two directions that do not need each other. On a CPU each of them runs in a thread of its own with half of
the cores, which uses them better than torch's sharing of each operation: a training step of `mini` on two cores takes
551 ms instead of 658. On a GPU the directions run on streams of their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Barrier
from typing import TypeVar

import torch

from elmo.cores import available_cores, bound_cores, physical_cores
from elmo.errors import ElmoError
from elmo.nn.processor import THREAD_VARIABLES, means_ending, name_of, run_all, used_threads
from elmo.wording import counted

T = TypeVar("T")


def find_device(device: str | torch.device) -> torch.device:
    """Return the device named `auto` (a GPU if there is one, otherwise the CPU), `cpu`, `cuda` or `cuda:N`.

    A device of torch will do, too. A GPU without a number is the one that torch uses at present, so that each process
    of a user's training gets its own. If the device is the CPU, torch's number of threads is first limited to the cores
    that a container grants.

    Raises:
        ElmoError: If the name is not one of these, or there is no such GPU.
    """
    name = name_of(device)
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = name.partition(":")
    if name != "cpu" and (kind != "cuda" or not (number.isdecimal() or name == "cuda")):
        raise ElmoError(f"`device`: {name!r} is unknown; choose one of auto, cpu, cuda, cuda:0, cuda:1, …")
    if name == "cpu":
        limit_threads()
        return torch.device("cpu")
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    current = torch.cuda.current_device() if torch.cuda.is_initialized() else 0
    index = int(number) if number else current
    if index >= found:
        raise ElmoError(f"`device`: there is no {name} (torch finds {counted(found, 'GPU')}); use the device cpu")
    return torch.device("cuda", index)


def limit_threads() -> int:
    """Return torch's number of threads, which is first limited to what a container grants."""
    _keep_to_quota()
    return torch.get_num_threads()


@cache
def _keep_to_quota() -> None:
    """Limit torch to as many threads as a container grants cores, unless the number of threads was chosen already.

    torch starts a thread for each core that it sees. If the container's quota then puts some of them to sleep, the
    others wait for them, which takes many times as long as one thread per granted core. This runs only once, so that a
    number that is chosen later is not changed.
    """
    if (chosen := used_threads()) is not None:
        torch.set_num_threads(chosen)
    elif not any(name in os.environ for name in THREAD_VARIABLES) and torch.get_num_threads() in (
        bound_cores(),
        physical_cores(),
    ):
        torch.set_num_threads(min(torch.get_num_threads(), available_cores()))


def use_device(device: str | torch.device) -> torch.device:
    """Find a device as `find_device` does, and if it is a GPU, make it torch's current one."""
    found = find_device(device)
    if found.type == "cuda":
        torch.cuda.set_device(found)
    return found


def parse_devices(names: str) -> list[str]:
    """Split a comma-separated list of devices; `all` stands for all GPUs.

    Raises:
        ElmoError: If the list is `all` and there is no GPU.
    """
    if names != "all":
        return [name.strip() for name in names.split(",")]
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0:
        raise ElmoError("`devices`: torch finds no GPU; use the device cpu")
    return [f"cuda:{number}" for number in range(count)]


def run_together(work: Callable[[int], T], num: int, device: torch.device) -> list[T]:
    """Run `work(0)`, … `work(num - 1)` at the same time and return their results in order.

    On a CPU each runs with an equal share of torch's threads, or one after the other if there are fewer than `num`
    threads. On a GPU each runs on a stream of its own.

    Raises:
        Exception: The first error of the work. On a CPU, all of it has ended by then.
    """
    if device.type == "cuda":
        return _on_streams(work, num, device)
    num_threads = torch.get_num_threads()
    if num == 1 or num_threads < num:
        return [work(number) for number in range(num)]
    try:
        try:
            threads = _workers(num, num_threads // num)
        except RuntimeError as error:
            if not means_ending(error):
                raise
            return [work(number) for number in range(num)]
        return run_all(threads, work, num)
    finally:
        # `set_num_threads` in a worker also sets the number for all threads that torch has not seen yet.
        torch.set_num_threads(num_threads)


def wait_for_previous(number: int, device: torch.device) -> None:
    """Within `work(number)` on a GPU, wait until `work(number - 1)` has finished all that it has queued so far.

    This is needed before an operation that adds to a tensor shared with the others, as `backward` adds to gradients.
    On a CPU nothing needs to wait, because torch locks such tensors between threads.
    """
    if device.type == "cuda" and number > 0:
        torch.cuda.current_stream(device).wait_stream(_stream(number - 1, device))


def _on_streams(work: Callable[[int], T], num: int, device: torch.device) -> list[T]:
    here, streams = torch.cuda.current_stream(device), [_stream(number, device) for number in range(num)]
    results: list[T] = []
    for number, stream in enumerate(streams):
        stream.wait_stream(here)  # what was queued before may make the tensors that the work reads
        with torch.cuda.stream(stream):
            results.append(work(number))
    for stream in streams:
        here.wait_stream(stream)
    return results


@cache
def _stream(number: int, device: torch.device) -> torch.cuda.Stream:
    """Return one stream per number and device, always the same.

    torch's memory allocator keeps freed memory for the stream that used it first, so new streams would not find any.
    """
    return torch.cuda.Stream(device)


@cache
def _workers(num: int, num_threads: int) -> ThreadPoolExecutor:
    """Start `num` threads that each use `num_threads` of torch's threads, a number that torch keeps per thread."""
    threads = ThreadPoolExecutor(num, initializer=_take_threads, initargs=(num_threads,))
    # Wait for all of them: a thread that started later would change torch's number after `run_together` restored it.
    all_started = Barrier(num)
    try:
        list(threads.map(lambda _: all_started.wait(), range(num)))
    except RuntimeError:
        all_started.abort()  # those that did start would wait for the others forever, and Python for them when it ends
        raise
    return threads


if hasattr(os, "register_at_fork"):
    # A fork copies the pool but not its threads: the first call in a child would wait for them forever.
    os.register_at_fork(after_in_child=_workers.cache_clear)


def _take_threads(num_threads: int) -> None:
    # torch initializes a thread's number when the thread first asks for it. Without this call, its first parallel
    # operation would do so, and take the number that any thread set last, whatever is set here.
    torch.get_num_threads()
    torch.set_num_threads(num_threads)
