"""A first signal asks a training to stop, a second Ctrl-C ends it at once, and `nohup` still has its effect."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

import pytest

from elmo.training.interruption import on_interrupt


@pytest.fixture
def handlers() -> Iterator[dict[int, object]]:
    """Return the handlers of signals, and set them again after the test, whatever happened."""
    numbers = {signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}  # Windows has no SIGHUP
    before = {number: signal.getsignal(number) for number in numbers}
    yield {**before}
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_second_interrupt_ends_the_program_at_once(first: int, handlers: dict[int, object]) -> None:
    asked: list[bool] = []
    with on_interrupt(lambda: asked.append(True)):
        signal.raise_signal(first)
        assert asked == [True]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert asked == [True]
    assert {number: signal.getsignal(number) for number in handlers} == handlers


def test_handlers_that_python_did_not_install_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where R or Julia runs Python, Ctrl-C is theirs: Python gets None for such a handler, and can't set it again."""
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(signal, "getsignal", lambda number: None)
    with on_interrupt(lambda: None):
        assert signal.signal(signal.SIGINT, before) == before


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal")
@pytest.mark.usefixtures("handlers")
def test_a_closed_terminal_stops_the_training_unless_that_is_ignored() -> None:
    """`nohup` starts a program that ignores SIGHUP, and it must stay ignored."""
    asked: list[bool] = []
    for handler, wanted in ((lambda *_: None, [True]), (signal.SIG_IGN, [])):
        asked.clear()
        signal.signal(signal.SIGHUP, handler)
        with on_interrupt(lambda: asked.append(True)):
            signal.raise_signal(signal.SIGHUP)
        assert asked == wanted
