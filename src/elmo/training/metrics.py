"""The figures that a training reports: `metrics.csv` in its run folder, and the same rows in TensorBoard."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from math import isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmo.errors import ElmoError
from elmo.extras import import_extra
from elmo.formats.files import write_all

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter

Row = dict[str, float]

METRICS, BOARD = "metrics.csv", "tensorboard"
"""The file of the rows and the folder of TensorBoard's events, in the run folder."""


class MetricsFile:
    """The rows of one run. It can start again anywhere, and its folder may be removed while it runs.

    All rows are kept in memory. So the file can be written again when the run folder was removed.

    Args:
        folder: The run folder.
        key: The column that counts: `"step"` or `"epoch"`. Each row has it.
        done: The last step or epoch that the run's checkpoint has. Rows after it, of an attempt that was killed, are
            dropped, since the run will now make them again.
        columns: The columns of the file in their order. Without them, the columns are those that the rows have, and
            the file is written again for each row.
        tensorboard: Whether to write the rows for TensorBoard as well, which is an extra.

    Raises:
        ElmoError: If the file that is there holds anything but such rows.
    """

    def __init__(
        self, folder: Path, key: str, done: int, *, columns: Sequence[str] = (), tensorboard: bool = False
    ) -> None:
        self._folder, self._path, self._key, self._columns = folder, folder / METRICS, key, tuple(columns)
        found = read_rows(self._path, key, columns) if self._path.exists() else []
        self.rows: list[Row] = [row for row in found if row[key] <= done]
        if columns:  # a header from the start: each row is then appended to the file
            self._write_all()
        self._board = self._open_board(done) if tensorboard else None

    def add(self, row: Row) -> None:
        """Write one row."""
        self.rows.append(row)
        was_removed = not self._path.exists()
        if self._columns and not was_removed:
            append_row(self._path, self._columns, row)
        else:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._write_all()  # as a whole, so that no kill leaves half a row
        if self._board is None:
            return
        if was_removed and (self._columns or len(self.rows) > 1):  # TensorBoard's folder was removed with the file
            with suppress(OSError):
                self._board.close()
            self._board = self._open_board(0)
            self._show(self.rows)
        else:
            self._show([row])

    def close(self) -> None:
        """Close TensorBoard's file, if there is one. `metrics.csv` has all rows already."""
        if self._board is not None:
            self._board.close()

    def _write_all(self) -> None:
        columns = self._columns or list(dict.fromkeys(key for row in self.rows for key in row))
        write_all({self._path: lambda path: write_rows(path, columns, self.rows)})

    def _open_board(self, done: int) -> SummaryWriter:
        require_tensorboard()
        from torch.utils.tensorboard.writer import SummaryWriter

        # Each row is flushed by us. The writer has a thread for that, but nobody would hear of an error in it.
        return SummaryWriter(str(self._folder / BOARD), purge_step=done + 1, flush_secs=10**9)

    def _show(self, rows: Iterable[Row]) -> None:
        """Give TensorBoard all figures of the rows except their times."""
        assert self._board is not None
        for row in rows:
            for name, value in row.items():
                if name not in (self._key, "seconds"):
                    self._board.add_scalar(name, value, int(row[self._key]))  # pyright: ignore[reportUnknownMemberType]
        self._board.flush()


def require_tensorboard() -> None:
    """Raise ElmoError unless TensorBoard is installed."""
    import_extra("tensorboard", "writing for TensorBoard")


def read_rows(path: Path, key: str = "step", columns: Collection[str] = ()) -> list[Row]:
    """Read the rows of a file.

    Args:
        path: The file.
        key: The column that every row must have.
        columns: The only columns that the file may have; any, if there are none.

    Returns:
        A mapping from column to figure for each row, without the columns that are empty in it. A last line that breaks
        off, as a kill may leave it, is left out.

    Raises:
        ElmoError: If the file holds anything else; it names the line.
    """
    # What is not UTF-8 gets escapes, which are no figures. A decoding error would name a block, and not a line.
    with path.open(newline="", encoding="utf-8", errors="backslashreplace") as file:
        reader = csv.DictReader(line for line in file if line.endswith("\n"))
        try:
            unknown = [name for name in reader.fieldnames or () if columns and name not in columns]
            if unknown:
                raise ValueError(f"unknown column {unknown[0]!r}")
            return [_read_row(row, key) for row in reader]
        except (ValueError, csv.Error) as error:
            # The number that `DictReader` has itself is that of the line before, if a line can't be split at all.
            raise ElmoError(
                f"{path}, line {max(1, reader.reader.line_num)}: is damaged ({error}); fix the line, or remove the "
                "file; the run can continue without it"
            ) from None


def _read_row(row: Mapping[Any, Any], key: str) -> Row:
    if None in row or None in row.values():
        raise ValueError("another number of columns than the first line")
    figures = {str(name): float(value) for name, value in row.items() if value}
    if not isfinite(figures.get(key, nan)):
        raise ValueError(f"no {key}")
    return figures


def write_rows(path: Path, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Write a new file: a line with the columns' names, and a line for each row."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(map(_as_text, rows))


def append_row(path: Path, columns: Sequence[str], row: Row) -> None:
    """Append a row to a file that has these columns."""
    with path.open("a", newline="", encoding="utf-8") as file:
        csv.DictWriter(file, columns).writerow(_as_text(row))


def _as_text(row: Row) -> dict[str, str]:
    """Return each figure as text that reads back as the same number, without a point if it is whole."""
    return {
        key: str(int(value)) if isfinite(value) and value == int(value) else repr(float(value))
        for key, value in row.items()
    }
