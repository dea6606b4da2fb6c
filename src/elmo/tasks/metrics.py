"""What a task's training reports: a row of `metrics.csv` for each epoch, and of TensorBoard where it is wanted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from elmo.formats.files import write_all
from elmo.training.rows import METRICS, Row, read_rows, write_rows

if TYPE_CHECKING:
    from elmo.training.board import Board


class Metrics:
    """The rows of a training that has finished `epoch` epochs; rows of later ones will be made once more."""

    def __init__(self, folder: Path, epoch: int, *, tensorboard: bool = False) -> None:
        self._path = folder / METRICS
        found = read_rows(self._path, "epoch") if self._path.exists() else []
        self.rows: list[Row] = [row for row in found if row["epoch"] <= epoch]
        self._board = _open_board(folder, epoch) if tensorboard else None

    def add(self, row: Row) -> None:
        """Write an epoch's row; the whole file is written anew, so that no kill leaves half a line."""
        self.rows.append(row)
        write_all({self._path: self._write})
        if self._board is not None:
            self._board.add([row])

    def close(self) -> None:
        """Flush everything."""
        if self._board is not None:
            self._board.close()

    def _write(self, path: Path) -> None:
        write_rows(path, list(dict.fromkeys(key for row in self.rows for key in row)), self.rows)


def _open_board(folder: Path, epoch: int) -> Board:
    from elmo.training.board import Board

    return Board(folder, "epoch", epoch)
