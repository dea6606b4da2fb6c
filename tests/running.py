"""Runs for tests: trained in this process or as a command of their own, stopped, and compared to the bit."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file

from elmo.config import Recipe
from elmo.pretrain.loop import Run
from elmo.runs.recipes import write_recipe
from elmo.runs.rows import read_rows
from elmo.text.corpus import Corpus

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
) -> Run:
    """Train, asking for a stop after a step as a signal would; `after_step` is called after each."""
    run = Run(corpus, folder, recipe, device="cpu")
    make_step = run._step

    def step() -> None:
        make_step()
        run.stopped = run.progress.step == stop_after
        after_step(run.progress.step)

    run._step = step
    run.train()
    return run


def assert_same_end(a: Path, b: Path) -> None:
    """Same curve, same weights, same accumulators, states and places in the text: bit for bit."""
    assert loss_curve(a) == loss_curve(b)
    first, second = (load_file(sorted((f / "checkpoints").glob("*"))[-1]) for f in (a, b))
    assert first.keys() == second.keys()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []


def start_command(corpus: Corpus, folder: Path, recipe: Recipe, before: str = ":") -> subprocess.Popen[str]:
    """`elmo pretrain` in a process of its own, with one thread as in this one: their number changes the rounding.

    `before` is what the shell that starts it does first.
    """
    path = folder.with_suffix(".yaml")
    write_recipe(recipe, path)
    command = [sys.executable, "-m", "elmo", "pretrain", corpus.folder, folder, "--recipe", path, "--device", "cpu"]
    return subprocess.Popen(
        ["sh", "-c", f'{before}; exec "$@"', "sh", *command],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_rows(folder: Path, number: int, process: subprocess.Popen[str]) -> None:
    """Wait until `metrics.csv` has more than `number` rows."""
    path = folder / "metrics.csv"
    deadline = time.monotonic() + 120
    while not (path.exists() and path.read_text().count("\n") > number + 1):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no progress within two minutes"
        time.sleep(0.01)
