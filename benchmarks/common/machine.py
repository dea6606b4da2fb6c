"""The machine that a benchmark runs on, and the printing of its results."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch

from elmo.training.machine import processor_name

T = TypeVar("T")


def report(results: Sequence[dict[str, Any]], as_json: bool) -> None:
    """Print each result on a line, or all of them as one JSON object that also names the machine."""
    print(json.dumps({"machine": machine(), "results": results}) if as_json else "\n".join(map(str, results)))


def peak_rss_mb(process: int | str = "self") -> int:
    """Return the peak of a process's resident memory (on Linux; 0 if it has just ended).

    `resource` would not do: for a process that a larger one started, it returns at least the size of that one.
    """
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    peak = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return int(peak[0]) >> 10 if peak else 0


def seconds_of(run: Callable[[], object]) -> float:
    """Return how long a function takes."""
    return timed(run)[0]


def timed(run: Callable[[], T]) -> tuple[float, T]:
    """Return how long a function takes, and its result."""
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def machine() -> dict[str, Any]:
    """Return the entry `machine` of a benchmark's JSON: processor, cores, version of torch, and device."""
    return {
        "cpu": processor_name(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
    }
