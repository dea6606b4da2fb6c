"""Endless training streams over shuffled sentences (Peters et al. 2018, sec. 3.4; batching as in bilm-tf).

Whatever a stream will read is a function of the seed and of two numbers, its sentence count and its place inside the
sentence. That makes resuming exact and shuffling free of memory, however many sentences there are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from elmo.text.corpus import Corpus

_BOS_ID, _EOS_ID, _UNK_ID = 0, 1, 2

Ids = NDArray[np.int64]


class Permutation:
    """A pseudo-random order of `range(size)` that computes each entry when asked: a keyed Feistel network.

    The network permutes the next power of four; entries beyond `size` are sent through again (cycle walking).
    """

    def __init__(self, size: int, key: int) -> None:
        self.size = size
        self._half_bits = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
        self._keys = np.random.default_rng(key).integers(2**63, size=6, dtype=np.uint64)

    def __call__(self, places: Ids) -> Ids:
        """The entries at `places`, any shape."""
        entries = self._mix(places.astype(np.uint64))
        while (outside := entries >= self.size).any():
            entries[outside] = self._mix(entries[outside])
        return entries.astype(np.int64)

    def _mix(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        mask = (np.uint64(1) << self._half_bits) - np.uint64(1)
        left, right = values >> self._half_bits, values & mask
        for key in self._keys:
            mixed = (right ^ key) * np.uint64(0x9E3779B97F4A7C15)
            mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
            left, right = right, left ^ ((mixed >> np.uint64(32)) & mask)
        return (left << self._half_bits) | right


class Streams:
    """`batch_size` streams of one reading direction, or those of them that `rows` names.

    Stream b reads sentences b, b + batch_size, b + 2 * batch_size, … of the corpus in shuffled order, then goes on
    with the next epoch's order, without end. A sentence of n tokens gives n + 1 predictions: forward reads `<S>`
    and its tokens and predicts its tokens and `</S>`; backward reads `</S>` and its tokens from the end and
    predicts them and `<S>`.

    What a stream reads depends on `batch_size`, the global number, but not on `rows`: however many processes share
    the streams out among them, they read the same. B below is the number of streams read here.
    """

    def __init__(
        self, corpus: Corpus, batch_size: int, seed: int, backward: bool = False, rows: range | None = None
    ) -> None:
        self._corpus = corpus
        self._seed = seed
        self._backward = backward
        self._orders: dict[int, Permutation] = {}
        self._batch_size = batch_size
        self.count: Ids = np.array(range(batch_size) if rows is None else rows, dtype=np.int64)
        """(B,) number of the sentence each stream is in, counted over all epochs."""
        self.offset: Ids = np.zeros_like(self.count)
        """(B,) predictions of that sentence already made."""

    def read(self, num_steps: int) -> tuple[Ids, Ids]:
        """The next `num_steps` of every stream: inputs and targets, (B, T) each.

        Inputs are type ids; targets are ids of the vocabulary, `<UNK>` for types beyond it. Both stand in the order
        of the text: a backward stream reads its row from the end.
        """
        inputs = np.empty((len(self.count), num_steps), dtype=np.int64)
        targets = np.empty_like(inputs)
        start, length = self._locate(self.count)
        first, last = (_EOS_ID, _BOS_ID) if self._backward else (_BOS_ID, _EOS_ID)
        for step in range(num_steps):
            at_start, at_end = self.offset == 0, self.offset == length
            inputs[:, step] = np.where(at_start, first, self._token(start, length, self.offset - 1))
            targets[:, step] = np.where(at_end, last, self._token(start, length, self.offset))
            self.offset = np.where(at_end, 0, self.offset + 1)
            if at_end.any():
                self.count[at_end] += self._batch_size
                start[at_end], length[at_end] = self._locate(self.count[at_end])
        targets[targets >= self._corpus.vocabulary_size] = _UNK_ID
        return (inputs[:, ::-1].copy(), targets[:, ::-1].copy()) if self._backward else (inputs, targets)

    def _token(self, start: Ids, length: Ids, place: Ids) -> NDArray[np.int32]:
        """The type at `place` of each sentence in reading order; anything where `place` is outside."""
        inside = np.clip(place, 0, length - 1)
        return self._corpus.tokens[start + (length - 1 - inside if self._backward else inside)]

    def _locate(self, count: Ids) -> tuple[Ids, Ids]:
        """Start and length of the sentences with these numbers."""
        epoch, place = np.divmod(count, self._corpus.num_sentences)
        sentence = np.empty_like(count)
        for number in np.unique(epoch).tolist():
            here = epoch == number
            sentence[here] = self._order(number)(place[here])
        start = self._corpus.starts[sentence].astype(np.int64)
        return start, self._corpus.starts[sentence + 1] - start

    def _order(self, epoch: int) -> Permutation:
        """The order of sentences in an epoch; only those in use are kept."""
        if epoch not in self._orders:
            self._orders = {e: order for e, order in self._orders.items() if e >= epoch - 1}
            key = int(np.random.SeedSequence([self._seed, epoch, self._backward]).generate_state(1, np.uint64)[0])
            self._orders[epoch] = Permutation(self._corpus.num_sentences, key)
        return self._orders[epoch]
