"""The periods of an indexed text, from its metadata: any column, or the decades and centuries of years and dates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elmo.analysis.origins import FILE, MINUS, Origins, year_of
from elmo.errors import ElmoError

LENGTHS = {"year": 1, "decade": 10, "century": 100}
"""The periods that dates can be divided into, in years."""

DATES = ("year", "date")
"""The columns of metadata that hold dates unless another one is named."""


@dataclass(frozen=True)
class Periods:
    """The period of each sentence of a text.

    Attributes:
        names: The names of the periods, in their order.
        of_sentence: The number of the period of each sentence, (num_sentences,); -1 if it belongs to none.
    """

    names: tuple[str, ...]
    of_sentence: NDArray[np.int32]

    @property
    def num_undated(self) -> int:
        """The number of sentences that belong to no period."""
        return int(np.count_nonzero(self.of_sentence < 0))

    def pair(self, names: Sequence[str] | None = None) -> tuple[int, int]:
        """Return the numbers of two periods; by default of the first and the last.

        Raises:
            ElmoError: If there is no such period, or both are the same.
        """
        # The names of centuries have an en dash, and years may have a minus sign. Both are hard to type.
        typed = {name.replace("–", "-").replace(MINUS, "-"): name for name in self.names}
        typed |= {name: name for name in self.names}
        if isinstance(names, str) or (names is not None and len(names) != 2):
            raise ElmoError(f"`between`: expected the names of two periods, found {names!r}")
        first, second = (typed.get(str(name), str(name)) for name in names or (self.names[0], self.names[-1]))
        for name in (first, second):
            if name not in self.names:
                raise ElmoError(f"there is no period {name!r}; there are {', '.join(self.names)}")
        if first == second:
            raise ElmoError(f"{first} cannot be compared with itself; name two periods")
        return self.names.index(first), self.names.index(second)


def find_periods(origins: Origins | None, by: str, dates: str | None = None) -> Periods:
    """Divide a text into periods by its metadata.

    Args:
        origins: Where the sentences of the text are from; None if the index does not know.
        by: "year", "decade" or "century", or a column of the metadata, each value of which is a period.
        dates: The column of the dates that years, decades and centuries are taken from. By default the column
            whose name is `by`, or else `year` or `date`. The first number of three or four digits is the year; with a
            minus before it, as in "-350" and "-0044-03-15", it is a year before Christ.

    Raises:
        ElmoError: If there is no such column, if `dates` is given for periods that need none, or if the text has fewer
            than two periods.
    """
    if origins is None or not (origins.columns or by == FILE):
        raise ElmoError(
            "the index has no metadata to divide its text by; build it with a table about its files (`metadata=FILE`)"
        )
    column: str | None = by
    if dates is not None and by not in LENGTHS:
        raise ElmoError(
            f"`dates`: has no effect on periods by {by}, only on those by {', '.join(LENGTHS)}; leave it out"
        )
    if by in LENGTHS:
        column = dates or next((name for name in (by, *DATES) if name in origins.columns), None)
        if column is None:
            raise ElmoError(
                f"no column of the metadata is named {' or '.join(DATES)}; name the one with the dates, `dates=COLUMN` "
                f"(it has {', '.join(origins.columns)})"
            )
    else:
        origins.require_column(by, or_else=f", and from a column of dates also {', '.join(LENGTHS)}")
    values, of_sentence = origins.values(column)
    # A column "century" may also hold "19th" and the like alone, which are names of periods and no dates.
    if by in LENGTHS and (column != by or any(year_of(value) is not None for value in values)):
        keys = [_start_of(value, LENGTHS[by]) for value in values]
        names = {key: _name_of(int(key[0]), LENGTHS[by]) for key in keys if key is not None}
    else:
        keys = _sort_keys(values)
        names = dict(zip(keys, values, strict=True))
    known = sorted({key for key in keys if key is not None})
    if len(known) < 2:
        found = f"only {names[known[0]]}" if known else "none"
        raise ElmoError(f"{by}: two periods or more are needed, and the metadata of the text has {found}")
    numbers_of = {key: number for number, key in enumerate(known)}
    numbers = np.array([-1 if key is None else numbers_of[key] for key in keys], np.int32)
    return Periods(tuple(names[key] for key in known), numbers[of_sentence])


def _start_of(value: str, length: int) -> tuple[float, str] | None:
    """Return the first year of the period of a date, or None if the value has no year."""
    year = year_of(value)
    return None if year is None else (year // length * length, "")


def _name_of(start: int, length: int) -> str:
    return {1: str(start), 10: f"{start}s", 100: f"{start}–{start + 99}"}[length]


def _sort_keys(values: Sequence[str]) -> list[tuple[float, str] | None]:
    """Return what to sort values by: numbers by their size if all of them are numbers, or else text."""
    try:
        numbers = [float(value.replace(MINUS, "-") or 0) for value in values]
    except ValueError:
        numbers = [math.nan]
    if not all(map(math.isfinite, numbers)):  # "nan" is a number to Python, too, but nothing can be sorted by it
        numbers = [0.0] * len(values)
    return [(number, value) if value else None for number, value in zip(numbers, values, strict=True)]
