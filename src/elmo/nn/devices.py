"""Checks the devices that users name."""

from __future__ import annotations

import os
from functools import cache

import torch

from elmo.cores import available_cores, bound_cores
from elmo.errors import ElmoError


def find_device(name: str) -> torch.device:
    """Return the device named `auto` (a GPU if there is one, otherwise the CPU), `cpu`, `cuda` or `cuda:N`.

    If it is the CPU, torch's number of threads is first limited to the cores that a container grants.

    Raises:
        ElmoError: If the name is not one of these, or there is no such GPU.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = name.partition(":")
    if name != "cpu" and (kind != "cuda" or not (number.isdecimal() or name == "cuda")):
        raise ElmoError(f"device: {name!r} is unknown; choose one of auto, cpu, cuda, cuda:0, cuda:1, …")
    if name == "cpu":
        _keep_to_quota()
        return torch.device("cpu")
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(number or 0) >= found:
        raise ElmoError(f"device: there is no {name} (torch finds {found} GPUs); use --device cpu")
    return torch.device("cuda", int(number or 0))


@cache
def _keep_to_quota() -> None:
    """Limit torch to as many threads as a container grants cores, unless the number of threads was chosen already.

    torch starts a thread for each core that it sees. If the container's quota then puts some of them to sleep, the
    others wait for them, which takes many times as long as one thread per granted core. This runs only once, so that a
    number that is chosen later is not changed.
    """
    is_chosen = any(name in os.environ for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"))
    if not is_chosen and torch.get_num_threads() == bound_cores():
        torch.set_num_threads(available_cores())


def use_device(name: str) -> torch.device:
    """Find a device as `find_device` does, and if it is a GPU, make it torch's current one."""
    device = find_device(name)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def parse_devices(names: str) -> list[str]:
    """Split a comma-separated list of devices; `all` stands for all GPUs.

    Raises:
        ElmoError: If the list is `all` and there is no GPU.
    """
    if names != "all":
        return [name.strip() for name in names.split(",")]
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0:
        raise ElmoError("devices: torch finds no GPU; use --device cpu")
    return [f"cuda:{number}" for number in range(count)]
