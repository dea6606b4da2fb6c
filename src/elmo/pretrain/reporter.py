"""What pretraining reports: rows of `metrics.csv` (and TensorBoard), and a progress line.

Where there is no terminal for a progress line, as in the log of a cluster, it is a line a minute.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from elmo.config import DIRECTIONS
from elmo.pretrain.perplexity import Perplexity, perplexity_of
from elmo.progress import show_progress
from elmo.training.metrics import MetricsFile, Row
from elmo.wording import perplexity_text

if TYPE_CHECKING:
    from elmo.pretrain.loop import Pretrainer

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
  of each direction's loss. They are training losses, with dropout. With `training.loss: sampled` and a vocabulary that
  is larger than the sample, they are those of the softmax over the negatives, and cannot be compared with other
  perplexities; otherwise they are of the whole vocabulary.
- Held-out perplexities are always of the whole vocabulary (see `elmo.pretrain.perplexity`).
"""

LINE_SECONDS = 60.0
"""The time between two lines where there is no terminal."""


class Reporter:
    """Reports a pretraining run: rows of metrics, and a progress line, or lines, on stderr.

    It only reads the progress of the run. Every process has a reporter and must call it after the same steps, so that
    an error of process 0, the only one that writes, ends them all.

    Args:
        run: The run, which may be one that continues: rows of steps that it will make again are dropped.
        tensorboard: Whether rows are written for TensorBoard as well.
    """

    def __init__(self, run: Pretrainer, *, tensorboard: bool) -> None:
        self._run = run
        self._metrics: MetricsFile | None = None
        run.processes.on_first(lambda: self._open(tensorboard))  # its errors end all processes

    def _open(self, tensorboard: bool) -> None:
        run, step = self._run, self._run.progress.step
        self._metrics = MetricsFile(run.folder, "step", step, columns=FIELDS, tensorboard=tensorboard)
        self._bar = show_progress("pretraining", "steps", run.total_steps, initial=step)
        self._last_line = time.monotonic()

    def show_step(self) -> None:
        """Move the progress line by the step that was just made."""
        if self._metrics is not None:
            self._bar.total = self._expected_steps()
            self._bar.set_postfix_str(self._figures(), refresh=False)
            with suppress(OSError):  # nobody reads stderr any more, or its disk is full: no reason to end the run
                self._bar.update()
                if self._bar.disable and time.monotonic() - self._last_line >= LINE_SECONDS:
                    self._last_line = time.monotonic()
                    self._write_line()

    def write_row(self, heldout: Perplexity | None) -> None:
        """Write a row of metrics: of the steps since the last row, and of held-out text if it was measured.

        Nothing is written if there is neither.
        """
        run, progress = self._run, self._run.progress
        if progress.num_summed:
            row = self._summary()
        else:  # a finished run that was given other text to measure has no loss to report
            predictions = progress.step * run.predictions_per_step
            row = {"step": progress.step, "predictions": predictions, "seconds": progress.seconds}
        if heldout is not None:
            row["heldout_perplexity"] = heldout.mean
            for direction, value in zip(DIRECTIONS, heldout.directions, strict=False):
                row[f"heldout_{direction}_perplexity"] = value

        def write() -> None:
            assert self._metrics is not None
            run.run_folder.recreate_if_removed()
            self._metrics.add(row)

        if row.keys() & {"loss", "heldout_perplexity"}:
            run.processes.on_first(write)

    def close(self) -> None:
        """Close the progress line and the metrics, and write what is still buffered."""
        if self._metrics is not None:
            with suppress(OSError):
                self._bar.close()
            self._metrics.close()

    def _write_line(self) -> None:
        """Write what a terminal would show."""
        progress, total = self._run.progress, self._expected_steps()
        left = self._bar.format_interval((total - progress.step) * progress.seconds / progress.step)
        line = f"{self._run.folder}: step {progress.step:,} of {total:,}, {self._figures()}, {left} left"
        print(f"elmo: {line}", file=sys.stderr, flush=True)

    def _summary(self) -> Row:
        """Return the metrics of all steps since the last row."""
        run, progress = self._run, self._run.progress
        losses = [total / progress.num_summed for total in progress.loss_sums]
        predictions = progress.num_summed * run.predictions_per_step
        row: Row = {
            "step": progress.step,
            "predictions": progress.step * run.predictions_per_step,
            "seconds": progress.seconds,
            "tokens_per_second": predictions / (progress.seconds - progress.summed_seconds),
            "loss": sum(losses) / len(losses),
        }
        if progress.learning_rate is not None:
            row["learning_rate"] = progress.learning_rate
        for direction, loss in zip(DIRECTIONS, losses, strict=False):
            row[f"{direction}_perplexity"] = perplexity_of(loss)
        return row

    def _figures(self) -> str:
        """Return what the progress line says of the steps since the last row of metrics, and of the best step."""
        row, progress = self._summary(), self._run.progress
        perplexities = [row[key] for name in DIRECTIONS if (key := f"{name}_perplexity") in row]
        ways = "/".join(perplexity_text(value, 1) for value in perplexities)
        text = f"{row['tokens_per_second']:,.0f} tokens/s, loss {row['loss']:.3f}, perplexity {ways}"
        if progress.best_perplexity is None:
            return text
        return f"{text}, held-out {perplexity_text(progress.best_perplexity, 1)} at best, step {progress.best_step:,}"

    def _expected_steps(self) -> int:
        """Return the step at which training is expected to end, at its pace so far."""
        minutes, progress = self._run.recipe.training.max_minutes, self._run.progress
        if minutes is None:
            return self._run.total_steps
        return min(self._run.total_steps, max(progress.step, round(progress.step * 60 * minutes / progress.seconds)))
