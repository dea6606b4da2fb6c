"""Files that belong together appear together, and those they replace stay until then."""

from __future__ import annotations

from pathlib import Path

import pytest

from elmo.formats.files import write_all


def fail(path: Path) -> None:
    path.write_text("half")
    raise OSError("the disk is full")


def test_what_is_left_out_goes_last(tmp_path: Path) -> None:
    new, stale = tmp_path / "new", tmp_path / "stale"
    stale.write_text("of the model before")
    with pytest.raises(OSError, match="full"):
        write_all({new: lambda path: path.write_text("x"), tmp_path / "other": fail}, optional=(stale, new))
    assert [path.name for path in tmp_path.iterdir()] == ["stale"]
    write_all({new: lambda path: path.write_text("x")}, optional=(stale, new))
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
