"""`ElmoEmbeddings` gives our vectors in Flair, and a tagger that uses it can be trained, saved and loaded."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elmo
from elmo.embed.layers import Layers
from elmo.errors import ElmoError
from pages import ROOT, blocks

flair: Any = pytest.importorskip("flair", reason="needs the extra 'flair'", exc_type=ImportError)
from flair.data import Sentence  # noqa: E402 - skips first
from flair.embeddings import StackedEmbeddings  # noqa: E402
from flair.models import SequenceTagger  # noqa: E402

from elmo.integrations.flair import ElmoEmbeddings  # noqa: E402

TOKENS = [["They", "saw", "a", "new", "play", "."], ["Kinder", "spielen"]]
ROUNDING = 2e-6
"""Rounding of float32 in batches of other sizes."""


def vectors_of(embeddings: Any) -> list[np.ndarray]:
    sentences = [Sentence(tokens) for tokens in TOKENS]
    embeddings.embed(sentences)
    return [np.stack([token.embedding.cpu().numpy() for token in sentence]) for sentence in sentences]


@pytest.mark.parametrize("layers", ["all", "top", 1, [0.5, 0.25, 0.25]], ids=str)
def test_tokens_have_our_vectors(model_folder: Path, layers: Layers) -> None:
    embeddings = ElmoEmbeddings(model_folder, layers)
    model = elmo.load(model_folder)
    for found, wanted in zip(vectors_of(embeddings), model.embed(TOKENS, layers=layers), strict=True):
        if layers == "all":  # one layer after the other, in the vector of each token
            wanted = np.concatenate(list(wanted), axis=1)
        assert found.shape[1] == embeddings.embedding_length
        np.testing.assert_allclose(found, wanted, atol=ROUNDING, rtol=0)


@pytest.mark.parametrize("layers", ["all", "mean"])
def test_an_empty_sentence_has_no_vectors(model_folder: Path, layers: Layers) -> None:
    sentences = [Sentence(TOKENS[0]), Sentence("")]
    ElmoEmbeddings(model_folder, layers).embed(sentences)
    assert [len(sentence) for sentence in sentences] == [6, 0]
    assert sentences[0][0].embedding.any()


def test_a_relative_path_means_the_same_in_another_folder(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model_folder.parent)
    embeddings = ElmoEmbeddings(model_folder.name)
    assert embeddings.name.startswith(f"elmo-{model_folder.name}-")
    stored, params = pickle.dumps(embeddings), embeddings.to_params()
    monkeypatch.chdir(tmp_path)
    for again in (pickle.loads(stored), ElmoEmbeddings.from_params(params)):
        assert np.array_equal(vectors_of(again)[0], vectors_of(embeddings)[0])


def test_among_other_embeddings_and_pickled(model_folder: Path) -> None:
    """Each choice of layers has a name of its own. Otherwise Flair would take the vectors of one for another's."""
    top, bottom = ElmoEmbeddings(model_folder, "top"), ElmoEmbeddings(model_folder, "token")
    assert top.name != bottom.name
    both = vectors_of(StackedEmbeddings([top, bottom]))
    parts = [vectors_of(one) for one in (top, bottom)]
    # Flair orders the parts of a stack by their names.
    order = sorted((0, 1), key=lambda number: (top, bottom)[number].name)
    wanted = np.concatenate([parts[number][0] for number in order], axis=1)
    np.testing.assert_allclose(both[0], wanted, atol=ROUNDING, rtol=0)
    np.testing.assert_allclose(vectors_of(pickle.loads(pickle.dumps(top)))[1], parts[0][1], atol=ROUNDING, rtol=0)


def test_a_tagger_learns_is_saved_and_loaded(model_folder: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    sentences = [Sentence(tokens) for tokens in TOKENS]
    for sentence in sentences:
        for token in sentence:
            token.add_label("case", "upper" if token.text[0].isupper() else "lower")
    dictionary = flair.data.Corpus(sentences, sample_missing_splits=False).make_label_dictionary("case")
    plain = {"use_rnn": False, "use_crf": False, "reproject_embeddings": False}
    undropped = dict.fromkeys(("dropout", "word_dropout", "locked_dropout"), 0.0)
    tagger = SequenceTagger(ElmoEmbeddings(model_folder), dictionary, "case", **plain, **undropped)
    optimizer = torch.optim.Adam(tagger.parameters(), 0.05)
    losses: list[float] = []
    for _ in range(200):
        loss, _ = tagger.forward_loss(sentences)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 4
    tagger.save(tmp_path / "tagger.pt")
    again = SequenceTagger.load(tmp_path / "tagger.pt")
    sentence = Sentence(TOKENS[0])
    again.predict(sentence)
    assert [token.get_label("case").value for token in sentence] == [
        "upper",
        "lower",
        "lower",
        "lower",
        "lower",
        "lower",
    ]


def test_bad_arguments_are_one_sentence(model_folder: Path) -> None:
    with pytest.raises(ElmoError, match=r"^`layers`: there is no layer 9; this model has layers 0 to 2$"):
        ElmoEmbeddings(model_folder, 9)


def test_the_page_runs() -> None:
    code = blocks((ROOT / "docs" / "libraries.md").read_text(encoding="utf-8"), "python")[0]
    dictionary = flair.data.Dictionary(add_unk=False)
    dictionary.add_item("person")
    exec(code, names := {"dictionary": dictionary})
    assert names["sentence"][4].embedding.shape == (names["embeddings"].embedding_length,) == (3 * 384,)
