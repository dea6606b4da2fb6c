"""The files and folders that results are written to.

A target that can't be written is refused before anything is computed, and only one process writes to it at a time.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from elmo.errors import ElmoError

LOCK = ".lock"
MOST_ATTEMPTS = 1000
"""How often to try for a lock whose file other processes keep removing just as this one opens it."""

_FULL = tuple(getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EFBIG") if hasattr(errno, name))
NO_LOCKS = tuple(getattr(errno, name) for name in ("ENOSYS", "EOPNOTSUPP", "ENOTSUP", "ENOLCK") if hasattr(errno, name))
"""Error numbers of file systems without locks, as on some clusters. There, users must keep processes apart."""


@contextmanager
def naming(path: Path) -> Generator[None]:
    """Add `path` to an OSError that names no file, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def sync(path: Path) -> None:
    """Flush a closed file to the disk."""
    with path.open("r+b") as file:  # Windows syncs only files that are open for writing
        os.fsync(file.fileno())


def is_full_disk(error: OSError) -> bool:
    """Return whether a file could not grow: the disk is full, or a quota or size limit is reached."""
    return error.errno in _FULL


def is_there(path: str | Path) -> bool:
    """Return whether there is a file or folder at a path.

    Before Python 3.14, `Path.exists` raises an OSError for a name that is too long for any file, such as a text that is
    given in place of the name of its file.

    Raises:
        PermissionError: If the folder may not be read.
    """
    try:
        os.stat(path)  # noqa: PTH116 - the path may be text that is no path
    except (FileNotFoundError, NotADirectoryError, ValueError):  # the last one for a NUL character
        return False
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL):
            return False
        raise
    return True


def with_home(path: str | Path) -> str:
    """Return a path that is read, with the home folder in place of `~`, unless there is something of that very name.

    Shells leave `~` as it is in quotation marks and in `--index=~/wiki.index`, and Python has no shell.
    """
    return str(path) if is_there(path) else os.path.expanduser(path)  # noqa: PTH111 - without an error if there is none


def require_parent(path: Path) -> None:
    """Refuse a path whose folder does not exist, one that has no name, such as `/`, and `-`, which means a stream.

    A name that the system can't have is refused, too, and so is `~`.
    """
    if str(path) == "-":
        raise ElmoError("-: results are not written to standard output; name a file or folder")
    _require_no_tilde(path)
    absolute = path.absolute()
    if not absolute.name:
        raise ElmoError(f"{path}: can't be written to; name a file or folder in it")
    if not is_there(absolute.parent) or not absolute.parent.is_dir():
        raise ElmoError(f"{path}: there is no folder {path.parent}; make it first")
    try:
        work_folder_of(absolute).lstat()  # its name is longer, and the first that is written to
    except ValueError:
        raise ElmoError(f"{str(path)!r}: holds a NUL character, which no name can; choose another name") from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise ElmoError(f"{path}: the name is too long; choose a shorter one") from None


def _require_no_tilde(path: Path) -> None:
    """Refuse a path in `~`, which would be made as a folder of that name, while reading takes `~` for the home folder.

    Shells leave `~` as it is in quotation marks and in `--out=~/run`, and Python has no shell.
    """
    if path.parts[:1] == ("~",):
        raise ElmoError(f"{path}: no shell has put your home folder in place of ~; write the whole path")


def require_file_target(path: Path) -> None:
    """Refuse a path to write a file to as `require_parent` does, and one that is a folder."""
    require_parent(path)
    if path.is_dir():
        raise ElmoError(f"{path}: is a folder; name a file")


def require_folder(path: Path) -> None:
    """Refuse a path that is to be a folder, and is something else or lies in something else. It need not exist.

    One that begins with `~` is refused, too.
    """
    _require_no_tilde(path)
    found = next(part for part in (path, *path.absolute().parents) if os.path.lexists(part))
    if found.is_dir():
        return
    if found == path:
        raise ElmoError(f"{path}: is not a folder; name one, or a path where there is nothing yet")
    raise ElmoError(f"{path}: can't be made, since {found} is not a folder")


def require_new_file(path: Path) -> None:
    """Refuse a path that already exists, or whose folder does not exist."""
    require_parent(path)
    if os.path.lexists(path):  # a link to nothing, too, which would be replaced
        raise ElmoError(f"{path}: exists already; name another file")


@contextmanager
def alone_in(folder: Path, name: str = LOCK, *, wait: bool = False) -> Generator[Callable[[], bool]]:
    """Make sure that no other process is in such a context for the same folder. Being killed ends the context too.

    On Windows nothing is locked, as on file systems without locks (`NO_LOCKS`): users must keep processes apart.

    Args:
        folder: The folder to lock, which must exist.
        name: The name of the file to lock. Locks of different names do not exclude each other.
        wait: Whether to wait while another process has the lock.

    Yields:
        A function that returns whether the lock still holds. It does not if the folder was removed meanwhile, even if
        another process has made it again.

    Raises:
        ElmoError: If another process has the lock and `wait` is false.
    """
    if sys.platform == "win32":
        yield lambda: True  # no file can be removed there while it is open
        return
    with _hold(folder / name, folder, wait=wait) as lock:
        try:
            yield lambda: _is_at(folder / name, lock)
        finally:
            if _is_at(folder / name, lock):
                (folder / name).unlink()


PROGRESS, JOB = "progress.json", "job.json"
"""The files that unfinished work has if it is to be continued: vectors have the first, and indexes the second."""


def work_folder_of(path: Path) -> Path:
    """Return the folder that holds the unfinished work on `path`."""
    return path.with_name(f".{path.name}.unfinished")


@contextmanager
def unfinished_folder(
    folder: Path,
    target: Path,
    is_kept: Callable[[], bool] | None = None,
    *,
    mark: str | None = None,
    wait: bool = False,
) -> Generator[None]:
    """Make and lock the folder for unfinished work on a target. It is removed at the end of the context.

    If the process is killed, the folder stays. On Windows it is not locked (see `alone_in`).

    Args:
        folder: The folder, which is made unless it exists.
        target: What the work will become, for messages.
        is_kept: Called at the end; the folder stays if it returns True. None for work that is never continued.
        mark: The file that work of this kind has if it is to be continued, `PROGRESS` or `JOB`; None for other work.
        wait: Whether to wait while another process has the lock.

    Raises:
        ElmoError: If another process has the lock and `wait` is false, or if the folder holds a link, or work of
            another kind that can be continued.
    """
    with _hold(folder / LOCK, target, make_folder=True, wait=wait) as lock:
        if any((folder / name).exists() for name in (PROGRESS, JOB) if name != mark):
            raise ElmoError(
                f"{target}: another command was interrupted, and can be continued from {folder}; continue it, name "
                "another target, or remove that folder"
            )
        for path in folder.rglob("*"):  # what is in it will be written to
            _require_no_link(path)
        try:
            with naming(target):
                yield
        finally:
            if _is_at(folder / LOCK, lock) and not (is_kept and is_kept()):
                _remove(folder, lock)


def remove_leftovers(folder: Path, is_kept: Callable[[], bool] | None = None, *, mark: str | None = None) -> None:
    """Remove the folder for unfinished work on a target that is complete.

    A process leaves it there if it is killed between moving its result to the target and tidying up.

    Args:
        folder: The folder, which need not exist. It stays while another process has its lock.
        is_kept: The folder stays if it returns True; called while the lock is held. None for work that is never
            continued.
        mark: As in `unfinished_folder`. The folder stays if it holds work of another kind that can be continued.
    """
    if folder.is_dir():
        with suppress(ElmoError), unfinished_folder(folder, folder, is_kept, mark=mark):
            pass


@contextmanager
def _hold(path: Path, target: Path, *, make_folder: bool = False, wait: bool = False) -> Generator[IO[str]]:
    """Make and lock the file `path`. The process that has the lock may write `target`."""
    folder = path.parent
    if make_folder:
        _require_no_link(folder)  # what is in it will be removed
    for attempts_left in reversed(range(MOST_ATTEMPTS)):
        try:
            if make_folder:
                folder.mkdir(exist_ok=True)
            _require_no_link(path)
            lock = path.open("a")  # which changes nothing in it
        except (FileExistsError, FileNotFoundError):
            # The process that had the lock before may just have removed the folder.
            if not (make_folder and attempts_left and folder.parent.is_dir() and _is_folder_or_nothing(folder)):
                raise
            continue
        with lock:
            _claim(lock, target, wait)
            if _is_at(path, lock):  # false if the process that had it before removed it between `open` and `_claim`
                yield lock
                return
    raise ElmoError(f"{target}: other processes make and remove it all the time; end them")


def _require_no_link(path: Path) -> None:
    """Refuse a link in the place of our own file or folder. It may be a stranger's, and lead anywhere."""
    if path.is_symlink():
        raise ElmoError(f"{path}: is a link, and would be written to; remove it")


def _claim(lock: IO[str], target: Path, wait: bool) -> None:
    if sys.platform == "win32":
        return  # no other process can replace a file there that this one has open
    import fcntl

    try:
        with naming(target):
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
    """Return whether an open file still has this name."""
    try:
        return os.path.samestat(path.stat(), os.fstat(lock.fileno()))
    except FileNotFoundError:
        return False


def _remove(folder: Path, lock: IO[str]) -> None:
    """Remove a folder whose lock is held. The lock goes last, because then another process may take the folder."""
    for path in folder.iterdir():
        if path.is_dir():
            # On Windows, what an error has left mapped into memory stays until the next run.
            shutil.rmtree(path, ignore_errors=sys.platform == "win32")
        elif path.name != LOCK:
            path.unlink()
    if sys.platform == "win32":
        lock.close()  # no file can be removed there while it is open
    (folder / LOCK).unlink(missing_ok=True)
    if not _remove_empty(folder):
        lock.close()  # NFS keeps a file that was removed while it was open
        _remove_empty(folder)


def _remove_empty(folder: Path) -> bool:
    """Remove a folder, and return whether it is gone. It stays if another process has put its lock there."""
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
            raise
        return error.errno == errno.ENOENT
    return True
