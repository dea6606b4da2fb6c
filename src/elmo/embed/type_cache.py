"""Keeps the vectors of words met before, in bounded memory, because a text repeats most of its words."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from elmo.formats.stored_types import StoredTypes

Array = NDArray[np.float32]

CACHE_BYTES = 1 << 26
"""Memory for cached words in bytes: enough for about 29,000 words with vectors of 512 numbers."""

LONGEST = 50
"""Maximum length of a cached word in characters. Longer words are not kept, so that memory is bounded."""

_ENTRY_BYTES = 250
"""Upper bound for the bytes that a word and its entry in a dictionary take in addition to the vector."""


_caches: weakref.WeakSet[TypeCache] = weakref.WeakSet()


class TypeCache:
    """Vectors (P,) of words, which are kept while they are in use.

    When a word is first needed, it is looked up among the vectors that are stored with the model, if there are any,
    and encoded if it is not there.

    Two generations share the memory. New words, and words of the old generation that are used again, go into the
    young generation. When that is full, it becomes the old one and the previous old one is dropped. A word that occurs
    at least once per generation therefore stays, and a hit costs a single look-up, without any record of its use.

    It may be used by several threads at once.

    Args:
        encode: Computes the vectors (N, P) of N words.
        width: Width of a vector (P).
        num_bytes: Memory for both generations together.
        stored: Vectors that are stored with the model.
    """

    def __init__(
        self,
        encode: Callable[[Sequence[str]], Array],
        width: int,
        num_bytes: int = CACHE_BYTES,
        stored: StoredTypes | None = None,
    ) -> None:
        self.encode = encode
        self._stored = [] if stored is None else [stored]
        self._width = width
        self._generation_size = max(1, num_bytes // (4 * width + _ENTRY_BYTES) // 2)
        self._young, self._old = _Generation(self._generation_size, width), _Generation(0, width)
        self._lock = threading.Lock()
        _caches.add(self)

    @property
    def num_words(self) -> int:
        """Number of words whose vectors are kept."""
        return len(self._young) + len(self._old)

    @property
    def num_rows(self) -> int:
        """Number of vectors that there is memory for."""
        return self._young.size + self._old.size

    def vectors(self, words: Sequence[str]) -> Array:
        """Return the vectors (N, P) of N distinct words."""
        with self._lock:
            found, new = self._young.read(words)
            if new:
                new_words = [words[index] for index in new]
                found[new] = vectors = self._look_up(new_words, [self._old, *self._stored])
                self._keep(new_words, vectors)
        return found

    def renew_lock(self) -> None:
        """Replace the lock, in a process that a fork has made while it may have been held."""
        self._lock = threading.Lock()

    def _look_up(self, words: Sequence[str], places: Sequence[_Generation | StoredTypes]) -> Array:
        """Return the vectors of words from the first of the places that has them, and encode those that none has."""
        if not places:
            return self.encode(words)
        found, unknown = places[0].read(words)
        if unknown:
            found[unknown] = self._look_up([words[index] for index in unknown], places[1:])
        return found

    def _keep(self, words: Sequence[str], vectors: Array) -> None:
        kept = [index for index, word in enumerate(words) if len(word) <= LONGEST]
        for start in range(0, len(kept), self._generation_size):
            chosen = kept[start : start + self._generation_size]
            if self._young.room < len(chosen):
                self._young, self._old = _Generation(self._generation_size, self._width), self._young
            self._young.add([words[index] for index in chosen], vectors[chosen])


if hasattr(os, "register_at_fork"):
    # A thread that held a lock is not in the child, which would wait for it forever.
    os.register_at_fork(after_in_child=lambda: [cache.renew_lock() for cache in _caches])


class _Generation:
    """At most `size` words and their vectors."""

    def __init__(self, size: int, width: int) -> None:
        self._rows: dict[str, int] = {}
        self._vectors = np.empty((size, width), np.float32)  # the system provides the memory only when it is written

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def size(self) -> int:
        """Number of words that there is memory for."""
        return len(self._vectors)

    @property
    def room(self) -> int:
        """Number of words that can still be added."""
        return self.size - len(self)

    def read(self, words: Sequence[str]) -> tuple[Array, list[int]]:
        """Return the vectors (N, P) of `words`, and the indices of unknown words, whose rows are not initialized."""
        found = np.empty((len(words), self._vectors.shape[1]), np.float32)
        get = self._rows.get
        rows = np.fromiter((get(word, -1) for word in words), np.int64, len(words))
        known = rows >= 0
        found[known] = self._vectors[rows[known]]
        unknown: list[int] = np.flatnonzero(~known).tolist()
        return found, unknown

    def add(self, words: Sequence[str], vectors: Array) -> None:
        """Add words that are not here yet, and for which there must be room."""
        start = len(self._rows)
        self._vectors[start : start + len(words)] = vectors
        self._rows.update(zip(words, range(start, start + len(words)), strict=True))
