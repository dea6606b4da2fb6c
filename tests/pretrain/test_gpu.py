"""Training on a GPU, with recorded graphs and streams, computes what a CPU computes, and can be continued."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from elmo.nn.softmax import Softmax
from elmo.pretrain.loop import Pretrainer
from elmo.pretrain.recipe import Recipe
from elmo.text.corpus import Corpus
from elmo.training.metrics import read_rows

pytestmark = pytest.mark.gpu

Draw = Callable[[int, torch.device], Sequence[torch.Tensor]]


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


def test_every_step_has_dropout_masks_of_its_own(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    """Masks are drawn outside of the recorded graph, which would otherwise repeat those of the recording.

    Both devices get the masks that a CPU draws. Without them, or with those of an earlier step, the losses of most
    steps differ by about one percent.
    """
    found: dict[str, list[list[float]]] = {"cuda": [], "cpu": []}
    for name, per_step in found.items():
        run = Pretrainer(corpus, tmp_path / name, recipe(dropout=0.5), device=name)
        draw = run.objective.draw_masks

        def draw_on_cpu(num: int, device: torch.device, draw: Draw = draw) -> list[torch.Tensor]:
            return [mask.to(device) for mask in draw(num, torch.device("cpu"))]

        run.objective.draw_masks = draw_on_cpu
        for step in range(1, 11):
            torch.manual_seed(step)
            per_step.append(run.train_on(run.batches.read(step)))
    torch.testing.assert_close(torch.tensor(found["cuda"]), torch.tensor(found["cpu"]), rtol=1e-3, atol=0)


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


def test_a_run_may_begin_with_a_model_on_a_gpu(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    """The second stage of fine-tuning with a new softmax begins with a model on the GPU. A later start on a CPU accepts
    the same model as the one that the run began with."""
    start = Pretrainer(corpus, tmp_path / "first", recipe(max_steps=3), device="cuda").train()
    Pretrainer(corpus, tmp_path / "second", recipe(max_steps=3), start=start, device="cuda").train()
    Pretrainer(corpus, tmp_path / "second", recipe(max_steps=3), start=start.to(torch.device("cpu")), device="cpu")
