"""How numbers are written in messages, notes and cards."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 sentence", "2,000 sentences"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def perplexity_text(value: float, digits: int = 2) -> str:
    """Return a perplexity as text. A training that diverged has some of hundreds of digits: these get an exponent."""
    return f"{value:,.{digits}f}" if value < 1e9 else f"{value:.{digits}e}"
