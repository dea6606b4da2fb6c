"""The length of a text, so that progress bars can show the remaining time."""

import sys
from collections.abc import Sequence
from pathlib import Path

COMPRESSED = {".gz", ".xz", ".zst"}
BLOCK_BYTES = 1 << 20


def count_sentences(paths: Sequence[str], text: str) -> int | None:
    """Count the sentences in `paths`.

    Returns:
        The number of sentences, or None if counting is not worth reading the text twice: if stderr is not a terminal,
        if a line is not a sentence, or if a file is compressed or standard input.
    """
    plain = all(Path(path).is_file() and Path(path).suffix not in COMPRESSED for path in paths)
    if not (plain and text == "sentences" and sys.stderr.isatty()):
        return None
    return sum(_count_lines(Path(path)) for path in paths)


def count_bytes(paths: Sequence[str]) -> int | None:
    """Return the size of the text in `paths` in bytes, or None if it is unknown (compressed files, standard input)."""
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
