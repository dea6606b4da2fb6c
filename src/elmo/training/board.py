"""The figures of a training for TensorBoard, which is an extra."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from torch.utils.tensorboard.writer import SummaryWriter

from elmo.training.rows import BOARD, Row


class Board:
    """Shows rows by their key `by`, in a run's folder. Started again at `start`, it drops those of later ones."""

    def __init__(self, folder: Path, by: str, start: int) -> None:
        self._by = by
        # Flushed by `add`, not at its own times: an error in its thread would be told to nobody.
        self._writer = SummaryWriter(str(folder / BOARD), purge_step=start + 1, flush_secs=10**9)

    def add(self, rows: Iterable[Row]) -> None:
        """Show all figures of the rows but their times."""
        for row in rows:
            for key, value in row.items():
                if key not in (self._by, "seconds"):
                    self._writer.add_scalar(key, value, int(row[self._by]))  # pyright: ignore[reportUnknownMemberType]
        self._writer.flush()

    def close(self) -> None:
        """Flush everything."""
        self._writer.close()
