"""Reads the word lists of models, plain or `.gz`, in bounded memory."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path

from elmo.errors import ElmoError
from elmo.formats.files import require_file
from elmo.formats.tensors import room
from elmo.text.decoding import read_lines
from elmo.text.vocabulary import NO_WORD, Vocabulary

SCORED, READ = "the softmax next to it scores", "the model next to it reads"
"""What the words of a list are for, in messages about a wrong number of words."""

_BLOCK, _SOME = 1 << 20, 8
"""How many bytes are read at a time, and how many lines more than words a list may have."""


def read_vocabulary(path: Path, num_words: int, use: str = SCORED) -> Vocabulary | None:
    """Read a vocabulary, plain or with `.gz`, that must have exactly `num_words` words.

    Args:
        path: The plain file; `path` with `.gz` appended is read if there is no plain one.
        num_words: The number of words that the model expects.
        use: What expects them, for the message about a wrong number, such as `SCORED`.

    Returns:
        The vocabulary, or None if neither file exists.
    """
    found = find_list(path)
    if found is None:
        return None
    vocabulary = Vocabulary.of(read_so_many(found, num_words, use), found)
    require_as_many(found, len(vocabulary), num_words, use)
    return vocabulary


def find_word_list(folder: Path, num_words: int) -> list[str] | None:
    """Find the word list of a given length in a folder, read as bilm-tf reads it: stripped, without `NO_WORD`.

    Args:
        folder: The folder with `vocab*.txt` files, plain or `.gz`.
        num_words: The number of words. An empty last line counts if the number is right only with it.

    Returns:
        The words of the first list of that length, or None if there is none.
    """
    # Only the number of lines can tell which list belongs to the vectors: a folder may have several.
    for path in sorted([*folder.glob("vocab*.txt"), *folder.glob("vocab*.txt.gz")]):
        if count_lines(path) > num_words + _SOME:
            continue
        words = [word for line in read_lines(path) if (word := line.strip()) != NO_WORD]
        if len(words) == num_words - 1:
            words.append("")
        if len(words) == num_words:
            return words
    return None


def find_list(path: Path) -> Path | None:
    """Return `path`, or else `path` with `.gz` appended, or None if neither exists."""
    return next((found for found in (path, path.with_name(f"{path.name}.gz")) if os.path.lexists(found)), None)


def require_as_many(path: Path, num_words: int, wanted: int, use: str) -> None:
    """Refuse a word list of the wrong length.

    Args:
        path: The list, for the message.
        num_words: How many words it has.
        wanted: How many it should have.
        use: What expects them, such as `SCORED`, for the message.
    """
    if num_words != wanted:
        raise ElmoError(f"{path}: has {num_words} words, but {use} {wanted}")


def read_words(path: Path) -> list[str]:
    """Read the lines of a word list."""
    count_lines(path)  # which refuses a list that unpacks to too much
    return list(read_lines(path))


def read_so_many(path: Path, wanted: int, use: str) -> list[str]:
    """Read the lines of a list of about `wanted` words. A much longer list is refused before it is kept in memory."""
    if (num_lines := count_lines(path)) > wanted + _SOME:
        require_as_many(path, num_lines, wanted, use)
    return list(read_lines(path))


def count_lines(path: Path) -> int:
    """Count the lines of a list, and refuse one that unpacks to more than a file of its size can contain."""
    # A first pass over the bytes in bounded memory. Only then is the list read into Python strings, which take several
    # times as much memory as the text.
    require_file(path)
    num_lines = 0
    try:
        left = room(path.stat().st_size)
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            while data := file.read(_BLOCK):
                left -= len(data)
                num_lines += data.count(b"\n")
                if left < 0:
                    raise ElmoError(f"{path}: unpacks to more than {room(path.stat().st_size):,} bytes; no word list")
    except FileNotFoundError:
        raise ElmoError(f"{path}: no such file") from None
    except PermissionError:
        raise
    except (OSError, EOFError, zlib.error) as error:
        raise ElmoError(f"{path}: damaged or truncated ({error}); get the file again") from None
    return num_lines
