"""Cuts a stream of sentences into batches for inference, in memory that does not grow with the stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from elmo.text.characters import iterate, require_sentence

Sentence = Sequence[str]


@dataclass(frozen=True)
class PackedBatch:
    """Sentences that run together in packed order, without any padding (see `elmo.nn.lstm`).

    N is the number of tokens in the batch, including the boundaries `<S>` and `</S>` of each sentence.

    Attributes:
        batch_sizes: Number of sentences that have a token at each step, as an LSTM over packed rows takes it.
        tokens: (N,) indices into a list of distinct words, sentence after sentence.
        rows: For each direction, (N,) the packed row in which it reads each token. Forward (0) starts at the first
            token of a sentence, backward (1) at the last one.
        inner: (N,) true at tokens that are not boundaries.
        ends: (B,) number of tokens that are not boundaries up to the end of each sentence.
    """

    batch_sizes: list[int]
    tokens: NDArray[np.int64]
    rows: tuple[NDArray[np.int64], NDArray[np.int64]]
    inner: NDArray[np.bool_]
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]]) -> PackedBatch:
        """Make a batch of one or more sentences, given as word indices with boundaries, the longest sentence first."""
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
        running = len(lengths) - np.searchsorted(lengths[::-1], np.arange(lengths[0]), side="right")
        starts = np.cumsum(running) - running
        row = np.repeat(np.arange(len(lengths)), lengths)
        tokens = np.fromiter(chain.from_iterable(sentences), np.int64, len(row))
        step = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        steps_left = lengths[row] - 1 - step
        return cls(
            running.tolist(),
            tokens,
            (starts[step] + row, starts[steps_left] + row),
            (step > 0) & (steps_left > 0),
            np.cumsum(lengths - 2),
        )

    def packed(self, direction: int) -> NDArray[np.int64]:
        """Return `tokens` in the packed order in which a direction (0 forward, 1 backward) reads them."""
        packed = np.empty_like(self.tokens)
        packed[self.rows[direction]] = self.tokens
        return packed

    def split(self, vectors: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """Split vectors (…, sum of T, D), without boundaries, into one view (…, T, D) per sentence."""
        return [vectors[..., start:end, :] for start, end in zip([0, *self.ends[:-1]], self.ends, strict=True)]


def windows(
    sentences: Iterable[Sentence], max_tokens: int, max_sentences: int | None, first: int = 0
) -> Iterator[list[Sentence]]:
    """Cut a stream into consecutive windows, by number of sentences or else by number of tokens.

    Args:
        sentences: Lists of tokens.
        max_tokens: Maximum number of tokens in a window, including boundaries, if `max_sentences` is None. A sentence
            that is longer is a window by itself.
        max_sentences: Exact number of sentences in every window except the last, if not None.
        first: Number of the first sentence, for error messages.

    Raises:
        ElmoError: If `sentences` can't be gone through, or a sentence is not a list of strings.
    """
    window: list[Sentence] = []
    num_tokens = 0
    for number, sentence in enumerate(iterate(sentences), first):
        require_sentence(sentence, number)
        if isinstance(sentence, np.ndarray):  # arrays of strings, whose tokens would be slow to look up
            sentence = sentence.tolist()
        length = len(sentence) + 2
        full = num_tokens + length > max_tokens if max_sentences is None else len(window) >= max_sentences
        if window and full:
            yield window
            window, num_tokens = [], 0
        window.append(sentence)
        num_tokens += length
    if window:
        yield window


def plan_batches(lengths: Sequence[int], max_tokens: int, max_sentences: int | None) -> list[list[int]]:
    """Decide which sentences run together, from the longest to the shortest.

    Args:
        lengths: Number of tokens of each sentence, without boundaries.
        max_tokens: Maximum number of tokens in a batch, including boundaries, if `max_sentences` is None. A sentence
            that is longer is a batch by itself.
        max_sentences: Maximum number of sentences in a batch, if not None.

    Returns:
        One list per batch of indices into `lengths`, the longest sentence first.
    """
    batches: list[list[int]] = []
    num_tokens = 0
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        num_tokens += lengths[index] + 2
        batch = batches[-1] if batches else []
        full = num_tokens > max_tokens if max_sentences is None else len(batch) >= max_sentences
        if not batch or full:
            batches.append([])
            num_tokens = lengths[index] + 2
        batches[-1].append(index)
    return batches
