"""What a run reports: a row of `metrics.csv` and of TensorBoard every so often, and a progress line on a terminal."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from tqdm import tqdm

from elmo.formats.files import write_all
from elmo.training.board import Board
from elmo.training.rows import METRICS, Row, append_row, read_rows, write_rows

FIELDS: tuple[str, ...] = (
    "step",
    "predictions",
    "seconds",
    "tokens_per_second",
    "learning_rate",
    "loss",
    "forward_perplexity",
    "backward_perplexity",
    "heldout_forward_perplexity",
    "heldout_backward_perplexity",
    "heldout_perplexity",
)
"""Columns of `metrics.csv`. `loss` is nats per prediction, and `forward_perplexity` and `backward_perplexity` are
its exp in each direction, of what `training.loss` names: of the softmax sampled among the negatives, which isn't
comparable with any other, or else of the whole vocabulary, but with dropout. Held-out perplexities are always of the
whole vocabulary (see `perplexity`). `predictions` counts those of one direction; `seconds` is training time alone."""


class Metrics:
    """Rows of a run; started again at `step`, it drops the rows that the run will now make once more.

    All rows are kept in memory too, so that they are written anew where the run folder was removed.
    """

    def __init__(self, run_folder: Path, step: int, total_steps: int) -> None:
        self._folder, self._path = run_folder, run_folder / METRICS
        self._rows = (
            [row for row in read_rows(self._path, fields=FIELDS) if row["step"] <= step] if self._path.exists() else []
        )
        self._write_rows()
        self._board = Board(run_folder, "step", step)
        self._bar = tqdm(total=total_steps, initial=step, unit="step", disable=None)

    def add(self, row: Row) -> None:
        """Write one row, with keys from `FIELDS`."""
        self._rows.append(row)
        if self._path.exists():
            append_row(self._path, FIELDS, row)
            self._board.add([row])
        else:
            self._write_rows()
            with suppress(OSError):
                self._board.close()
            self._board = Board(self._folder, "step", 0)
            self._board.add(self._rows)

    def advance(self, row: Row, expected_steps: int) -> None:
        """Move the progress line by one step and show `row`; `expected_steps` decides on the remaining time."""
        self._bar.total = expected_steps
        self._bar.set_postfix_str(describe(row), refresh=False)
        self._bar.update()

    def close(self) -> None:
        """Flush everything."""
        self._bar.close()
        self._board.close()

    def _write_rows(self) -> None:
        write_all({self._path: lambda path: write_rows(path, FIELDS, self._rows)})


def describe(row: Row) -> str:
    """A row for the progress line."""
    parts = [f"{row['tokens_per_second']:,.0f} tok/s", f"loss {row['loss']:.3f}"]
    perplexities = [row[k] for k in ("forward_perplexity", "backward_perplexity") if k in row]
    parts.append("perplexity " + "/".join(f"{value:,.1f}" for value in perplexities))
    return ", ".join(parts)
