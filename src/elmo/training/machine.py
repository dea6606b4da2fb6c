"""The name of the machine, for model cards and records of results."""

from __future__ import annotations

import platform
from pathlib import Path

import torch

from elmo.wording import counted

_CPUINFO = Path("/proc/cpuinfo")
"""The file in which Linux gives the name of the processor, which Python's `platform` usually does not know."""


def machine_name(device: torch.device) -> str:
    """Return the name of the GPU, or the name of the processor and the number of threads that torch uses."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{processor_name()}, {counted(torch.get_num_threads(), 'thread')}"


def processor_name() -> str:
    """Return the name of the processor, or the machine type (such as arm64) if the name cannot be read."""
    lines = _CPUINFO.read_text(encoding="utf-8").splitlines() if _CPUINFO.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
