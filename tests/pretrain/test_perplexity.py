"""Perplexity against its definition, by the NumPy oracle."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from elmo.config import BiLMConfig, from_mapping
from elmo.errors import ElmoError
from elmo.formats import Model
from elmo.nn.bilm import BiLM
from elmo.nn.softmax import Softmax
from elmo.pretrain.perplexity import Perplexity, score_sentences
from elmo.text.vocabulary import Vocabulary

SENTENCES = [["a", "b", "zebra"], ["c"], ["b", "b", "a", "c", "a"], ["zebra", "a"], ["c", "b"]]
VOCABULARY = Vocabulary(["<S>", "</S>", "<UNK>", "a", "b", "c"])


def make_model(tiny_config: object, bidirectional: bool = True) -> Model:
    torch.manual_seed(0)
    config = tiny_config()  # type: ignore[operator]
    if not bidirectional:
        config = from_mapping(
            BiLMConfig, {"char_cnn": _plain(config.char_cnn), "lstm": _plain(config.lstm), "bidirectional": False}, ""
        )
    bilm = BiLM(config)
    return Model(bilm, Softmax(len(VOCABULARY), config.lstm.projection_dim), VOCABULARY)


def _plain(config: object) -> dict[str, object]:
    from elmo.config import to_mapping

    return to_mapping(config)


def log_probability(model: Model, sentence: list[str]) -> tuple[float, float]:
    """Sum over tokens and the far boundary, one sentence alone, by the definition."""
    from elmo.text.characters import encode_words

    words = ["<S>", *sentence, "</S>"]
    characters = torch.from_numpy(encode_words(words))
    layers, _ = model.bilm(characters, torch.arange(len(words))[None], torch.tensor([len(words)]))
    assert model.softmax is not None
    half = layers.shape[-1] // 2
    weight, bias = model.softmax.weight.detach().numpy(), model.softmax.bias.detach().numpy()
    top = layers[-1, 0].detach().numpy()
    ids = [VOCABULARY.id(word) for word in words]

    def score(context: np.ndarray, target: int) -> float:
        logits = weight @ context + bias
        return float(logits[target] - np.log(np.exp(logits).sum()))

    forward = sum(score(top[t, :half], ids[t + 1]) for t in range(len(words) - 1))
    backward = sum(score(top[t, half:], ids[t - 1]) for t in range(1, len(words)))
    return forward, backward


@pytest.mark.parametrize("batch_size", [1, 2, 5, 32])
def test_zero_state_scores_are_those_of_each_sentence_alone(tiny_config: object, batch_size: int) -> None:
    """1e-5 is float32 rounding of sums near 10."""
    model = make_model(tiny_config)
    scores = list(score_sentences(model, SENTENCES, "zero", batch_size))
    for score, sentence in zip(scores, SENTENCES, strict=True):
        assert score.log_probabilities == pytest.approx(log_probability(model, sentence), abs=1e-5)
        assert score.num_oov == sentence.count("zebra")
        mean = sum(score.log_probabilities) / 2 / (len(sentence) + 1)
        assert score.perplexity == pytest.approx(math.exp(-mean))


def test_carried_state_is_that_of_one_long_stream(tiny_config: object) -> None:
    """In batches of one, the forward LSTM reads <S> a b zebra <S> c …, as in training: no </S> in between."""
    model = make_model(tiny_config)
    scores = list(score_sentences(model, SENTENCES, "carry", batch_size=1))
    stream = [word for sentence in SENTENCES for word in ["<S>", *sentence]]
    targets = [VOCABULARY.id(word) for sentence in SENTENCES for word in [*sentence, "</S>"]]
    from elmo.text.characters import encode_words

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


def test_summary_counts_predictions_and_oov(tiny_config: object) -> None:
    model = make_model(tiny_config)
    scores = list(score_sentences(model, [*SENTENCES, []], "zero"))
    result = Perplexity.of(scores)
    assert (result.num_sentences, result.num_tokens, result.num_oov) == (5, 13, 2)
    assert result.oov_rate == 2 / 13
    for direction in (0, 1):
        total = sum(score.log_probabilities[direction] for score in scores)
        assert result.directions[direction] == pytest.approx(math.exp(-total / (13 + 5)))
    assert result.mean == pytest.approx(math.sqrt(result.directions[0] * result.directions[1]))


def test_one_direction_has_one_figure(tiny_config: object) -> None:
    model = make_model(tiny_config, bidirectional=False)
    result = Perplexity.of(score_sentences(model, SENTENCES, "zero"))
    assert result.directions == (result.mean,)


def test_untrained_model_is_near_uniform(tiny_config: object) -> None:
    """All-zero softmax weights: every word has probability 1/6."""
    model = make_model(tiny_config)
    assert model.softmax is not None
    torch.nn.init.zeros_(model.softmax.weight)
    assert Perplexity.of(score_sentences(model, SENTENCES)).mean == pytest.approx(6.0)


def test_model_without_softmax_is_refused(tiny_config: object, tmp_path: Path) -> None:
    model = make_model(tiny_config)
    with pytest.raises(ElmoError, match=r"no softmax .* --new-softmax"):
        next(score_sentences(Model(model.bilm), SENTENCES))


def test_text_without_tokens_is_refused(tiny_config: object) -> None:
    with pytest.raises(ElmoError, match="holds no tokens"):
        Perplexity.of(score_sentences(make_model(tiny_config), [[], []]))
