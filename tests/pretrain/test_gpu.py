"""Training on a GPU, with recorded graphs and streams, computes what a CPU computes, and can be continued."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from elmo.nn.softmax import Softmax
from elmo.pretrain.loop import Pretrainer
from elmo.pretrain.recipe import Recipe
from elmo.text.corpus import Corpus
from elmo.training.metrics import read_rows

pytestmark = pytest.mark.gpu


def losses(run: Pretrainer, num_steps: int) -> list[list[float]]:
    return [run.train_on(run.batches.read(step)) for step in range(1, num_steps + 1)]


@pytest.mark.parametrize("loss", ["sampled", "full"])
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-3), ("bf16", 2e-2)])
def test_trains_as_the_processor_does(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path, loss: str, precision: str, tolerance: float
) -> None:
    """The losses of thirty steps without dropout agree. A GPU may round float32 products to TF32's ten bits."""
    settings = recipe(dropout=0.0, loss=loss, precision=precision, n_negative_samples_batch=20)
    there = losses(Pretrainer(corpus, tmp_path / "gpu", settings, device="cuda"), 30)
    here = losses(Pretrainer(corpus, tmp_path / "cpu", settings, device="cpu"), 30)
    torch.testing.assert_close(torch.tensor(there), torch.tensor(here), rtol=tolerance, atol=0)


def test_dropout_changes_from_step_to_step(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    """Masks are drawn outside of the recorded graph, so the same batch has another loss the second time."""
    run = Pretrainer(corpus, tmp_path / "run", recipe(dropout=0.5, learning_rate=1e-9), device="cuda")
    batch = run.batches.read(1)
    state = run.state
    first = run.train_on(batch)
    run.state = state
    assert run.train_on(batch) != first


def test_a_stopped_run_goes_on(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    """Parallel sums are rounded in any order, so the last losses agree within 1e-3, not bit for bit."""
    Pretrainer(corpus, tmp_path / "whole", recipe(max_steps=30), device="cuda").train()
    Pretrainer(corpus, tmp_path / "parts", recipe(max_steps=13), device="cuda").train()
    Pretrainer(corpus, tmp_path / "parts", recipe(max_steps=30), device="cuda").train()
    whole, parts = (read_rows(tmp_path / name / "metrics.csv") for name in ("whole", "parts"))
    assert parts[-1]["loss"] == pytest.approx(whole[-1]["loss"], rel=1e-3)


def test_a_frozen_bilm_trains_its_softmax(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    run = Pretrainer(corpus, tmp_path / "run", recipe(), freeze_bilm=True, device="cuda")
    assert isinstance(run.objective.softmax, Softmax)
    before = run.objective.softmax.weight.detach().clone()
    losses(run, 2)
    assert not torch.equal(run.objective.softmax.weight, before)


def test_a_run_begins_with_a_model_that_is_there(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    """The second stage of fine-tuning with a new softmax begins with a model on the GPU. A later start on a CPU accepts
    the same model as the one that the run began with."""
    start = Pretrainer(corpus, tmp_path / "first", recipe(max_steps=3), device="cuda").train()
    Pretrainer(corpus, tmp_path / "second", recipe(max_steps=3), start=start, device="cuda").train()
    Pretrainer(corpus, tmp_path / "second", recipe(max_steps=3), start=start.to(torch.device("cpu")), device="cpu")
