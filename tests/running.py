"""Runs for tests: trained in this process or as a command of their own, stopped, and compared to the bit."""

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
    """Every row's figures but the times, exactly as written."""
    return [tuple(row[key] for key in LOSSES) for row in read_rows(folder / "metrics.csv")]


def checkpoints(folder: Path) -> list[str]:
    """The names of all that lies among the checkpoints."""
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def train(
    corpus: Corpus,
    folder: Path,
    recipe: Recipe,
    stop_after: int | None = None,
    after_step: Callable[[int], object] = lambda step: None,
) -> Pretrainer:
    """Train, and stop after a step because of a signal; `after_step` is called whenever the weights were updated."""
    run = Pretrainer(corpus, folder, recipe, device="cpu")
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


def assert_same_end(a: Path, b: Path) -> None:
    """Same curve, same weights, same accumulators, states and places in the text: bit for bit."""
    assert loss_curve(a) == loss_curve(b)
    first, second = (load_file(sorted((f / "checkpoints").glob("*"))[-1]) for f in (a, b))
    assert first.keys() == second.keys()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []


@contextmanager
def started(
    *command: str | Path, cwd: Path | None = None, before: str = ":", stdin: IO[str] | int | None = None
) -> Generator[subprocess.Popen[str]]:
    """A process of its own that is killed at the end of the block, however the test ends.

    It has one thread as this one: their number changes the rounding. Signals do what they usually do, also in tests
    that were started with `nohup` or in the background. `before` is what the shell that starts it does first; no
    compiled modules are kept, which a limit on the size of files would cut off.
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
    """Wait for what a process that goes on is to do."""
    deadline = time.monotonic() + seconds
    while not is_true():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"no progress within {seconds} seconds"
        time.sleep(0.01)


def pretraining(
    corpus: Corpus, folder: Path, recipe: Recipe, before: str = ":"
) -> AbstractContextManager[subprocess.Popen[str]]:
    """`elmo pretrain` in a process of its own."""
    path = folder.with_suffix(".yaml")
    write_recipe(recipe, path)
    command = [sys.executable, "-m", "elmo", "pretrain", corpus.folder, folder, "--recipe", path, "--device", "cpu"]
    return started(*command, before=before)


def has_rows(folder: Path, number: int) -> bool:
    """Whether `metrics.csv` has more than `number` rows."""
    path = folder / "metrics.csv"
    return path.exists() and path.read_text().count("\n") > number + 1
