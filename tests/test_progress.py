"""All commands show progress in the same way: only on a terminal, and only until the end."""

from __future__ import annotations

import sys

import pytest

from elmo.progress import show_progress
from terminal import Terminal


@pytest.mark.parametrize(
    ("total", "says"),
    [(4, "reading: 100%|████████████| 4 of 4 words, 00:00<00:00"), (None, "reading: 4.00 words, ")],
)
def test_a_bar_says_what_how_many_and_how_long(monkeypatch: pytest.MonkeyPatch, total: int | None, says: str) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    bar = show_progress("reading", "words", total, ["a", "b", "c", "d"])
    bar.mininterval = 0
    assert list(bar) == ["a", "b", "c", "d"]
    shown = terminal.getvalue()
    assert says in shown
    assert shown.endswith("\r"), "the line is empty again"


def test_nothing_is_shown_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress("reading", "bytes", 9, initial=3) as bar:
        bar.update(6)
    assert capsys.readouterr().err == ""
