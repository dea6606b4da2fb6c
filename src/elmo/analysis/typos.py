"""What characters buy: parts of speech in text with typos, beside a classifier that knows words only as a whole."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from elmo.analysis.baseline import fit_word_tagger
from elmo.analysis.pos import all_tags, embed_tokens, fit_pos
from elmo.analysis.tagged import Tagged
from elmo.embed.embedder import Embedder
from elmo.embed.layers import Layers, layer_name
from elmo.errors import ElmoError

MIN_LETTERS = 4
"""Words of fewer letters stay as they are: a typo makes another word of them too easily."""

SHARE = 0.2
"""Of the longer words, one in five is misspelt by default."""

KEY_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
"""Letters on a keyboard; each row stands about half a key to the right of the one above it."""

WORDS_ONLY = "words"
"""The baseline's name in the table."""


@dataclass(frozen=True)
class Robustness:
    """Shares of tokens that get their tag: of all in the clean and the noisy text, of the misspelt alone in both."""

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
    """Tag `test` as it is and with typos (see `with_typos`), by classifiers that were trained on clean text.

    They are linear probes on `layers` (default: every layer), named as "layer 1", and `WORDS_ONLY`, a linear
    classifier on the words before, at and after a place, for which a misspelt word is mostly an unknown one.
    """
    if embedder.config.char_cnn is None:
        raise ElmoError("this model reads whole words, and any misspelt one as <UNK>; typos need one of characters")
    texts = with_typos([sentence.tokens for sentence in test], share, seed)
    noisy = [Tagged(tokens, sentence.tags) for tokens, sentence in zip(texts, test, strict=True)]
    misspelt = np.array(_tokens(noisy)) != np.array(_tokens(test))
    if not misspelt.any():
        raise ElmoError(f"test: typos in {share:.0%} of its words of {MIN_LETTERS} letters or more are none at all")
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


def with_typos(sentences: Sequence[Sequence[str]], share: float = SHARE, seed: int = 0) -> list[list[str]]:
    """The sentences with a typo in `share` of their words of `MIN_LETTERS` letters or more (and nothing but letters).

    A typo is, with equal chances, two neighbouring letters in the wrong order, one left out, one typed twice, or one
    replaced by its neighbour on the keyboard. The same seed gives the same typos, anywhere; a larger share adds to
    those of a smaller one.
    """
    if not 0 <= share <= 1:
        raise ElmoError(f"share: {share} is not between 0 and 1")
    noisy = [list(sentence) for sentence in sentences]
    places = [
        (row, column)
        for row, sentence in enumerate(noisy)
        for column, token in enumerate(sentence)
        if len(token) >= MIN_LETTERS and token.isalpha()
    ]
    # All are drawn, whatever the share, and by random() alone, which is the same in every version of Python.
    draw = random.Random(seed).random
    drawn = sorted((draw(), draw(), draw(), *place) for place in places)
    for _, which, where, row, column in drawn[: round(share * len(places))]:
        noisy[row][column] = _misspell(noisy[row][column], which, where)
    return noisy


def _misspell(word: str, which: float, where: float) -> str:
    """The word with one typo, chosen by two numbers from 0 to below 1."""
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
    """Letters that the keyboard hasn't are never missed."""
    return [
        word[:i] + (key.upper() if letter.isupper() else key) + word[i + 1 :]
        for i, letter in enumerate(word)
        for key in _NEIGHBORS.get(letter.lower(), "")
    ]


def _neighboring_keys() -> dict[str, str]:
    """The letters beside, above and below each."""
    places = {key: (row, column + row / 2) for row, keys in enumerate(KEY_ROWS) for column, key in enumerate(keys)}
    return {
        key: "".join(other for other, (r, x) in places.items() if (abs(r - row), abs(x - column)) in ((0, 1), (1, 0.5)))
        for key, (row, column) in places.items()
    }


_NEIGHBORS = _neighboring_keys()


def _tokens(sentences: Sequence[Tagged]) -> list[str]:
    return [token for sentence in sentences for token in sentence.tokens]
