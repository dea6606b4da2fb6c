"""Endless training streams over shuffled sentences (Peters et al. 2018, sec. 3.4; batching as in bilm-tf).

What a stream reads next depends only on the seed and on two numbers: how many sentences it has counted, and its place
inside the current one. Therefore training resumes exactly, and shuffling needs no memory that grows with the corpus.

A shuffled list of sentence numbers would be simpler, but a corpus of a billion words has tens of millions of sentences,
and each process would hold one list for each direction. Here the order is a function that is computed for a few
sentences at a time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from elmo.config import BOS_ID, EOS_ID, UNK_ID
from elmo.text.corpus import Corpus

Ids = NDArray[np.int64]


class Permutation:
    """A pseudo-random order of `range(size)` whose entries are computed on demand.

    It is a keyed Feistel network, which permutes the numbers below a power of four that is not less than `size`. An
    entry of `size` or more is sent through the network again until it falls into the range (cycle walking).

    Args:
        size: The number of entries.
        key: The seed that determines the order.
    """

    def __init__(self, size: int, key: int) -> None:
        self.size = size
        # A Feistel network needs two halves of equal width, hence an even number of bits. Its range is less than four
        # times the size, so that finding an entry takes fewer than four passes on average.
        self._half_bits = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
        # Each round is a bijection whatever its key and its mixing, so the whole is a permutation.
        self._keys = np.random.default_rng(key).integers(2**63, size=6, dtype=np.uint64)

    def __call__(self, places: Ids) -> Ids:
        """Return the entries at `places`, an array of any shape."""
        entries = self._mix(places.astype(np.uint64))
        while (outside := entries >= self.size).any():
            entries[outside] = self._mix(entries[outside])
        return entries.astype(np.int64)

    def _mix(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        mask = (np.uint64(1) << self._half_bits) - np.uint64(1)
        left, right = values >> self._half_bits, values & mask
        for key in self._keys:
            # A hash of the right half, by multiplications and shifts as in splitmix64. uint64 wraps around, as wanted.
            mixed = (right ^ key) * np.uint64(0x9E3779B97F4A7C15)
            mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
            left, right = right, left ^ ((mixed >> np.uint64(32)) & mask)
        return (left << self._half_bits) | right


class Streams:
    """The training streams of one reading direction.

    Stream b reads the sentences b, b + batch_size, b + 2 * batch_size, … of the corpus in shuffled order and then
    continues with the next epoch's order, without end. A sentence of n tokens gives n + 1 predictions: the forward
    direction reads `<S>` and the tokens, and predicts the tokens and `</S>`; the backward direction reads `</S>` and
    the tokens from the end, and predicts the tokens and `<S>`.

    Args:
        corpus: The corpus to read.
        batch_size: The number of streams over all processes. What a stream reads depends on it.
        seed: Determines the order of the sentences, together with the epoch and the direction.
        backward: Whether the streams read each sentence from its end.
        rows: Which of the streams to read here, all by default; B is their number. What each of them reads does not
            depend on it, so training is the same however many processes share the streams.
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
        """The number of the sentence that each stream is in, counted over all epochs, (B,)."""
        self.offset: Ids = np.zeros_like(self.count)
        """How many predictions of that sentence are already done, (B,)."""

    def read(self, num_steps: int) -> tuple[Ids, Ids]:
        """Read the next `num_steps` tokens T of every stream.

        Returns:
            The inputs, type ids (B, T), and the targets, ids of the vocabulary (B, T) with `<UNK>` for types that are
            not in it. Both are in the order of the text: the backward direction reads each row from its end.
        """
        inputs = np.empty((len(self.count), num_steps), dtype=np.int64)
        targets = np.empty_like(inputs)
        start, length = self._locate(self.count)
        # All streams take a step together: Python's loop has as many turns as there are steps, whatever the batch size.
        first, last = (EOS_ID, BOS_ID) if self._backward else (BOS_ID, EOS_ID)
        for step in range(num_steps):
            at_start, at_end = self.offset == 0, self.offset == length
            inputs[:, step] = np.where(at_start, first, self._token(start, length, self.offset - 1))
            targets[:, step] = np.where(at_end, last, self._token(start, length, self.offset))
            self.offset = np.where(at_end, 0, self.offset + 1)
            if at_end.any():
                self.count[at_end] += self._batch_size
                start[at_end], length[at_end] = self._locate(self.count[at_end])
        # The vocabulary has the first ids, so every other type is simply one with a higher id.
        targets[targets >= self._corpus.vocabulary_size] = UNK_ID
        return (inputs[:, ::-1].copy(), targets[:, ::-1].copy()) if self._backward else (inputs, targets)

    def _token(self, start: Ids, length: Ids, place: Ids) -> NDArray[np.int32]:
        """Return the type at `place` of each sentence in reading order; any type if `place` is outside of it."""
        # Places outside are read and then thrown away by `np.where`, but they have to be valid indices.
        inside = np.clip(place, 0, length - 1)
        return self._corpus.tokens[start + (length - 1 - inside if self._backward else inside)]

    def _locate(self, count: Ids) -> tuple[Ids, Ids]:
        """Return the start and the length of the sentences with these numbers."""
        # Streams pass the end of an epoch one by one, so there may be two epochs at the same time.
        epoch, place = np.divmod(count, self._corpus.num_sentences)
        sentence = np.empty_like(count)
        for number in np.unique(epoch).tolist():
            here = epoch == number
            sentence[here] = self._order(number)(place[here])
        start = self._corpus.starts[sentence].astype(np.int64)
        return start, self._corpus.starts[sentence + 1] - start

    def _order(self, epoch: int) -> Permutation:
        """Return the order of sentences in an epoch, and forget the orders of epochs before the previous one."""
        if epoch not in self._orders:
            self._orders = {e: order for e, order in self._orders.items() if e >= epoch - 1}
            # `SeedSequence` mixes its numbers: seed + epoch would give a run the orders of one with another seed.
            key = int(np.random.SeedSequence([self._seed, epoch, self._backward]).generate_state(1, np.uint64)[0])
            self._orders[epoch] = Permutation(self._corpus.num_sentences, key)
        return self._orders[epoch]
