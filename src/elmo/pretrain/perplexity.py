"""The perplexity of text, and the log probabilities of its words (Peters et al. 2018, sec. 3.4).

Probabilities are always normalized over the whole vocabulary, whatever the loss in training was: models trained with
the `sampled` or `full` loss are scored by the full softmax, and models trained with `adaptive` by the adaptive softmax.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from elmo.config import BOS, EOS, UNK_ID
from elmo.errors import ElmoError
from elmo.formats.model import (
    STATES,
    Model,
    State,
    predictor_inputs,
    refuse_lexicon,
    require_softmax,
    require_warm_state,
)
from elmo.nn.bilm import BiLMState, first_rows, repeat_row, replace_rows, to_device
from elmo.nn.softmax import AnySoftmax
from elmo.schema import require_choice, require_count
from elmo.text.characters import require_sentence, without_boundaries
from elmo.text.vocabulary import Vocabulary

BATCH_SIZE = 32
"""How many sentences are scored at once."""


@dataclass(frozen=True)
class SentenceScore:
    """The log probabilities of one sentence.

    Attributes:
        tokens: The n tokens of the sentence.
        predictions: The log probabilities of each direction's n + 1 predictions, in nats and in the order of the text:
            the forward direction predicts the tokens and then `</S>`, the backward one `<S>` and the tokens.
        num_oov: The number of tokens that are not in the vocabulary.
    """

    tokens: Sequence[str]
    predictions: tuple[tuple[float, ...], ...]
    num_oov: int

    @property
    def log_probabilities(self) -> tuple[float, ...]:
        """The log probability of the whole sentence in each direction, in nats."""
        return tuple(map(math.fsum, self.predictions))

    @property
    def perplexity(self) -> float:
        """The perplexity of the sentence: exp of the mean loss over all predictions of all directions."""
        return perplexity_of(-sum(self.log_probabilities) / len(self.log_probabilities) / (len(self.tokens) + 1))


@dataclass(frozen=True)
class Perplexity:
    """The perplexity of a text.

    A sentence of n tokens has n + 1 predictions in each direction: its tokens and the boundary after (or before) them.
    Tokens that are not in the vocabulary are predicted as the word `<UNK>`.

    Attributes:
        losses: The mean loss of each direction, in nats per prediction.
        num_sentences: The number of sentences that were scored.
        num_tokens: The number of their tokens, without boundaries.
        num_oov: The number of tokens that are not in the vocabulary.
    """

    losses: tuple[float, ...]
    num_sentences: int
    num_tokens: int
    num_oov: int

    @property
    def directions(self) -> tuple[float, ...]:
        """The perplexity of each direction: forward, then backward if there is one."""
        return tuple(perplexity_of(loss) for loss in self.losses)

    @property
    def mean(self) -> float:
        """The perplexity of all directions together: exp of the mean of their losses, as bilm-tf computes it.

        The paper speaks of the mean of the directions' perplexities, which is the same number if both are equal.
        """
        return perplexity_of(sum(self.losses) / len(self.losses))

    @property
    def oov_rate(self) -> float:
        """The share of tokens that are not in the vocabulary."""
        return self.num_oov / self.num_tokens

    @classmethod
    def of(cls, scores: Iterable[SentenceScore], source: str = "the text to score") -> Perplexity:
        """Compute the perplexity of scored sentences.

        Args:
            scores: The scores of the sentences.
            source: What messages call the text.

        Raises:
            ElmoError: If the sentences hold no tokens.
        """
        sums: list[float] = []
        num_sentences = num_tokens = num_oov = 0
        for score in scores:
            found = score.log_probabilities
            sums = [a + b for a, b in zip(sums or [0.0] * len(found), found, strict=True)]
            num_sentences += 1
            num_tokens += len(score.tokens)
            num_oov += score.num_oov
        if num_tokens == 0:
            raise ElmoError(f"{source}: holds no tokens")
        num_predictions = num_tokens + num_sentences
        return cls(tuple(-total / num_predictions for total in sums), num_sentences, num_tokens, num_oov)


def score_sentences(
    model: Model, sentences: Iterable[Sequence[str]], state: State = "carry", batch_size: int = BATCH_SIZE
) -> Iterator[SentenceScore]:
    """Score tokenized sentences one after the other, in memory that does not grow with their number.

    Args:
        model: A model with a softmax and a vocabulary.
        sentences: The sentences. Tokens `<S>` and `</S>` are removed, and sentences left without tokens are skipped, as
            `prepare` does.
        state: What the LSTMs start a sentence from: "carry" (row b of each batch continues from row b of the last
            batch, as in training), "zero" (zeros) or "warm" (the model's stored mean state). With "zero" and
            "warm" the score of a sentence does not depend on the sentences around it.
        batch_size: How many sentences are scored at once.

    Yields:
        The scores of each sentence, in the order of the input.

    Raises:
        ElmoError: If the model has no softmax, vocabulary or warm state where one is needed, if `state` is unknown, or
            if a sentence is not a list or an array of strings.
    """
    refuse_lexicon(model, "scored")
    require_count("`batch_size`", batch_size)
    otherwise = "train one on text of yours with 'elmo finetune --new-softmax'"
    if model.config.char_cnn is None:
        otherwise = "use the checkpoint of bilm-tf, which has it"
    softmax, vocabulary = require_softmax(model, otherwise)
    require_choice("`state`", state, STATES)
    start = model.bilm.initial_state(1)
    if state == "warm":
        start = to_device(require_warm_state(model.warm_state), start[0].hidden.device)
    before = repeat_row(start, batch_size)
    texts = (text for sentence in _checked(sentences) if (text := without_boundaries(sentence)))
    while batch := list(islice(texts, batch_size)):
        scores, after = _score_batch(model, softmax, vocabulary, batch, first_rows(before, len(batch)))
        if state == "carry":
            before = replace_rows(before, after)
        yield from scores


def require_heldout(sentences: Sequence[Sequence[str]]) -> None:
    """Refuse held-out text whose perplexity can't be measured. An empty list passes: it means no such text.

    Raises:
        ElmoError: If a sentence is not a list or an array of strings, or there is no token except `<S>` and `</S>`.
    """
    checked = list(_checked(sentences))
    if checked and not any(map(without_boundaries, checked)):
        raise ElmoError("`heldout`: holds no tokens except <S> and </S>, which mark the ends of a sentence")


def _checked(sentences: Iterable[Sequence[str]]) -> Iterator[list[str]]:
    for number, sentence in enumerate(sentences):
        require_sentence(sentence, number)
        yield list(sentence)


def perplexity_unless(
    model: Model, sentences: Iterable[Sequence[str]], is_stopped: Callable[[], bool]
) -> Perplexity | None:
    """Return the perplexity of sentences, as `score_sentences` scores them, or None if `is_stopped` became true."""

    class StoppedError(Exception):
        pass

    def until_stopped() -> Iterator[Sequence[str]]:
        for sentence in sentences:
            if is_stopped():
                raise StoppedError
            yield sentence

    try:
        return Perplexity.of(score_sentences(model, until_stopped()))
    except StoppedError:
        return None


@torch.inference_mode()
def _score_batch(
    model: Model, softmax: AnySoftmax, vocabulary: Vocabulary, batch: Sequence[Sequence[str]], before: BiLMState
) -> tuple[list[SentenceScore], BiLMState]:
    device = next(softmax.parameters()).device
    characters, tokens, lengths = predictor_inputs(model, batch, device)
    ids = [[vocabulary.id(word) for word in (BOS, *sentence, EOS)] for sentence in batch]
    padded = pad_sequence([torch.tensor(row, device="cpu") for row in ids], batch_first=True).to(device)
    targets = padded[:, 1:], padded[:, :-1]  # forward predicts the next word, and backward the word before
    hidden, orders, after = model.bilm.predictors(characters, tokens, lengths, before)
    rows = [
        _rows(softmax.log_probabilities(h, target.flatten()[order]), order, lengths, target.shape[1])
        for h, target, order in zip(hidden, targets, orders, strict=False)
    ]
    scores = [
        SentenceScore(sentence, predictions, row.count(UNK_ID))
        for sentence, predictions, row in zip(batch, zip(*rows, strict=True), ids, strict=True)
    ]
    return scores, after


def _rows(values: Tensor, places: Tensor, lengths: Tensor, longest: int) -> list[tuple[float, ...]]:
    """Split packed `values` (N,) into the B rows of a batch; `places` (N,) are their places in (B * `longest`,)."""
    padded = values.new_zeros(len(lengths) * longest).index_copy(0, places, values).view(-1, longest).tolist()
    return [tuple(row[:length]) for row, length in zip(padded, lengths.tolist(), strict=True)]


def perplexity_of(loss: float) -> float:
    """Return the perplexity that corresponds to a loss in nats, or infinity where `math.exp` would overflow."""
    return math.exp(loss) if loss < 700 else math.inf
