"""The trainer keeps the best weights, stops in time, and is not changed by an interrupt."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import recipes
from elmo.errors import ElmoError
from elmo.formats import Model
from elmo.nn.precision import product_dtype
from elmo.tasks.checkpoint import CHECKPOINT, WEIGHTS
from elmo.tasks.ner.task import TASK, NerExample, NerRecipe, Spans
from elmo.tasks.prediction import predict
from elmo.tasks.task import Scores
from elmo.tasks.trainer import Trainer
from elmo.training.metrics import MetricsFile, read_rows
from recipes import stop_after
from running import assert_same_tensors, rows_without_times

Recipe = Callable[..., NerRecipe]


class KilledError(BaseException):
    """This error stands for a kill, as nothing catches it."""


make_trainer = partial(recipes.make_trainer, TASK)


@pytest.mark.parametrize("optimizer", ["adam", "adadelta", "sgd"])
@pytest.mark.parametrize("stops", [[3], [4], [5, 6, 11]], ids=str)
def test_an_interrupted_training_is_the_same_to_the_bit(
    optimizer: str, stops: list[int], recipe: Recipe, examples: list[NerExample], tmp_path: Path
) -> None:
    """An epoch has four steps. Training is stopped inside it, at its end, and twice in one epoch."""
    settings = recipe(training__optimizer=optimizer, training__plateau_factor=0.5, training__decay_factor=0.9)
    make_trainer(tmp_path / "whole", settings, examples).train()
    for step in [*stops, None]:
        trainer = make_trainer(tmp_path / "parts", settings, examples)
        if step is None:
            trainer.train()
        else:
            stop_after(trainer, step)
            assert trainer.progress.step == step
            assert not trainer.is_done
    assert trainer.is_done
    assert len(rows_without_times(tmp_path / "whole")) == 3
    assert rows_without_times(tmp_path / "parts") == rows_without_times(tmp_path / "whole")
    for name in (WEIGHTS, CHECKPOINT):
        assert_same_tensors(tmp_path / "whole" / name, tmp_path / "parts" / name)


def test_a_killed_training_goes_on_from_its_checkpoint(
    recipe: Recipe, examples: list[NerExample], tmp_path: Path
) -> None:
    """Training repeats what came after the last checkpoint, though the row and the weights of the second epoch were
    already written before the kill."""
    settings = recipe()
    make_trainer(tmp_path / "whole", settings, examples).train()
    trainer = make_trainer(tmp_path / "parts", settings, examples)
    save = trainer.save

    def save_but_once() -> None:
        if trainer.progress.epoch == 2:
            raise KilledError
        save()

    trainer.save = save_but_once
    with pytest.raises(KilledError):
        trainer.train()
    assert len(rows_without_times(tmp_path / "parts")) == 2
    again = make_trainer(tmp_path / "parts", settings, examples)
    assert again.progress.epoch == 1
    again.train()
    assert rows_without_times(tmp_path / "parts") == rows_without_times(tmp_path / "whole")


def test_checkpoints_are_made_within_an_epoch(recipe: Recipe, examples: list[NerExample], tmp_path: Path) -> None:
    """A checkpoint is made after each step here. Training is killed before the third of four steps."""
    trainer = make_trainer(tmp_path, recipe(training__checkpoint_every_minutes=1e-9), examples)
    make_step = trainer.step

    def step(batch: Sequence[NerExample]) -> None:
        if trainer.progress.step == 2:
            raise KilledError
        make_step(batch)

    trainer.step = step
    with pytest.raises(KilledError):
        trainer.train()
    assert make_trainer(tmp_path, recipe(), examples).progress.step == 2


def test_checkpoints_are_as_far_apart_as_the_recipe_says(
    recipe: Recipe, examples: list[NerExample], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step seems to take 40 seconds here, so that a minute is over after every second one."""
    settings = recipe(training__checkpoint_every_minutes=1.0, training__max_epochs=2)
    trainer = make_trainer(tmp_path, settings, examples)
    save, saved = trainer.save, set[int]()
    monkeypatch.setattr("elmo.tasks.trainer.time", SimpleNamespace(perf_counter=lambda: 40.0 * trainer.progress.step))

    def note_and_save() -> None:
        saved.add(trainer.progress.step)
        save()

    trainer.save = note_and_save
    trainer.train()
    assert saved == {2, 4, 6, 8}


@pytest.mark.parametrize("settings", [{}, {"training__max_minutes": 1e-9}], ids=["whole epoch", "cut short"])
def test_a_checkpoint_is_made_before_an_evaluation(
    settings: dict[str, Any], recipe: Recipe, examples: list[NerExample], tmp_path: Path
) -> None:
    """A kill while the dev set is measured loses no step, and none is made twice."""
    whole = make_trainer(tmp_path / "whole", recipe(training__max_epochs=1, **settings), examples)
    whole.train()
    killed = make_trainer(tmp_path / "parts", recipe(training__max_epochs=1, **settings), examples)

    def evaluate(examples: Sequence[NerExample]) -> Scores:
        raise KilledError

    killed.evaluate = evaluate
    with pytest.raises(KilledError):
        killed.train()
    again = make_trainer(tmp_path / "parts", recipe(training__max_epochs=1, **settings), examples)
    assert again.progress.step == whole.progress.step
    again.train()
    assert again.progress.step == whole.progress.step
    assert rows_without_times(tmp_path / "parts") == rows_without_times(tmp_path / "whole")


def test_it_learns_and_the_best_weights_are_kept(recipe: Recipe, examples: list[NerExample], tmp_path: Path) -> None:
    """Within 20 epochs the loss falls to a quarter. In the end the model has the weights of the best epoch."""
    trainer = make_trainer(tmp_path, recipe(training__max_epochs=20), examples)
    trainer.train()
    rows, progress = rows_without_times(tmp_path), trainer.progress
    assert rows[-1]["loss"] < rows[0]["loss"] / 4
    best = max(row["dev_f1"] for row in rows)
    assert best > 60
    assert (progress.best_score, rows[progress.best_epoch - 1]["dev_f1"]) == (best, best)
    assert trainer.evaluate(trainer.dev_set)["f1"] == best
    assert list(rows[0])[:4] == ["epoch", "step", "learning_rate", "loss"]


def test_rows_have_the_mean_loss_and_the_speed_of_their_own_epoch(
    recipe: Recipe, examples: list[NerExample], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the clock is a second after the last one, so that a step of 8 examples takes a second."""
    trainer = make_trainer(tmp_path, recipe(training__max_epochs=2), examples)
    losses: list[float] = []
    make_step = trainer.step

    def step(batch: Sequence[NerExample]) -> None:
        before = trainer.progress.loss_sum
        make_step(batch)
        losses.append(trainer.progress.loss_sum - before)

    trainer.step = step
    monkeypatch.setattr("elmo.tasks.trainer.time", SimpleNamespace(perf_counter=count().__next__))
    trainer.train()
    rows = read_rows(tmp_path / "metrics.csv")
    assert [row["loss"] for row in rows] == pytest.approx([sum(losses[:4]) / 4, sum(losses[4:]) / 4])
    assert [row["examples_per_second"] for row in rows] == [8, 8]


def with_scores(trainer: Trainer[NerExample, Spans], scores: list[float]) -> None:
    """Pretend that the dev set gives these scores, epoch by epoch."""

    def evaluate(examples: Sequence[NerExample]) -> Scores:
        return {"f1": scores[trainer.progress.epoch]}

    trainer.evaluate = evaluate


def test_it_stops_when_its_patience_is_used_up(recipe: Recipe, examples: list[NerExample], tmp_path: Path) -> None:
    """An equal score does not count as better."""
    trainer = make_trainer(tmp_path, recipe(training__max_epochs=20, training__patience=3), examples)
    with_scores(trainer, [1, 3, 2, 3, 3, 9, 9])
    trainer.train()
    assert (trainer.progress.epoch, trainer.progress.best_epoch) == (5, 2)


def test_the_rate_falls_on_plateaus(recipe: Recipe, examples: list[NerExample], tmp_path: Path) -> None:
    settings = recipe(training__max_epochs=6, training__plateau_factor=0.5, training__plateau_patience=2)
    trainer = make_trainer(tmp_path, settings, examples)
    with_scores(trainer, [1, 1, 1, 2, 1, 1])
    trainer.train()
    assert [row["learning_rate"] for row in rows_without_times(tmp_path)] == [0.02, 0.02, 0.02, 0.01, 0.01, 0.01]
    assert trainer.progress.rate == 0.25


def test_a_new_best_score_begins_the_wait_for_a_plateau_again(
    recipe: Recipe, examples: list[NerExample], tmp_path: Path
) -> None:
    settings = recipe(training__max_epochs=6, training__plateau_factor=0.5, training__plateau_patience=2)
    trainer = make_trainer(tmp_path, settings, examples)
    with_scores(trainer, [1, 1, 2, 1, 1, 1])
    trainer.train()
    assert [row["learning_rate"] for row in rows_without_times(tmp_path)] == [0.02, 0.02, 0.02, 0.02, 0.02, 0.01]


def test_the_wait_for_a_plateau_begins_again_after_one(
    recipe: Recipe, examples: list[NerExample], tmp_path: Path
) -> None:
    settings = recipe(training__max_epochs=5, training__plateau_factor=0.5, training__plateau_patience=2)
    trainer = make_trainer(tmp_path, settings, examples)
    with_scores(trainer, [1, 1, 1, 1, 1])
    trainer.train()
    assert [row["learning_rate"] for row in rows_without_times(tmp_path)] == [0.02, 0.02, 0.02, 0.01, 0.01]


def test_the_rate_falls_with_steps(recipe: Recipe, examples: list[NerExample], tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, recipe(training__decay_factor=0.5, training__decay_steps=4), examples)
    trainer.train()
    assert [row["learning_rate"] for row in rows_without_times(tmp_path)] == pytest.approx([0.02, 0.01, 0.005])
    assert trainer.learning_rate == pytest.approx(0.0025)


def test_the_rate_falls_in_stairs(recipe: Recipe, examples: list[NerExample], tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, recipe(training__decay_factor=0.5, training__decay_steps=4), examples)
    rates: list[float] = []
    for step in (0, 3, 4, 7, 8):
        trainer.progress.step = step
        rates.append(trainer.learning_rate)
    assert rates == pytest.approx([0.02, 0.02, 0.01, 0.01, 0.005])


def test_the_optimizer_gets_the_rate_of_each_step(recipe: Recipe, examples: list[NerExample], tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, recipe(training__decay_factor=0.5, training__decay_steps=1), examples)
    used: list[float] = []
    for _ in range(3):
        trainer.step(examples[:8])
        used.append(trainer.optimizer.param_groups[0]["lr"])
    assert used == pytest.approx([0.02, 0.01, 0.005])


def test_the_rate_falls_to_zero(recipe: Recipe, examples: list[NerExample], tmp_path: Path) -> None:
    """The rate falls over the last two thirds of three epochs of four steps, or with the minutes that are used up.

    Rows have the rate of the last step of their epoch.
    """
    settings = recipe(training__decay=2 / 3, training__max_epochs=3)
    trainer = make_trainer(tmp_path / "epochs", settings, examples)
    trainer.train()
    assert [row["learning_rate"] for row in rows_without_times(tmp_path / "epochs")] == pytest.approx(
        [0.02, 0.0125, 0.0025]
    )
    assert trainer.learning_rate == pytest.approx(0)
    hurried = make_trainer(tmp_path / "minutes", recipe(training__decay=1.0, training__max_minutes=1.0), examples)
    hurried.progress.seconds = 45.0
    assert hurried.learning_rate == pytest.approx(0.005)
    early = make_trainer(tmp_path / "early", recipe(training__decay=1.0, training__max_minutes=600), examples)
    early.progress.step = 3 * early.config.max_epochs * early.steps_per_epoch // 4  # in no time
    assert early.learning_rate == pytest.approx(0.005)


def test_the_row_of_an_epoch_that_is_cut_short_has_the_rate_of_its_last_step(
    recipe: Recipe, examples: list[NerExample], tmp_path: Path
) -> None:
    """The first step uses all the minutes up, so the rate of the next one would be zero."""
    trainer = make_trainer(tmp_path, recipe(training__decay=1.0, training__max_minutes=1e-9), examples)
    trainer.train()
    assert [row["learning_rate"] for row in rows_without_times(tmp_path)] == [0.02]
    assert trainer.learning_rate == 0


def test_training_ends_when_its_minutes_are_used_up_and_goes_on_with_more(
    recipe: Recipe, examples: list[NerExample], tmp_path: Path
) -> None:
    """When the minutes are used up, the epoch is cut short, measured and kept. With more, training continues."""
    trainer = make_trainer(tmp_path, recipe(training__max_minutes=1e-9), examples)
    trainer.train()
    assert (trainer.progress.epoch, trainer.progress.step, trainer.progress.num_trained) == (1, 1, 8)
    assert trainer.is_done
    assert trainer.progress.best_epoch == 1
    longer = make_trainer(tmp_path, recipe(training__max_minutes=60), examples)
    longer.train()
    assert (longer.progress.epoch, longer.progress.step, longer.progress.num_trained) == (3, 9, 72)
    timed = make_trainer(tmp_path / "timed", recipe(training__max_minutes=1.5), examples)
    for seconds in (89.9, 90.0):
        timed.progress.seconds = seconds
        assert timed.is_done == (seconds == 90.0)


@pytest.mark.parametrize(("num_examples", "epochs", "times"), [(8, 2, 10), (16, 2, 5), (24, 3, 5)])
def test_few_examples_are_repeated_in_an_epoch(
    num_examples: int, epochs: int, times: int, recipe: Recipe, examples: list[NerExample], tmp_path: Path
) -> None:
    """An epoch is made of five batches of 8. If they end in the middle of the examples, the next one begins there."""
    settings = recipe(training__max_epochs=epochs, training__epoch_steps=5)
    trainer = make_trainer(tmp_path, settings, examples[: 8 + num_examples])
    seen: list[NerExample] = []
    make_step = trainer.step

    def watched(batch: Sequence[NerExample]) -> None:
        seen.extend(batch)
        make_step(batch)

    trainer.step = watched
    trainer.train()
    assert [row["step"] for row in rows_without_times(tmp_path)] == [5, 10, 15][:epochs]
    used = Counter(map(id, seen))
    assert [used[id(example)] for example in trainer.train_set] == [times] * num_examples
    assert trainer.progress.num_trained == len(seen) == 40 * epochs


@pytest.fixture
def gradients(
    recipe: Recipe, examples: list[NerExample], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., torch.Tensor]:
    """Return a function that returns all gradients as the optimizer gets them, with `gradients(clip_norm=1.0)`."""

    def clipped(clip_norm: float | None = None, clip_value: float | None = None) -> torch.Tensor:
        settings = recipe(training__clip_norm=clip_norm, training__clip_value=clip_value)
        trainer = make_trainer(tmp_path / f"{clip_norm}-{clip_value}", settings, examples)
        found: list[torch.Tensor] = []

        def step() -> None:
            found.extend(p.grad.flatten() for p in trainer.model.parameters() if p.grad is not None)

        monkeypatch.setattr(trainer.optimizer, "step", step)
        trainer.step(examples[:8])
        return torch.cat(found)

    return clipped


@pytest.fixture
def gradients_of_steps(
    recipe: Recipe, examples: list[NerExample], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[torch.Tensor]]:
    """Return a function that returns all gradients of two equal steps, which change no weight."""

    def twice(precision: str = "float32") -> list[torch.Tensor]:
        trainer = make_trainer(tmp_path / precision, recipe(training__precision=precision), examples)
        found: list[torch.Tensor] = []

        def step() -> None:
            found.append(torch.cat([p.grad.flatten() for p in trainer.model.parameters() if p.grad is not None]))

        monkeypatch.setattr(trainer.optimizer, "step", step)
        for _ in range(2):
            trainer.progress.step = 0  # for the same dropout masks
            trainer.step(examples[:8])
        return found

    return twice


def test_gradients_of_one_step_are_not_added_to_those_of_the_next(
    gradients_of_steps: Callable[..., list[torch.Tensor]],
) -> None:
    first, second = gradients_of_steps()
    assert first.any()
    assert torch.equal(first, second)


def test_products_are_rounded_if_the_recipe_says_so(gradients_of_steps: Callable[..., list[torch.Tensor]]) -> None:
    exact, rounded = gradients_of_steps()[0], gradients_of_steps("bf16")[0]
    assert not torch.equal(exact, rounded)
    assert torch.cosine_similarity(exact, rounded, dim=0) > 0.99


def test_gradients_are_clipped_together(gradients: Callable[..., torch.Tensor]) -> None:
    whole, clipped = gradients(), gradients(clip_norm=0.01)
    assert clipped.norm().item() == pytest.approx(0.01, rel=1e-4)
    torch.testing.assert_close(clipped, whole * 0.01 / whole.norm(), rtol=1e-4, atol=1e-9)


def test_each_number_of_the_gradients_is_clipped(gradients: Callable[..., torch.Tensor]) -> None:
    """Larger numbers become plus or minus the limit. Others stay as they are, whatever their norm."""
    whole, clipped = gradients(), gradients(clip_value=0.001)
    assert torch.equal(clipped, whole.clamp(-0.001, 0.001))
    assert not torch.equal(clipped, whole)


def test_numbers_are_clipped_before_their_norm(gradients: Callable[..., torch.Tensor]) -> None:
    values, both = gradients(clip_value=0.001), gradients(clip_value=0.001, clip_norm=0.005)
    assert values.norm() > 0.005
    torch.testing.assert_close(both, values * 0.005 / values.norm(), rtol=1e-4, atol=1e-9)


def test_seeds_change_the_order(recipe: Recipe, examples: list[NerExample], tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        make_trainer(tmp_path / name, recipe(training__seed=seed, training__max_epochs=1), examples).train()
    assert (
        rows_without_times(tmp_path / "a") == rows_without_times(tmp_path / "b") != rows_without_times(tmp_path / "c")
    )
    trainer, other = (make_trainer(tmp_path / name, recipe(training__seed=s), examples) for s, name in enumerate("de"))
    plan = trainer.plan()
    assert other.plan() != plan
    trainer.progress.epoch = 1
    assert trainer.plan() != plan


def drawing(loss: Callable[..., torch.Tensor], drawn: list[float]) -> Callable[..., torch.Tensor]:
    """Let a model's loss note a random number."""

    def draw(examples: Sequence[NerExample]) -> torch.Tensor:
        drawn.append(torch.rand(1).item())
        return loss(examples)

    return draw


def test_each_step_has_random_numbers_of_its_own(
    recipe: Recipe, examples: list[NerExample], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random numbers, as of dropout, differ between steps and between seeds, but are the same in an equal training."""
    drawn: list[float] = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        trainer = make_trainer(tmp_path / name, recipe(training__seed=seed), examples)
        monkeypatch.setattr(trainer.model, "loss", drawing(trainer.model.loss, drawn))
        for _ in range(2):
            trainer.step(examples[:8])
    assert drawn[:2] == drawn[2:4]
    assert len({*drawn}) == 4


@pytest.mark.parametrize(
    ("name", "own"), [("adam", {"betas": (0.9, 0.999)}), ("adadelta", {"rho": 0.95}), ("sgd", {"momentum": 0})]
)
def test_optimizers_have_their_published_settings(
    name: str, own: dict[str, Any], recipe: Recipe, examples: list[NerExample], tmp_path: Path
) -> None:
    settings = recipe(training__optimizer=name, training__weight_decay=0.125, training__learning_rate=0.5)
    (group,) = make_trainer(tmp_path, settings, examples).optimizer.param_groups
    wanted = {"lr": 0.5, "weight_decay": 0.125, **own}
    assert {key: group[key] for key in wanted} == wanted


def test_epsilon_is_that_of_the_recipe_or_of_pytorch(
    recipe: Recipe, examples: list[NerExample], tmp_path: Path
) -> None:
    """Without an epsilon in the recipe, it is PyTorch's default."""
    for name, own in (("adam", 1e-8), ("adadelta", 1e-6)):
        for epsilon, wanted in ((None, own), (1e-5, 1e-5)):
            settings = recipe(training__optimizer=name, training__epsilon=epsilon)
            assert make_trainer(tmp_path, settings, examples).optimizer.param_groups[0]["eps"] == wanted
    with pytest.raises(ElmoError, match=r"training\.epsilon: sgd has none"):
        recipe(training__optimizer="sgd", training__epsilon=1e-5)


def test_the_penalty_is_part_of_the_loss(
    recipe: Recipe, examples: list[NerExample], bilm: Model, tmp_path: Path
) -> None:
    """The penalty is a tenth of the sum of the squared scores, 1 + 0 + 1."""
    losses: list[float] = []
    for penalty in (0.1, 0.0):
        settings = recipe(elmo__penalty=penalty, elmo__vectors="live")
        trainer = make_trainer(tmp_path / str(penalty), settings, examples, bilm)
        with torch.no_grad():
            trainer.model.elmo.mixes["input"].get_parameter("scores").copy_(torch.tensor([1.0, 0.0, -1.0]))
        trainer.step(examples[:8])
        losses.append(trainer.progress.loss_sum)
    assert losses[0] - losses[1] == pytest.approx(0.2, abs=1e-4)


@pytest.mark.parametrize("vectors", ["live", "trained"])
def test_the_mix_and_the_bilm_are_trained(
    vectors: str, recipe: Recipe, examples: list[NerExample], bilm: Model, tmp_path: Path
) -> None:
    """The scores of the mixes change. The weights of the biLM change only if it is trained along."""
    settings = recipe(elmo__vectors=vectors, training__max_epochs=1)
    trainer = make_trainer(tmp_path, settings, examples, bilm)
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    frozen = {name: value.clone() for name, value in bilm.bilm.state_dict().items()}
    trainer.train()
    moved = {name for name, value in trainer.model.state_dict().items() if not torch.equal(value, before[name])}
    assert "elmo.mixes.input.scores" in moved
    assert any("bilm" in name for name in moved) == (vectors == "trained")
    assert all(torch.equal(value, frozen[name]) for name, value in bilm.bilm.state_dict().items())


def test_predictions_are_in_the_order_of_the_examples(
    recipe: Recipe, examples: list[NerExample], tmp_path: Path
) -> None:
    """Predicting in batches gives what predicting one by one gives."""
    trainer = make_trainer(tmp_path, recipe(training__max_epochs=20), examples)
    trainer.train()
    one_by_one = [predict(TASK, trainer.model, [example])[0] for example in examples]
    assert any(one_by_one)
    assert predict(TASK, trainer.model, examples, 7) == one_by_one
    assert predict(TASK, trainer.model, []) == []


def test_a_trainer_that_was_stopped_trains_on(recipe: Recipe, examples: list[NerExample], tmp_path: Path) -> None:
    """Meanwhile its model has the weights of the best epoch, from which it must not go on."""
    make_trainer(tmp_path / "whole", recipe(), examples).train()
    trainer = make_trainer(tmp_path / "parts", recipe(), examples)
    stop_after(trainer, 6)
    assert trainer.stopped
    trainer.train()
    assert not trainer.stopped
    assert trainer.is_done
    assert rows_without_times(tmp_path / "parts") == rows_without_times(tmp_path / "whole")
    assert_same_tensors(tmp_path / "whole" / WEIGHTS, tmp_path / "parts" / WEIGHTS)


def test_a_request_to_stop_holds_for_one_training(recipe: Recipe, examples: list[NerExample], tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, recipe(), examples)
    trainer.stop()
    trainer.train()
    assert (trainer.progress.step, trainer.stopped) == (1, True)
    trainer.train()
    assert (trainer.is_done, trainer.stopped) == (True, False)


def test_an_error_closes_what_is_written(
    recipe: Recipe, examples: list[NerExample], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[MetricsFile] = []
    monkeypatch.setattr(MetricsFile, "close", lambda self: closed.append(self))
    trainer = make_trainer(tmp_path, recipe(), examples)
    torch.nn.init.constant_(trainer.model.get_parameter("crf.end"), float("nan"))
    with pytest.raises(ElmoError, match="the loss is nan"):
        trainer.train()
    assert len(closed) == 1


def test_a_loss_that_is_not_finite_ends_training(recipe: Recipe, examples: list[NerExample], tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, recipe(), examples)
    torch.nn.init.constant_(trainer.model.get_parameter("crf.end"), float("nan"))
    with pytest.raises(ElmoError, match="the loss is nan in epoch 1, batch 1"):
        trainer.train()


@pytest.mark.parametrize("clips", [{}, {"training__clip_norm": None}, {"training__clip_value": 1.0}])
def test_a_gradient_that_is_not_finite_reaches_no_weight(
    clips: dict[str, float | None], recipe: Recipe, examples: list[NerExample], tmp_path: Path
) -> None:
    """The loss may be finite all the same. What was saved before can still be used."""
    trainer = make_trainer(tmp_path, recipe(**clips), examples)
    trainer.step(examples[:8])
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    parameter = trainer.model.get_parameter("crf.end")
    parameter.register_hook(lambda gradient: torch.full_like(gradient, float("nan")))  # pyright: ignore[reportUnknownMemberType]
    with pytest.raises(ElmoError, match="the norm of the gradient is nan in epoch 1, batch 2"):
        trainer.step(examples[:8])
    assert trainer.progress.step == 1
    assert all(torch.equal(tensor, before[name]) for name, tensor in trainer.model.state_dict().items())


def test_a_dev_score_that_is_not_a_number_ends_training(
    recipe: Recipe, examples: list[NerExample], tmp_path: Path
) -> None:
    """The steps of the epoch are kept: when the task is corrected, only its dev set is scored again."""
    trainer = make_trainer(tmp_path, recipe(), examples)
    trainer.evaluate = lambda examples: {"f1": float("nan")}
    with pytest.raises(ElmoError, match="the dev score f1 is nan after epoch 1; the score method of a task has"):
        trainer.train()
    again = make_trainer(tmp_path, recipe(training__max_epochs=1), examples)
    assert (again.progress.step, again.progress.epoch) == (4, 0)
    again.train()
    assert (again.progress.step, again.progress.best_epoch) == (4, 1)


def test_a_damaged_checkpoint_is_reported(recipe: Recipe, examples: list[NerExample], tmp_path: Path) -> None:
    make_trainer(tmp_path, recipe(training__max_epochs=1), examples).train()
    path = tmp_path / CHECKPOINT
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    for damage in ("bits", "metadata"):
        if damage == "metadata":
            save_file({"x": torch.zeros(1)}, path)  # of another program
        with pytest.raises(ElmoError, match=r"checkpoint\.safetensors: .*; remove it to start from the beginning"):
            make_trainer(tmp_path, recipe(), examples)


def test_tensorboard_is_written_on_request(recipe: Recipe, examples: list[NerExample], tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for name, wanted in (("with", True), ("without", False)):
        make_trainer(tmp_path / name, recipe(training__max_epochs=1), examples, tensorboard=wanted).train()
        assert (tmp_path / name / "tensorboard").exists() == wanted
    events = accumulator.EventAccumulator(str(tmp_path / "with" / "tensorboard")).Reload()
    (found,) = events.Scalars("dev_f1")
    (row,) = rows_without_times(tmp_path / "with")
    assert (found.step, found.value) == (1, pytest.approx(row["dev_f1"]))


def test_training_in_bf16(recipe: Recipe, examples: list[NerExample], tmp_path: Path) -> None:
    """The model learns, with other weights than in float32. It resumes exactly, and is scored in float32."""
    folders = {name: tmp_path / name for name in ("float32", "bf16", "stopped")}
    measured_in: set[torch.dtype] = set()
    for name, folder in folders.items():
        settings = recipe(training__precision="float32" if name == "float32" else "bf16")
        if name == "stopped":
            stop_after(make_trainer(folder, settings, examples), 3)
        trainer = make_trainer(folder, settings, examples)
        evaluate = trainer.evaluate

        def measure(examples: Sequence[NerExample], evaluate: Callable[..., Scores] = evaluate) -> Scores:
            measured_in.add(product_dtype(torch.zeros(1)))
            return evaluate(examples)

        trainer.evaluate = measure
        trainer.train()
    assert measured_in == {torch.float32}
    weights = {name: load_file(folder / WEIGHTS) for name, folder in folders.items()}
    assert all(torch.equal(value, weights["stopped"][name]) for name, value in weights["bf16"].items())
    assert any(not torch.equal(value, weights["float32"][name]) for name, value in weights["bf16"].items())
    first, *_, last = (row["loss"] for row in rows_without_times(folders["bf16"]))
    assert last < first


def test_a_signal_makes_it_save_and_stop(recipe: Recipe, examples: list[NerExample], tmp_path: Path) -> None:
    """The signal comes within an epoch. The previous handler doesn't get it, and is in place again afterwards."""
    trainer = make_trainer(tmp_path, recipe(), examples)
    make_step = trainer.step

    def signalled(batch: Sequence[NerExample]) -> None:
        if trainer.progress.step == 1:
            signal.raise_signal(signal.SIGTERM)
        make_step(batch)

    trainer.step = signalled
    heard: list[int] = []

    def hear(number: int, frame: object) -> None:
        heard.append(number)

    before = signal.signal(signal.SIGTERM, hear)
    try:
        trainer.train()
        assert signal.getsignal(signal.SIGTERM) is hear
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (heard, trainer.stopped, trainer.is_done, trainer.progress.step) == ([], True, False, 2)
    assert make_trainer(tmp_path, recipe(), examples).progress.step == 2


@pytest.mark.parametrize("optimizer", ["adam", "adadelta", "sgd"])
def test_no_number_is_left_too_small_for_fast_products(
    recipe: Recipe, examples: list[NerExample], tmp_path: Path, optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Subnormal numbers become zero in weights, averages and the optimizer's state. Larger numbers stay as they are."""
    settings = recipe(training__max_epochs=1, training__optimizer=optimizer, training__ema_decay=0.9)
    trainer = make_trainer(tmp_path, settings, examples)
    weight = trainer.model.emit.weight
    monkeypatch.setattr(trainer.model, "loss", lambda examples: weight.sum() * 0)
    trainer.step(examples[:2])
    states = [state for state in trainer.optimizer.state[weight].values() if state.dim()]
    assert len(states) == {"adam": 2, "adadelta": 2, "sgd": 0}[optimizer]
    average = trainer.averages.tensors["emit.weight"]
    with torch.no_grad():
        for tensor in (weight, average):
            tensor.flatten()[:3] = torch.tensor([1e-39, -1e-39, -2e-38])
        for tensor in states:
            tensor.flatten()[3] = 1e-39
    trainer.step(examples[:2])
    for tensor in (weight, average):
        assert tensor.flatten()[:3].tolist() == [0, 0, pytest.approx(-2e-38)]
    assert [tensor.flatten()[3].item() for tensor in states] == [0] * len(states)


def test_an_unknown_precision_is_refused(recipe: Recipe) -> None:
    with pytest.raises(ElmoError, match=r"training\.precision: 'half'.*float32.*bf16"):
        recipe(training__precision="half")
