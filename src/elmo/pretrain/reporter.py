"""What pretraining reports: rows of `metrics.csv` and TensorBoard, and a progress line on a terminal."""

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
"""The columns of `metrics.csv`.

- `predictions` counts the predictions of one direction, and `seconds` the training time without evaluating and saving.
- `loss` is in nats per prediction, the mean over the directions; `forward_perplexity` and `backward_perplexity` are exp
  of each direction's loss. They are training losses, with dropout. With `training.loss: sampled` they are those of the
  softmax over the negatives, and cannot be compared with other perplexities; else they are of the whole vocabulary.
- Held-out perplexities are always of the whole vocabulary (see `elmo.pretrain.perplexity`).
"""


class Reporter:
    """Reports a pretraining run: rows of `metrics.csv` and TensorBoard, and a progress line on a terminal.

    Args:
        run_folder: The folder of the run.
        step: The step that the run continues from. Rows of later steps are dropped, since they will be made again.
        total_steps: The number of steps that the run is expected to have.
    """

    def __init__(self, run_folder: Path, step: int, total_steps: int) -> None:
        self._metrics = MetricsFile(run_folder, "step", step, columns=FIELDS, tensorboard=True)
        self._bar = tqdm(total=total_steps, initial=step, unit="step", disable=None)

    def add(self, row: Row) -> None:
        """Write one row, whose keys must be in `FIELDS`."""
        self._metrics.add(row)

    def advance(self, row: Row, expected_steps: int) -> None:
        """Move the progress line by one step.

        Args:
            row: The metrics to show.
            expected_steps: The step at which training is expected to end, from which the remaining time follows.
        """
        self._bar.total = expected_steps
        self._bar.set_postfix_str(progress_text(row), refresh=False)
        self._bar.update()

    def close(self) -> None:
        """Close the progress line and the metrics, and write what is still buffered."""
        self._bar.close()
        self._metrics.close()


def progress_text(row: Row) -> str:
    """Format a row of metrics for the progress line."""
    parts = [f"{row['tokens_per_second']:,.0f} tok/s", f"loss {row['loss']:.3f}"]
    perplexities = [row[k] for k in ("forward_perplexity", "backward_perplexity") if k in row]
    parts.append("perplexity " + "/".join(f"{value:,.1f}" for value in perplexities))
    return ", ".join(parts)
