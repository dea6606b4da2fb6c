"""Files that only grow, so that they can be gone on with from any size they had when they were safe on the disk."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Protocol

from elmo.errors import ElmoError

DATA = "data"
"""The name of the file that becomes the output, in the folder of unfinished work."""


def open_at(path: Path, size: int) -> BinaryIO:
    """Open a file to append to at `size`, cutting off what lies behind; a `size` of 0 makes it anew."""
    if size == 0:
        return path.open("w+b")
    found = path.stat().st_size if path.exists() else 0
    if found < size:
        raise ElmoError(f"{path}: damaged ({found:,} bytes instead of {size:,}); remove {path.parent} to begin anew")
    file = path.open("r+b")
    file.truncate(size)
    file.seek(size)
    return file


def make_safe(file: BinaryIO) -> int:
    """See to it that all that was written is on the disk; returns its size."""
    file.flush()
    os.fsync(file.fileno())
    return file.tell()


class Closeable(Protocol):
    """What has to be closed."""

    def close(self) -> None:
        """Close it."""
        ...


def close_all(*files: Closeable) -> None:
    """Close files, complete or not. What doesn't fit on a full disk any more isn't needed: it wasn't safe before."""
    for file in files:
        with suppress(OSError):
            file.close()
