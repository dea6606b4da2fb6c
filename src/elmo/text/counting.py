"""Counting the types of any amount of text in bounded memory: sorted runs on disk, merged at the end.

While text is read, types are numbered in a dict. When the dict is full, its words go to disk in order of their code
points, as a run, and numbering starts anew. Tokens are written at once under the numbers of their run; once all runs
are merged and ranked, each run's stretch of tokens is rewritten through that run's own small map.
"""

from __future__ import annotations

import heapq
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from elmo.text.corpus import TOKEN_DTYPE

MAX_TYPES = 200_000
MAX_TEXT = 20_000_000
"""Bounds of the dict: types, and characters of all types together (a text may consist of very long words)."""

_READ_SIZE = 1 << 14
_CHUNK = 1 << 18


@dataclass(frozen=True)
class SortedTypes:
    """Types on disk in order of their code points, and how many tokens they number.

    `words` holds a line per type, word, tab, count; `order` (int32) each one's number; `merged` (int32) its place
    among all types by code points, once merged.
    """

    words: Path
    order: Path
    merged: Path
    num_types: int
    num_tokens: int

    def map_to(self, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        """From this run's numbers to final ids, of which `ids` holds one per place by code points."""
        mapped = np.empty(self.num_types, np.int32)
        mapped[np.fromfile(self.order, np.int32)] = ids[np.fromfile(self.merged, np.int32)]
        return mapped


class TypeCounter:
    """Numbers and counts the types of sentences, and writes the tokens.

    `first_words` make up a run of their own: they are types whether the text holds them or not.
    """

    def __init__(self, folder: Path, tokens: BinaryIO, first_words: Sequence[str]) -> None:
        self.runs: list[SortedTypes] = []
        self._folder = folder
        self._tokens = tokens
        self._start_run()
        for word in first_words:
            self._numbers[word]  # to look it up is to number it
        self._make_room()
        self._finish_run()

    def add(self, sentences: Sequence[Sequence[str]]) -> NDArray[np.int64]:
        """Count the tokens of `sentences`. Returns the sentences' lengths."""
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
        num_tokens = int(lengths.sum())
        known = len(self._numbers)
        numbers = np.fromiter(map(self._numbers.__getitem__, chain.from_iterable(sentences)), np.int32, num_tokens)
        self._tokens.write(numbers.tobytes())
        self._num_tokens += num_tokens
        num_new = len(self._numbers) - known
        self._num_characters += sum(map(len, islice(reversed(self._numbers), num_new)))
        self._make_room()
        np.add.at(self._counts, numbers, 1)
        if len(self._numbers) >= MAX_TYPES or self._num_characters >= MAX_TEXT:
            self._finish_run()
        return lengths

    def finish(self) -> list[SortedTypes]:
        """Write what is still in memory. Returns all runs; the first is that of `first_words`."""
        if self._numbers:
            self._finish_run()
        return self.runs

    def _start_run(self) -> None:
        # a missing word gets the number of words before it, without a step of Python
        self._numbers: defaultdict[str, int] = defaultdict()
        self._numbers.default_factory = self._numbers.__len__
        self._counts = np.zeros(0, np.int64)
        self._num_tokens = 0
        self._num_characters = 0

    def _make_room(self) -> None:
        missing = len(self._numbers) - len(self._counts)
        if missing > 0:
            self._counts = np.append(self._counts, np.zeros(missing + _CHUNK, np.int64))

    def _finish_run(self) -> None:
        words = sorted(self._numbers)
        order = np.fromiter(map(self._numbers.__getitem__, words), np.int32, len(words))
        self._numbers.default_factory = None  # ends the cycle, so that memory is given back at once
        counts = self._counts[order].tolist()
        stem = self._folder / f"run-{len(self.runs)}"
        run = SortedTypes(
            words=stem.with_suffix(".words"),
            order=stem.with_suffix(".order"),
            merged=stem.with_suffix(".merged"),
            num_types=len(words),
            num_tokens=self._num_tokens,
        )
        with run.words.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{word}\t{count}\n" for word, count in zip(words, counts, strict=True))
        order.tofile(run.order)
        self.runs.append(run)
        self._start_run()


@dataclass(frozen=True)
class MergedTypes:
    """All types on disk in order of their code points.

    `words` holds a line per type, `counts` how often each stands in the text, `offsets` where its line begins (both
    int64). Read each when it is needed and let it go: there may be many millions of types.
    """

    words: Path
    counts: Path
    offsets: Path

    def read(self, order: NDArray[np.int32], chunk_size: int) -> Iterator[list[str]]:
        """The words at the places `order`, in chunks. It is quickest where places mostly rise."""
        offsets = np.fromfile(self.offsets, np.int64)
        with self.words.open("rb", buffering=4096) as file:

            def word_at(offset: int) -> str:
                file.seek(offset)
                return file.readline()[:-1].decode("utf-8")

            for start in range(0, len(order), chunk_size):
                yield list(map(word_at, offsets[order[start : start + chunk_size]].tolist()))


def merge(runs: Sequence[SortedTypes], folder: Path, advance: Callable[[int], object]) -> MergedTypes:
    """Merge runs into files in `folder`; each run learns its types' places. `advance` is told of entries done."""
    types = MergedTypes(folder / "all.words", folder / "all.counts", folder / "all.offsets")
    counts, offsets, offset = array("q"), array("q"), 0
    places = [array("i") for _ in runs]
    entries = heapq.merge(*(_entries(run, index) for index, run in enumerate(runs)))
    with types.words.open("wb") as file:
        for place, (word, group) in enumerate(groupby(entries, key=itemgetter(0))):
            total = 0
            for _, index, count in group:
                total += count
                places[index].append(place)
                if len(places[index]) >= _READ_SIZE:
                    advance(_flush(places[index], runs[index].merged))
            counts.append(total)
            offsets.append(offset)
            offset += file.write(word + b"\n")
            if len(counts) >= _READ_SIZE:
                _flush(counts, types.counts)
                _flush(offsets, types.offsets)
    _flush(counts, types.counts)
    _flush(offsets, types.offsets)
    for run, rest in zip(runs, places, strict=True):
        advance(_flush(rest, run.merged))
    return types


def _entries(run: SortedTypes, index: int) -> Iterator[tuple[bytes, int, int]]:
    """A run's words, the run's index and the word's count. No file stays open: there may be thousands of runs."""
    position = 0
    while True:
        with run.words.open("rb") as file:
            file.seek(position)
            lines = file.readlines(_READ_SIZE)
            position = file.tell()
        if not lines:
            return
        for line in lines:
            word, _, count = line.rpartition(b"\t")
            yield word, index, int(count)


def _flush(numbers: array[int], path: Path) -> int:
    """Append `numbers` to a file and empty them. Returns how many they were."""
    with path.open("ab") as file:
        numbers.tofile(file)
    length = len(numbers)
    del numbers[:]
    return length


def renumber(
    tokens: Path, runs: Sequence[SortedTypes], ids: NDArray[np.int32], advance: Callable[[int], object]
) -> None:
    """Rewrite the tokens in place, from the runs' numbers to final ids (one per place by code points)."""
    with tokens.open("r+b") as file:
        for run in runs:
            mapped: NDArray[Any] = run.map_to(ids)
            for done in range(0, run.num_tokens, _CHUNK):
                num_tokens = min(_CHUNK, run.num_tokens - done)
                position = file.tell()
                numbers = np.frombuffer(file.read(4 * num_tokens), np.int32)
                file.seek(position)
                file.write(mapped[numbers].astype(TOKEN_DTYPE).tobytes())
                advance(num_tokens)
