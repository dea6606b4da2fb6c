"""A part-of-speech tagger that knows words only as a whole, not by their characters: a baseline for ELMo."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from elmo.analysis.pos import all_tags
from elmo.analysis.tagged import Tagged
from elmo.errors import ElmoError

MIN_COUNT = 2
"""Rarer words are unknown in training, too, so that the classifier learns what unknown words are like."""

EPOCHS, BATCH_SIZE, LEARNING_RATE = 8, 256, 0.5
"""Settings of Adagrad, whose steps are larger for rare words. After 8 epochs the score on a dev set no longer rises."""

UNKNOWN, OUTSIDE = 0, 1
"""The numbers of all unknown words, and of the places before and after a sentence."""


@dataclass(frozen=True)
class WordTagger:
    """A softmax regression on the words before, at and after a place. `weight` (3V, K) has a row for each of them."""

    words: dict[str, int]
    tags: tuple[str, ...]
    weight: Tensor
    bias: Tensor

    def predict(self, sentences: Iterable[Sequence[str]]) -> list[str]:
        """Predict the tags of all tokens, sentence after sentence."""
        windows = _windows(self.words, sentences)
        scores = F.embedding_bag(windows, self.weight, mode="sum") + self.bias
        return [self.tags[index] for index in scores.argmax(dim=1).tolist()]


def fit_word_tagger(train: Sequence[Tagged], dev: Sequence[Tagged], seed: int = 0) -> WordTagger:
    """Fit a tagger to the words and tags of `train`, and return that of the epoch with the best accuracy on `dev`.

    `seed` decides the order of the tokens. The same input gives the same tagger.

    Raises:
        ElmoError: If one of the sets holds no token.
    """
    if not all_tags(train) or not all_tags(dev):
        raise ElmoError("train, dev: one of them holds no token; give tagged sentences")
    counts = Counter(token for sentence in train for token in sentence.tokens)
    known = [word for word, count in counts.items() if count >= MIN_COUNT]
    tags = tuple(sorted(set(all_tags(train))))
    words = {word: number for number, word in enumerate(known, OUTSIDE + 1)}
    tagger = WordTagger(words, tags, torch.zeros(3 * (len(words) + 2), len(tags)), torch.zeros(len(tags)))
    places = {tag: place for place, tag in enumerate(tags)}
    windows = _windows(words, (sentence.tokens for sentence in train))
    targets = torch.tensor([places[tag] for tag in all_tags(train)])
    weight, bias = tagger.weight.clone().requires_grad_(), tagger.bias.clone().requires_grad_()
    optimizer = torch.optim.Adagrad([weight, bias], lr=LEARNING_RATE)
    order = torch.Generator().manual_seed(seed)
    best = -1.0
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(targets), generator=order).split(BATCH_SIZE):
            _step(optimizer, windows[batch], targets[batch], weight, bias)
        now = WordTagger(words, tags, weight.detach().clone(), bias.detach().clone())
        score = accuracy(now.predict(sentence.tokens for sentence in dev), all_tags(dev))
        if score > best:
            best, tagger = score, now
    return tagger


def _step(optimizer: torch.optim.Optimizer, windows: Tensor, targets: Tensor, weight: Tensor, bias: Tensor) -> None:
    optimizer.zero_grad()
    with torch.sparse.check_sparse_tensor_invariants(
        enable=False
    ):  # trusted, since torch made them; otherwise it warns
        scores = F.embedding_bag(windows, weight, mode="sum", sparse=True) + bias
        F.cross_entropy(scores, targets).backward()
        optimizer.step()


def accuracy(predicted: Sequence[str], tags: Sequence[str]) -> float:
    """Return the share of tags that are predicted correctly."""
    return sum(map(str.__eq__, predicted, tags)) / len(tags)


def _windows(words: dict[str, int], sentences: Iterable[Sequence[str]]) -> Tensor:
    """Return the rows of the weight for the words before, at and after each token, (N, 3)."""
    size = len(words) + 2
    rows: list[tuple[int, int, int]] = []
    for tokens in sentences:
        numbers = [OUTSIDE, *(words.get(token, UNKNOWN) for token in tokens), OUTSIDE]
        rows += [(a, size + b, 2 * size + c) for a, b, c in zip(numbers, numbers[1:], numbers[2:], strict=False)]
    return torch.tensor(rows, dtype=torch.long).reshape(-1, 3)
