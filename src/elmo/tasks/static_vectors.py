"""Static word vectors in the text formats of word2vec and GloVe, plain or compressed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from elmo.errors import ElmoError
from elmo.tasks.modules.words import WordEmbedding
from elmo.tasks.recipe import WordsConfig
from elmo.text.reading import read_lines


class StaticVectors(NamedTuple):
    """Words, and a vector for each: (N, D)."""

    words: list[str]
    vectors: NDArray[np.float32]


def read_vectors(path: str | Path, max_words: int | None = None) -> StaticVectors:
    """The first `max_words` words of a file: a word and its numbers a line, between blanks.

    A first line of two numbers, as word2vec writes, is passed over. A word may hold blanks. Raises ElmoError for a
    line of another width than the first, or with something that is no number, naming it.
    """
    words: list[str] = []
    rows: list[NDArray[np.float32]] = []
    for number, word, fields in _entries(path, max_words):
        try:
            rows.append(np.array(fields, dtype=np.float32))
        except ValueError:
            raise ElmoError(f"{path}, line {number}: {_no_number(fields)!r} is no number") from None
        words.append(word)
    return StaticVectors(words, np.stack(rows))


def choose_words(sentences: Iterable[Sequence[str]], config: WordsConfig) -> list[str]:
    """The words with a vector of their own: those of the recipe's file, then of the training set's `sentences`.

    A word that the file has in lower case alone has that vector, and none of its own. Raises ElmoError for a file of
    another width than the recipe's.
    """
    given: dict[str, None] = {}
    for _, word, numbers in _entries(config.vectors, config.max_words) if config.vectors else ():
        if not given:
            _require_width(len(numbers), config)
        given[word] = None
    counts = Counter(word for sentence in sentences for word in sentence)
    own = [word for word, count in counts.most_common() if count >= config.min_count]
    return [*given, *(word for word in own if word not in given and word.lower() not in given)]


def set_word_vectors(embedding: WordEmbedding, config: WordsConfig) -> None:
    """Put the vectors of the recipe's file, if it names one, into a model."""
    if not config.vectors:
        return
    words, vectors = read_vectors(config.vectors, config.max_words)
    _require_width(vectors.shape[1], config)
    embedding.set_vectors(words, torch.from_numpy(vectors))


def _require_width(width: int, config: WordsConfig) -> None:
    if width != config.dim:
        raise ElmoError(f"words.dim: is {config.dim}, but the vectors of {config.vectors} have {width}")


def _entries(path: str | Path, max_words: int | None) -> Iterator[tuple[int, str, list[str]]]:
    """The number of each line, its word, and what should be its numbers; one line at least."""
    dim = 0
    for number, line in islice(_lines(path), max_words):
        fields = line.rstrip().split(" ")
        dim = dim or len(fields) - 1
        word = " ".join(fields[:-dim]) if dim else ""
        if not word or len(fields) <= dim:
            raise ElmoError(f"{path}, line {number}: expected a word and {dim or 'its'} numbers, between blanks")
        yield number, word, fields[-dim:]
    if not dim:
        raise ElmoError(f"{path}: holds no vectors; expected a word and its numbers a line")


def _lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """The numbered lines but word2vec's first and blank ones."""
    lines = enumerate(read_lines(path), 1)
    first = list(islice(lines, 1))
    is_header = bool(first) and len(parts := first[0][1].split()) == 2 and all(part.isdecimal() for part in parts)
    return ((number, line) for number, line in chain([] if is_header else first, lines) if line.strip())


def _no_number(fields: list[str]) -> str:
    for field in fields:
        try:
            float(field)
        except ValueError:
            return field
    return fields[0]
