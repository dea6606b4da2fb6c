"""A pretraining run learns, resumes bit for bit, and is the only one that may use its folder."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from commands import RunMain
from commands import run as run_command
from elmo.config import TextConfig
from elmo.errors import ElmoError
from elmo.formats import load
from elmo.formats.card import read_figures
from elmo.formats.native import save_warm_state
from elmo.nn.bilm import BiLMState
from elmo.pretrain.loop import Pretrainer
from elmo.pretrain.objective import TrainingBatch
from elmo.pretrain.perplexity import Perplexity, SentenceScore, score_sentences
from elmo.pretrain.processes import Processes
from elmo.pretrain.recipe import Recipe, load_pretraining_recipe
from elmo.pretrain.run_folder import CLAIM, text_facts
from elmo.pretrain.trainable import require_trainable
from elmo.targets import alone_in
from elmo.text.corpus import Corpus
from elmo.text.prepare import prepare
from elmo.text.reading import read_sentences
from elmo.training.metrics import read_rows
from elmo.training.recipes import write_recipe
from running import SAVING_ALWAYS, assert_same_end, train


@contextmanager
def after_each_score(then: Callable[[SentenceScore], object]) -> Generator[None]:
    """Call `then` with the score of each sentence of held-out text, before the next one is scored."""

    def scores(*arguments: Any) -> Iterator[SentenceScore]:
        for score in score_sentences(*arguments):
            then(score)
            yield score

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("elmo.pretrain.perplexity.score_sentences", scores)
        yield


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


def test_run_folder_is_a_model_folder(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    run = train(corpus, tmp_path / "run", recipe())
    model = load(tmp_path / "run")
    assert model.vocabulary is not None
    assert model.vocabulary.words == corpus.vocabulary().words
    for name, tensor in run.model.bilm.state_dict().items():
        assert torch.equal(model.bilm.state_dict()[name], tensor)
    card = (tmp_path / "run" / "README.md").read_text()
    assert f"{corpus.num_tokens:,} tokens" in card
    assert "\nlanguage: en\n---\n" in card
    assert "| its language | en |" in card
    assert "| its license | cc0-1.0 |" in card
    assert "| its tokens | tokenizer whitespace, case kept |" in card
    assert re.search(rf", {torch.get_num_threads()} threads? \|", card)


def test_the_card_names_the_language_that_the_tokenizer_says(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    german = replace(corpus, source={}, settings=replace(corpus.settings, tokenizer="spacy:de"))
    train(german, tmp_path / "run", recipe(max_steps=1))
    card = (tmp_path / "run" / "README.md").read_text()
    assert "\nlanguage: de\n---\n" in card
    assert "| its language | de |" in card


def test_a_run_begins_with_the_weights_of_a_model(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    """The run takes the softmax of the model, too. The card names the model, and the one that it was started from."""
    train(corpus, tmp_path / "a", recipe(max_steps=20))
    settings = recipe(max_steps=10, seed=1)
    for name, before in (("b", "a"), ("c", "b")):
        start = load(tmp_path / before)
        run = Pretrainer(corpus, tmp_path / name, settings, start=start, device="cpu")
        model = load(tmp_path / before)
        for part, wanted in ((run.model.bilm, model.bilm), (run.model.softmax, model.softmax)):
            assert part is not None
            assert wanted is not None
            torch.testing.assert_close(part.state_dict(), wanted.state_dict(), rtol=0, atol=0)
        run.train()
        assert not torch.equal(run.model.bilm.char_encoder.embedding.weight, model.bilm.char_encoder.embedding.weight)
        for part, wanted in ((start.bilm, model.bilm), (start.softmax, model.softmax)):
            torch.testing.assert_close(part.state_dict(), wanted.state_dict(), rtol=0, atol=0)
    Pretrainer(corpus, tmp_path / "c", settings, device="cpu").save()
    card = read_figures(tmp_path / "c")
    assert card["trained for"].startswith("10 steps, ")
    assert re.fullmatch(
        r"native: b holds .*, trained for 10 steps, .*; that from native: a holds .*, trained for 20 steps, .*",
        card["started from"],
    )


def test_a_run_goes_on_with_the_model_that_it_began_with(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    """The model may be given again or, once there is a checkpoint, left out. Another model of the same sizes is
    refused: the run would continue from its checkpoint and ignore that model."""
    settings, start = recipe(max_steps=4), Pretrainer(corpus, tmp_path / "a", recipe(), device="cpu").model
    train(corpus, tmp_path / "chance", settings)
    begun = Pretrainer(corpus, tmp_path / "b", settings, start=start, device="cpu")
    with pytest.raises(ElmoError, match=r"b: was begun with a model, and has no checkpoint yet; name that model"):
        Pretrainer(corpus, tmp_path / "b", settings, device="cpu")
    begun.save()
    for given in (start, None):
        assert (
            Pretrainer(corpus, tmp_path / "b", settings, start=given, device="cpu").figures()["started from"]
            == start.origin
        )
    with torch.no_grad():
        start.bilm.char_encoder.embedding.weight[0, 0] += 1
    with pytest.raises(ElmoError, match="b: was begun with another model; choose another folder"):
        Pretrainer(corpus, tmp_path / "b", settings, start=start, device="cpu")
    with pytest.raises(ElmoError, match="chance: was begun with random weights"):
        Pretrainer(corpus, tmp_path / "chance", settings, start=start, device="cpu")


def test_a_run_that_goes_on_still_knows_how_the_models_text_was_cut(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    """The corpus had been tokenized, so only the model that the run began with says how raw text is to be cut."""
    start = Pretrainer(corpus, tmp_path / "a", recipe(), device="cpu").model
    start.text = TextConfig(tokenizer="words", text="paragraphs", language="de")
    for source, language in ((corpus.source, "en"), ({}, "de")):
        for given in (start, None):
            run = Pretrainer(
                replace(corpus, source=source), tmp_path / language, recipe(max_steps=2), start=given, device="cpu"
            )
            run.train()
            text = load(tmp_path / language).text
            assert text is not None
            assert (text.tokenizer, text.text, text.language) == ("words", "paragraphs", language)


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


def test_a_file_in_the_place_of_the_run_folder_is_refused(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    (tmp_path / "run").write_text("mine")
    with pytest.raises(ElmoError, match="run: is not a folder; name one"):
        Pretrainer(corpus, tmp_path / "run", recipe(), device="cpu")
    assert (tmp_path / "run").read_text() == "mine"


def test_the_command_takes_a_model_to_start_from(
    corpus: Corpus,
    recipe: Callable[..., Recipe],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_main: RunMain,
) -> None:
    train(corpus, tmp_path / "a", recipe())
    monkeypatch.chdir(tmp_path)
    options = ["--recipe", "a/recipe.yaml", "--max-steps", "3", "--device", "cpu", "--from"]
    code, _, _ = run_main(["pretrain", str(corpus.folder), "b", *options, "a"])
    assert code == 0
    assert "| started from | native: a holds" in (tmp_path / "b" / "README.md").read_text()
    code, _, err = run_main(["pretrain", str(corpus.folder), "c", *options, "nowhere"])
    assert (code, (tmp_path / "c").exists()) == (2, False)
    assert err.startswith("elmo: nowhere")


def test_options_and_heldout_text_reach_the_run(
    recipe: Callable[..., Recipe],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_main: RunMain,
) -> None:
    """Held-out text is read in the same way as the corpus, which here was raw text in lower case."""
    monkeypatch.chdir(tmp_path)
    Path("raw.txt").write_text("He came. She went.\n" * 20)
    corpus = prepare(
        ["raw.txt"], tmp_path / "corpus", min_count=1, workers=1, tokenizer="ptb", text="paragraphs", lowercase=True
    )
    write_recipe(recipe(), tmp_path / "recipe.yaml")
    options = ["--recipe", "recipe.yaml", "--max-steps", "3", "--evaluate-every", "2", "--heldout", "raw.txt"]
    options += ["--max-minutes", "60"]
    code, out, _ = run_main(["pretrain", "corpus", "run", *options, "--device", "cpu", "--json"])
    rows = {row["step"]: row["heldout_perplexity"] for row in read_rows(tmp_path / "run" / "metrics.csv")}
    assert (code, json.loads(out)["step"], list(rows)) == (0, 3, [2, 3])
    wanted = Perplexity.of(score_sentences(load("run"), read_sentences(["raw.txt"], corpus.reading)))
    assert wanted.num_oov == 0
    assert load_pretraining_recipe(str(tmp_path / "run" / "recipe.yaml")).training.max_minutes == 60
    assert rows[3] == pytest.approx(wanted.mean)


def test_the_command_says_that_held_out_text_was_not_measured(
    corpus: Corpus,
    recipe: Callable[..., Recipe],
    tmp_path: Path,
    run_main: RunMain,
) -> None:
    """A signal interrupts the last measurement. The same command makes up for it."""
    heldout, settings = tmp_path / "heldout.txt", tmp_path / "recipe.yaml"
    heldout.write_text("word1 word3 word9\n" * 40)
    write_recipe(recipe(max_steps=2), settings)
    command = ["pretrain", corpus.folder, tmp_path / "run", "--recipe", settings, "--heldout", heldout]
    with after_each_score(lambda score: signal.raise_signal(signal.SIGTERM)):
        code, out, _ = run_main([*map(str, command), "--device", "cpu"])
    assert code == 75
    assert out.endswith("; held-out text was not measured after the last step: run the same command again\n")
    with after_each_score(lambda score: signal.raise_signal(signal.SIGTERM)):
        code, out, _ = run_main([*map(str, command), "--device", "cpu", "--json"])
    assert (code, json.loads(out)["done"]) == (75, False)
    assert re.search(r", held-out perplexity \d+\.\d\d\n$", run_command(*command, "--device", "cpu"))


def test_other_heldout_text_is_measured(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    """A finished run reports the perplexity of the text that it is given, not of the one that it was given before."""
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("word1 word3 word9\n" * 3)
    Path("b.txt").write_text("word39 word0 word2 word8\n")
    write_recipe(recipe(max_steps=5), Path("recipe.yaml"))
    command = ["pretrain", str(corpus.folder), "run", "--recipe", "recipe.yaml", "--device", "cpu", "--json"]
    found: list[float] = []
    for name in ("a.txt", "b.txt", "a.txt"):
        code, out, _ = run_main([*command, "--heldout", name])
        assert code == 0
        found.append(json.loads(out)["heldout_perplexity"])
        wanted = Perplexity.of(score_sentences(load("run"), read_sentences([name], corpus.reading)))
        assert found[-1] == pytest.approx(wanted.mean)
    assert found[0] == pytest.approx(found[2])
    assert found[0] != pytest.approx(found[1])
    assert [row["step"] for row in read_rows(tmp_path / "run" / "metrics.csv")] == [5, 5, 5]


@pytest.mark.parametrize(("losses", "end"), [((5.0, 6.0, 4.0, 5.0, 6.0, 1.0), 5), ((5.0, 5.0, 5.0, 1.0), 3)], ids=str)
def test_a_better_measurement_begins_the_patience_again(
    losses: tuple[float, ...],
    end: int,
    corpus: Corpus,
    recipe: Callable[..., Recipe],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that is as good as the best is no better."""
    found = iter(losses)
    monkeypatch.setattr("elmo.pretrain.loop.perplexity_unless", lambda *_: Perplexity((next(found),), 1, 1, 0))
    settings = recipe(max_steps=20, evaluate_every_steps=1, patience=2)
    run = Pretrainer(corpus, tmp_path / "run", settings, heldout=[["word1"]], device="cpu")
    run.train()
    assert (run.progress.step, run.progress.best_step) == (end, end - 2)


def test_before_the_first_measurement_the_weights_are_the_current_ones(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    settings = recipe(max_steps=20, evaluate_every_steps=10, patience=2)
    run = Pretrainer(corpus, tmp_path / "run", settings, heldout=[["word1"]], device="cpu")
    run.step()
    run.save()
    saved = load(tmp_path / "run").bilm.state_dict()
    torch.testing.assert_close(saved, run.model.bilm.state_dict(), rtol=0, atol=0)


def test_patience_compares_the_same_text(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    settings = recipe(max_steps=5, evaluate_every_steps=2, patience=3)
    texts = [["word1", "word3"]], [["word3", "word1"]]
    Pretrainer(corpus, tmp_path / "run", settings, heldout=texts[0], device="cpu").train()
    again = Pretrainer(corpus, str(tmp_path / "run"), settings, heldout=map(list, texts[0]), device="cpu")
    assert again.is_done  # a folder may be a string, and text may be streamed
    with pytest.raises(ElmoError, match=r"run: was begun with other held-out text, .*; name that text again, or"):
        Pretrainer(corpus, tmp_path / "run", settings, heldout=texts[1], device="cpu")


def test_a_tokenizer_that_a_corpus_names_is_not_run(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    """A corpus may come from a stranger. The user can name the function, or another tokenizer."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("mine.py").write_text("def cut(text):\n    open('was-run', 'a').close()\n    return text.split()\n")
    Path("text.txt").write_text("word1 word3 word9\n" * 30)
    prepare(["text.txt"], tmp_path / "corpus", min_count=1, workers=1, tokenizer="mine:cut")
    Path("was-run").unlink()
    write_recipe(recipe(max_steps=1), Path("recipe.yaml"))
    command = ["pretrain", "corpus", "run", "--recipe", "recipe.yaml", "--device", "cpu"]
    code, out, err = run_main([*command, "--heldout", "text.txt"])
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("elmo: corpus: names tokenizer mine:cut, a function from outside of this package; ")
    assert err.endswith("; if you trust it, pass --tokenizer mine:cut\n")
    assert not Path("run").exists()
    for name in ("whitespace", "mine:cut"):
        assert not Path("was-run").exists()
        assert run_main([*command, "--heldout", "text.txt", "--tokenizer", name])[0] == 0
    assert Path("was-run").exists()
    Path("x.conllu").write_text("\t".join(("1", "word1", *"________")) + "\n")
    assert run_main([*command, "--heldout", "x.conllu"])[0] == 0
    _, _, err = run_main([*command, "--heldout", "x.conllu", "--tokenizer", "mine:cut"])
    assert err.startswith("elmo: tokenizer mine:cut: the words of CoNLL-U are given; leave it out")
    _, _, err = run_main([*command, "--tokenizer", "mine:cut"])
    assert err.startswith("elmo: --tokenizer: there is no held-out text to cut")
    _, _, err = run_main([*command, "--encoding", "latin-1"])
    assert err.startswith("elmo: --encoding: there is no held-out text to read")


def test_heldout_text_may_have_another_encoding_than_the_corpus(
    recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "Před domem stála lípa .\n" * 5
    Path("text.txt").write_bytes(text.encode("cp1250"))
    Path("heldout.txt").write_bytes(text.encode())
    prepare(["text.txt"], tmp_path / "corpus", min_count=1, workers=1, encoding="cp1250")
    write_recipe(recipe(max_steps=1), Path("recipe.yaml"))
    command = ["pretrain", "corpus", "run", "--recipe", "recipe.yaml", "--device", "cpu", "--heldout"]
    assert "heldout.txt: is UTF-8, and not CP1250" in run_main([*command, "heldout.txt"])[2]
    assert run_main([*command, "heldout.txt", "--encoding", "utf-8"])[0] == 0
    assert "text.txt: is part of the text that the corpus was made from" in run_main([*command, "text.txt"])[2]


def test_a_small_vocabulary_has_a_perplexity_without_heldout_text(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    """A vocabulary that is no larger than the sample is scored as a whole."""
    monkeypatch.chdir(tmp_path)
    for number, end in (
        (43, r"training loss [\d.]+, perplexity [\d.]+/[\d.]+$"),
        (42, r"training loss [\d.]+ \(sampled\)$"),
    ):
        write_recipe(recipe(max_steps=5, n_negative_samples_batch=number), Path("recipe.yaml"))
        command = ["pretrain", str(corpus.folder), f"run{number}", "--recipe", "recipe.yaml", "--device", "cpu"]
        assert re.search(end, run_main(command)[1].strip())


def test_a_run_refuses_to_start_from_a_model_that_does_not_fit(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    train(corpus, tmp_path / "a", recipe(max_steps=1))
    model = load(tmp_path / "a")
    wider = replace(recipe(), lstm=replace(recipe().lstm, dim=24))
    text = tmp_path / "other.txt"
    text.write_text("other words than there\n" * 4)
    other = prepare([str(text)], tmp_path / "other", min_count=1, workers=1)
    (tmp_path / "a" / "vocabulary.txt").unlink()
    wordless = load(tmp_path / "a")
    for trained_on, settings, start, says in (
        (corpus, wider, model, r"has other sizes than the recipe \(lstm\.dim\); use the recipe .*a holds"),
        (other, recipe(), model, r"has another vocabulary than .*other; prepare the text again .*a holds"),
        (corpus, recipe(), wordless, r"has a softmax, but no vocabulary for it \(.*a holds"),
    ):
        with pytest.raises(ElmoError, match=says):
            Pretrainer(trained_on, tmp_path / "b", settings, start=start, device="cpu")
    assert not (tmp_path / "b").exists()


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


def test_heldout_text_is_measured_every_few_steps(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    settings = recipe(evaluate_every_steps=10)
    Pretrainer(corpus, tmp_path / "run", settings, heldout=[["word1", "word3"], ["word2"]], device="cpu").train()
    rows = read_rows(tmp_path / "run" / "metrics.csv")
    assert [row["step"] for row in rows if "heldout_perplexity" in row] == [10, 20, 30]
    assert f"{rows[-1]['heldout_perplexity']:.2f}" in (tmp_path / "run" / "README.md").read_text()


def test_heldout_text_is_measured_at_least_at_the_end(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    Pretrainer(corpus, tmp_path / "run", recipe(max_steps=12), heldout=[["word1"]], device="cpu").train()
    rows = read_rows(tmp_path / "run" / "metrics.csv")
    assert [row["step"] for row in rows if "heldout_perplexity" in row] == [12]


def test_heldout_text_given_at_the_end_is_measured(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    """A finished run is measured without another step, and so is a stopped run whose end is moved to the step where it
    stopped. Steps since the last row of metrics are then reported, too."""
    heldout = [["word1", "word3"]]
    train(corpus, tmp_path / "done", recipe(max_steps=10))
    run = Pretrainer(corpus, tmp_path / "done", recipe(max_steps=10), heldout=heldout, device="cpu")
    run.train()
    assert run.progress.heldout_perplexity == pytest.approx(Perplexity.of(score_sentences(run.model, heldout)).mean)
    rows = read_rows(tmp_path / "done" / "metrics.csv")
    assert [(row["step"], "loss" in row, "heldout_perplexity" in row) for row in rows][-2:] == [
        (10, True, False),
        (10, False, True),
    ]
    assert f"{run.progress.heldout_perplexity:.2f}" in (tmp_path / "done" / "README.md").read_text()
    train(corpus, tmp_path / "stopped", recipe(max_steps=10), stop_after=8)
    Pretrainer(corpus, tmp_path / "stopped", recipe(max_steps=8), heldout=heldout, device="cpu").train()
    last = read_rows(tmp_path / "stopped" / "metrics.csv")[-1]
    assert (last["step"], "loss" in last, "heldout_perplexity" in last) == (8, True, True)


def test_an_end_moved_to_where_a_run_was_stopped_is_reported_once(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    """Starting the run again writes no further row, however often that is done."""
    train(corpus, tmp_path / "run", recipe(max_steps=10, log_every_steps=5), stop_after=8)
    for _ in range(3):
        Pretrainer(corpus, tmp_path / "run", recipe(max_steps=8, log_every_steps=5), device="cpu").train()
    assert [row["step"] for row in read_rows(tmp_path / "run" / "metrics.csv")] == [5, 8]


def test_an_old_measurement_is_not_reported_as_that_of_the_end(
    corpus: Corpus,
    recipe: Callable[..., Recipe],
    tmp_path: Path,
    run_main: RunMain,
) -> None:
    (tmp_path / "heldout.txt").write_text("word1 word3\n")
    write_recipe(recipe(), tmp_path / "recipe.yaml")
    command = ["pretrain", str(corpus.folder), str(tmp_path / "run"), "--recipe", str(tmp_path / "recipe.yaml")]
    command += ["--device", "cpu", "--json"]
    found = []
    for options in (["--max-steps", "2", "--heldout", str(tmp_path / "heldout.txt")], ["--max-steps", "4"]):
        _, out, _ = run_main([*command, *options])
        found.append(json.loads(out)["heldout_perplexity"])
    assert found[0] is not None
    assert found[1] is None


def test_without_a_terminal_a_line_a_minute_tells_how_far_it_is(
    corpus: Corpus,
    recipe: Callable[..., Recipe],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_main: RunMain,
) -> None:
    """A line is due after each step here. The last line has the loss, and it says "3 steps" rather than "3 of 2" if the
    end was moved back to step 2."""
    monkeypatch.setattr("elmo.pretrain.reporter.LINE_SECONDS", 0.0)
    write_recipe(recipe(loss="full"), tmp_path / "recipe.yaml")
    run = tmp_path / "run"
    command = ["pretrain", str(corpus.folder), str(run), "--recipe", str(tmp_path / "recipe.yaml"), "--device", "cpu"]
    code, out, err = run_main([*command, "--max-steps", "3"])
    figures = r"[\d,]+ tokens/s, loss \d+\.\d{3}, perplexity [\d.]+/[\d.]+, \d\d:\d\d left"
    assert code == 0
    name = re.escape(str(run))
    assert re.fullmatch("".join(rf"elmo: {name}: step {step} of 3, {figures}\n" for step in (1, 2, 3)), err)
    end = r"steps, [\d.]+ minutes, training loss (\d+\.\d{3}), perplexity [\d.]+/[\d.]+\n"
    found = re.fullmatch(rf"{name}: 3 of 3 {end}", out)
    assert found
    assert float(found[1]) == pytest.approx(read_rows(run / "metrics.csv")[-1]["loss"], abs=1e-3)
    code, out, err = run_main([*command, "--max-steps", "2"])
    assert (code, err) == (0, "")
    assert re.fullmatch(rf"{name}: 3 {end}", out)


def test_heldout_text_without_words_is_refused(
    corpus: Corpus,
    recipe: Callable[..., Recipe],
    tmp_path: Path,
    run_main: RunMain,
) -> None:
    options = ["--recipe", "tiny", "--heldout", str(tmp_path / "empty.txt")]
    for text in ("\n\n", "<S> </S>\n"):
        (tmp_path / "empty.txt").write_text(text)
        code, _, err = run_main(["pretrain", str(corpus.folder), str(tmp_path / "run"), *options])
        assert (code, err) == (2, f"elmo: {tmp_path / 'empty.txt'}: holds no text\n")
    with pytest.raises(ElmoError, match=r"^`heldout`: holds no tokens except <S> and </S>"):
        Pretrainer(corpus, tmp_path / "run", recipe(max_steps=2), heldout=[["<S>", "</S>"]], device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_stop_is_requested_while_heldout_text_is_measured(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    """The measurement is abandoned, and the run is measured at its end when it continues."""
    heldout = [["word1", "word3"]] * 1000
    run = Pretrainer(
        corpus, tmp_path / "run", recipe(max_steps=9, evaluate_every_steps=5), heldout=heldout, device="cpu"
    )
    scored: list[int] = []

    def stop(score: SentenceScore) -> None:
        scored.append(len(score.tokens))
        run.stop()

    with after_each_score(stop):
        run.train()
    assert len(scored) < 1000
    assert (run.stopped, run.progress.step, run.progress.heldout_perplexity) == (True, 6, None)
    again = Pretrainer(
        corpus, tmp_path / "run", recipe(max_steps=9, evaluate_every_steps=5), heldout=heldout, device="cpu"
    )
    again.train()
    assert again.progress.heldout_step == 9


def test_a_run_with_patience_ends_early_with_the_weights_of_its_best_step(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    """The learning rate is so high that perplexity soon rises. The folder holds the weights of the best step, and the
    checkpoint those of the last one."""
    settings = recipe(
        optimizer="adamw", learning_rate=0.3, max_steps=200, evaluate_every_steps=2, patience=3, log_every_steps=4
    )
    heldout = [["word1", "word3"], ["word7"]] * 5
    run = Pretrainer(corpus, tmp_path / "run", settings, heldout=heldout, device="cpu")
    result = run.train()
    measured = {
        int(row["step"]): row["heldout_perplexity"]
        for row in read_rows(tmp_path / "run" / "metrics.csv")
        if "heldout_perplexity" in row
    }
    best = min(measured, key=measured.__getitem__)
    assert run.is_done
    assert list(measured) == list(range(2, run.progress.step + 1, 2))
    assert run.progress.step == best + 6 < 200, "three measurements after the best one"
    assert (run.progress.best_step, run.progress.best_perplexity) == (best, measured[best])
    saved = load(tmp_path / "run")
    assert Perplexity.of(score_sentences(saved, heldout)).mean == measured[best] < run.progress.heldout_perplexity
    torch.testing.assert_close(saved.bilm.state_dict(), result.bilm.state_dict(), rtol=0, atol=0)
    assert not torch.equal(result.bilm.char_encoder.embedding.weight, run.model.bilm.char_encoder.embedding.weight)
    assert read_figures(tmp_path / "run")["weights of"] == (f"step {best}, held-out perplexity {measured[best]:.2f}")


def train_until(run: Pretrainer, stop_after: int | None) -> Pretrainer:
    """Train, and ask the run to stop after this step; None trains to the end."""
    train_on = run.train_on

    def train_and_stop(batch: TrainingBatch) -> list[float]:
        if run.progress.step == stop_after:
            run.stop()
        return train_on(batch)

    run.train_on = train_and_stop
    run.train()
    return run


def test_weights_are_kept_if_they_are_the_best_however_the_run_came_to_its_end(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    """A run that is stopped at a step with a row of metrics, and ends there, measures only at its second start."""
    heldout = [["word1", "word3"]] * 5

    def train(name: str, max_steps: int, stop_after: int | None = None) -> Pretrainer:
        settings = recipe(max_steps=max_steps, evaluate_every_steps=3, log_every_steps=2, patience=5)
        run = Pretrainer(corpus, tmp_path / name, settings, heldout=heldout, device="cpu")
        return train_until(run, stop_after)

    whole = train("whole", 4).progress
    assert train("parts", 10, stop_after=4).progress.step == 4
    parts = train("parts", 4).progress
    assert whole.best_step == 4, "or this test shows nothing"
    assert (parts.best_step, parts.best_perplexity) == (whole.best_step, whole.best_perplexity)


def test_an_average_of_the_weights_is_measured_and_kept(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    """By the definition of `average`, the weights of a step enter the average with a share of 4 / step, at most 1."""
    heldout, seen = [["word1", "word3"]], []
    run = Pretrainer(corpus, tmp_path / "run", recipe(average=0.25, max_steps=12), heldout=heldout, device="cpu")
    train_on = run.train_on

    def watched(batch: TrainingBatch) -> list[float]:
        losses = train_on(batch)
        seen.append(run.model.bilm.char_encoder.projection.weight.detach().clone())
        return losses

    run.train_on = watched
    result = run.train()
    expected = torch.zeros_like(seen[0])
    for step, weights in enumerate(seen, 1):
        share = min(1, 4 / step)
        expected = (1 - share) * expected + share * weights
    for model in (result, load(tmp_path / "run")):
        torch.testing.assert_close(model.bilm.char_encoder.projection.weight.detach(), expected)
        assert Perplexity.of(score_sentences(model, heldout)).mean == run.progress.heldout_perplexity
    assert torch.equal(run.model.bilm.char_encoder.projection.weight, seen[-1]), "training goes on from the weights"
    assert not torch.allclose(seen[-1], expected)


@pytest.mark.parametrize("average", [0.0, 0.5])
@pytest.mark.parametrize("stops", [[1], [4, 5, 9], [10], [13]], ids=str)
def test_patience_goes_on_where_it_was(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path, stops: list[int], average: float
) -> None:
    """The run is stopped before and after measurements, and during one, which is finished before the run stops."""
    settings = recipe(
        optimizer="adamw",
        learning_rate=0.3,
        dropout=0.2,
        max_steps=14,
        evaluate_every_steps=2,
        patience=20,
        average=average,
    )
    heldout = [["word1", "word3"]] * 40

    def start(name: str, stop_after: int | None = None) -> Pretrainer:
        run = Pretrainer(corpus, tmp_path / name, settings, heldout=heldout, device="cpu")
        return train_until(run, stop_after)

    whole = start("whole")
    for stop in stops:
        assert not start("parts", stop).is_done
    parts = start("parts")
    assert_same_end(tmp_path / "whole", tmp_path / "parts")
    measured = Perplexity.of(score_sentences(load(tmp_path / "whole"), heldout)).mean
    assert measured == whole.progress.best_perplexity, "the model is the one that was measured"
    assert (parts.progress.best_step, parts.progress.num_worse) == (whole.progress.best_step, whole.progress.num_worse)
    torch.testing.assert_close(
        load(tmp_path / "parts").bilm.state_dict(), load(tmp_path / "whole").bilm.state_dict(), rtol=0, atol=0
    )


def test_more_patience_lets_an_ended_run_go_on(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    """The run goes on as if it had had that patience from the start. Without any, it had kept no best weights."""
    heldout = [["word1", "word3"]] * 40

    def start(name: str, patience: int | None) -> Pretrainer:
        settings = recipe(optimizer="adamw", learning_rate=0.3, max_steps=40, evaluate_every_steps=2, patience=patience)
        run = Pretrainer(corpus, tmp_path / name, settings, heldout=heldout, device="cpu")
        run.train()
        return run

    whole, ended = start("whole", 6), start("parts", 2).progress.step
    assert ended < whole.progress.step
    parts = start("parts", 6)
    assert parts.progress.step == whole.progress.step
    assert_same_end(tmp_path / "whole", tmp_path / "parts")
    with pytest.raises(ElmoError, match=r"the run was started with training\.patience: 6, not null"):
        start("parts", None)


def test_patience_without_held_out_text_is_refused(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    for settings, heldout in ((recipe(evaluate_every_steps=5, patience=2), []), (recipe(patience=2), [["word1"]])):
        with pytest.raises(
            ElmoError, match=r"^training\.patience: needs held-out text .*training\.evaluate_every_steps\)$"
        ):
            Pretrainer(corpus, tmp_path / "run", settings, heldout=heldout, device="cpu")
    assert not (tmp_path / "run").exists()


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


def test_a_last_measurement_that_is_abandoned_leaves_no_row(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    train(corpus, tmp_path / "run", recipe(max_steps=4))
    rows = read_rows(tmp_path / "run" / "metrics.csv")
    heldout = [["word1", "word3"]] * 100
    run = Pretrainer(corpus, tmp_path / "run", recipe(max_steps=4), heldout=heldout, device="cpu")
    with after_each_score(lambda score: run.stop()):
        run.train()
    assert run.progress.heldout_perplexity is None
    assert read_rows(tmp_path / "run" / "metrics.csv") == rows
    Pretrainer(corpus, tmp_path / "run", recipe(max_steps=4), heldout=heldout, device="cpu").train()
    *before, last = read_rows(tmp_path / "run" / "metrics.csv")
    assert len(before) == len(rows)
    assert last["heldout_perplexity"] > 1


def test_damaged_figures_are_replaced(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    """They may be damaged before a start, while the run trains, or when it has ended. No training is lost for them."""
    facts = tmp_path / "run" / "training.json"
    train(corpus, tmp_path / "run", recipe(max_steps=2))
    facts.write_text('{"figures": {"a": "b",}}')
    train(corpus, tmp_path / "run", recipe(max_steps=4), after_step=lambda _: facts.write_text("{"))
    figures = read_figures(tmp_path / "run")
    assert figures["trained for"].startswith("4 steps, ")
    facts.write_text("{")
    train(corpus, tmp_path / "run", recipe(max_steps=4))
    assert read_figures(tmp_path / "run") == figures


@pytest.mark.parametrize("name", ["model.safetensors", "softmax.safetensors"])
def test_damaged_weights_are_replaced(name: str, corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    """A run needs only its checkpoint to continue, and the checkpoint has all weights."""
    for folder in ("run", "whole"):
        train(corpus, tmp_path / folder, recipe(max_steps=2))
    path = tmp_path / "run" / name
    path.write_bytes(path.read_bytes()[:-1])
    for folder in ("run", "whole"):
        train(corpus, tmp_path / folder, recipe(max_steps=4))
    assert path.read_bytes() == (tmp_path / "whole" / name).read_bytes()


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


def test_two_processes_do_not_train_in_one_folder(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    with pytest.raises(ElmoError, match="run: another process is writing it; wait for that one, or end it"):
        train(corpus, tmp_path / "run", recipe(), after_step=lambda _: train(corpus, tmp_path / "run", recipe()))
    assert not (tmp_path / "run" / ".lock").exists()
    assert train(corpus, tmp_path / "run", recipe()).is_done


def test_a_start_that_is_refused_changes_no_recipe(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    def start_another(step: int) -> None:
        with pytest.raises(ElmoError, match="another process is writing it"):
            Pretrainer(corpus, tmp_path / "run", recipe(max_minutes=5.0), device="cpu")

    train(corpus, tmp_path / "run", recipe(), after_step=start_another)
    assert load_pretraining_recipe(str(tmp_path / "run" / "recipe.yaml")).training.max_minutes is None


def test_a_text_with_fewer_sentences_than_streams_gives_a_warning(
    recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("one long line without end\n" * 3)
    corpus = prepare([str(tmp_path / "text")], tmp_path / "corpus", min_count=1, workers=1)
    with pytest.warns(UserWarning, match=r"fewer sentences \(3\) than there are streams \(4\), so some"):
        Pretrainer(corpus, tmp_path / "run", recipe(), device="cpu")


def test_a_finished_run_started_again_keeps_what_was_added(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warm state is kept until further steps change the weights. Starting on another machine or with held-out text
    only writes the card again, which still says where the model was trained."""
    train(corpus, tmp_path / "run", recipe(max_steps=3))
    bilm = load(tmp_path / "run").bilm
    save_warm_state(bilm.initial_state(1), tmp_path / "run", bilm)
    train(corpus, tmp_path / "run", recipe(max_steps=3))
    assert load(tmp_path / "run").warm_state is not None
    trained_on = read_figures(tmp_path / "run")["trained on"]
    with monkeypatch.context() as patch:
        patch.setattr("elmo.pretrain.run_folder.machine_name", lambda device: "another one")
        Pretrainer(corpus, tmp_path / "run", recipe(max_steps=3), heldout=[["the", "cat"]], device="cpu").train()
    assert load(tmp_path / "run").warm_state is not None
    assert read_figures(tmp_path / "run")["trained on"] == trained_on
    assert "held-out perplexity when last measured" in read_figures(tmp_path / "run")
    train(corpus, tmp_path / "run", recipe(max_steps=4))
    assert load(tmp_path / "run").warm_state is None


def test_the_card_names_a_few_files_of_many(tmp_path: Path) -> None:
    """The names of tens of thousands made the figures of a model too long to be read again."""
    for number in range(7):
        (tmp_path / f"{number}.txt").write_text("They saw it .\n" * 3)
    facts = text_facts(prepare(str(tmp_path / "*.txt"), tmp_path / "corpus"))
    assert facts["its files"] == "0.txt, 1.txt, 2.txt, 3.txt, 4.txt and 2 more files"


@pytest.mark.parametrize("card", [None, "# My model, in my words\n"])
def test_the_card_is_for_people_alone(
    card: str | None, corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the card is removed or edited, the warm state and the figures stay, and so do the edits."""
    folder = tmp_path / "run"
    train(corpus, folder, recipe(max_steps=3))
    bilm = load(folder).bilm
    save_warm_state(bilm.initial_state(1), folder, bilm)
    figures, text = read_figures(folder), (folder / "README.md").read_text()
    (folder / "README.md").unlink() if card is None else (folder / "README.md").write_text(card)
    monkeypatch.setattr("elmo.pretrain.run_folder.machine_name", lambda device: "another one")
    train(corpus, folder, recipe(max_steps=3))
    assert load(folder).warm_state is not None
    assert read_figures(folder) == figures
    assert (folder / "README.md").read_text() == (card or text)


def test_a_finished_run_of_an_earlier_version_stays_as_it_is(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions kept the figures in the card alone, which must not be lost."""
    folder = tmp_path / "run"
    train(corpus, folder, recipe(max_steps=3))
    bilm = load(folder).bilm
    save_warm_state(bilm.initial_state(1), folder, bilm)
    (folder / "training.json").unlink()
    save_file(load_file(folder / "model.safetensors"), folder / "model.safetensors")  # without what it records now
    card = (folder / "README.md").read_text()
    monkeypatch.setattr("elmo.pretrain.run_folder.machine_name", lambda device: "another one")
    train(corpus, folder, recipe(max_steps=3))
    assert (folder / "README.md").read_text() == card
    assert load(folder).warm_state is not None
    assert train(corpus, folder, recipe(max_steps=4)).is_done
    assert read_figures(folder)["trained for"].startswith("4 steps, ")


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


def test_a_start_without_a_checkpoint_leaves_the_folder_free(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a start ran out of memory, one with a smaller batch may use the folder, which then has the new recipe."""

    def fail(run: Pretrainer) -> list[float]:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Pretrainer, "step", fail)
        with pytest.raises(MemoryError):
            train(corpus, tmp_path / "run", recipe(max_steps=2, batch_size=8))
    assert (tmp_path / "run" / "recipe.yaml").exists()
    train(corpus, tmp_path / "run", recipe(max_steps=2, batch_size=4))
    train(corpus, tmp_path / "whole", recipe(max_steps=2, batch_size=4))
    assert_same_end(tmp_path / "whole", tmp_path / "run")
    with pytest.raises(ElmoError, match=r"recipe\.yaml: the run was started with training\.batch_size: 4, not 8; cont"):
        Pretrainer(corpus, tmp_path / "run", recipe(max_steps=2, batch_size=8), device="cpu")


def test_a_folder_that_another_run_claimed_meanwhile_is_left_to_it(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    """Two starts find the folder without a checkpoint. The first must not train when the second has set its recipe."""
    first = Pretrainer(corpus, tmp_path / "run", recipe(max_steps=2, batch_size=4), device="cpu")
    second = Pretrainer(corpus, tmp_path / "run", recipe(max_steps=2, batch_size=8), device="cpu")
    with pytest.raises(ElmoError, match=r"recipe\.yaml: the run was started with training\.batch_size: 8, not 4; cont"):
        first.train()
    second.train()
    train(corpus, tmp_path / "whole", recipe(max_steps=2, batch_size=8))
    assert_same_end(tmp_path / "whole", tmp_path / "run")


@pytest.mark.skipif(sys.platform == "win32", reason="needs locks of files")
def test_a_process_that_only_looks_at_the_folder_keeps_no_training_from_it(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    """Of two starts at once, the second holds the lock of training while it finds out that the folder is taken. The
    first waits for that moment instead of giving up."""
    run = Pretrainer(corpus, tmp_path / "run", recipe(max_steps=1), device="cpu")
    looks, trained = threading.Event(), threading.Event()

    def look() -> None:
        with alone_in(run.folder, CLAIM, wait=True), alone_in(run.folder):
            looks.set()
            assert not trained.wait(0.2)

    with ThreadPoolExecutor() as pool:
        looked = pool.submit(look)
        looks.wait()
        run.train()
        trained.set()
        looked.result()
    assert run.progress.step == 1


@pytest.mark.parametrize(
    ("checksum", "says"),
    [
        (None, r"corpus\.sha256: is missing"),
        (b"", r"corpus\.sha256: is damaged"),
        (b"\xff\xfe", r"corpus\.sha256: is damaged"),
        (b"a" * 63, r"corpus\.sha256: is damaged"),
        (b"a" * 64, "run: was trained on another corpus"),
    ],
)
def test_a_run_goes_on_with_its_corpus_alone(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path, checksum: bytes | None, says: str
) -> None:
    """Damage to the checksum that is kept in the run folder is not reported as another corpus."""
    train(corpus, tmp_path / "run", recipe(max_steps=1))
    (tmp_path / "run" / "corpus.sha256").unlink()
    if checksum is not None:
        (tmp_path / "run" / "corpus.sha256").write_bytes(checksum)
    with pytest.raises(ElmoError, match=says):
        Pretrainer(corpus, tmp_path / "run", recipe(), device="cpu")


def test_a_folder_of_something_else_is_refused(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(ElmoError, match="neither empty nor a run folder"):
        Pretrainer(corpus, tmp_path, recipe(), device="cpu")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


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
