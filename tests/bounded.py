"""The check that a source is refused without taking much memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import refusing

RESET = Path("/proc/self/clear_refs")
"""Where Linux resets the highest use of memory of this process."""

MEMORY = 90 << 20
"""Limit in bytes: less than the smallest of these files asks for, far more than a small model takes."""


def assert_refused(source: Path, *parts: str) -> None:
    """Check that the source is refused as in other tests, and within bounded memory."""
    with bounded_memory():
        refusing.assert_refused(source, *parts)


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Check that the memory of the process grows by less than `MEMORY`, no matter which library takes it.

    Only Linux can tell, since elsewhere the highest use so far can't be reset.
    """
    if not RESET.exists():
        yield
        return
    RESET.write_text("5")  # from now on, the highest use counts from here
    before = status("VmRSS")
    yield
    assert status("VmHWM") - before < MEMORY


def status(name: str) -> int:
    """Return a figure in bytes of what Linux says about the memory of this process."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) << 10
