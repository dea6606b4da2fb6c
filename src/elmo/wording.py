"""How numbers and lists are written in messages, notes and cards."""

from __future__ import annotations

from collections.abc import Sequence

MOST_FILES = 5
"""The number of files that are named. A text may have tens of thousands."""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 sentence", "2,000 sentences"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def file_names(names: Sequence[str]) -> str:
    """Return the names of files, or the first of them and how many more there are; "" if there are none."""
    more = f" and {counted(len(names) - MOST_FILES, 'more file')}" if len(names) > MOST_FILES else ""
    return ", ".join(names[:MOST_FILES]) + more


def perplexity_text(value: float, digits: int = 2) -> str:
    """Return a perplexity as text. A training that diverged has some of hundreds of digits: these get an exponent."""
    return f"{value:,.{digits}f}" if value < 1e9 else f"{value:.{digits}e}"
