"""Safe reading and writing of files: bad input gives an `ElmoError`, and no file is left half-written."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from elmo.errors import ElmoError
from elmo.targets import naming, sync

_PARTIAL = ".partial"
"""The ending of a file's temporary name while it is being written."""

_LARGEST_JSON = 3 << 20
"""In bytes: far more than any options file needs."""


def require_file(path: Path) -> None:
    """Check that `path` is a regular file, for callers that read a file as a whole.

    A missing file passes: whoever opens it reports it.

    Raises:
        ElmoError: If `path` is a folder, a broken link, or a pipe or device (which may never end).
    """
    if path.is_dir():
        raise ElmoError(f"{path}: is a folder; expected a file")
    if path.is_symlink() and not path.exists():
        raise ElmoError(f"{path}: is a broken link; get the file that it should point to")
    if path.exists() and not path.is_file():
        raise ElmoError(f"{path}: is a pipe or a device; save its output to a file and name that file")


def require_existing_file(path: Path) -> None:
    """Check that `path` is a regular file, as `require_file` does, and that it exists."""
    require_file(path)
    if not path.exists():
        raise ElmoError(f"{path}: no such file")


def read_json(path: Path, largest: int = _LARGEST_JSON) -> object:
    """Read a JSON file.

    Args:
        path: The file.
        largest: The largest size in bytes that is accepted.

    Raises:
        ElmoError: If the file is missing, too large or not valid JSON, which includes NaN and infinity.
    """
    require_file(path)
    try:
        if path.stat().st_size > largest:
            raise ElmoError(f"{path}: too large for a settings file ({path.stat().st_size:,} bytes)")
        # Editors of Windows write a byte-order mark before the text.
        return json.loads(path.read_text(encoding="utf-8-sig"), parse_constant=_refuse_constant)
    except ElmoError:
        raise
    except FileNotFoundError:
        raise ElmoError(f"{path}: no such file") from None
    except json.JSONDecodeError as error:
        raise ElmoError(f"{path}, line {error.lineno}: not valid JSON ({error.msg})") from None
    except UnicodeDecodeError:
        raise ElmoError(f"{path}: not valid JSON (not UTF-8 text)") from None
    except (ValueError, RecursionError) as error:  # NaN, a number with thousands of digits, or lists nested too deeply
        raise ElmoError(f"{path}: not valid JSON ({error})") from None


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not a number in JSON")


def write_json(path: Path, value: object) -> None:
    """Write `value` as indented JSON in UTF-8."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write `text` in UTF-8, with the same bytes on every system: Windows would end lines in another way.

    Surrogates, which file names can contain, become escapes that JSON can read back.
    """
    path.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")


def versions(paths: Iterable[Path]) -> list[tuple[int, int, int] | None]:
    """Return what tells each file from one that `write_all` replaces it with; None for a file that isn't there."""
    found: list[tuple[int, int, int] | None] = []
    for path in paths:
        try:
            facts = path.stat()
            found.append((facts.st_ino, facts.st_mtime_ns, facts.st_size))
        except OSError:
            found.append(None)
    return found


def remove_partial(folder: Path) -> None:
    """Remove the temporary files that `write_all` left in `folder` when its process was killed.

    Call this only while holding the folder's lock (`alone_in`): otherwise another process may be writing them.
    """
    for path in folder.glob(f".*{_PARTIAL}"):
        path.unlink(missing_ok=True)


def _rename(temporary: Path, path: Path) -> None:
    """Give a file its name. On Windows, a scanner may have one of the two open for a moment."""
    for attempts_left in reversed(range(10)):
        try:
            temporary.replace(path)
            return
        except PermissionError:
            if sys.platform != "win32" or not attempts_left:
                raise
            time.sleep(0.1)


def write_all(writers: Mapping[Path, Callable[[Path], object]], optional: Iterable[Path] = ()) -> None:
    """Write files that belong together, and give them their names only when all of them are complete.

    Every file is first written under a temporary name in the same folder and flushed to the disk, so that neither a
    kill nor a power cut leaves a half-written file under a real name. The files then get their names in the order of
    `writers`.

    Args:
        writers: For each file, a function that writes it to the path it is given.
        optional: Files that are removed at the end if they are not among `writers`: they would belong to a model that
            was in the folder before.
    """
    temporaries = {path: path.with_name(f".{path.name}{_PARTIAL}") for path in writers}
    try:
        for path, write in writers.items():
            with naming(path):
                temporaries[path].unlink(missing_ok=True)  # it might be a link to another file
                write(temporaries[path])
                sync(temporaries[path])  # otherwise a power cut could leave the new name with old or no contents
        for path, temporary in temporaries.items():
            _rename(temporary, path)
        # Only now, so that a failed write leaves the old model complete.
        for path in optional:
            if path not in writers:
                path.unlink(missing_ok=True)
    finally:
        for temporary in temporaries.values():
            temporary.unlink(missing_ok=True)
