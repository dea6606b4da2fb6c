"""Files that are only appended to, so that a later run can continue from any size at which they were flushed."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from elmo.errors import ElmoError

DATA = "data"
"""Name of the file in the folder of unfinished work that becomes the output."""


def open_at(path: Path, size: int) -> BinaryIO:
    """Open a file to append at `size` bytes, and cut off anything after that.

    Args:
        path: The file.
        size: Number of bytes to keep. With 0 the file is created, or emptied if it exists.

    Raises:
        ElmoError: If the file is shorter than `size`.
    """
    if size == 0:
        return path.open("w+b")
    found = path.stat().st_size if path.exists() else 0
    if found < size:
        raise ElmoError(
            f"{path}: damaged ({found:,} bytes instead of {size:,}); remove {path.parent} to start from the beginning"
        )
    file = path.open("r+b")
    file.truncate(size)
    file.seek(size)
    return file


def make_safe(file: BinaryIO) -> int:
    """Force everything that was written to the disk, and return the size of the file."""
    file.flush()
    os.fsync(file.fileno())
    return file.tell()


def close_all(*files: Any) -> None:
    """Close files, whether they are complete or not.

    Errors of the system are ignored: data that a full disk refuses now was not committed, so no later run relies on it.
    """
    for file in files:
        with suppress(OSError):
            file.close()
