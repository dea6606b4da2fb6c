"""A pretraining run learns, and resumes bit for bit."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from elmo.errors import ElmoError
from elmo.formats import load
from elmo.nn.bilm import BiLMState
from elmo.pretrain.loop import Pretrainer
from elmo.pretrain.objective import TrainingBatch
from elmo.pretrain.processes import Processes
from elmo.pretrain.recipe import Recipe, load_pretraining_recipe
from elmo.pretrain.trainable import require_trainable
from elmo.text.corpus import Corpus
from elmo.text.prepare import prepare
from elmo.training.metrics import read_rows
from running import SAVING_ALWAYS, assert_same_end, train


def test_perplexity_falls(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    """Only three of forty words can follow a word. Without the words around it, perplexity stays at about 40."""
    settings = recipe(max_steps=300, log_every_steps=100, loss="full", optimizer="adamw", learning_rate=0.02)
    train(corpus, tmp_path / "run", settings)
    rows = read_rows(tmp_path / "run" / "metrics.csv")
    assert [row["step"] for row in rows] == [100, 200, 300]
    assert rows[0]["loss"] > rows[1]["loss"] > rows[2]["loss"]
    assert max(rows[2]["forward_perplexity"], rows[2]["backward_perplexity"]) < 30


def test_a_row_of_metrics_is_of_the_steps_since_the_previous_row(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    run = Pretrainer(corpus, tmp_path / "run", recipe(max_steps=10, log_every_steps=5), device="cpu")
    losses: list[list[float]] = []
    train_on = run.train_on

    def watched(batch: TrainingBatch) -> list[float]:
        losses.append(train_on(batch))
        return losses[-1]

    run.train_on = watched
    run.train()
    rows = read_rows(tmp_path / "run" / "metrics.csv")
    for number, row in enumerate(rows):
        forward, backward = np.mean(losses[5 * number : 5 * number + 5], axis=0)
        assert row["loss"] == pytest.approx((forward + backward) / 2)
        assert row["forward_perplexity"] == pytest.approx(math.exp(forward))
        assert row["backward_perplexity"] == pytest.approx(math.exp(backward))
    assert [row["predictions"] for row in rows] == [5 * 4 * 6, 10 * 4 * 6]
    seconds = rows[1]["seconds"] - rows[0]["seconds"]
    assert rows[1]["tokens_per_second"] == pytest.approx(5 * 4 * 6 / seconds)


def test_settings_reach_the_objective(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    settings = recipe(dropout=0.25, word_dropout=0.125, precision="bf16")
    objective = Pretrainer(corpus, tmp_path / "run", settings, device="cpu").objective
    assert (objective.dropout, objective.word_dropout, objective.dtype) == (0.25, 0.125, torch.bfloat16)


def test_each_seed_and_step_has_random_numbers_of_its_own(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    seeds: list[int] = []
    weights: list[Tensor] = []
    for name, seed in (("a", 0), ("again", 0), ("b", 1)):
        run = Pretrainer(corpus, tmp_path / name, recipe(seed=seed), device="cpu")
        weights.append(run.model.bilm.char_encoder.projection.weight.detach().clone())
        for _ in range(2):
            run.step()
            seeds.append(torch.initial_seed())
    assert seeds[:2] == seeds[2:4]
    assert len(set(seeds)) == 4
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize(
    ("stops", "changes"),
    [
        ([1], {}),
        ([4, 5, 12], {}),
        ([29], {}),
        ([12], {"loss": "adaptive", "adaptive_cutoffs": [12]}),
        ([7], {"loss": "adaptive", "adaptive_cutoffs": [12], "precision": "bf16"}),
        ([7], {"optimizer": "adamw", "learning_rate": 0.01, "warmup": 0.2, "decay": 0.5, "weight_decay": 0.1}),
        ([7], {"optimizer": "adamw", "learning_rate": 0.01, "loss": "full"}),
        ([7], {"precision": "bf16"}),
        ([7], {"word_dropout": 0.3, "average": 0.4}),
        (
            [7],
            {"optimizer": "muon", "learning_rate": 0.007, "warmup": 0.2, "decay": 1.0, "fresh_starts": True}
            | {"precision": "bf16"},
        ),
    ],
    ids=str,
)
def test_resumed_run_is_bit_equal(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path, stops: list[int], changes: dict[str, object]
) -> None:
    """The run stops at, before and after a row of metrics. After a stop it draws the same dropout and negatives."""
    settings = recipe(dropout=0.2, **changes)
    train(corpus, tmp_path / "whole", settings)
    for stop in stops:
        assert not train(corpus, tmp_path / "parts", settings, stop_after=stop).is_done
    assert train(corpus, tmp_path / "parts", settings).is_done
    assert_same_end(tmp_path / "whole", tmp_path / "parts")


def test_a_gradient_that_is_not_finite_ends_the_run(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    """The step with that gradient is not saved. What was saved before is named, if there is anything."""
    train(corpus, tmp_path / "run", recipe(max_steps=2))
    run = Pretrainer(corpus, tmp_path / "run", recipe(max_steps=9, **SAVING_ALWAYS), device="cpu")
    torch.nn.init.constant_(run.model.bilm.char_encoder.embedding.weight, torch.nan)
    says = r"^step 3: the gradient is not finite; .* lower training\.learning_rate in a new folder; the model in"
    with pytest.raises(ElmoError, match=says):
        run.train()
    first = Pretrainer(corpus, tmp_path / "first", recipe(max_steps=9), device="cpu")
    torch.nn.init.constant_(first.model.bilm.char_encoder.embedding.weight, torch.nan)
    with pytest.raises(ElmoError, match=r"^step 1: the gradient is not finite; .* a lower training\.learning_rate$"):
        first.train()
    assert load(tmp_path / "run").bilm.char_encoder.embedding.weight.isfinite().all()


def test_a_weight_that_is_not_finite_is_not_saved(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    """The last step may make it, after which no gradient is computed any more."""
    train(corpus, tmp_path / "run", recipe(max_steps=2))
    longer = recipe(max_steps=3)
    run = Pretrainer(corpus, tmp_path / "run", longer, device="cpu")
    step = run.step

    def last_step() -> None:
        step()
        torch.nn.init.constant_(run.model.bilm.char_encoder.embedding.weight, torch.nan)

    run.step = last_step
    with pytest.raises(ElmoError, match=r"^step 3: a weight is not finite; .* lower training\.learning_rate"):
        run.train()
    assert train(corpus, tmp_path / "run", longer).is_done


def test_the_learning_rate_follows_the_schedule(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    """The rate follows the share of steps done by the middle of a step, or of minutes if these end the run."""
    settings = recipe(optimizer="adamw", learning_rate=0.01, warmup=0.1, decay=0.5, max_steps=30)
    run = Pretrainer(corpus, tmp_path / "run", settings, device="cpu")
    rates: list[float] = []
    for _ in range(30):
        run.step()
        rates.append(run.optimizer.learning_rate)
    expected = [0.01 * min(1, (step - 0.5) / 3, (30.5 - step) / 15) for step in range(1, 31)]
    assert rates == pytest.approx(expected)
    timed = Pretrainer(corpus, tmp_path / "timed", recipe(max_minutes=1.0, max_steps=1000), device="cpu")
    timed.progress.step, timed.progress.seconds = 10, 45.0
    assert timed.share_done == 0.75
    assert not timed.is_done
    timed.progress.seconds = 60.0
    assert timed.is_done


def test_a_step_begins_with_the_state_that_the_previous_step_left(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    run = Pretrainer(corpus, tmp_path / "run", recipe(fresh_starts=False), device="cpu")
    begun: list[BiLMState] = []
    ended: list[BiLMState] = []
    backward = run.objective.backward

    def watched(batch: TrainingBatch, state: BiLMState, scale: float) -> tuple[list[Tensor], BiLMState]:
        assert scale == 6, "as in bilm-tf, the loss is multiplied by the number of unrolled steps"
        begun.append(state)
        losses, after = backward(batch, state, scale)
        ended.append(after)
        return losses, after

    run.objective.backward = watched
    for _ in range(3):
        run.step()
    assert all(part.any() for direction in ended[0] for part in direction)
    for before, after in zip(begun[1:], ended, strict=False):
        torch.testing.assert_close(before, after, rtol=0, atol=0)


def test_gradients_are_clipped_together(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    """One norm covers the gradients of all parameters, including the rows of the softmax."""
    run = Pretrainer(corpus, tmp_path / "run", recipe(all_clip_norm_val=1e-3), device="cpu")
    run.step()
    gradients = [p.grad.to_dense() for p in run.objective.parameters() if p.grad is not None]
    assert torch.cat([gradient.flatten() for gradient in gradients]).norm().item() == pytest.approx(1e-3, rel=1e-4)


def test_processes_that_were_started_otherwise_are_refused(corpus: Corpus, recipe: Callable[..., Recipe]) -> None:
    """Otherwise they would train together on other texts or with other seeds, and nobody would notice."""
    own, two = recipe(), Processes(0, 2, torch.device("cpu"))
    for other in ((recipe(seed=7), corpus.checksum), (own, "another")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Processes, "collect", lambda _, value, other=other: [value, other])
            with pytest.raises(ElmoError, match="the processes were started with different recipes or corpora"):
                require_trainable(corpus, own, None, two)


def test_a_path_in_place_of_a_corpus_is_refused(recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    with pytest.raises(ElmoError, match=r"^`corpus`: expected what Corpus\.open returns, found str$"):
        Pretrainer("corpus", tmp_path / "run", recipe())  # pyright: ignore[reportArgumentType]
    assert not (tmp_path / "run").exists()


def test_only_two_checkpoints_are_kept(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    train(corpus, tmp_path / "run", recipe(**SAVING_ALWAYS))
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) == 2


def test_checkpoints_are_as_far_apart_as_the_recipe_says(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    """Each step seems to take 40 seconds here, so that a minute is over after every second one."""
    run = Pretrainer(corpus, tmp_path / "run", recipe(checkpoint_every_minutes=1.0, max_steps=6), device="cpu")
    make_step, save, saved = run.step, run.save, set[int]()

    def step() -> None:
        make_step()
        run.progress.seconds += 40

    def note_and_save() -> None:
        saved.add(run.progress.step)
        save()

    run.step, run.save = step, note_and_save
    run.train()
    assert saved == {2, 4, 6}


@pytest.mark.skipif(sys.platform != "linux", reason="needs names of files that are no UTF-8")
def test_a_text_of_any_name_can_be_trained_on(recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    text = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")
    Path(text).write_text("a new play\nin the park\n" * 50)
    corpus = prepare([text], tmp_path / "corpus")
    assert train(corpus, tmp_path / "run", recipe(max_steps=1)).is_done
    card = tmp_path / "run" / "README.md"
    assert "caf\\udce9.txt" in card.read_text(encoding="utf-8")
    card.write_text(edited := card.read_text(encoding="utf-8") + "Mine.\n", encoding="utf-8")
    assert train(corpus, tmp_path / "run", recipe(max_steps=1)).is_done
    assert card.read_text(encoding="utf-8") == edited, "nothing was to be done"
    assert train(corpus, tmp_path / "run", recipe(max_steps=2)).is_done


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_run_goes_on_with_the_parameters_that_it_trains(
    is_frozen: bool, corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    Pretrainer(corpus, tmp_path / "run", recipe(max_steps=2), freeze_bilm=is_frozen, device="cpu").train()
    with pytest.raises(ElmoError, match=r"checkpoints: is of a run that trains other parameters \(freeze_bilm\)"):
        Pretrainer(corpus, tmp_path / "run", recipe(max_steps=4), freeze_bilm=not is_frozen, device="cpu").train()
    longer = Pretrainer(corpus, tmp_path / "run", recipe(max_steps=4), freeze_bilm=is_frozen, device="cpu")
    longer.train()
    assert longer.progress.step == 4


def test_a_text_with_fewer_sentences_than_streams_gives_a_warning(
    recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("one long line without end\n" * 3)
    corpus = prepare([str(tmp_path / "text")], tmp_path / "corpus", min_count=1, workers=1)
    says = r"fewer sentences \(3\) than there are streams \(4\), so some.* split long lines when the text is prepared"
    with pytest.warns(UserWarning, match=says):
        Pretrainer(corpus, tmp_path / "run", recipe(), device="cpu")


def test_training_ends_after_its_epochs(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    run = Pretrainer(corpus, tmp_path / "run", recipe(max_steps=None, n_epochs=2), device="cpu")
    predictions = 2 * (corpus.num_tokens + corpus.num_sentences)
    assert abs(run.total_steps * run.predictions_per_step - predictions) <= run.predictions_per_step / 2
    for steps, rounded in ((2.3, 2), (2.7, 3)):
        epochs = steps * run.predictions_per_step / (predictions / 2)
        other = Pretrainer(corpus, tmp_path / str(steps), recipe(max_steps=None, n_epochs=epochs), device="cpu")
        assert other.total_steps == rounded


def test_settings_that_cannot_be_trained_with_leave_no_folder(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    shorter = replace(recipe(), char_cnn=replace(recipe().char_cnn, max_characters_per_token=20))
    for settings, device, says in (
        (recipe(loss="adaptive", adaptive_cutoffs=[43]), "cpu", "do not rise between 0 and the 43 words"),
        (shorter, "cpu", "prepare the text again with `max_characters=20`"),
        (recipe(), "cuda:99", r"there is no cuda:99 \(torch finds [0-9]+ GPUs?\)"),
    ):
        with pytest.raises(ElmoError, match=says):
            Pretrainer(corpus, tmp_path / "run", settings, device=device)
    assert not (tmp_path / "run").exists()


def test_training_may_be_made_longer(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    train(corpus, tmp_path / "run", recipe(max_steps=10))
    assert train(corpus, tmp_path / "run", recipe(max_steps=20)).progress.step == 20
    train(corpus, tmp_path / "whole", recipe(max_steps=20))
    assert_same_end(tmp_path / "whole", tmp_path / "run")


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("name", ["small", "paper"])
def test_published_sizes_train(shared: Path, tmp_path: Path, name: str) -> None:
    """Models of the full published sizes can make a step on the text of the published fixture."""
    text = shared / "fixtures" / "bilm_tf" / "train" / "data.txt"
    corpus = prepare([str(text)], tmp_path / "corpus", min_count=1, workers=1)
    settings = load_pretraining_recipe(name, {"training.max_steps": 1, "training.batch_size": 4})
    run = Pretrainer(corpus, tmp_path / "run", settings, device="cpu")
    before = run.model.bilm.forward_lstm.layers[1].weight_hr.clone()
    run.step()
    assert not torch.equal(before, run.model.bilm.forward_lstm.layers[1].weight_hr)


def test_a_damaged_corpus_is_not_trained_on(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    """A changed byte leaves the sizes of all files as they are, and only the checksum shows it."""
    folder = shutil.copytree(corpus.folder, tmp_path / "corpus")
    content = bytearray((folder / "tokens.bin").read_bytes())
    content[0] ^= 1
    (folder / "tokens.bin").write_bytes(content)
    with pytest.raises(ElmoError, match=r"tokens\.bin: is damaged"):
        Pretrainer(Corpus.open(folder), tmp_path / "run", recipe())
    assert not (tmp_path / "run").exists()
