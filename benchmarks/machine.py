"""What a benchmark ran on, and how it says what it found."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import torch

from elmo.runs.machine import processor_name


def report(results: Sequence[dict[str, Any]], as_json: bool) -> None:
    """Print the results: a line each, or one JSON object that names the machine too."""
    print(json.dumps({"machine": machine(), "results": results}) if as_json else "\n".join(map(str, results)))


def machine() -> dict[str, Any]:
    """The entry `machine` of a benchmark's JSON: processor, cores, version of torch, and the device it would use."""
    return {
        "cpu": processor_name(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
    }
