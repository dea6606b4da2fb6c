"""Interruptions of a run: a signal, which ends it after the current step, or a disk that cannot be written to."""

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
    """Turn an OSError raised in this block, such as that of a full disk, into an ElmoError that says how to go on."""
    try:
        yield
    except OSError as error:
        raise ElmoError(
            f"{folder}: cannot be written to ({error}); once that is fixed, the same command continues from the last "
            "checkpoint, if there is one"
        ) from error


@contextmanager
def on_interrupt(stop: Callable[[], None]) -> Generator[None]:
    """Call `stop` on Ctrl-C, on SIGTERM, and when the terminal closes. A second Ctrl-C ends the program at once.

    Only the main thread can handle signals: in another thread this does nothing. A SIGHUP that is ignored, as under
    `nohup`, stays ignored.

    Args:
        stop: Requests a stop after the current step. It runs inside a signal handler, and should only set a flag.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: object) -> None:
        stop()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    # A handler of another language that Python runs in, such as R, is None here, and could not be put back.
    numbers = [number for number in numbers if signal.getsignal(number) is not None]
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
