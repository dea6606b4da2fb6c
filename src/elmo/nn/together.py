"""Work that is done at once on the cores of one processor."""

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
    """The results of `work(0)`, … `work(num - 1)`, done at once: each by its share of torch's threads.

    With fewer threads than that, one after the other; on a GPU each on a stream of its own.
    """
    if device.type == "cuda":
        return _on_streams(work, num, device)
    num_threads = torch.get_num_threads()
    if num == 1 or num_threads < num:
        return [work(number) for number in range(num)]
    try:
        return list(_workers(num, num_threads // num).map(work, range(num)))
    finally:
        torch.set_num_threads(num_threads)  # a worker's first act tells threads still to come how many they get


def wait_for_previous(number: int, device: torch.device) -> None:
    """In `work(number)` on a GPU: go on when `number - 1` has done all that it was asked for so far.

    For what adds to a tensor that the others add to, as `backward` does to gradients; threads have torch's locks.
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
    """The same for each number and device, since memory belongs to the stream that first used it."""
    return torch.cuda.Stream(device)


@cache
def _workers(num: int, num_threads: int) -> ThreadPoolExecutor:
    """Threads that have `num_threads` of torch's own each. The number is each thread's own, and stays."""
    threads = ThreadPoolExecutor(num, initializer=_take_threads, initargs=(num_threads,))
    all_started = Barrier(num)  # else one that starts late would change torch's number after it was put back
    list(threads.map(lambda _: all_started.wait(), range(num)))
    return threads


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_workers.cache_clear)  # threads don't follow a fork: a child starts its own


def _take_threads(num_threads: int) -> None:
    torch.get_num_threads()  # else torch's first act in this thread would be to take the number set last in any
    torch.set_num_threads(num_threads)
