"""Batches for inference: any stream of sentences in constant memory, whatever their lengths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from elmo.errors import ElmoError
from elmo.text.characters import refuse_string

Sentence = Sequence[str]


@dataclass(frozen=True)
class PackedBatch:
    """Sentences that run together, in packed order (see `elmo.nn.lstm`) without any padding.

    `tokens` (N,) are indices into some types, sentence after sentence, boundaries included. `rows[d]` (N,) says in
    which packed row direction d reads each of them: forward from the first token on, backward from the last one.
    `inner` (N,) is true at tokens that are no boundary, `ends` (B,) counts these up to each sentence's end.
    """

    batch_sizes: list[int]
    tokens: NDArray[np.int64]
    rows: tuple[NDArray[np.int64], NDArray[np.int64]]
    inner: NDArray[np.bool_]
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]]) -> PackedBatch:
        """The batch of one or more sentences of falling length, as type indices with their boundaries."""
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
        """The `tokens` in the order in which a direction reads them."""
        packed = np.empty_like(self.tokens)
        packed[self.rows[direction]] = self.tokens
        return packed

    def split(self, vectors: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """Cut vectors (…, tokens without boundaries, D) into those of each sentence: views (…, T, D)."""
        return [vectors[..., start:end, :] for start, end in zip([0, *self.ends[:-1]], self.ends, strict=True)]


def windows(
    sentences: Iterable[Sentence], max_tokens: int, max_sentences: int | None, first: int = 0
) -> Iterator[list[Sentence]]:
    """Cut a stream into consecutive windows of `max_sentences` sentences, or of about `max_tokens` tokens.

    A window by tokens ends before the sentence that would exceed `max_tokens`, boundaries counted; a longer
    sentence is a window of its own. Every window but the last has exactly `max_sentences` where that is given.
    `first` is the number of the first sentence, for errors.
    """
    window: list[Sentence] = []
    num_tokens = 0
    for number, sentence in enumerate(sentences, first):
        check_sentence(sentence, number)
        length = len(sentence) + 2
        full = num_tokens + length > max_tokens if max_sentences is None else len(window) == max_sentences
        if window and full:
            yield window
            window, num_tokens = [], 0
        window.append(sentence)
        num_tokens += length
    if window:
        yield window


def plan_batches(lengths: Sequence[int], max_tokens: int, max_sentences: int | None) -> list[list[int]]:
    """Which sentences run together: lists of indices into `lengths`, of falling length.

    A batch has at most `max_sentences` sentences, or `max_tokens` tokens with boundaries; a longer sentence is a
    batch of its own.
    """
    batches: list[list[int]] = []
    num_tokens = 0
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        num_tokens += lengths[index] + 2
        batch = batches[-1] if batches else []
        full = num_tokens > max_tokens if max_sentences is None else len(batch) == max_sentences
        if not batch or full:
            batches.append([])
            num_tokens = lengths[index] + 2
        batches[-1].append(index)
    return batches


def check_sentence(sentence: object, number: int) -> None:
    """Refuse what is no list of tokens."""
    refuse_string(sentence, number)
    if not isinstance(sentence, Sequence):
        raise ElmoError(f"sentence {number}: expected a list of tokens, found {type(sentence).__name__}")
    for token in cast("Sequence[Any]", sentence):
        if not isinstance(token, str):
            raise ElmoError(f"sentence {number}: token {token!r} is no string")
