"""Where to compute: the devices that a user names, checked."""

from __future__ import annotations

import os
from functools import cache

import torch

from elmo.cores import available_cores, bound_cores
from elmo.errors import ElmoError


def find_device(name: str) -> torch.device:
    """The device `auto` (a GPU if there is one), `cpu`, `cuda` or `cuda:N`.

    Raises ElmoError for another name, and for a GPU that isn't there.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = name.partition(":")
    if name != "cpu" and (kind != "cuda" or not (number.isdecimal() or name == "cuda")):
        raise ElmoError(f"device: {name!r} is none of auto, cpu, cuda, cuda:0, cuda:1, …")
    if name == "cpu":
        _keep_to_quota()
        return torch.device("cpu")
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(number or 0) >= found:
        raise ElmoError(f"device: there is no {name} here, torch finds {found} GPUs; use --device cpu")
    return torch.device("cuda", int(number or 0))


@cache
def _keep_to_quota() -> None:
    """Have torch compute on as many threads as a container grants cores, unless somebody chose a number.

    torch starts a thread for each core it sees. Threads that wait for others which the quota has put to sleep take
    many times as long as one thread for each granted core. Done once, so that a later choice stays.
    """
    is_chosen = any(name in os.environ for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"))
    if not is_chosen and torch.get_num_threads() == bound_cores():
        torch.set_num_threads(available_cores())


def use_device(name: str) -> torch.device:
    """As `find_device`; a GPU becomes torch's current one."""
    device = find_device(name)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def parse_devices(names: str) -> list[str]:
    """The devices of a list between commas; `all` are all GPUs."""
    if names != "all":
        return [name.strip() for name in names.split(",")]
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0:
        raise ElmoError("devices: torch finds no GPU here; use --device cpu")
    return [f"cuda:{number}" for number in range(count)]
