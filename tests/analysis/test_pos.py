"""The POS probe learns what a linear classifier can learn, and the reader of CoNLL-U refuses other text."""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elmo.analysis.pos import all_tags, embed_tokens, fit_probe, most_frequent_tag, probe_pos
from elmo.analysis.tagged import read_conllu, read_tagged
from elmo.embed import Embedder
from elmo.errors import ElmoError
from elmo.text.columns import Tagged

CONLLU = """\
# sent_id = 1
# text = Don't play.
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\tVBP\t_\t0\troot\t_\t_
2\tn't\tnot\tPART\tRB\t_\t1\tdep\t_\t_
2.1\tever\tever\tADV\tRB\t_\t_\t_\t_\t_
3\tplay\tplay\tVERB\tVB\t_\t1\tdep\t_\tSpaceAfter=No
4\t.\t.\tPUNCT\t.\t_\t1\tdep\t_\t_

1\tNew York\tNew York\tPROPN\tNNP\t_\t0\troot\t_\t_
"""

TAGS = {"play": "NN", "the": "DT", "a": "DT", "plays": "VBZ", "she": "PRP", "new": "JJ", "old": "JJ", "park": "NN"}


def make_tagged(num_sentences: int, seed: int) -> list[Tagged]:
    """Make sentences in which each word has the same tag everywhere."""
    draw = np.random.default_rng(seed)
    sentences = [draw.choice(list(TAGS), size=draw.integers(1, 9)).tolist() for _ in range(num_sentences)]
    return [Tagged(tokens, [TAGS[token] for token in tokens]) for tokens in sentences]


# --- the probe


def test_separable_classes_are_learned_without_error() -> None:
    draw = np.random.default_rng(0)
    centers = {"a": [0, 0, 9], "b": [0, 9, 0], "c": [9, 0, 0]}
    labels = draw.choice(list(centers), size=300).tolist()
    vectors = (np.array([centers[label] for label in labels]) + draw.normal(size=(300, 3))).astype(np.float32)
    probe = fit_probe(vectors[:200], labels[:200], vectors[200:250], labels[200:250])
    assert probe.labels == ("a", "b", "c")
    assert repr(probe) == "LinearProbe(3 labels, width=3)"
    assert probe.accuracy(vectors[250:], labels[250:]) == 1.0
    assert probe.predict(100 * np.eye(3, dtype=np.float32)) == ["c", "b", "a"]


def test_labels_by_chance_stay_at_chance() -> None:
    """The accuracy is 1/4 with 4 random labels. Its standard deviation on 2,000 is 0.0097; 0.05 is five of these."""
    draw = np.random.default_rng(1)
    vectors, labels = draw.normal(size=(4000, 10)).astype(np.float32), draw.choice(list("abcd"), size=4000).tolist()
    probe = fit_probe(vectors[:1500], labels[:1500], vectors[1500:2000], labels[1500:2000])
    assert abs(probe.accuracy(vectors[2000:], labels[2000:]) - 0.25) < 0.05


def test_scale_and_place_of_numbers_change_nothing() -> None:
    """Layers of a biLM differ in scale and mean by a factor of a hundred. A dimension without variance does no harm."""
    draw = np.random.default_rng(2)
    vectors = draw.normal(size=(400, 5)).astype(np.float32)
    labels = np.where(vectors @ [1, -2, 0.5, 0, 1] + 0.3 * draw.normal(size=400) > 0, "yes", "no").tolist()
    moved = (vectors * [1e-2, 1, 1e2, 1, 0] + [0, 50, 0, 1, 3]).astype(np.float32)
    plain = vectors * np.float32([1, 1, 1, 1, 0])
    scores = [fit_probe(x[:300], labels[:300], x[300:], labels[300:]).accuracy(x, labels) for x in (plain, moved)]
    assert scores[0] > 0.8
    assert scores[0] == pytest.approx(scores[1], abs=0.011)  # rounding may move 4 of 400 across the plane


@pytest.mark.parametrize("constant", [0.1, -3.3, 100.7])
def test_a_dimension_that_varies_only_after_the_training_is_left_out(constant: float) -> None:
    """The mean of equal numbers is rounded, so that it may not be one of them."""
    draw = np.random.default_rng(6)
    vectors = draw.normal(size=(1100, 3)).astype(np.float32)
    labels = np.where(vectors[:, 0] > 0, "yes", "no").tolist()
    vectors[:, 2] = constant
    probe = fit_probe(vectors[:1000], labels[:1000], vectors[1000:], labels[1000:])
    vectors[:, 2] += draw.normal(size=1100)
    assert probe.accuracy(vectors, labels) > 0.95


def test_the_weight_decay_is_the_best_on_the_dev_set() -> None:
    """There are more dimensions than training examples, so that a probe without decay would learn noise by heart."""
    draw = np.random.default_rng(3)
    labels = draw.choice(["x", "y"], size=2060).tolist()
    vectors = draw.normal(size=(2060, 50)).astype(np.float32)
    vectors[:, 0] += [2.0 if label == "x" else -2.0 for label in labels]
    train, dev, test = slice(0, 60), slice(60, 1060), slice(1060, None)
    probes = [fit_probe(vectors[train], labels[train], vectors[dev], labels[dev], [d]) for d in (0.1, 1e-6)]
    chosen = fit_probe(vectors[train], labels[train], vectors[dev], labels[dev], [1e-6, 0.1])
    scores = [probe.accuracy(vectors[test], labels[test]) for probe in (*probes, chosen)]
    assert scores[0] > scores[1] + 0.02
    assert scores[2] == scores[0]


def test_the_same_input_gives_the_same_probe() -> None:
    draw = np.random.default_rng(4)
    vectors, labels = draw.normal(size=(90, 4)).astype(np.float32), draw.choice(list("abc"), size=90).tolist()
    first, second = (fit_probe(vectors, labels, vectors, labels) for _ in range(2))
    assert first.weight.equal(second.weight)
    assert first.bias.equal(second.bias)


def test_a_label_of_no_training_vector_is_an_error_in_the_score() -> None:
    vectors = np.float32([[0], [1]])
    probe = fit_probe(vectors, ["a", "b"], vectors, ["a", "b"])
    assert probe.accuracy(vectors, ["a", "z"]) == 0.5


@pytest.mark.parametrize(
    ("vectors", "labels", "decays", "says"),
    [
        ([[0], [1]], [0, 1], [1.0], "`labels`: 0 is not a string; convert labels by str"),
        (
            [0, 1],
            ["a", "b"],
            [1.0],
            r"`vectors`: expected an array \(N, D\) of finite numbers, found an array of 1 dim",
        ),
        ([[0], [np.nan]], ["a", "b"], [1.0], r"`vectors`: expected .* found numbers that are not finite"),
        ([[0], [1]], ["a", "b"], [], "`weight_decays`: the list is empty; name at least one"),
    ],
)
def test_what_no_probe_can_be_fitted_to_is_refused(vectors: Any, labels: Any, decays: list[float], says: str) -> None:
    with pytest.raises(ElmoError, match=says):
        fit_probe(np.float32(vectors), labels, np.float32(vectors), labels, decays)


def test_vectors_of_another_width_are_refused() -> None:
    vectors = np.float32([[0], [1]])
    probe = fit_probe(vectors, ["a", "b"], vectors, ["a", "b"])
    with pytest.raises(ElmoError, match=r"^`vectors`: have 2 numbers each, and those of the training had 1; give"):
        probe.predict(np.float32([[0, 1]]))


@pytest.mark.parametrize("form", ["float16", "float64", "reversed", "read-only"])
def test_vectors_may_have_any_type_and_order(form: str) -> None:
    vectors, labels = np.float32([[0], [1], [2], [3]]), ["a", "a", "b", "b"]
    given = np.float16(vectors) if form == "float16" else np.float64(vectors) if form == "float64" else vectors.copy()
    if form == "reversed":
        given = vectors[::-1].copy()[::-1]
    given.flags.writeable = form != "read-only"
    wanted, found = (fit_probe(each, labels, each, labels) for each in (vectors, given))
    assert torch.equal(found.weight, wanted.weight)
    assert found.predict(given) == labels


@pytest.mark.parametrize("labels", [["a"], []])
def test_labels_must_fit_vectors(labels: list[str]) -> None:
    vectors = np.zeros((2 * len(labels), 3), np.float32)
    with pytest.raises(ElmoError, match=f"`labels`: {len(labels)} for {len(vectors)} vectors"):
        fit_probe(vectors, labels, vectors, labels)


# --- parts of speech


def test_words_of_one_tag_each_are_learned_without_error(model: Embedder) -> None:
    """Layer 0 depends on the word alone. In the layers above it, random weights mix the word with its context."""
    parts = [make_tagged(number, seed) for seed, number in enumerate((150, 20, 30))]
    scores = [probe_pos(model, *parts, layer) for layer in (0, 1, "top")]
    assert scores[0] == most_frequent_tag(parts[0], parts[2]) == 1.0
    assert all(score > 0.7 for score in scores)  # always NN, the most frequent tag, would give a quarter


def test_vectors_are_those_of_the_layer_in_order(model: Embedder) -> None:
    sentences = [Tagged(["she", "plays"], ["PRP", "VBZ"]), Tagged(["the"], ["DT"])]
    expected = np.concatenate(model.embed([["she", "plays"], ["the"]], layers=1))
    np.testing.assert_array_equal(embed_tokens(model, sentences, 1), expected)
    assert all_tags(sentences) == ["PRP", "VBZ", "DT"]
    with pytest.raises(ElmoError, match="`layer`: 'all' gives several vectors"):
        embed_tokens(model, sentences, "all")
    with pytest.raises(ElmoError, match="`labels`: 0 for 0 vectors"):
        probe_pos(model, [], sentences, sentences, 0)


def test_most_frequent_tag_by_hand() -> None:
    """ "play" was NN twice and VB once. A new word gets NN, which is the most frequent tag of all."""
    train = [Tagged(["play", "play", "play", "on"], ["NN", "VB", "NN", "IN"])]
    assert most_frequent_tag(train, [Tagged(["play", "on", "new", "play"], ["NN", "IN", "NN", "VB"])]) == 0.75
    for sets, name in (((train, []), "test"), (([], train), "train")):
        with pytest.raises(ElmoError, match=f"`{name}`: holds no token; give tagged sentences"):
            most_frequent_tag(*sets)


# --- the reader


def test_the_columns_of_conllu_are_not_a_word_and_its_tag(tmp_path: Path) -> None:
    (tmp_path / "x.conllu").write_text(CONLLU)
    with pytest.raises(ElmoError, match=r"x\.conllu: is CoNLL-U by its name; its tags are upos or xpos, not columns$"):
        list(read_tagged([tmp_path / "x.conllu"], "columns"))


@pytest.mark.parametrize("ending", ["", "\n", "\n\n\n"])
@pytest.mark.parametrize("compressed", [False, True])
def test_words_and_their_own_tags_are_read(tmp_path: Path, ending: str, compressed: bool) -> None:
    path = tmp_path / ("x.conllu.xz" if compressed else "x.conllu")
    data = (CONLLU.rstrip("\n") + ending).encode()
    path.write_bytes(lzma.compress(data) if compressed else data)
    assert read_conllu(path) == [
        Tagged(["Do", "n't", "play", "."], ["VBP", "RB", "VB", "."]),
        Tagged(["New_York"], ["NNP"]),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (CONLLU.replace("3\tplay\tplay\tVERB", "3\tplay\tVERB"), "line 7: 9 columns between tabs; CoNLL-U has 10"),
        (CONLLU.replace("\t", " "), "line 3: 1 column"),
        (CONLLU.replace("3\tplay", "three\tplay"), "line 7: 'three' is not the number of a word"),
        ("".join(f"{n}\tw\tw\tX\t_\t_\t_\t_\t_\t_\n" for n in (1, 2)), "has no language-specific tags"),
        ("", "holds no sentence"),
        ("# only a comment\n\n", "holds no sentence"),
    ],
)
def test_other_text_is_refused_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "x.conllu"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ElmoError, match=rf"x\.conllu.*{says}"):
        read_conllu(path)


@pytest.mark.external
def test_the_words_alone_tell_most_tags_of_the_english_web_treebank(shared: Path) -> None:
    """The size of the corpus and the score were counted by a script of a few lines without our reader."""
    parts = [read_conllu(shared / "data" / "pos" / f"ud_ewt_{part}.conllu.xz") for part in ("train", "test")]
    assert [len(part) for part in parts] == [12544, 2077]
    assert len(all_tags(parts[0])) == 204577
    assert most_frequent_tag(*parts) == pytest.approx(0.838248, abs=1e-5)


def test_the_loss_has_half_the_weight_decay() -> None:
    """At the minimum, the gradient of the loss is zero. The vectors are scaled already."""
    vectors = np.array([[1.0], [-1.0], [1.0], [-1.0]], np.float32)
    labels, targets = ["a", "b", "a", "a"], torch.tensor([0, 1, 0, 0])
    probe = fit_probe(vectors, labels, vectors, labels, [0.3])
    weight, bias = probe.weight.clone().requires_grad_(), probe.bias.clone().requires_grad_()
    scores = torch.nn.functional.linear(torch.from_numpy(vectors), weight, bias)
    (torch.nn.functional.cross_entropy(scores, targets) + 0.3 / 2 * weight.square().sum()).backward()
    assert weight.grad is not None
    assert weight.grad.abs().max() < 1e-4
