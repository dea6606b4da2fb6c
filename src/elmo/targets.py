"""Where results go: what can't be written is refused before anything is computed, and one process writes at a time."""

from __future__ import annotations

import errno
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from elmo.errors import ElmoError

LOCK = ".lock"
NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
"""Some disks of clusters have no locks; there one has to see to it oneself that no two processes write the same."""


def require_parent(path: Path) -> None:
    """Refuse a path whose folder isn't there."""
    if not path.absolute().parent.is_dir():
        raise ElmoError(f"{path}: there is no folder {path.parent}; make that first")


def require_new_file(path: Path) -> None:
    """Refuse a path where something is already, or whose folder isn't there."""
    require_parent(path)
    if path.exists():
        raise ElmoError(f"{path}: exists already; remove it, or name another file")


@contextmanager
def alone_in(folder: Path) -> Generator[None]:
    """Let no other process enter this block for the same folder meanwhile; a kill ends that, too."""
    if sys.platform == "win32":
        yield  # no file can be removed there while it is open
        return
    path = folder / LOCK
    with path.open("w") as lock:
        claim(lock, folder)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def claim(lock: IO[str], path: Path) -> None:
    """Lock a file, beside which `path` is being made, for as long as it is open; a kill unlocks it, too."""
    if sys.platform == "win32":
        return  # where no other process can replace what this one has open
    import fcntl

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ElmoError(f"{path}: another process is writing it; wait for that one, or end it") from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
