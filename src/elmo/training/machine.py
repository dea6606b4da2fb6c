"""The name of the machine, for cards and records."""

from __future__ import annotations

import platform
from pathlib import Path

import torch

_CPUINFO = Path("/proc/cpuinfo")
"""Where Linux tells the name of the processor; Python's `platform` mostly doesn't."""


def machine_name(device: torch.device) -> str:
    """What `device` is: the GPU's name, or the processor's with the number of threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    num_threads = torch.get_num_threads()
    return f"{processor_name()}, {num_threads} thread{'s' if num_threads > 1 else ''}"


def processor_name() -> str:
    """The processor's name, or where it can't be read the kind of machine."""
    lines = _CPUINFO.read_text().splitlines() if _CPUINFO.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
