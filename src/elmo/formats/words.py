"""Word lists beside models, plain or `.gz`, in bounded memory."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from elmo.errors import ElmoError
from elmo.formats.tensors import room
from elmo.text.reading import is_there, read_lines, require_file

SCORED, READ = "the softmax beside it scores", "the model next to it reads"
"""What the words of a list are for, in errors."""

_BLOCK, _SOME = 1 << 20, 8
"""Bytes read at a time, and lines of a list that may hold no word: others more are not read."""


def find_word_list(folder: Path, num_words: int) -> list[str] | None:
    """The words of the first list in `folder` (`vocab*.txt`, plain or `.gz`) that has as many; None without one.

    A last, empty line counts where the number says so.
    """
    for path in sorted([*folder.glob("vocab*.txt"), *folder.glob("vocab*.txt.gz")]):
        if require_room(path) > num_words + _SOME:
            continue
        words = list(read_lines(path))
        if len(words) == num_words - 1:
            words.append("")
        if len(words) == num_words:
            return words
    return None


def find_list(path: Path) -> Path | None:
    """A word list, plain or with `.gz`; None where there is neither."""
    return next((found for found in (path, path.with_name(f"{path.name}.gz")) if is_there(found)), None)


def require_as_many(path: Path, num_words: int, wanted: int, use: str = SCORED) -> None:
    """Refuse a list of other words than those that a softmax scores, or whatever else `use` says."""
    if num_words != wanted:
        raise ElmoError(f"{path}: has {num_words} words, but {use} {wanted}")


def read_words(path: Path) -> list[str]:
    """The lines of a word list."""
    require_room(path)
    return list(read_lines(path))


def read_so_many(path: Path, wanted: int, use: str = SCORED) -> list[str]:
    """As `read_words`, of a list of about `wanted` words; one of many more is refused unread, as `use` says."""
    if (num_lines := require_room(path)) > wanted + _SOME:
        require_as_many(path, num_lines, wanted, use)
    return list(read_lines(path))


def require_room(path: Path) -> int:
    """The number of a list's lines; a compressed one that unfolds to more than such a file holds is refused."""
    require_file(path)
    num_lines = 0
    try:
        left = room(path.stat().st_size)
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            while data := file.read(_BLOCK):
                left -= len(data)
                num_lines += data.count(b"\n")
                if left < 0:
                    raise ElmoError(f"{path}: unfolds to more than {room(path.stat().st_size):,} bytes, no word list")
    except FileNotFoundError:
        raise ElmoError(f"{path}: no such file") from None
    except (OSError, EOFError, zlib.error) as error:
        raise ElmoError(f"{path}: damaged or cut off ({error}); get the file again") from None
    return num_lines
