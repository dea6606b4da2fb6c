"""Training runs for tests, in this process or in one of their own, which can be stopped and compared bit for bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO

import torch
from safetensors.torch import load_file

from elmo.pretrain.loop import Pretrainer
from elmo.pretrain.objective import TrainingBatch
from elmo.pretrain.recipe import Recipe
from elmo.text.corpus import Corpus
from elmo.training.metrics import read_rows
from elmo.training.recipes import write_recipe

SAVING_ALWAYS = {"checkpoint_every_minutes": 1e-6}
LOSSES = ("step", "predictions", "loss", "forward_perplexity", "backward_perplexity")


def loss_curve(folder: Path) -> list[tuple[float, ...]]:
    """Return the figures of every row except the times, exactly as they were written."""
    return [tuple(row[key] for key in LOSSES) for row in read_rows(folder / "metrics.csv")]


def rows_without_times(folder: Path) -> list[dict[str, float]]:
    """Return all rows of `metrics.csv` without the columns that depend on the clock."""
    rows = read_rows(folder / "metrics.csv")
    return [{key: value for key, value in row.items() if "second" not in key} for row in rows]


def checkpoints(folder: Path) -> list[str]:
    """Return the names of all files in the folder of checkpoints."""
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def train(
    corpus: Corpus,
    folder: Path,
    recipe: Recipe,
    stop_after: int | None = None,
    after_step: Callable[[int], object] = lambda step: None,
    tensorboard: bool = False,
) -> Pretrainer:
    """Train, stop because of a signal after the step `stop_after`, and call `after_step` after every step."""
    run = Pretrainer(corpus, folder, recipe, device="cpu", tensorboard=tensorboard)
    train_on = run.train_on

    def train_and_tell(batch: TrainingBatch) -> list[float]:
        losses = train_on(batch)
        if run.progress.step == stop_after:
            signal.raise_signal(signal.SIGTERM)
        after_step(run.progress.step)
        return losses

    run.train_on = train_and_tell
    run.train()
    return run


def assert_same_tensors(a: Path, b: Path) -> None:
    """Check that two files have tensors of the same names, bit for bit."""
    first, second = load_file(a), load_file(b)
    assert first.keys() == second.keys()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []


def assert_same_end(a: Path, b: Path) -> None:
    """Check that two runs have the same losses, weights, accumulators, states and places in the text, bit for bit."""
    assert loss_curve(a) == loss_curve(b)
    assert_same_tensors(*(max((folder / "checkpoints").glob("*")) for folder in (a, b)))


@contextmanager
def started(
    *command: str | Path, cwd: Path | None = None, before: str = ":", stdin: IO[str] | int | None = None
) -> Generator[subprocess.Popen[str]]:
    """Run a command in a process that is killed at the end of the block, however the test ends.

    The process has one thread like this one, because the number of threads changes the rounding. Signals have their
    usual effect, even if the tests were started with `nohup` or in the background. The shell that starts the command
    runs `before` first. Compiled modules are not written, because a limit on the size of files would cut them off.
    """
    with subprocess.Popen(
        ["sh", "-c", f'{before}; exec "$@"', "sh", *command],
        cwd=cwd,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_have_usual_signals,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _have_usual_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def wait_until(is_true: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 120) -> None:
    """Wait until a process has made a condition true, and fail if it ends or takes too long."""
    deadline = time.monotonic() + seconds
    while not is_true():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"no progress within {seconds} seconds"
        time.sleep(0.01)


def pretraining(
    corpus: Corpus, folder: Path, recipe: Recipe, before: str = ":"
) -> AbstractContextManager[subprocess.Popen[str]]:
    """Run `elmo pretrain` in a process of its own."""
    path = folder.with_suffix(".yaml")
    write_recipe(path, recipe)
    command = [sys.executable, "-m", "elmo", "pretrain", corpus.folder, folder, "--recipe", path, "--device", "cpu"]
    return started(*command, before=before)


def has_rows(folder: Path, number: int) -> bool:
    """Return whether `metrics.csv` has more than `number` rows."""
    path = folder / "metrics.csv"
    return path.exists() and path.read_text().count("\n") > number + 1
