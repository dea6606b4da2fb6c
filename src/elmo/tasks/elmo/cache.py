"""The layers of a biLM for a task's sentences, computed once and kept on disk, so that epochs need not run the biLM."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmo.config import TextConfig
from elmo.embed.embedder import Embedder
from elmo.embed.layers import rounded
from elmo.errors import ElmoError
from elmo.formats.files import read_json, write_all, write_json
from elmo.formats.model import State
from elmo.progress import show_progress
from elmo.targets import PROGRESS, unfinished_folder, work_folder_of
from elmo.tasks.recipe import ElmoConfig
from elmo.text.choice import is_lower_case
from elmo.text.conllu import without_spaces
from elmo.text.reading import lower

NAME = "{}.layers"
"""The name of a cache: a checksum of everything that its numbers depend on, and this ending."""

IF_NO_ROOM = (
    "set elmo.cache_dtype=float16 for half the size, or elmo.vectors=live for no cache, or name another folder for the "
    "cache"
)
"""What to do in training if the disk is too small."""

Sentences = Sequence[Sequence[str]]
Arrays = Sequence[NDArray[np.floating]]


def remove_cache(folder: Path) -> None:
    """Remove all caches in a folder, and the folder itself unless it has something else."""
    of_any = folder / NAME.format("[0-9a-f]" * 32)
    for path in folder.glob(of_any.name):
        path.unlink(missing_ok=True)
    for path in folder.glob(work_folder_of(of_any).name):
        shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        folder.rmdir()


class LiveLayers:
    """Computes all layers of sentences each time it is called.

    Args:
        embedder: The biLM.
        config: How the task uses ELMo: the state in which sentences start, the case of words, and the type of the
            numbers in a cache.

    Example:
        ```python
        live = LiveLayers(elmo.load("en"), ElmoConfig())
        cached = live.cached(sentences, Path("cache"))
        (layers,) = cached([["A", "sentence"]])  # (L+1, T, D)
        ```
    """

    def __init__(self, embedder: Embedder, config: ElmoConfig) -> None:
        self.embedder, self.config = embedder, config
        self._state: State = "warm" if config.state == "warm" else "zero"

    def __call__(self, sentences: Sentences, /) -> Arrays:
        """Return the layers (L+1, T, D) of each sentence."""
        return self.embedder.embed(sentences, layers="all", state=self._state)

    def cached(self, sentences: Iterable[Sequence[str]], folder: Path, if_no_room: str = IF_NO_ROOM) -> CachedLayers:
        """Return a cache of the layers of `sentences`, and compute it if `folder` does not have it yet.

        If another process is computing the same cache, this one waits for it. If a process was killed while computing
        it, this one continues there.

        Sentences go through `as_read` first, like those that `ElmoInput` looks up in the cache. If the disk is too
        small, `if_no_room` ends the message, and says what the user can do.

        Raises:
            ElmoError: If the disk has no room for the cache, or the file in `folder` is damaged.
        """
        lowercase = reads_lower_case(self.config, self.embedder.text)
        texts = list(dict.fromkeys(as_read(sentences, lowercase)))  # each distinct sentence once
        path = folder / NAME.format(self._fingerprint(texts))
        lengths = [len(text) for text in texts]
        work = work_folder_of(path)
        # A folder for unfinished work next to a complete cache is left over from a process that was killed before it
        # could tidy up. `_compute` then only removes it.
        if not path.exists() or work.exists():
            folder.mkdir(parents=True, exist_ok=True)
            self._compute(texts, path, work, if_no_room)
        wanted, size = self._num_bytes(sum(lengths)), path.stat().st_size
        if size != wanted:
            raise ElmoError(
                f"{path}: has {size:,} bytes instead of {wanted:,}, so it is damaged; remove it, and the same command "
                "computes it again"
            )
        # A file without numbers, for sentences without tokens, can't be mapped into memory.
        numbers = np.memmap(path, self.config.cache_dtype, "r") if size else np.zeros(0)
        return CachedLayers(numbers, dict(zip(texts, accumulate(lengths, initial=0), strict=False)), self)

    def _num_bytes(self, num_tokens: int) -> int:
        """Return the size of a cache of this many tokens."""
        row = self.embedder.num_layers * self.embedder.width
        return num_tokens * row * np.dtype(self.config.cache_dtype).itemsize

    def _require_room(self, folder: Path, num_tokens: int, if_no_room: str) -> None:
        """Refuse to start if the disk has no room for the cache."""
        size, free = self._num_bytes(num_tokens), shutil.disk_usage(folder).free
        if size > free:
            raise ElmoError(
                f"{folder}: ELMo's vectors of {num_tokens:,} tokens take {size / 1e6:,.0f} MB, but only "
                f"{free / 1e6:,.0f} MB are free; {if_no_room}"
            )

    def _compute(self, texts: Sentences, path: Path, work: Path, if_no_room: str) -> None:
        """Write the layers of `texts` to `path`, window by window, starting after the last window that is safe on disk.

        The rest of a text that begins at a window is cut into the same windows as the whole text, so the numbers are
        the same to the bit.
        """
        data, progress = work / "data", work / PROGRESS
        with unfinished_folder(work, path, progress.exists, mark=PROGRESS, wait=True):
            if path.exists():  # another process made it, or one that was killed a moment later
                progress.unlink(missing_ok=True)
                return
            done, size = _read_progress(progress, data)
            self._require_room(path.parent, sum(map(len, texts[done:])), if_no_room)
            bar = show_progress("ELMo vectors", "sentences", len(texts), initial=done)
            with data.open("r+b" if done else "wb") as file, bar:
                # What was written after the last note of the progress may be half a window.
                file.truncate(size)
                file.seek(size)
                for window in self.embedder.windows(texts[done:], layers="all", state=self._state):
                    for array in window:
                        file.write(rounded(array, np.dtype(self.config.cache_dtype), "elmo.cache_dtype").data)
                    # The numbers must be on the disk before the note that says so: after a power cut, a note that came
                    # first could count numbers that were never written.
                    file.flush()
                    os.fsync(file.fileno())
                    done += len(window)
                    now = {"num_sentences": done, "num_bytes": file.tell()}
                    write_all({progress: lambda to, now=now: write_json(to, now)})
                    bar.update(len(window))
            data.replace(path)
            progress.unlink(missing_ok=True)

    def _fingerprint(self, texts: Sentences) -> str:
        """Return a checksum of everything that the numbers depend on: model, precision, state, number type and text."""
        # The text and its order count, too, since the file holds only numbers, and not the sentences they belong to.
        model = self.embedder.warm_fingerprint if self.config.state == "warm" else self.embedder.fingerprint
        facts = [model, self.embedder.precision, self.config.state, self.config.cache_dtype]
        text = json.dumps([facts, texts]).encode()
        return hashlib.blake2b(text, digest_size=16).hexdigest()


def as_read(sentences: Iterable[Sequence[str]], lowercase: bool) -> Iterator[tuple[str, ...]]:
    """Yield the sentences of a task as the biLM reads them: with `_` in place of spaces in tokens.

    Args:
        sentences: The sentences.
        lowercase: Whether to convert words to lower case, too.
    """
    for sentence in sentences:
        words = map(without_spaces, sentence)
        yield tuple(map(lower, words) if lowercase else words)


def distinct(sentences: Iterable[Sequence[str]], lowercase: bool) -> dict[tuple[str, ...], None]:
    """Return the distinct sentences that have tokens, in order, as `as_read` gives them: a set that keeps its order."""
    return dict.fromkeys(filter(None, as_read(sentences, lowercase)))


def reads_lower_case(config: ElmoConfig, text: TextConfig | None) -> bool:
    """Return whether a biLM reads the words of a task in lower case.

    Args:
        config: How the task uses ELMo.
        text: How the biLM's training text was cut, if that is known.
    """
    return is_lower_case(text) if config.lowercase is None else config.lowercase


def _read_progress(progress: Path, data: Path) -> tuple[int, int]:
    """Return how many sentences are safe on disk, and their size in bytes.

    Both are 0 if there is no note of this, or a damaged one.
    """
    if not progress.exists() or not data.exists():
        return 0, 0
    try:
        noted: object = read_json(progress)
    except ElmoError:
        return 0, 0
    match noted:
        case {"num_sentences": int(done), "num_bytes": int(size)} if done >= 0 and 0 <= size <= data.stat().st_size:
            return done, size
        case _:
            return 0, 0


class CachedLayers:
    """All layers of the sentences that a cache was made for, memory-mapped. Other sentences are computed live.

    The file holds nothing but numbers: (L+1, T, D) for each distinct sentence, in the order of the text.

    Args:
        numbers: The contents of the file.
        starts: The number of tokens before each sentence.
        live: Computes the layers of batches that hold any other sentence.
    """

    def __init__(self, numbers: NDArray[np.floating], starts: dict[tuple[str, ...], int], live: LiveLayers) -> None:
        self._numbers, self._starts, self._live = numbers, starts, live

    def __call__(self, sentences: Sentences, /) -> Arrays:
        """Return the layers (L+1, T, D) of each sentence."""
        keys = [tuple(sentence) for sentence in sentences]
        # A batch with a single new sentence is computed as a whole. That is for text to predict; the sentences of all
        # sets of a training are in its cache.
        if not all(key in self._starts for key in keys):
            return self._live(sentences)
        num_layers, width = self._live.embedder.num_layers, self._live.embedder.width
        size = num_layers * width  # the numbers of a token
        arrays: list[NDArray[np.floating]] = []
        for key in keys:
            start, length = self._starts[key], len(key)
            numbers = self._numbers[start * size : (start + length) * size]
            arrays.append(numbers.reshape(num_layers, length, width))
        return arrays
