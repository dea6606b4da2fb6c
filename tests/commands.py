"""Calls of the command `elmo` in this process, with what a shell would see of them, and options for them."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Mapping

import pytest
from click.testing import CliRunner

from elmo.cli.main import cli, main


def run(*arguments: object, text: str | None = None) -> str:
    """Return the stdout of `elmo ARGUMENTS`, which must succeed, with `text` on stdin. Errors are raised here."""
    result = CliRunner().invoke(cli, [*map(str, arguments)], input=text, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def set_options(changes: Mapping[str, object]) -> list[str]:
    """Return the options `--set KEY=VALUE` that make these changes to a recipe."""
    return [word for key, value in changes.items() for word in ("--set", f"{key}={json.dumps(value)}")]


RunMain = Callable[[list[str]], tuple[int, str, str]]


@pytest.fixture
def run_main(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> RunMain:
    """Return a function that runs `elmo ARGUMENTS` and returns its exit code, stdout and stderr."""

    def run(arguments: list[str]) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["elmo", *arguments])
        monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
        monkeypatch.setenv("OMP_WAIT_POLICY", "passive")  # as the command sets it, but only until the end of the test
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        return (code, *capfd.readouterr())

    return run
