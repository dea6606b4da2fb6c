"""Where results go: what can't be written is refused before anything is computed."""

from __future__ import annotations

from pathlib import Path

from elmo.errors import ElmoError


def require_parent(path: Path) -> None:
    """Refuse a path whose folder isn't there."""
    if not path.absolute().parent.is_dir():
        raise ElmoError(f"{path}: there is no folder {path.parent}; make that first")


def require_new_file(path: Path) -> None:
    """Refuse a path where something is already, or whose folder isn't there."""
    require_parent(path)
    if path.exists():
        raise ElmoError(f"{path}: exists already; remove it, or name another file")
