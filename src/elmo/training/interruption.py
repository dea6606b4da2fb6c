"""What may interrupt a run: a signal, which is obeyed after the step in progress, or a disk that takes no more."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from elmo.errors import ElmoError


@contextmanager
def saving_to(folder: Path) -> Generator[None]:
    """Say in one sentence that the disk is full, or what else keeps a file from being written."""
    try:
        yield
    except OSError as error:
        raise ElmoError(
            f"{folder}: can't be written to ({error}); when that is mended, the same command goes on from the last "
            "checkpoint"
        ) from error


@contextmanager
def on_interrupt(stop: Callable[[], None]) -> Generator[None]:
    """Let Ctrl-C, SIGTERM and a terminal that closes ask for a stop after the step in progress; a second Ctrl-C stops
    at once.

    Signals are the main thread's: in another one they are left alone, and so is what `nohup` ignores.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: object) -> None:
        stop()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) not in (signal.SIG_IGN, None):
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
