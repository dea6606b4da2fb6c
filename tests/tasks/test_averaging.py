"""The moving average of weights has the right values, doesn't change training, and is resumed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import recipes
from elmo.errors import ElmoError
from elmo.tasks.checkpoint import CHECKPOINT, WEIGHTS, load_weights
from elmo.tasks.ner.task import TASK, NerExample, NerRecipe
from elmo.tasks.trainer import Averages
from elmo.training.metrics import read_rows
from recipes import stop_after
from running import assert_same_tensors

Recipe = Callable[..., NerRecipe]


make_trainer = partial(recipes.make_trainer, TASK)


def test_an_average_is_the_weighted_mean_of_all_weights_so_far() -> None:
    """After n steps the first weights count 0.9^n and those of step k count 0.1 * 0.9^(n - k)."""
    model = nn.Linear(1, 1, bias=False)
    averages, history = Averages(model, 0.9), [model.weight.item()]
    for step in range(5):
        model.weight.data.fill_(step * step)
        history.append(model.weight.item())
        averages.update()
    wanted = 0.9**5 * history[0] + sum(0.1 * 0.9 ** (5 - k) * history[k] for k in range(1, 6))
    assert averages.tensors["weight"].item() == pytest.approx(wanted, rel=1e-5)


def test_the_model_gets_its_weights_back() -> None:
    """The weights are the same to the bit, even after an error."""
    model = nn.Linear(2, 2)
    averages, before = Averages(model, 0.5), {name: t.clone() for name, t in model.state_dict().items()}
    averages.tensors["weight"].fill_(7)

    def fail() -> None:
        with averages.in_place():
            assert (model.weight == 7).all()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_fixed_weights_and_models_without_a_decay_have_no_averages() -> None:
    model = nn.Linear(2, 2)
    model.weight.requires_grad_(False)
    assert Averages(model, 0.9).tensors.keys() == {"bias"}
    assert not Averages(model, None).tensors


def test_the_averages_include_the_step_that_was_just_made(
    recipe: Recipe, examples: list[NerExample], tmp_path: Path
) -> None:
    """With a decay of 0, they are nothing but the weights after it."""
    trainer = make_trainer(tmp_path, recipe(training__ema_decay=0.0), examples)
    trainer.step(examples[:8])
    weights = dict(trainer.model.named_parameters())
    assert trainer.averages.tensors
    assert all(torch.equal(average, weights[name]) for name, average in trainer.averages.tensors.items())


def test_evaluating_the_averages_does_not_change_the_training(
    recipe: Recipe, examples: list[NerExample], tmp_path: Path
) -> None:
    """The trained weights are the same with and without averages. The averages are kept and evaluated."""
    for name, decay in (("plain", None), ("averaged", 0.8)):
        trainer = make_trainer(tmp_path / name, recipe(training__ema_decay=decay), examples)
        trainer.train()
    plain, averaged = (load_file(tmp_path / name / CHECKPOINT) for name in ("plain", "averaged"))
    assert all(torch.equal(averaged[name], tensor) for name, tensor in plain.items())
    losses = [[row["loss"] for row in read_rows(tmp_path / name / "metrics.csv")] for name in ("plain", "averaged")]
    assert losses[0] == losses[1]
    averages = {name for name in averaged if name.startswith("average/")}
    assert averages == {f"average/{name}" for name, _ in trainer.model.named_parameters()}
    load_weights(tmp_path / "averaged", trainer.model)
    assert trainer.evaluate(trainer.dev_set)["f1"] == trainer.progress.best_score


def test_the_averages_are_kept_in_place_of_the_weights(
    recipe: Recipe, examples: list[NerExample], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each epoch of this training is better than the one before, so the last one is kept."""
    trainer = make_trainer(tmp_path, recipe(training__ema_decay=0.8), examples)
    scores = iter(range(1, 99))
    monkeypatch.setattr(trainer, "evaluate", lambda examples: {"f1": float(next(scores))})
    trainer.train()
    kept, last = load_file(tmp_path / WEIGHTS), load_file(tmp_path / CHECKPOINT)
    averages = {name.removeprefix("average/"): tensor for name, tensor in last.items() if name.startswith("average/")}
    assert averages
    assert all(torch.equal(kept[name], tensor) for name, tensor in averages.items())


@pytest.mark.parametrize("stop", [3, 4, 6])
def test_the_averages_are_resumed_bit_for_bit(
    stop: int, recipe: Recipe, examples: list[NerExample], tmp_path: Path
) -> None:
    """Training is stopped inside an epoch of four steps, and at its end."""
    settings = recipe(training__ema_decay=0.7, training__optimizer="adadelta")
    make_trainer(tmp_path / "whole", settings, examples).train()
    stop_after(make_trainer(tmp_path / "parts", settings, examples), stop)
    make_trainer(tmp_path / "parts", settings, examples).train()
    for name in (CHECKPOINT, WEIGHTS):
        assert_same_tensors(tmp_path / "whole" / name, tmp_path / "parts" / name)


def test_a_decay_outside_of_0_to_1_is_refused(recipe: Recipe) -> None:
    with pytest.raises(ElmoError, match=r"training\.ema_decay: 1\.0 is not in \[0, 1\)"):
        recipe(training__ema_decay=1.0)
