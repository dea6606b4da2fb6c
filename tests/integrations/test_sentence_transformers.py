"""`ElmoTokens` in a SentenceTransformer gives our vectors, can be saved, and has a mix that is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elmo
import make_many_langs
import make_words
from elmo import formats
from elmo.config import TextConfig
from elmo.errors import ElmoError
from pages import ROOT, blocks

library = pytest.importorskip(
    "sentence_transformers", reason="needs the extra 'sentence-transformers'", exc_type=ImportError
)
from sentence_transformers.sentence_transformer.modules import Pooling  # noqa: E402 - skips first

from elmo.integrations.sentence_transformers import ElmoTokens  # noqa: E402

TEXTS = ["They saw a new play.", "", "Kinder spielen", "A play on Broadway."]
TOKENS = [["They", "saw", "a", "new", "play", "."], [], ["Kinder", "spielen"], ["A", "play", "on", "Broadway", "."]]
ROUNDING = 1e-5
"""The module and the packed engine round differently."""


def build(folder: Path, **options: Any) -> Any:
    tokens = ElmoTokens(folder, tokenizer="ptb", **options)
    modules = [tokens, Pooling(tokens.get_embedding_dimension())]
    return library.SentenceTransformer(modules=modules, device="cpu")


def test_texts_have_the_mean_of_their_tokens(model_folder: Path) -> None:
    """An untrained mix is the mean of the layers; a text without tokens has zeros, alone and among others."""
    found = build(model_folder).encode(TEXTS)
    wanted = elmo.load(model_folder).embed(TOKENS, pool="mean")
    np.testing.assert_allclose(found, wanted, atol=ROUNDING, rtol=0)
    assert not build(model_folder).encode([""]).any()


def test_texts_are_cut_as_the_training_text_of_the_model(model_folder: Path, tmp_path: Path) -> None:
    model = formats.load(model_folder)
    model.text = TextConfig("ptb", lowercase=True)
    formats.save_native(model, tmp_path / "model")
    tokens = ElmoTokens(tmp_path / "model")
    assert tokens.get_config_dict() == {
        "tokenizer": "ptb",
        "lowercase": True,
        "requires_grad": False,
        "max_seq_length": None,
    }
    assert ElmoTokens(model_folder).get_config_dict()["tokenizer"] == "whitespace"


def test_lower_case_and_prompts(model_folder: Path) -> None:
    lower = build(model_folder, lowercase=True)
    plain = build(model_folder)
    assert np.array_equal(lower.encode(["A Play"]), plain.encode(["a play"]))
    assert np.array_equal(plain.encode(["play"], prompt="new "), plain.encode(["new play"]))


def test_a_prompt_may_be_read_and_left_out_of_the_mean(model_folder: Path) -> None:
    """Its tokens still change the vectors of the others."""
    tokens = ElmoTokens(model_folder, tokenizer="ptb")
    pooling = Pooling(tokens.get_embedding_dimension(), include_prompt=False)
    model = library.SentenceTransformer(modules=[tokens, pooling], device="cpu")
    (whole,) = elmo.load(model_folder).embed([["a", "new", "play", "."]])
    found = model.encode(["play."], prompt="a new ")
    np.testing.assert_allclose(found[0], whole[2:].mean(axis=0), atol=ROUNDING, rtol=0)


@pytest.mark.parametrize(("prompt", "tokenizer"), [("Search for the U.S. ", "ptb"), ("query:", "whitespace")])
def test_a_prompt_takes_no_token_of_the_text_with_it(prompt: str, tokenizer: str, model_folder: Path) -> None:
    tokens = ElmoTokens(model_folder, tokenizer=tokenizer)
    (alone,) = tokens.preprocess(["They saw it."])["input_ids"]
    features = tokens.preprocess(["They saw it."], prompt=prompt)
    assert np.array_equal(features["input_ids"][0][features["prompt_length"] :], alone)
    assert tokens.preprocess([])["input_ids"].shape[0] == 0


def test_a_saved_model_needs_no_other_folder(model_folder: Path, tmp_path: Path) -> None:
    """The mix is saved as it was trained, and `elmo.load` reads the folder of the module."""
    model = build(model_folder, requires_grad=True)
    tokens: Any = model[0]
    tokens.elmo.mixes[0].scores.data[0] = 2.0
    model.save(str(tmp_path / "saved"))
    again = library.SentenceTransformer(str(tmp_path / "saved"), device="cpu", trust_remote_code=True)
    np.testing.assert_allclose(again.encode(TEXTS), model.encode(TEXTS), atol=ROUNDING, rtol=0)
    assert again[0].get_config_dict() == tokens.get_config_dict()
    (part,) = [path for path in (tmp_path / "saved").iterdir() if path.name.startswith("0_")]
    assert elmo.load(part).width == tokens.get_embedding_dimension()


@pytest.mark.parametrize("requires_grad", [False, True])
def test_gradients_reach_what_is_trained(model_folder: Path, requires_grad: bool) -> None:
    model = build(model_folder, requires_grad=requires_grad)
    model(model.preprocess(TEXTS))["sentence_embedding"].sum().backward()
    module: Any = model[0].elmo
    assert module.mixes[0].scores.grad.abs().sum() > 0
    assert [p.grad is not None for p in module.bilm.parameters()] == [requires_grad] * len(
        list(module.bilm.parameters())
    )


def test_long_texts_are_cut(model_folder: Path, tmp_path: Path) -> None:
    """The library sets the attribute of its first module."""
    model = build(model_folder)
    whole = model.encode(["A play", "A play on Broadway"])
    model.max_seq_length = 2
    found = model.encode(["A play on Broadway", "on Broadway"], prompt=None)
    np.testing.assert_allclose(found[0], whole[0], atol=ROUNDING, rtol=0)
    assert not np.allclose(found[0], whole[1], atol=ROUNDING, rtol=0)
    np.testing.assert_allclose(model.encode(["Broadway"], prompt="A play on "), whole[:1], atol=ROUNDING, rtol=0)
    model.save(str(tmp_path / "saved"))
    assert library.SentenceTransformer(str(tmp_path / "saved"), trust_remote_code=True).max_seq_length == 2


@pytest.mark.parametrize("mode", ["max", "mean", "lasttoken"])
def test_a_text_without_tokens_has_zeros(mode: str, model_folder: Path) -> None:
    tokens = ElmoTokens(model_folder, tokenizer="ptb")
    pooling = Pooling(tokens.get_embedding_dimension(), pooling_mode=mode)
    found = library.SentenceTransformer(modules=[tokens, pooling], device="cpu").encode(["", "A play"])
    assert not found[0].any()
    assert found[1].any()


def test_the_librarys_lstm_can_follow(model_folder: Path) -> None:
    from sentence_transformers.sentence_transformer.modules import LSTM

    tokens = ElmoTokens(model_folder, tokenizer="ptb")
    model = library.SentenceTransformer(
        modules=[tokens, LSTM(tokens.get_embedding_dimension(), 4), Pooling(8)], device="cpu"
    )
    alone, among = model.encode(["A play"]), model.encode([*TEXTS, "A play"])
    assert alone.shape == (1, 8)
    np.testing.assert_allclose(among[-1], alone[0], atol=ROUNDING, rtol=0)


def test_what_is_trained_and_its_precision_survive_saving(model_folder: Path, tmp_path: Path) -> None:
    model = build(model_folder)
    model[0].requires_grad_(True)
    model.save(str(tmp_path / "saved"))
    options: dict[str, Any] = {"trust_remote_code": True, "model_kwargs": {"torch_dtype": "bfloat16"}}
    again = library.SentenceTransformer(str(tmp_path / "saved"), device="cpu", **options)
    assert all(parameter.requires_grad for parameter in again.parameters())
    assert {parameter.dtype for parameter in again.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize("text", [None, ("a", "b"), 3])
def test_what_is_no_text_is_refused(text: Any, model_folder: Path) -> None:
    with pytest.raises(ElmoError, match=r"^text 1: expected a string, found "):
        ElmoTokens(model_folder).preprocess(["a", text])


def test_bad_arguments_are_one_sentence(model_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ElmoError, match="tokenizer 'klingon' is unknown"):
        ElmoTokens(model_folder, tokenizer="klingon")
    with pytest.raises(ElmoError, match="nowhere"):
        ElmoTokens(tmp_path / "nowhere")


def test_a_model_that_does_not_read_bytes_is_refused(tmp_path: Path) -> None:
    """Boundaries are put around the ids of bytes; among those of a lexicon they would be other words."""
    make_many_langs.make(tmp_path / "zht")
    make_words.make(tmp_path / "words")
    with pytest.raises(ElmoError, match=r"ELMoForManyLangs model cannot be used as ElmoTokens.*zht\)$"):
        ElmoTokens(tmp_path / "zht")
    with pytest.raises(ElmoError, match=r"reads whole words, not characters, cannot be used as ElmoTokens.*words\)$"):
        ElmoTokens(tmp_path / "words")


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, library, datasets = blocks((ROOT / "docs" / "libraries.md").read_text(encoding="utf-8"), "python")
    exec(library, names := {})
    assert np.array_equal(names["again"].encode(["A play."]), names["model"].encode(["A play."]))
    pytest.importorskip("datasets", reason="needs datasets: pip install datasets")
    exec(datasets, names := {})
    assert np.array(names["data"]["vector"]).shape == (2, 384)
