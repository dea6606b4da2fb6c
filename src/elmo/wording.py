"""How numbers are written in messages, notes and cards."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 sentence", "2,000 sentences"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
