"""Counts the types of any amount of text in bounded memory, by sorted runs on disk that are merged at the end.

While the text is read, a dict numbers its types. When the dict is full, its words are written to disk in the order of
their code points (a *run*), and numbering starts again from zero. Tokens are written immediately, with the numbers of
their run. Once all runs are merged and the types have their final ids, each run's tokens are rewritten with those ids.

A single dict of all types would be simpler, but its memory grows with the number of types, of which a large text has
many millions (one with typing errors and names never stops having new ones).
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

from elmo.errors import ElmoError
from elmo.text.corpus import TOKEN_DTYPE

MAX_TYPES = 200_000
MAX_TEXT = 20_000_000
"""The dict is full at this many types, or at this many characters in all types, as words may be very long."""

READ_SIZE = 1 << 14
"""How much of each run `merge` holds: bytes of its words, and places of its types that are not yet written."""

CHUNK = 1 << 18
"""How many counts the table of a run grows by, and how many tokens `renumber` rewrites at a time."""


@dataclass(frozen=True)
class SortedTypes:
    """A run: types on disk in the order of their code points.

    Attributes:
        words: A file with one line per type: the word, a tab and its count.
        order: A file with each type's number in this run, int32.
        merged: A file that `merge` writes: each type's place in the order of all types by code points, int32.
        num_types: The number of types.
        num_tokens: The number of tokens that were written with the numbers of this run.
    """

    words: Path
    order: Path
    merged: Path
    num_types: int
    num_tokens: int

    def map_to(self, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        """Map the numbers of this run to final ids.

        Args:
            ids: The final id of each of the N types of all runs, in the order of their code points, (N,).

        Returns:
            The final id of each number, (num_types,).
        """
        mapped = np.empty(self.num_types, np.int32)
        mapped[np.fromfile(self.order, np.int32)] = ids[np.fromfile(self.merged, np.int32)]
        return mapped


class TypeCounter:
    """Numbers and counts the types of sentences, and writes the tokens as numbers.

    Args:
        folder: The folder for the files of the runs.
        tokens: The file that the numbers of the tokens are written to, int32.
        first_words: Words that are types whether the text contains them or not. They form the first run.
    """

    def __init__(self, folder: Path, tokens: BinaryIO, first_words: Sequence[str]) -> None:
        self.runs: list[SortedTypes] = []
        self._folder = folder
        self._tokens = tokens
        self._start_run()
        for word in first_words:
            self._numbers[word]  # looking a new word up gives it a number
        self._make_room()
        self._finish_run()

    def add(self, sentences: Sequence[Sequence[str]]) -> NDArray[np.int64]:
        """Count and write the tokens of `sentences`, and return the sentences' lengths."""
        # Every token goes through this method, so the loops over tokens are those of `map` and NumPy, not of Python.
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
        num_tokens = int(lengths.sum())
        known = len(self._numbers)
        numbers = np.fromiter(map(self._numbers.__getitem__, chain.from_iterable(sentences)), np.int32, num_tokens)
        self._tokens.write(numbers.tobytes())
        self._num_tokens += num_tokens
        # A dict keeps the order of insertion, so the new types are its last ones.
        num_new = len(self._numbers) - known
        self._num_characters += sum(map(len, islice(reversed(self._numbers), num_new)))
        self._make_room()
        np.add.at(self._counts, numbers, 1)  # `counts[numbers] += 1` would count a repeated number once
        if len(self._numbers) >= MAX_TYPES or self._num_characters >= MAX_TEXT:
            self._finish_run()
        return lengths

    def finish(self) -> list[SortedTypes]:
        """Write the types that are still in memory as a last run, and return all runs, that of `first_words` first."""
        self._finish_run()
        return self.runs

    def _start_run(self) -> None:
        # A missing word gets the number of words before it. `__len__` as the factory needs no Python code for each.
        self._numbers: defaultdict[str, int] = defaultdict()
        self._numbers.default_factory = self._numbers.__len__
        self._counts = np.zeros(0, np.int64)
        self._num_tokens = 0
        self._num_characters = 0

    def _make_room(self) -> None:
        missing = len(self._numbers) - len(self._counts)
        if missing > 0:
            self._counts = np.append(self._counts, np.zeros(missing + CHUNK, np.int64))

    def _finish_run(self) -> None:
        # By code points, which is also the order of the UTF-8 bytes that `merge` compares.
        words = sorted(self._numbers)
        order = np.fromiter(map(self._numbers.__getitem__, words), np.int32, len(words))
        self._numbers.default_factory = None  # breaks the reference cycle, so that the memory is freed immediately
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
            try:
                # A word may contain a tab, so the count is behind the last one of its line.
                file.writelines(f"{word}\t{count}\n" for word, count in zip(words, counts, strict=True))
            except UnicodeEncodeError as error:  # decoded text has none, but a tokenizer may return anything
                raise ElmoError(
                    f"the tokenizer returned a token with {error.object[error.start]!r}, half a character (a lone "
                    "surrogate), which no file can hold; correct the tokenizer"
                ) from None
        order.tofile(run.order)
        self.runs.append(run)
        self._start_run()


@dataclass(frozen=True)
class MergedTypes:
    """All types on disk in the order of their code points.

    There may be many millions of types: read each of these files only when it is needed, and do not keep the result.

    Attributes:
        words: A file with one word per line.
        counts: A file with the number of times that each word occurs in the text, int64.
        offsets: A file with the position in `words` at which each line begins, int64.
    """

    words: Path
    counts: Path
    offsets: Path

    def read(self, order: NDArray[np.int32], chunk_size: int) -> Iterator[list[str]]:
        """Yield the words at the places `order` in chunks of `chunk_size`. Mostly rising places are fastest."""
        offsets = np.fromfile(self.offsets, np.int64)
        # Words are read by falling count, so from places all over the file: most of a larger buffer would not be used.
        with self.words.open("rb", buffering=4096) as file:

            def word_at(offset: int) -> str:
                file.seek(offset)
                return file.readline()[:-1].decode("utf-8")

            for start in range(0, len(order), chunk_size):
                yield list(map(word_at, offsets[order[start : start + chunk_size]].tolist()))


def merge(runs: Sequence[SortedTypes], folder: Path, advance: Callable[[int], object]) -> MergedTypes:
    """Merge runs into files in `folder`, and write each run's file `merged`.

    Args:
        runs: All runs of a `TypeCounter`.
        folder: The folder for the merged files.
        advance: A callback that receives the number of entries of runs that were merged since its last call.
    """
    types = MergedTypes(folder / "all.words", folder / "all.counts", folder / "all.offsets")
    # `array` holds plain numbers, of 8 and 4 bytes, where a list would hold objects of some 30. All of them are written
    # and emptied again as soon as they have READ_SIZE entries.
    counts, offsets, offset = array("q"), array("q"), 0
    places = [array("i") for _ in runs]
    # A word is in as many runs as it was new in: its entries follow each other here, and are added up.
    entries = heapq.merge(*(_entries(run, index) for index, run in enumerate(runs)))
    with types.words.open("wb") as file:
        for place, (word, group) in enumerate(groupby(entries, key=itemgetter(0))):
            total = 0
            for _, index, count in group:
                total += count
                places[index].append(place)
                if len(places[index]) >= READ_SIZE:
                    advance(_flush(places[index], runs[index].merged))
            counts.append(total)
            offsets.append(offset)
            offset += file.write(word + b"\n")
            if len(counts) >= READ_SIZE:
                _flush(counts, types.counts)
                _flush(offsets, types.offsets)
    _flush(counts, types.counts)
    _flush(offsets, types.offsets)
    for run, rest in zip(runs, places, strict=True):
        advance(_flush(rest, run.merged))
    return types


def _entries(run: SortedTypes, index: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield each word of a run with the run's index and the word's count.

    The file is reopened for each chunk because there may be thousands of runs, too many to keep all files open.
    """
    position = 0
    while True:
        with run.words.open("rb") as file:
            file.seek(position)
            lines = file.readlines(READ_SIZE)
            position = file.tell()
        if not lines:
            return
        for line in lines:
            word, _, count = line.rpartition(b"\t")
            yield word, index, int(count)


def _flush(numbers: array[int], path: Path) -> int:
    """Append `numbers` to a file, clear them, and return how many there were."""
    with path.open("ab") as file:
        numbers.tofile(file)
    length = len(numbers)
    del numbers[:]
    return length


def renumber(
    tokens: Path, runs: Sequence[SortedTypes], ids: NDArray[np.int32], advance: Callable[[int], object]
) -> None:
    """Rewrite a file of tokens in place, from the numbers of the runs to final ids.

    Args:
        tokens: The file that a `TypeCounter` wrote.
        runs: Its runs, in order.
        ids: The final id of each type, in the order of their code points, (N,).
        advance: A callback that receives the number of tokens that were rewritten since its last call.
    """
    with tokens.open("r+b") as file:
        for run in runs:
            mapped: NDArray[Any] = run.map_to(ids)
            # Every number has as many bytes as the id that replaces it, so the file can be rewritten where it is.
            for done in range(0, run.num_tokens, CHUNK):
                num_tokens = min(CHUNK, run.num_tokens - done)
                position = file.tell()
                numbers = np.frombuffer(file.read(4 * num_tokens), np.int32)
                file.seek(position)
                file.write(mapped[numbers].astype(TOKEN_DTYPE).tobytes())
                advance(num_tokens)
