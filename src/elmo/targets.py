"""Where results go: what can't be written is refused before anything is computed, and one process writes at a time."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from elmo.errors import ElmoError

LOCK = ".lock"
_FULL = tuple(getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EFBIG") if hasattr(errno, name))
NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
"""Some disks of clusters have no locks; there one has to see to it oneself that no two processes write the same."""


@contextmanager
def naming(path: Path) -> Generator[None]:
    """Name `path` in an OSError that names no file, as that of a full disk doesn't."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def is_full_disk(error: OSError) -> bool:
    """Whether a file could not grow: no space on the disk, or a limit of the user's."""
    return error.errno in _FULL


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
def alone_in(folder: Path) -> Generator[Callable[[], bool]]:
    """Let no other process enter this block for the same folder meanwhile; a kill ends that, too.

    Yields what says whether that still holds: the folder may be removed, and made again by another process.
    """
    if sys.platform == "win32":
        yield lambda: True  # no file can be removed there while it is open
        return
    with _hold(folder / LOCK, folder) as lock:
        try:
            yield lambda: _is_at(folder / LOCK, lock)
        finally:
            if _is_at(folder / LOCK, lock):
                (folder / LOCK).unlink()


@contextmanager
def unfinished_folder(
    folder: Path, target: Path, is_kept: Callable[[], bool], *, wait: bool = False
) -> Generator[None]:
    """Make the folder of unfinished work on `target`, unless it is there, and let no other process enter this block
    for it meanwhile: another one is refused, or with `wait` waits until this one is through. With the block's end the
    folder is removed, unless it `is_kept`; a kill keeps it."""
    with _hold(folder / LOCK, target, make_folder=True, wait=wait) as lock:
        try:
            with naming(target):
                yield
        finally:
            if _is_at(folder / LOCK, lock) and not is_kept():
                _remove(folder, lock)


@contextmanager
def _hold(path: Path, target: Path, *, make_folder: bool = False, wait: bool = False) -> Generator[IO[str]]:
    """Lock the file `path`, made when it isn't there; who has it writes `target`."""
    folder = path.parent
    while True:
        try:
            if make_folder:
                folder.mkdir(exist_ok=True)
            lock = path.open("w")
        except (FileExistsError, FileNotFoundError):
            if not (make_folder and folder.parent.is_dir() and _is_folder_or_nothing(folder)):
                raise
            continue  # who had it before removed the folder meanwhile
        with lock:
            _claim(lock, target, wait)
            if _is_at(path, lock):  # and not removed by who had it before, between the two lines above
                yield lock
                return


def _claim(lock: IO[str], target: Path, wait: bool) -> None:
    if sys.platform == "win32":
        return  # where no other process can replace what this one has open
    import fcntl

    try:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ElmoError(f"{target}: another process is writing it; wait for that one, or end it") from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise


def _is_folder_or_nothing(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except FileNotFoundError:
        return True


def _is_at(path: Path, lock: IO[str]) -> bool:
    """Whether an open file still has this name."""
    try:
        return os.path.samestat(path.stat(), os.fstat(lock.fileno()))
    except FileNotFoundError:
        return False


def _remove(folder: Path, lock: IO[str]) -> None:
    """Remove a folder whose lock is held: the lock last, after which another process may take the folder."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()
    if sys.platform == "win32":
        lock.close()  # no file can be removed there while it is open
    (folder / LOCK).unlink(missing_ok=True)
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):  # another process has it by now
            raise
