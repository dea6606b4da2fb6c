"""How long a text is, so that progress can tell the remaining time."""

import sys
from collections.abc import Sequence
from pathlib import Path

COMPRESSED = {".gz", ".xz", ".zst"}
BLOCK_BYTES = 1 << 20


def count_sentences(paths: Sequence[str], text: str) -> int | None:
    """Number of sentences of `paths`, or None where it isn't worth the reading.

    That is, where nobody looks at the progress, or where a line isn't a sentence, or files are compressed or stdin.
    """
    plain = all(Path(path).is_file() and Path(path).suffix not in COMPRESSED for path in paths)
    if not (plain and text == "sentences" and sys.stderr.isatty()):
        return None
    return sum(_count_lines(Path(path)) for path in paths)


def count_bytes(paths: Sequence[str]) -> int | None:
    """Size of the text of `paths`, or None where it isn't known before it is read: compressed files and stdin."""
    if not all(Path(path).is_file() and Path(path).suffix not in COMPRESSED for path in paths):
        return None
    return sum(Path(path).stat().st_size for path in paths)


def _count_lines(path: Path) -> int:
    num_lines, last = 0, b"\n"
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            num_lines += block.count(b"\n")
            last = block[-1:]
    return num_lines + (last != b"\n")
