"""Experiments on the files of named entities, and ways to interrupt and compare them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elmo.tasks.experiment import ExperimentConfig
from elmo.tasks.ner.task import NerRecipe
from elmo.tasks.trainer import Trainer

Recipe = Callable[..., NerRecipe]

FINISHED = {"README.md", "config.json", "metrics.csv", "results.json", "vocabularies.json", "weights.safetensors"}


def make_config(
    files: Path, recipe: NerRecipe, out: str = "run", elmo: str | None = "model", **options: Any
) -> ExperimentConfig:
    train, dev, test = (str(files / f"{name}.conll") for name in ("train", "dev", "test"))
    source = "none" if elmo is None else str(files / elmo)
    return ExperimentConfig("ner", recipe, files / out, train, dev, test, source, device="cpu", **options)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def interrupt(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Stop the training after this many steps, as a signal would."""
    make_step, made = Trainer[Any, Any].step, iter(range(steps))

    def step(self: Trainer[Any, Any], examples: Any) -> None:
        make_step(self, examples)
        next(made, None)
        if made.__length_hint__() == 0:
            self.stopped = True

    monkeypatch.setattr(Trainer, "step", step)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
