"""Made-up text that has those statistics of English that speed and memory depend on."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

NUM_TYPES = 100_000
WORDS_PER_SENTENCE, SPREAD = 19.0, 0.6
"""The median number of tokens in a sentence of newspapers, and the deviation of its logarithm. The mean is 23."""


def make_text(num_tokens: int, seed: int = 0) -> list[list[str]]:
    """Make sentences with about `num_tokens` tokens in all.

    Word frequencies follow Zipf's law, frequent words are short, and the lengths of sentences are log-normal.
    """
    random = np.random.default_rng(seed)
    ranks = np.arange(1, NUM_TYPES + 1)
    frequencies = 1 / (ranks + 1.5) ** 1.08
    word_lengths = np.clip(random.normal(2.0 + 0.55 * np.log(ranks), 1.2 + 0.08 * np.log(ranks)), 1, 25).astype(int)
    letters = random.integers(97, 123, word_lengths.sum(), dtype=np.uint8).tobytes().decode()
    ends = np.cumsum(word_lengths)
    words = [letters[end - length : end] for end, length in zip(ends, word_lengths, strict=True)]
    ids = random.choice(NUM_TYPES, size=num_tokens, p=frequencies / frequencies.sum())
    sentences: list[list[str]] = []
    start = 0
    while start < num_tokens:
        length = int(np.clip(random.lognormal(np.log(WORDS_PER_SENTENCE), SPREAD), 1, 120))
        sentences.append([words[index] for index in ids[start : start + length]])
        start += length
    return sentences


def read_text(path: Path, num_tokens: int) -> list[list[str]]:
    """Read the first sentences of a file, about `num_tokens` tokens: one sentence a line, spaces between tokens."""
    with path.open(encoding="utf-8") as lines:
        return first_sentences((line.split() for line in lines if line.strip()), num_tokens)


def first_sentences(sentences: Iterable[list[str]], num_tokens: int) -> list[list[str]]:
    """Return the first sentences, until they have `num_tokens` tokens in all, or all of them."""
    chosen: list[list[str]] = []
    for sentence in sentences:
        chosen.append(sentence)
        num_tokens -= len(sentence)
        if num_tokens <= 0:
            break
    return chosen
