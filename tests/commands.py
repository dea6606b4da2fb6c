"""The command `elmo` in this process, as a shell would see it."""

from __future__ import annotations

import sys
import warnings

import pytest

from elmo.cli.main import main


def run_main(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `elmo ARGUMENTS`."""
    monkeypatch.setattr(sys, "argv", ["elmo", *arguments])
    monkeypatch.setattr("elmo.cli.main._exit_on_signals", lambda: None)  # this process has handlers of its own
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    code = 0
    try:
        main()
    except SystemExit as end:
        code = int(end.code or 0)
    return (code, *capsys.readouterr())
