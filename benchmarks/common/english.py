"""Made-up text with the statistics of English that cost depends on."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

NUM_TYPES = 100_000
WORDS_PER_SENTENCE, SPREAD = 19.0, 0.6
"""Median of a sentence's tokens in newspapers, and the spread of its logarithm: 23 on the average."""


def make_text(num_tokens: int, seed: int = 0) -> list[list[str]]:
    """Sentences of about `num_tokens` tokens together: Zipf's frequencies, frequent words short, lengths log-normal."""
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
    """The first sentences of a file, one a line with spaces between its tokens, of about `num_tokens` tokens."""
    with path.open(encoding="utf-8") as lines:
        return first_sentences((line.split() for line in lines if line.strip()), num_tokens)


def first_sentences(sentences: Iterable[list[str]], num_tokens: int) -> list[list[str]]:
    """The first sentences that have `num_tokens` tokens together; all of them if they have fewer."""
    chosen: list[list[str]] = []
    for sentence in sentences:
        chosen.append(sentence)
        num_tokens -= len(sentence)
        if num_tokens <= 0:
            break
    return chosen
