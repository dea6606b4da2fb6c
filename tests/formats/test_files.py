"""Files that belong together appear together, and the files they replace stay until then."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from elmo.formats.files import read_json, write_all, write_json, write_text


def fail(path: Path) -> None:
    path.write_text("half")
    raise OSError("the disk is full")


def test_optional_files_that_are_not_written_are_removed_last(tmp_path: Path) -> None:
    new, stale = tmp_path / "new", tmp_path / "stale"
    stale.write_text("of the model before")
    with pytest.raises(OSError, match="full"):
        write_all({new: lambda path: path.write_text("x"), tmp_path / "other": fail}, optional=(stale, new))
    assert [path.name for path in tmp_path.iterdir()] == ["stale"]
    write_all({new: lambda path: path.write_text("x")}, optional=(stale, new))
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_files_are_on_the_disk_before_they_get_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a power cut could leave files under their names with old contents, or with none."""
    done: list[tuple[str, int]] = []
    fsync, replace = os.fsync, Path.replace

    def flush(number: int) -> None:
        done.append(("flush", os.fstat(number).st_ino))
        fsync(number)

    def name(path: Path, target: Path) -> Path:
        done.append(("name", path.stat().st_ino))
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(Path, "replace", name)
    paths = [tmp_path / "a", tmp_path / "b"]
    write_all({path: lambda path: path.write_text("x") for path in paths})
    assert done == [(step, path.stat().st_ino) for step in ("flush", "name") for path in paths]


def test_texts_have_the_same_bytes_on_windows(tmp_path: Path, ends_of_windows: None) -> None:
    (tmp_path / "control").write_text("a\n")
    assert (tmp_path / "control").read_bytes() == b"a\r\n"
    write_text(tmp_path / "text", "a\nb\n")
    assert (tmp_path / "text").read_bytes() == b"a\nb\n"
    write_json(tmp_path / "json", {"a": 1})
    assert (tmp_path / "json").read_bytes() == b'{\n  "a": 1\n}\n'


@pytest.mark.parametrize(("system", "is_retried"), [("win32", True), ("linux", False)])
def test_a_file_that_is_open_for_a_moment_on_windows(
    system: str, is_retried: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = Path.replace
    errors = [PermissionError(13, "Access is denied")] * 2

    def fail_twice(path: Path, target: Path) -> Path:
        if errors:
            raise errors.pop()
        return replace(path, target)

    monkeypatch.setattr("elmo.formats.files.sys", SimpleNamespace(platform=system))
    monkeypatch.setattr("elmo.formats.files.time", SimpleNamespace(sleep=lambda seconds: None))
    monkeypatch.setattr(Path, "replace", fail_twice)
    with nullcontext() if is_retried else pytest.raises(PermissionError):
        write_all({tmp_path / "a": lambda path: path.write_text("new")})
    assert (tmp_path / "a").exists() == is_retried


def test_settings_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    """Editors of Windows write one."""
    (tmp_path / "options.json").write_text('{"lstm": {"dim": 3}}', encoding="utf-8-sig")
    assert read_json(tmp_path / "options.json") == {"lstm": {"dim": 3}}


def test_names_that_are_no_utf8_are_written_as_escapes(tmp_path: Path) -> None:
    """The escapes are those of Python for such names of files."""
    name = b"caf\xe9.txt".decode("utf-8", "surrogateescape")
    write_json(tmp_path / "a.json", {"é": name})
    assert '"é": "caf\\udce9.txt"' in (tmp_path / "a.json").read_text(encoding="utf-8")
    assert read_json(tmp_path / "a.json") == {"é": name}
    write_text(tmp_path / "a.md", f"é {name}")
    assert (tmp_path / "a.md").read_text(encoding="utf-8") == "é caf\\udce9.txt"


def test_a_link_in_the_place_of_a_half_written_file_is_not_followed(tmp_path: Path) -> None:
    """A folder may come from a stranger."""
    (tmp_path / "letter").write_text("Dear Ann")
    (tmp_path / ".config.json.partial").symlink_to(tmp_path / "letter")
    write_all({tmp_path / "config.json": lambda path: path.write_text("{}")})
    assert (tmp_path / "letter").read_text() == "Dear Ann"
    assert not (tmp_path / "config.json").is_symlink()
