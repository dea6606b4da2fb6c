"""Where the sentences of an index come from: file, line, and what a table of metadata says about the file."""

from __future__ import annotations

import csv
import re
import warnings
import zlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from elmo.errors import ElmoError
from elmo.formats.files import read_json, write_all, write_json
from elmo.schema import shown
from elmo.text.decoding import read_lines
from elmo.text.opening import kind_by_name
from elmo.text.prepare import PLACE_DTYPE

PLACES_FILE, ORIGINS_FILE = "places.bin", "origins.json"
"""Files of an index: the file and line of each sentence, (num_sentences, 2); and the names and metadata of files."""

_PLACES_NAMES = re.compile(r"places(-[0-9a-f]{8})?\.bin")
"""The names of files of places: `PLACES_FILE`, and those that take its place (see `Origins.replace_those_of`)."""

FILE = "file"
"""The column of a table that names the file that a row is about. Searches can choose by it as by any other column."""

AGAIN = "get the index again, or rebuild it with `overwrite=True`"
"""What to do about a damaged file of an index."""

CSV, SEPARATORS = ".csv", {",": "commas", ";": "semicolons"}
"""The ending of tables that have one of these marks between columns, and not tabs."""

RANGE, ANY_END = "..", "*"
"""Marks in the wanted values of a column: `1800..1849` is a range, `18*` a beginning."""

_HYPHENATED = re.compile(r"(\d{3,4})[-–](\d{3,4})")
"""Two years as people write a range of them, which may also be a value of its own."""

MINUS = "\u2212"
"""The minus sign, which spreadsheets and web pages often have where people type a hyphen."""

_YEAR = re.compile(rf"^\s*[-{MINUS}]\d{{3,4}}(?!\d)|(?<!\d)\d{{3,4}}(?!\d)")
"""A year: a number of three or four digits. With a minus at the start of the value, it is one before Christ."""

_LARGEST = 1 << 28
"""The largest size of the names and the metadata of all files, in bytes."""


@dataclass(frozen=True)
class Origin:
    """Where a sentence begins: its file and line (from 1), and the metadata of the file, by column."""

    file: str
    line: int
    metadata: Mapping[str, str]

    def __str__(self) -> str:
        facts = "".join(f", {column}={value}" for column, value in self.metadata.items() if value)
        return f"{self.file}, line {self.line}{facts}"


class Origins:
    """The origin of each sentence of an index.

    Args:
        files: The names of the files.
        places: The number of the file and of the line of each sentence, (num_sentences, 2).
        columns: The names of the columns of metadata.
        rows: For each file a value in each column; empty where the table has no row for the file.
    """

    def __init__(
        self,
        files: Sequence[str],
        places: NDArray[np.int32],
        columns: Sequence[str] = (),
        rows: Sequence[Sequence[str]] = (),
    ) -> None:
        self.files, self.columns = tuple(files), tuple(columns)
        self._places = places
        self._rows = [tuple(row) for row in rows]

    @classmethod
    def open(cls, folder: Path) -> Origins | None:
        """Open the origins in the folder of an index; None if an earlier version, which kept none, built it.

        Raises:
            ElmoError: If they are damaged.
        """
        path = folder / ORIGINS_FILE
        if not path.exists():
            return None
        facts: Any = read_json(path, _LARGEST)
        try:
            files, columns, rows = facts["files"], facts["columns"], facts["rows"]
            places = facts.get("places", PLACES_FILE)
            if not _PLACES_NAMES.fullmatch(places):
                raise ValueError(f"{places!r} is no name of a file of places")
            if not (folder / places).is_file():
                raise ValueError(f"{places} is missing")
            numbers = np.fromfile(folder / places, PLACE_DTYPE).reshape(-1, 2)
            is_text = all(isinstance(item, str) for part in (files, columns, *rows) for item in part)
            has_rows = not columns or len(rows) == len(files)
            is_even = all(len(row) in (0, len(columns)) for row in rows)
            has_files = numbers[:, 0].min(initial=0) >= 0 and numbers[:, 0].max(initial=-1) < len(files)
            is_whole = is_text and has_rows and is_even and has_files
        except (KeyError, TypeError, ValueError, OSError) as error:
            raise ElmoError(f"{path}: is damaged ({error}); {AGAIN}") from None
        if not is_whole:
            raise ElmoError(f"{path}: is damaged; {AGAIN}")
        return cls(files, numbers, columns, rows)

    def write(self, folder: Path) -> None:
        """Write the names and the metadata of the files. `prepare` has written the places."""
        write_all({folder / ORIGINS_FILE: lambda path: write_json(path, self._description(PLACES_FILE))})

    def replace_those_of(self, folder: Path) -> None:
        """Replace the origins of an index of the same text, both files in one step.

        That step is the renaming of origins.json. Until then, its file of places must stay, so that other places get a
        file of another name.
        """
        content = self._places.tobytes()
        files = [path for path in folder.iterdir() if _PLACES_NAMES.fullmatch(path.name)]
        same = next((path for path in files if path.read_bytes() == content), None)
        places = same or folder / f"places-{zlib.crc32(content):08x}.bin"
        description = self._description(places.name)
        writers: dict[Path, Callable[[Path], object]] = {
            places: lambda path: path.write_bytes(content),
            folder / ORIGINS_FILE: lambda path: write_json(path, description),
        }
        write_all(writers, optional=files)

    def _description(self, places: str) -> dict[str, Any]:
        return {"files": self.files, "columns": self.columns, "rows": self._rows, "places": places}

    def is_same(self, other: Origins) -> bool:
        """Return whether the sentences have the same origins with the same metadata."""
        return self._description("") == other._description("") and np.array_equal(self._places, other._places)

    def with_metadata_of(self, other: Origins) -> Origins:
        """Return the same origins with the metadata that an earlier index of the same files has.

        Raises:
            ElmoError: If it has metadata, but not of one of the files.
        """
        if not other.columns:
            return self
        rows = dict(zip(other.files, other._rows, strict=True))
        unknown = next((file for file in self.files if file not in rows), None)
        if unknown is not None:
            raise ElmoError(f"{unknown}: the metadata of the index has no such file; pass it again (`metadata=FILE`)")
        return Origins(self.files, self._places, other.columns, [rows[file] for file in self.files])

    def __len__(self) -> int:
        return len(self._places)

    def of(self, sentence: int) -> Origin:
        """Return where a sentence is from."""
        file, line = map(int, self._places[sentence])
        row = self._rows[file] if self.columns else ()
        return Origin(self.files[file], line, dict(zip(self.columns, row, strict=False)))

    def require_column(self, column: str, *, or_else: str = "") -> None:
        """Raise an ElmoError unless the metadata has this column, or it is "file". `or_else` ends the message."""
        if column not in (FILE, *self.columns):
            known = ", ".join([FILE, *self.columns])
            raise ElmoError(f"the index has no column {column!r} of metadata; it has {known}{or_else}")

    def values(self, column: str) -> tuple[list[str], NDArray[np.int32]]:
        """Return the value of each sentence in a column of the metadata, or its file in the column "file".

        Returns:
            The distinct values that sentences have, sorted, and for each sentence the number of its value among them,
            (num_sentences,). Sentences without a value have "".

        Raises:
            ElmoError: If there is no such column.
        """
        self.require_column(column)
        if column == FILE:
            of_files: Sequence[str] = self.files
        else:
            number = self.columns.index(column)
            of_files = [row[number] if row else "" for row in self._rows]
        distinct, numbers = np.unique(np.array(of_files, dtype=object), return_inverse=True)
        of_sentence = numbers[self._places[:, 0]]
        # A file without any text, such as an empty one, may be the only one that has its value.
        is_used = np.bincount(of_sentence, minlength=len(distinct)) > 0
        return distinct[is_used].tolist(), (np.cumsum(is_used, dtype=np.int32) - 1)[of_sentence]

    def where(self, wanted: Mapping[str, str]) -> NDArray[np.bool_]:
        """Select the sentences with the wanted value in each column.

        Args:
            wanted: For each column a value, a beginning such as `18*`, or a range such as `1800..1849`, whose ends
                belong to it and may be missing. If the ends are numbers, the range has the numbers between them, and
                the dates whose year is, such as `1849-12-31` or `2 May 1843`. Other ends are compared by code points.

        Returns:
            A mask of the sentences, (num_sentences,).

        Raises:
            ElmoError: If a column does not exist, or has no such value, or `wanted` is no mapping.
        """
        _require_wanted(wanted)
        mask = np.ones(len(self), np.bool_)
        for column, value in wanted.items():
            value = str(value)  # a year may be given as a number
            known, numbers = self.values(column)
            # A value that is there is meant itself, even if it looks like a range, as the file ../letters.txt does.
            fits = str.__eq__ if value in known else _fits
            is_wanted = np.array([fits(one, value) for one in known], np.bool_)
            if not is_wanted.any():
                named = [one for one in known if one]
                some = ", ".join(named[:5]) or "none"
                ends = _HYPHENATED.fullmatch(value)
                hint = f" (a range is written {ends[1]}..{ends[2]})" if ends else ""
                raise ElmoError(f"the index has no {column} {value!r}{hint}; it has {some}{', ...' * (len(named) > 5)}")
            mask &= is_wanted[numbers]
        return mask


def _require_wanted(wanted: object) -> None:
    """Raise an ElmoError unless `wanted` is a mapping, for instance if it is written as on the command line."""
    if not isinstance(wanted, Mapping):
        raise ElmoError(
            f"`where`: expected a dict with a value for each column, such as {{'year': '1843'}}, found {shown(wanted)}"
        )


def _fits(value: str, wanted: str) -> bool:
    """Return whether a value of a column has the wanted beginning, or lies in the wanted range."""
    if wanted.endswith(ANY_END):
        return value.startswith(wanted.removesuffix(ANY_END))
    first, dots, last = wanted.partition(RANGE)
    if not (dots and value):
        return False
    low, high, own = _number(first or "-inf"), _number(last or "inf"), _number(value)
    if (first or last) and low is not None and high is not None:
        own = year_of(value) if own is None else own
        return own is not None and low <= own <= high
    # A day of the last month is in that month.
    return value >= first and (not last or value <= last or value.startswith(last))


def _number(text: str) -> float | None:
    try:
        return float(text.replace(MINUS, "-"))
    except ValueError:
        return None


def year_of(date: str) -> int | None:
    """Return the year of a date, negative before Christ, or None if there is none.

    It is the first number of three or four digits. One before Christ begins the date, with a minus.
    """
    found = _YEAR.search(date)
    return None if found is None else int(found[0].replace(MINUS, "-"))


def parse_wanted(options: Sequence[str]) -> dict[str, str]:
    """Read wanted values that are written as `COLUMN=VALUE`, for `Origins.where`.

    Raises:
        ElmoError: If one has no `=`, or a column is named twice.
    """
    wanted: dict[str, str] = {}
    for option in options:
        column, equals, value = option.partition("=")
        if not equals or not column:
            raise ElmoError(f"{option!r}: expected a column and a value, such as year=1843 or year=1800..1849")
        if column in wanted:
            raise ElmoError(f"{option!r}: column {column!r} is named twice; give one value, or a range")
        wanted[column] = value
    return wanted


def read_metadata(path: str | Path, files: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Read a table that says something about each file of a text.

    Args:
        path: A table with tabs between columns or, if its name ends in `.csv`, commas or semicolons: the mark
            that its first line has more of. That line names the columns, of which `file` names the file of the text
            that the row is about: as it was given, or without some or all of its folders, and with or without its
            ending. If several rows name a file, the longest name counts.
        files: The names of the files.

    Returns:
        The names of the other columns, and for each file its values in these columns, or none. A warning tells of files
        without a row, of rows about other files, and of a row that is taken for several files.

    Raises:
        ElmoError: If there is no column `file`, a row has another number of columns or a file of an earlier row, or no
            row is about any of the files.
    """
    rows = _rows_of(path)
    header = next(rows, (1, list[str]()))[1]
    if FILE not in header:
        between = "commas or semicolons" if kind_by_name(path) == CSV else "tabs"
        raise ElmoError(
            f"{path}, line 1: no column is named {FILE!r} (expected names of columns between {between}, found "
            f"{', '.join(map(shown, header)) or 'none'})"
        )
    if len(set(header)) < len(header) or "" in header:
        raise ElmoError(f"{path}, line 1: a column has no name, or the name of another column")
    place = header.index(FILE)
    found: dict[str, list[str]] = {}
    for number, values in rows:
        if not any(values):
            continue
        if len(values) != len(header):
            raise ElmoError(f"{path}, line {number}: {len(values)} columns; the first line has {len(header)}")
        name = normalize("NFC", values.pop(place))
        if name in found:
            raise ElmoError(f"{path}, line {number}: file {name!r} had a row before; give each file one row")
        found[name] = values
    names = [_name_of(file, found) for file in files]
    without = [file for file, name in zip(files, names, strict=True) if name is None]
    if len(without) == len(files):
        others = f", but about others, such as {min(found)!r}" if found else ""
        raise ElmoError(f"{path}: has no row about any file of the text, such as {files[0]!r}{others}; compare names")
    if without:
        of_all = f"{len(without):,} of the {len(files):,} files"
        warnings.warn(f"{path}: has no row about {of_all}, such as {without[0]!r}", stacklevel=2)
    by_row = dict[str, set[str]]()
    for file, name in zip(files, names, strict=True):
        if name is not None:
            by_row.setdefault(name, set()).add(file)
    if (several := next((name for name, group in by_row.items() if len(group) > 1), None)) is not None:
        one, other, *_ = sorted(by_row[several])
        warnings.warn(
            f"{path}: the row of {several!r} is taken for {len(by_row[several]):,} files, such as {one!r} and "
            f"{other!r}; if they differ, name each file with its folder",
            stacklevel=2,
        )
    if others := found.keys() - {*names}:
        of_all = f"{len(others):,} of its {len(found):,} rows"
        warnings.warn(f"{path}: the text has no file for {of_all}, such as {min(others)!r}", stacklevel=2)
    return [name for name in header if name != FILE], [[] if name is None else found[name] for name in names]


def _rows_of(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a table, each with the number of its (last) line."""
    if kind_by_name(path) != CSV:
        for number, line in enumerate(read_lines(path), 1):
            yield number, [value.strip() for value in line.split("\t")]
        return
    lines = (f"{line}\n" for line in read_lines(path))
    first = next(lines, "")
    # Spreadsheets write semicolons where a comma stands in decimal numbers, as in most of Europe.
    mark = ";" if first.count(";") > first.count(",") else ","
    rows = csv.reader(chain([first], lines), delimiter=mark, strict=True)
    try:
        for row in rows:
            yield rows.line_num, [" ".join(value.split()) for value in row]
    except csv.Error as error:
        raise ElmoError(f"{path}, line {rows.line_num}: {error}; expected values between {SEPARATORS[mark]}") from None


def _name_of(file: str, names: Container[str]) -> str | None:
    """Return by which name a table knows a file, or None: with its folders or the last of them, and without endings.

    The names in the table are in Unicode's form NFC. Those of files on a Mac often aren't.
    """
    file = normalize("NFC", file)
    if file in names:
        return file
    *parents, last = Path(file).parts
    for start in range(len(parents) + 1):
        folders = parents[start:]
        # The last of these is without both endings of a name such as 1843.txt.gz.
        for name in (last, Path(last).stem, last.split(".")[0]):
            if (found := Path(*folders, name).as_posix()) in names:
                return found
    return None
