"""What a benchmark ran on, and how it says what it found."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from elmo.training.machine import processor_name


def report(results: Sequence[dict[str, Any]], as_json: bool) -> None:
    """Print the results: a line each, or one JSON object that names the machine too."""
    print(json.dumps({"machine": machine(), "results": results}) if as_json else "\n".join(map(str, results)))


def peak_rss_mb(process: int | str = "self") -> int:
    """The most memory that a process ever held (Linux; 0 where it has just ended). What `resource` tells of one that a
    larger process started is no less than that one's.
    """
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    peak = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return int(peak[0]) >> 10 if peak else 0


def machine() -> dict[str, Any]:
    """The entry `machine` of a benchmark's JSON: processor, cores, version of torch, and the device it would use."""
    return {
        "cpu": processor_name(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
    }
