"""Rows of figures in a CSV file, as every run writes them."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import isfinite, nan
from pathlib import Path
from typing import Any

from elmo.errors import ElmoError

Row = dict[str, float]

METRICS, BOARD = "metrics.csv", "tensorboard"
"""Where a run folder has its rows."""


def read_rows(path: Path, key: str = "step", fields: Collection[str] = ()) -> list[Row]:
    """The rows of a file; a key is absent where its column is empty. A line that breaks off is left out.

    Raises ElmoError for a file that holds anything but rows of figures, each with its `key`; and for columns other
    than `fields`, where these are given.
    """
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(line for line in file if line.endswith("\n"))
        try:
            unknown = [name for name in reader.fieldnames or () if fields and name not in fields]
            if unknown:
                raise ValueError(f"unknown column {unknown[0]!r}")
            return [_read_row(row, key) for row in reader]
        except (ValueError, csv.Error) as error:  # the former also for text that is not UTF-8
            raise ElmoError(
                f"{path}, line {max(1, reader.line_num)}: is damaged ({error}); mend the line, or remove the file, "
                "without which the run goes on"
            ) from None


def _read_row(row: Mapping[Any, Any], key: str) -> Row:
    if None in row or None in row.values():
        raise ValueError("another number of columns than the first line")
    figures = {str(name): float(value) for name, value in row.items() if value}
    if not isfinite(figures.get(key, nan)):
        raise ValueError(f"no {key}")
    return figures


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
