"""Calls of the command `elmo` in this process, with what a shell would see of them."""

from __future__ import annotations

import signal
import sys
import warnings

import pytest

from elmo.cli.main import main


def run_main(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    """Return the exit code, stdout and stderr of `elmo ARGUMENTS`."""
    monkeypatch.setattr(sys, "argv", ["elmo", *arguments])
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    code = 0
    try:
        main()
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        for number, handler in handlers.items():  # the command has set its own, and this process goes on without it
            signal.signal(number, handler)
    return (code, *capsys.readouterr())
