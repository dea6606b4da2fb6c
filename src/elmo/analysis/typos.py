"""The benefit of reading characters: part-of-speech tagging of text with typos.

A linear probe on the vectors of a biLM is compared with `WordTagger`, which knows words only as a whole.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from elmo.analysis.pos import accuracy, all_tags, embed_tokens, fit_pos
from elmo.embed.embedder import Embedder
from elmo.embed.layers import Layers, layer_name
from elmo.errors import ElmoError
from elmo.text.characters import require_sentence
from elmo.text.columns import Tagged

MIN_LETTERS = 4
"""Words with fewer letters get no typo, since it would too easily turn them into another word."""

SHARE = 0.2
"""Share of the longer words that are misspelt by default."""

KEY_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
"""Letters on a keyboard. Each row is about half a key to the right of the one above it."""

WORDS_ONLY = "words"
"""Name of the baseline in the table."""

MIN_COUNT = 2
"""Rarer words are unknown in training, too, so that the classifier learns what unknown words are like."""

EPOCHS, BATCH_SIZE, LEARNING_RATE = 8, 256, 0.5
"""Settings of Adagrad, whose steps are larger for rare words. After 8 epochs the score on a dev set no longer rises."""

UNKNOWN, OUTSIDE = 0, 1
"""The numbers of all unknown words, and of the places before and after a sentence."""


@dataclass(frozen=True)
class Robustness:
    """Accuracies on clean and noisy text: of all tokens, and of only those that are misspelt in the noisy text."""

    clean: float
    noisy: float
    misspelt_clean: float
    misspelt_noisy: float


def evaluate_typos(
    embedder: Embedder,
    train: Sequence[Tagged],
    dev: Sequence[Tagged],
    test: Sequence[Tagged],
    layers: Sequence[Layers] | None = None,
    *,
    share: float = SHARE,
    seed: int = 0,
) -> dict[str, Robustness]:
    """Tag `test` without and with typos (see `with_typos`), using classifiers that are trained on clean text.

    The classifiers are linear probes on single layers, and a linear classifier on the words before, at and after a
    place. Most misspelt words are unknown to the latter.

    Args:
        embedder: The model, which reads characters.
        train: Sentences to fit the classifiers to.
        dev: Sentences on which the probes' weight decay and the epoch of the other classifier are chosen.
        test: Sentences to tag.
        layers: Choices of layers that give one vector per token. None takes every layer.
        share: The share of the longer words of `test` that get a typo, from 0 to 1.
        seed: The seed of the typos.

    Returns:
        The accuracies by classifier: "layer 1" and so on for the probes, and "words" for the one that knows words only.

    Raises:
        ElmoError: If the model does not read characters, or no word of `test` is misspelt.
    """
    if embedder.config.char_cnn is None:
        raise ElmoError(
            "this model reads whole words, and any misspelt one as <UNK>; use a model that reads characters"
        )
    texts = with_typos([sentence.tokens for sentence in test], share, seed)
    noisy = [Tagged(tokens, sentence.tags) for tokens, sentence in zip(texts, test, strict=True)]
    # Not as arrays of strings, in which each one takes as much memory as the longest.
    misspelt = np.array([noise != token for noise, token in zip(_tokens(noisy), _tokens(test), strict=True)])
    if not misspelt.any():
        raise ElmoError(
            f"`test`: has too few words of {MIN_LETTERS} letters or more for typos in {share:.0%} of them; give "
            "more text"
        )
    tags = np.array(all_tags(test))

    def compare(predict: Callable[[Sequence[Tagged]], list[str]]) -> Robustness:
        clean, dirty = (np.array(predict(text)) == tags for text in (test, noisy))
        return Robustness(*(float(right.mean()) for right in (clean, dirty, clean[misspelt], dirty[misspelt])))

    tagger = fit_word_tagger(train, dev)
    table = {WORDS_ONLY: compare(lambda text: tagger.predict(sentence.tokens for sentence in text))}
    for layer in range(embedder.num_layers) if layers is None else layers:
        probe = fit_pos(embedder, train, dev, layer)
        table[layer_name(layer)] = compare(
            lambda text, probe=probe, layer=layer: probe.predict(embed_tokens(embedder, text, layer))
        )
    return table


def with_typos(sentences: Iterable[Sequence[str]], share: float = SHARE, seed: int = 0) -> list[list[str]]:
    """Copy sentences, and put a typo into some of their words that consist of at least `MIN_LETTERS` letters.

    With equal probability, a typo is two adjacent letters swapped, a letter left out, a letter typed twice, or a letter
    replaced by its neighbor on the keyboard. The same seed gives the same typos on every machine, and a larger share
    adds to the typos of a smaller one.

    Args:
        sentences: Lists of tokens.
        share: The share of these words that get a typo, from 0 to 1.
        seed: The seed of the random numbers that choose words and typos.

    Returns:
        The copies.

    Raises:
        ElmoError: If a sentence is not a list of tokens, or `share` is not between 0 and 1.
    """
    noisy: list[list[str]] = []
    for number, sentence in enumerate(sentences):
        require_sentence(sentence, number)
        noisy.append(list(sentence))
    if not 0 <= share <= 1:
        raise ElmoError(f"`share`: {share} is not between 0 and 1")
    places = [
        (row, column)
        for row, sentence in enumerate(noisy)
        for column, token in enumerate(sentence)
        if len(token) >= MIN_LETTERS and token.isalpha()
    ]
    # Numbers are drawn for all words, so that a larger share only adds typos. Only random() is used, because it gives
    # the same numbers in every version of Python.
    draw = random.Random(seed).random
    drawn = sorted((draw(), draw(), draw(), *place) for place in places)
    for _, which, where, row, column in drawn[: round(share * len(places))]:
        noisy[row][column] = _misspell(noisy[row][column], which, where)
    return noisy


def _misspell(word: str, which: float, where: float) -> str:
    """Return the word with one typo, which is chosen by two numbers in [0, 1)."""
    # First the kind is drawn and then the place, so that kinds are equally frequent although they have unequally many
    # places. Kinds that are impossible for this word ("eeee" has no letters to swap) are left out.
    kinds = [words for typos in (_swapped, _dropped, _doubled, _slipped) if (words := typos(word))]
    words = kinds[int(which * len(kinds))]
    return words[int(where * len(words))]


def _swapped(word: str) -> list[str]:
    pairs = enumerate(pairwise(word))
    return [f"{word[:i]}{second}{first}{word[i + 2 :]}" for i, (first, second) in pairs if first != second]


def _dropped(word: str) -> list[str]:
    return [word[:i] + word[i + 1 :] for i in range(len(word))]


def _doubled(word: str) -> list[str]:
    return [word[: i + 1] + word[i:] for i in range(len(word))]


def _slipped(word: str) -> list[str]:
    """Return the words with a letter replaced by a neighboring key; only letters on the keyboard are replaced."""
    return [
        word[:i] + (key.upper() if letter.isupper() else key) + word[i + 1 :]
        for i, letter in enumerate(word)
        for key in _NEIGHBORS.get(letter.lower(), "")
    ]


def _neighboring_keys() -> dict[str, str]:
    """Return the letters next to, above and below each letter on the keyboard."""
    places = {key: (row, column + row / 2) for row, keys in enumerate(KEY_ROWS) for column, key in enumerate(keys)}
    return {
        key: "".join(other for other, (r, x) in places.items() if (abs(r - row), abs(x - column)) in ((0, 1), (1, 0.5)))
        for key, (row, column) in places.items()
    }


_NEIGHBORS = _neighboring_keys()


def _tokens(sentences: Sequence[Tagged]) -> list[str]:
    return [token for sentence in sentences for token in sentence.tokens]


# The baseline: a tagger that knows words only as a whole.


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


def fit_word_tagger(train: Sequence[Tagged], dev: Sequence[Tagged]) -> WordTagger:
    """Fit a tagger to the words and tags of `train`, and return that of the epoch with the best accuracy on `dev`.

    The same input gives the same tagger.

    Raises:
        ElmoError: If one of the sets holds no token.
    """
    tags = all_tags(dev)
    if not all_tags(train) or not tags:
        raise ElmoError("train, dev: one of them holds no token; give tagged sentences")
    texts = [sentence.tokens for sentence in dev]
    return max(_word_taggers(train), key=lambda tagger: accuracy(tagger.predict(texts), tags))  # the first of equals


def _word_taggers(train: Sequence[Tagged]) -> Iterator[WordTagger]:
    """Yield the tagger after each epoch on `train`."""
    known = [word for word, count in Counter(_tokens(train)).items() if count >= MIN_COUNT]
    words = {word: number for number, word in enumerate(known, OUTSIDE + 1)}
    tags = tuple(sorted(set(all_tags(train))))
    places = {tag: place for place, tag in enumerate(tags)}
    windows = _windows(words, (sentence.tokens for sentence in train))
    targets = torch.tensor([places[tag] for tag in all_tags(train)])
    weight = torch.zeros(3 * (len(words) + 2), len(tags), requires_grad=True)
    bias = torch.zeros(len(tags), requires_grad=True)
    optimizer = torch.optim.Adagrad([weight, bias], lr=LEARNING_RATE)
    order = torch.Generator().manual_seed(0)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(targets), generator=order).split(BATCH_SIZE):
            optimizer.zero_grad()
            # Only the rows of the batch's words have a gradient, so it is sparse: a dense one would have as many rows
            # as there are words. Torch itself made its indices, so they need no check, and without this line torch
            # warns of that.
            with torch.sparse.check_sparse_tensor_invariants(enable=False):
                scores = F.embedding_bag(windows[batch], weight, mode="sum", sparse=True) + bias
                F.cross_entropy(scores, targets[batch]).backward()
                optimizer.step()
        yield WordTagger(words, tags, weight.detach().clone(), bias.detach().clone())


def _windows(words: dict[str, int], sentences: Iterable[Sequence[str]]) -> Tensor:
    """Return the rows of the weight for the words before, at and after each token, (N, 3)."""
    # A word has three rows, one for each of the places before, at and after: its number, plus 0, `size` or 2 `size`.
    size = len(words) + 2
    rows: list[tuple[int, int, int]] = []
    for tokens in sentences:
        numbers = [OUTSIDE, *(words.get(token, UNKNOWN) for token in tokens), OUTSIDE]
        rows += [(a, size + b, 2 * size + c) for a, b, c in zip(numbers, numbers[1:], numbers[2:], strict=False)]
    return torch.tensor(rows, dtype=torch.long).reshape(-1, 3)
