"""Rows of figures in a CSV file, as every run writes them."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from math import isfinite
from pathlib import Path

Row = dict[str, float]

METRICS = "metrics.csv"
"""Where a run folder has its rows."""


def read_rows(path: Path) -> list[Row]:
    """The rows of a file; a key is absent where its column is empty. A line that breaks off is left out."""
    with path.open(newline="") as file:
        whole = (line for line in file if line.endswith("\n"))
        return [{key: float(value) for key, value in row.items() if value} for row in csv.DictReader(whole)]


def write_rows(path: Path, fields: Sequence[str], rows: Iterable[Row]) -> None:
    """Write a file anew, its columns first."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fields)
        writer.writeheader()
        writer.writerows(map(_as_text, rows))


def append_row(path: Path, fields: Sequence[str], row: Row) -> None:
    """Append a row to a file that has its columns."""
    with path.open("a", newline="") as file:
        csv.DictWriter(file, fields).writerow(_as_text(row))


def _as_text(row: Row) -> dict[str, str]:
    """Shortest texts that read back as the same numbers, whole numbers without a point; NumPy's numbers, too."""
    return {
        key: str(int(value)) if isfinite(value) and value == int(value) else repr(float(value))
        for key, value in row.items()
    }
