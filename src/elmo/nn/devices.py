"""Where to compute: the devices that a user names, checked; and how processors treat the smallest numbers."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch

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
        return torch.device("cpu")
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(number or 0) >= found:
        raise ElmoError(f"device: there is no {name} here, torch finds {found} GPUs; use --device cpu")
    return torch.device("cuda", int(number or 0))


def use_device(name: str) -> torch.device:
    """As `find_device`; a GPU becomes torch's current one."""
    device = find_device(name)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


@contextmanager
def flush_denormals() -> Generator[None]:
    """Lets processors count numbers below 1.2e-38, which lack full precision, as zero.

    Weights that a penalty pulls to zero pass through these numbers, and products of them can take tens of times longer.
    """
    before = torch.full((), 1e-39).item() == 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def parse_devices(names: str) -> list[str]:
    """The devices of a list between commas; `all` are all GPUs."""
    if names != "all":
        return [name.strip() for name in names.split(",")]
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0:
        raise ElmoError("devices: torch finds no GPU here; use --device cpu")
    return [f"cuda:{number}" for number in range(count)]
