"""What a pretraining reports: rows of `metrics.csv` and TensorBoard, and a progress line on a terminal."""

from __future__ import annotations

from pathlib import Path

from tqdm import tqdm

from elmo.training.metrics import MetricsFile, Row

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


class Reporter:
    """Reports a pretraining: rows of `metrics.csv` and TensorBoard, and a progress line on a terminal.

    Args:
        run_folder: The folder of the run.
        step: The step that the run goes on from; rows after it are dropped, since they will be made again.
        total_steps: How many steps the run is expected to have.
    """

    def __init__(self, run_folder: Path, step: int, total_steps: int) -> None:
        self._metrics = MetricsFile(run_folder, "step", step, columns=FIELDS, tensorboard=True)
        self._bar = tqdm(total=total_steps, initial=step, unit="step", disable=None)

    def add(self, row: Row) -> None:
        """Write one row, with keys from `FIELDS`."""
        self._metrics.add(row)

    def advance(self, row: Row, expected_steps: int) -> None:
        """Move the progress line by one step and show `row`; `expected_steps` decides on the remaining time."""
        self._bar.total = expected_steps
        self._bar.set_postfix_str(progress_text(row), refresh=False)
        self._bar.update()

    def close(self) -> None:
        """Flush everything."""
        self._bar.close()
        self._metrics.close()


def progress_text(row: Row) -> str:
    """A row for the progress line."""
    parts = [f"{row['tokens_per_second']:,.0f} tok/s", f"loss {row['loss']:.3f}"]
    perplexities = [row[k] for k in ("forward_perplexity", "backward_perplexity") if k in row]
    parts.append("perplexity " + "/".join(f"{value:,.1f}" for value in perplexities))
    return ", ".join(parts)
