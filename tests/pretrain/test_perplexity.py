"""Perplexity is that of its definition, which is computed here with NumPy from the outputs of the biLM."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bridge import make_config
from elmo.embed.warm import mean_state
from elmo.errors import ElmoError
from elmo.formats import Model, load
from elmo.nn.bilm import BiLM
from elmo.nn.softmax import AdaptiveSoftmax, Softmax
from elmo.pretrain.loop import Pretrainer
from elmo.pretrain.perplexity import Perplexity, score_sentences
from elmo.pretrain.recipe import Recipe
from elmo.text.characters import encode_words
from elmo.text.corpus import Corpus
from elmo.text.vocabulary import Vocabulary
from elmo.training.metrics import read_rows

SENTENCES = [["a", "b", "zebra"], ["c"], ["b", "b", "a", "c", "a"], ["zebra", "a"], ["c", "b"]]
VOCABULARY = Vocabulary(["<S>", "</S>", "<UNK>", "a", "b", "c"])


def make_model(variant: str = "base", adaptive: bool = False) -> Model:
    """Return a model of six words. An adaptive softmax has two of them in its head, and one cluster of four."""
    torch.manual_seed(0)
    bilm = BiLM(make_config(variant))
    size = len(VOCABULARY), bilm.config.lstm.projection_dim
    return Model(bilm, AdaptiveSoftmax(*size, [2]) if adaptive else Softmax(*size), VOCABULARY)


def log_distribution(model: Model, context: np.ndarray) -> np.ndarray:
    """Return the log probability of each word by the definition. An adaptive softmax must have one cluster."""
    assert model.softmax is not None
    weights = {name: tensor.numpy() for name, tensor in model.softmax.state_dict().items()}

    def normalize(scores: np.ndarray) -> np.ndarray:
        return scores - np.log(np.exp(scores).sum())

    if isinstance(model.softmax, Softmax):
        return normalize(weights["weight"] @ context + weights["bias"])
    head = normalize(weights["head.weight"] @ context + weights["head.bias"])
    tail = normalize(weights["tail.0.1.weight"] @ (weights["tail.0.0.weight"] @ context))
    first = model.softmax.cutoffs[0]
    return np.concatenate([head[:first], head[first] + tail])


def log_probability(model: Model, sentence: list[str]) -> tuple[float, float]:
    """Return the sums of both directions over the tokens and the far boundary, reading one sentence alone."""
    forward, backward = predictions(model, sentence)
    return sum(forward), sum(backward)


def predictions(model: Model, sentence: list[str]) -> tuple[list[float], list[float]]:
    """Return the log probabilities of the tokens and `</S>`, and of `<S>` and the tokens, of one sentence alone."""
    words = ["<S>", *sentence, "</S>"]
    characters = torch.from_numpy(encode_words(words))
    layers, _ = model.bilm(characters, torch.arange(len(words))[None], torch.tensor([len(words)]))
    half = layers.shape[-1] // 2
    top = layers[-1, 0].detach().numpy()
    assert model.vocabulary is not None
    ids = [model.vocabulary.id(word) for word in words]

    def score(context: np.ndarray, target: int) -> float:
        return float(log_distribution(model, context)[target])

    forward = [score(top[t, :half], ids[t + 1]) for t in range(len(words) - 1)]
    backward = [score(top[t, half:], ids[t - 1]) for t in range(1, len(words))]
    return forward, backward


@pytest.mark.parametrize("batch_size", [1, 2, 5, 32])
@pytest.mark.parametrize("adaptive", [False, True])
def test_zero_state_scores_are_those_of_each_sentence_alone(adaptive: bool, batch_size: int) -> None:
    """1e-5 is float32 rounding of sums near 10."""
    model = make_model(adaptive=adaptive)
    scores = list(score_sentences(model, SENTENCES, "zero", batch_size))
    for score, sentence in zip(scores, SENTENCES, strict=True):
        assert score.log_probabilities == pytest.approx(log_probability(model, sentence), abs=1e-5)
        assert score.num_oov == sentence.count("zebra")
        mean = sum(score.log_probabilities) / 2 / (len(sentence) + 1)
        assert score.perplexity == pytest.approx(math.exp(-mean))


@pytest.mark.parametrize("batch_size", [1, 3])
def test_each_prediction_is_scored_in_the_order_of_the_text(batch_size: int) -> None:
    model = make_model()
    for score in score_sentences(model, SENTENCES, "zero", batch_size):
        for found, expected in zip(score.predictions, predictions(model, list(score.tokens)), strict=True):
            assert found == pytest.approx(expected, abs=1e-5)


def test_warm_sentences_start_where_the_model_says() -> None:
    """If the warm state is what one sentence left, every sentence is scored as if it followed that one with a carried
    state. A warm state does not change the scores from zeros."""
    model = make_model()
    model.warm_state = mean_state(model, SENTENCES[:1])
    warm = list(score_sentences(model, SENTENCES, "warm", batch_size=2))
    for sentence, score in zip(SENTENCES, warm, strict=True):
        carried = list(score_sentences(model, [SENTENCES[0], sentence], "carry", batch_size=1))[1]
        assert score.log_probabilities == pytest.approx(carried.log_probabilities, abs=1e-5)
    zero = list(score_sentences(model, SENTENCES, "zero", batch_size=2))
    assert max(abs(a.predictions[0][0] - b.predictions[0][0]) for a, b in zip(warm, zero, strict=True)) > 1e-3
    plain = Model(model.bilm, model.softmax, model.vocabulary)
    assert list(score_sentences(plain, SENTENCES, "zero", batch_size=2)) == zero


def test_carried_state_is_that_of_one_long_stream() -> None:
    """In batches of one, the forward LSTM reads <S> a b zebra <S> c … as in training, with no </S> in between."""
    model = make_model()
    scores = list(score_sentences(model, SENTENCES, "carry", batch_size=1))
    stream = [word for sentence in SENTENCES for word in ["<S>", *sentence]]
    targets = [VOCABULARY.id(word) for sentence in SENTENCES for word in [*sentence, "</S>"]]
    layers, _ = model.bilm(
        torch.from_numpy(encode_words(stream)), torch.arange(len(stream))[None], torch.tensor([len(stream)])
    )
    assert model.softmax is not None
    half = layers.shape[-1] // 2
    logits = torch.nn.functional.linear(layers[-1, 0, :, :half], model.softmax.weight, model.softmax.bias)
    expected = logits.log_softmax(1)[torch.arange(len(targets)), torch.tensor(targets)]
    bounds = np.cumsum([0, *(len(sentence) + 1 for sentence in SENTENCES)])
    sums = [expected[a:b].sum().item() for a, b in pairwise(bounds)]
    assert [score.log_probabilities[0] for score in scores] == pytest.approx(sums, abs=1e-5)


@pytest.mark.parametrize("loss", ["sampled", "full", "adaptive"])
def test_heldout_perplexity_is_of_the_whole_vocabulary(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path, loss: str
) -> None:
    """Every loss is measured like this, though training itself may only compare a word with 10 negatives.

    Both sentences are in the first batch, so they start from zeros. 1e-5 is float32 rounding.
    """
    cutoffs = {"adaptive_cutoffs": [12]} if loss == "adaptive" else {}
    heldout = [["word1", "word3", "unheard"], ["word2"]]
    settings = recipe(max_steps=12, loss=loss, **cutoffs)
    Pretrainer(corpus, tmp_path / "run", settings, heldout=heldout, device="cpu").train()
    row = read_rows(tmp_path / "run" / "metrics.csv")[-1]
    model = load(tmp_path / "run")
    sums = np.sum([log_probability(model, sentence) for sentence in heldout], axis=0)
    directions = np.exp(-sums / (4 + 2))
    found = row["heldout_forward_perplexity"], row["heldout_backward_perplexity"]
    assert found == pytest.approx(tuple(directions), rel=1e-5)
    assert row["heldout_perplexity"] == pytest.approx(math.sqrt(np.prod(directions)), rel=1e-5)


def test_summary_counts_predictions_and_oov() -> None:
    model = make_model()
    scores = list(score_sentences(model, [*SENTENCES, []], "zero"))
    result = Perplexity.of(scores)
    assert (result.num_sentences, result.num_tokens, result.num_oov) == (5, 13, 2)
    assert result.oov_rate == 2 / 13
    for direction in (0, 1):
        total = sum(score.log_probabilities[direction] for score in scores)
        assert result.directions[direction] == pytest.approx(math.exp(-total / (13 + 5)))
    assert result.mean == pytest.approx(math.sqrt(result.directions[0] * result.directions[1]))


def test_one_direction_has_one_figure() -> None:
    model = make_model("one_direction")
    result = Perplexity.of(score_sentences(model, SENTENCES, "zero"))
    assert result.directions == (result.mean,)


def test_untrained_model_is_near_uniform() -> None:
    """With softmax weights of zero, every word has a probability of 1/6."""
    model = make_model()
    assert isinstance(model.softmax, Softmax)
    torch.nn.init.zeros_(model.softmax.weight)
    assert Perplexity.of(score_sentences(model, SENTENCES)).mean == pytest.approx(6.0)


@pytest.mark.parametrize(
    ("parts", "state", "says"),
    [
        ((), "zero", "no softmax.* --new-softmax"),
        (("softmax",), "zero", r"has a softmax, but no vocabulary for it.*vocab\.txt"),
        (("softmax", "vocabulary"), "warm", "this model has no warm state"),
        (("softmax", "vocabulary"), "zeros", "`state`: 'zeros' is none of zero, carry, warm"),
    ],
)
def test_what_cannot_be_scored_is_refused(parts: tuple[str, ...], state: Any, says: str) -> None:
    model = make_model()
    with pytest.raises(ElmoError, match=says):
        next(score_sentences(Model(model.bilm, *(getattr(model, part) for part in parts)), SENTENCES, state))


@pytest.mark.parametrize("batch_size", [0, -1])
def test_a_batch_of_nothing_is_refused(batch_size: int) -> None:
    with pytest.raises(ElmoError, match=f"`batch_size`: {batch_size}"):
        next(score_sentences(make_model(), SENTENCES, batch_size=batch_size))


def test_text_without_tokens_is_refused() -> None:
    with pytest.raises(ElmoError, match="holds no tokens"):
        Perplexity.of(score_sentences(make_model(), [[], []]))


def test_boundaries_in_the_text_are_left_out() -> None:
    """`elmo prepare` leaves them out as well. An `<UNK>` in the text counts as a word outside of the vocabulary."""
    model = make_model()
    marked = [["<S>", *sentence, "</S>"] for sentence in SENTENCES]
    wanted = list(score_sentences(model, SENTENCES))
    assert list(score_sentences(model, [*marked, ["<S>", "</S>"]])) == wanted
    replaced = [["<UNK>" if word == "zebra" else word for word in sentence] for sentence in SENTENCES]
    assert Perplexity.of(score_sentences(model, replaced)).num_oov == Perplexity.of(wanted).num_oov == 2


def test_arrays_are_sentences_too() -> None:
    model = make_model()
    arrays = [np.array(sentence) for sentence in SENTENCES]
    found, expected = (list(score_sentences(model, given, "zero")) for given in (arrays, SENTENCES))
    assert found == expected


@pytest.mark.parametrize(
    ("sentence", "says"),
    [
        ("a b", "expected a list of tokens, found a string"),
        ((word for word in "ab"), "expected a list of tokens, found generator"),
        (None, "expected a list of tokens, found NoneType"),
        (["a", 3], "token 3 is not a string"),
    ],
)
def test_what_is_no_sentence_is_refused(sentence: Any, says: str) -> None:
    """A generator would be used up by looking for the boundaries, and then be taken for an empty sentence."""
    with pytest.raises(ElmoError, match=f"^sentence 1: {says}"):
        list(score_sentences(make_model(), [["a"], sentence]))
