"""Runs several pieces of work at the same time, on the cores of a CPU or on the streams of a GPU."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Barrier
from typing import TypeVar

import torch

T = TypeVar("T")


def run_together(work: Callable[[int], T], num: int, device: torch.device) -> list[T]:
    """Run `work(0)`, … `work(num - 1)` at the same time and return their results in order.

    On a CPU each runs with an equal share of torch's threads, or one after the other if there are fewer than `num`
    threads. On a GPU each runs on a stream of its own.
    """
    if device.type == "cuda":
        return _on_streams(work, num, device)
    num_threads = torch.get_num_threads()
    if num == 1 or num_threads < num:
        return [work(number) for number in range(num)]
    try:
        return list(_workers(num, num_threads // num).map(work, range(num)))
    finally:
        torch.set_num_threads(num_threads)  # starting the workers changed the number that later threads would get


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
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            results.append(work(number))
    for stream in streams:
        here.wait_stream(stream)
    return results


@cache
def _stream(number: int, device: torch.device) -> torch.cuda.Stream:
    """Return one stream per number and device, always the same: memory belongs to the stream that first used it."""
    return torch.cuda.Stream(device)


@cache
def _workers(num: int, num_threads: int) -> ThreadPoolExecutor:
    """Start `num` threads that each use `num_threads` of torch's threads, a number that torch keeps per thread."""
    threads = ThreadPoolExecutor(num, initializer=_take_threads, initargs=(num_threads,))
    # Wait for all of them: a thread that started later would change torch's number after `run_together` restored it.
    all_started = Barrier(num)
    list(threads.map(lambda _: all_started.wait(), range(num)))
    return threads


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_workers.cache_clear)  # threads do not survive a fork, so a child starts its own


def _take_threads(num_threads: int) -> None:
    torch.get_num_threads()  # without this call, torch's first use in this thread would take the number set last in any
    torch.set_num_threads(num_threads)
