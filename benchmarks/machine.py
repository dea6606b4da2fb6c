"""What a benchmark ran on."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import torch

_CPUINFO = Path("/proc/cpuinfo")


def machine() -> dict[str, Any]:
    """The entry `machine` of a benchmark's JSON: processor, cores, version of torch, and the device it would use."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
    }


def _cpu() -> str:
    """The processor's name, or where it can't be read the kind of machine."""
    lines = _CPUINFO.read_text().splitlines() if _CPUINFO.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
