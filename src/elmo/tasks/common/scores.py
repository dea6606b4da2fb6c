"""Shares in percent, and F1, from counts. A share of nothing is 0."""

from __future__ import annotations


def precision_recall_f1(right: int, found: int, wanted: int) -> dict[str, float]:
    """Return precision, recall and F1 in percent, from the numbers of correct, predicted and gold items."""
    return {
        "precision": percent(right, found),
        "recall": percent(right, wanted),
        "f1": percent(2 * right, found + wanted),
    }


def percent(part: float, whole: float) -> float:
    """Return `part` of `whole` in percent, or 0 if `whole` is 0."""
    return 100 * part / whole if whole else 0.0
