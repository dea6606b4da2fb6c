"""A pretraining run begins with the weights of a model that exists already."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from commands import RunMain
from elmo.config import TextConfig
from elmo.errors import ElmoError
from elmo.formats import load
from elmo.formats.card import read_figures
from elmo.pretrain.loop import Pretrainer
from elmo.pretrain.recipe import Recipe
from elmo.text.corpus import Corpus
from elmo.text.prepare import prepare
from running import train


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
