"""Perplexity and scores of text (Peters et al. 2018, sec. 3.4).

A word's probability is normalized over the whole vocabulary, whatever the loss in training was: by the full softmax
after `sampled` and `full`, and by the adaptive softmax, which is so by itself, after `adaptive`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from elmo.errors import ElmoError
from elmo.formats.model import (
    STATES,
    Model,
    State,
    predictor_inputs,
    require_bytes,
    require_softmax,
    require_warm_state,
)
from elmo.nn.adaptive import AnySoftmax
from elmo.nn.bilm import BiLMState, first_rows, repeat_row, replace_rows, to_device
from elmo.schema import require_choice
from elmo.text.characters import BOS, EOS, without_boundaries
from elmo.text.vocabulary import UNK_ID, Vocabulary

BATCH_SIZE = 32


@dataclass(frozen=True)
class SentenceScore:
    """One sentence's log probabilities, in nats: for each direction those of its n + 1 predictions.

    They stand in the order of the text: the forward direction predicts the tokens and `</S>`, its first prediction
    first; the backward one predicts `<S>` and the tokens, its first prediction last.
    """

    tokens: Sequence[str]
    predictions: tuple[tuple[float, ...], ...]
    num_oov: int

    @property
    def log_probabilities(self) -> tuple[float, ...]:
        """Of the whole sentence, in each direction."""
        return tuple(map(math.fsum, self.predictions))

    @property
    def perplexity(self) -> float:
        """exp of the mean loss of all directions."""
        return perplexity_of(-sum(self.log_probabilities) / len(self.log_probabilities) / (len(self.tokens) + 1))


@dataclass(frozen=True)
class Perplexity:
    """The mean loss of each direction over a text, in nats per prediction.

    A sentence of n tokens counts n + 1 predictions in each direction: its tokens, and the boundary at the far end.
    Tokens outside of the vocabulary count as the one word `<UNK>`.
    """

    losses: tuple[float, ...]
    num_sentences: int
    num_tokens: int
    num_oov: int

    @property
    def directions(self) -> tuple[float, ...]:
        """Perplexity of each direction: forward, then backward where there is one."""
        return tuple(perplexity_of(loss) for loss in self.losses)

    @property
    def mean(self) -> float:
        """exp of the mean of the directions' losses, as bilm-tf has it; where both are alike, also the mean of the
        directions' perplexities, which the paper says."""
        return perplexity_of(sum(self.losses) / len(self.losses))

    @property
    def oov_rate(self) -> float:
        """Share of tokens outside of the vocabulary."""
        return self.num_oov / self.num_tokens

    @classmethod
    def of(cls, scores: Iterable[SentenceScore]) -> Perplexity:
        """Of scored sentences; an `ElmoError` when they hold no token."""
        sums: list[float] = []
        num_sentences = num_tokens = num_oov = 0
        for score in scores:
            sums = [a + b for a, b in zip(sums or [0.0] * 2, score.log_probabilities, strict=False)]
            num_sentences += 1
            num_tokens += len(score.tokens)
            num_oov += score.num_oov
        if num_tokens == 0:
            raise ElmoError("the text to score holds no tokens")
        num_predictions = num_tokens + num_sentences
        return cls(tuple(-total / num_predictions for total in sums), num_sentences, num_tokens, num_oov)


def score_sentences(
    model: Model, sentences: Iterable[Sequence[str]], state: State = "carry", batch_size: int = BATCH_SIZE
) -> Iterator[SentenceScore]:
    """Score tokenized sentences in their order, in constant memory; empty ones are left out, and tokens `<S>` and
    `</S>`, as `prepare` does.

    With `state="carry"`, row b of each batch of `batch_size` sentences goes on from row b of the batch before: that is
    what the LSTMs saw in training. With "zero" and "warm", a sentence's score doesn't depend on its neighbours.
    """
    require_bytes(model, "scored")
    otherwise = "Train one on text of yours: elmo finetune --new-softmax"
    if model.config.char_cnn is None:
        otherwise = "The checkpoint of bilm-tf has it"
    softmax, vocabulary = require_softmax(model, otherwise)
    require_choice("state", state, STATES)
    start = model.bilm.initial_state(1)
    if state == "warm":
        start = to_device(require_warm_state(model.warm_state), start[0].hidden.device)
    before = repeat_row(start, batch_size)
    texts = (text for sentence in sentences if (text := without_boundaries(sentence)))
    while batch := list(islice(texts, batch_size)):
        scores, after = _score_batch(model, softmax, vocabulary, batch, first_rows(before, len(batch)))
        if state == "carry":
            before = replace_rows(before, after)
        yield from scores


@torch.inference_mode()
def _score_batch(
    model: Model, softmax: AnySoftmax, vocabulary: Vocabulary, batch: Sequence[Sequence[str]], before: BiLMState
) -> tuple[list[SentenceScore], BiLMState]:
    device = next(softmax.parameters()).device
    characters, tokens, lengths = predictor_inputs(model, batch, device)
    words = [torch.tensor([vocabulary.id(word) for word in (BOS, *sentence, EOS)]) for sentence in batch]
    ids = pad_sequence(words, batch_first=True).to(device)
    targets = ids[:, 1:], ids[:, :-1]
    hidden, orders, after = model.bilm.predictors(characters, tokens, lengths, before)
    rows = [
        _rows(softmax.log_probabilities(h, target.flatten()[order]), order, lengths, target.shape[1])
        for h, target, order in zip(hidden, targets, orders, strict=False)
    ]
    oov = [sum(vocabulary.id(word) == UNK_ID for word in sentence) for sentence in batch]
    scores = [
        SentenceScore(sentence, predictions, num_oov)
        for sentence, predictions, num_oov in zip(batch, zip(*rows, strict=True), oov, strict=True)
    ]
    return scores, after


def _rows(values: Tensor, places: Tensor, lengths: Tensor, longest: int) -> list[tuple[float, ...]]:
    """Packed `values` (N,), which stand at the flat `places` (N,) of a (B, `longest`) batch, as its rows."""
    padded = values.new_zeros(len(lengths) * longest).index_copy(0, places, values).view(-1, longest).tolist()
    return [tuple(row[:length]) for row, length in zip(padded, lengths.tolist(), strict=True)]


def perplexity_of(loss: float) -> float:
    """The perplexity of a loss in nats; infinite rather than an error when a model is that bad."""
    return math.exp(loss) if loss < 700 else math.inf
