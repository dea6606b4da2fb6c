"""For code written for bilm-tf: `Batcher`, `TokenBatcher`, `dump_bilm_embeddings` and `dump_token_embeddings`.

Only the import changes (see `docs/migrating.md`). TensorFlow's graph (`BidirectionalLanguageModel`, `weight_layers`)
has no counterpart; `elmo.load` and `elmo.Elmo` take its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmo.embed.embedder import Embedder
from elmo.errors import ElmoError
from elmo.formats.bilm_hdf5 import load_bilm
from elmo.formats.bilm_layout import NO_WORD
from elmo.formats.files import write_all
from elmo.formats.hdf5 import new_hdf5
from elmo.formats.token_vectors import DATA_SET
from elmo.formats.words import read_words
from elmo.targets import require_parent
from elmo.text.characters import BOS, EOS, UNK, encode_words, refuse_string
from elmo.text.reading import read_sentences

__all__ = ["Batcher", "TokenBatcher", "dump_bilm_embeddings", "dump_token_embeddings"]

Ids = NDArray[np.int64]
Sentence = Sequence[str]

SHORTEST = 3
"""Ids of a word of one byte: begin, byte, end."""

WORDS_AT_ONCE = 1024
"""Words whose token vectors are computed together."""


_GRAPH = {"BidirectionalLanguageModel": "elmo.load", "weight_layers": "elmo.Elmo"}
"""What built TensorFlow's graph, and what to use now."""


def __getattr__(name: str) -> object:
    if name in _GRAPH:
        raise ImportError(f"{name} builds a graph of TensorFlow; use {_GRAPH[name]} in its place (docs/migrating.md)")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class Batcher:
    """Character ids of tokenized sentences, of `max_token_length` ids a word.

    The vocabulary only sped bilm-tf up: ids depend on the characters alone, and it is not read.
    """

    def __init__(self, lm_vocab_file: str | Path, max_token_length: int) -> None:
        _require_file(lm_vocab_file)
        if max_token_length < SHORTEST:
            raise ElmoError(f"max_token_length: {max_token_length} has no room for a character; use {SHORTEST} or more")
        self._max_token_length = max_token_length

    def batch_sentences(self, sentences: Sequence[Sentence]) -> Ids:
        """Ids (B, T+2, C), `<S>` and `</S>` around each sentence, shifted by one, zeros at padding."""
        ids = np.zeros((len(sentences), _longest(sentences), self._max_token_length), np.int64)
        for row, sentence in zip(ids, sentences, strict=True):
            row[: len(sentence) + 2] = encode_words([BOS, *sentence, EOS], self._max_token_length)
        return ids


class TokenBatcher:
    """Word ids of tokenized sentences, by the lines of a vocabulary, which must hold `<S>` and `</S>`."""

    def __init__(self, lm_vocab_file: str | Path) -> None:
        self._path = lm_vocab_file
        self._ids = {word: number for number, word in enumerate(_vocabulary(lm_vocab_file), 1)}
        for word in (BOS, EOS):
            if word not in self._ids:
                raise ElmoError(f"{lm_vocab_file}: {word} is missing, which stands at each sentence's boundary; add it")

    def batch_sentences(self, sentences: Sequence[Sentence]) -> Ids:
        """Ids (B, T+2), `<S>` and `</S>` around each sentence: lines counted from 1, zeros at padding.

        Absent words are `<UNK>`; an error where the vocabulary has none.
        """
        ids = np.zeros((len(sentences), _longest(sentences)), np.int64)
        for row, sentence in zip(ids, sentences, strict=True):
            row[: len(sentence) + 2] = [self._id(word) for word in (BOS, *sentence, EOS)]
        return ids

    def _id(self, word: str) -> int:
        found = self._ids.get(word, self._ids.get(UNK))
        if found is None:
            raise ElmoError(f"{self._path}: {word!r} is not in this vocabulary, and neither is {UNK}; add one of them")
        return found


def dump_bilm_embeddings(
    vocab_file: str | Path,
    dataset_file: str | Path,
    options_file: str | Path,
    weight_file: str | Path,
    outfile: str | Path,
) -> None:
    """Write all layers of a tokenized text, a sentence a line, to HDF5: data sets "0", "1", … of (L+1, T, D).

    As in bilm-tf, a sentence at a time, each from the state in which the one before ended. A blank line is an entry
    without tokens, and an existing `outfile` is replaced. `elmo embed` is faster, since it needs no order.
    """
    _require_file(vocab_file)
    embedder = _load(options_file, weight_file)
    vectors = embedder.stream(read_sentences([dataset_file]), layers="all", state="carry", batch_size=1)

    def write(part: Path) -> None:
        with new_hdf5(part) as add:
            for number, layers in enumerate(vectors):
                add(str(number), data=layers)

    _write(outfile, write)


def dump_token_embeddings(
    vocab_file: str | Path, options_file: str | Path, weight_file: str | Path, outfile: str | Path
) -> None:
    """Write the token vectors of a vocabulary's words to HDF5: data set `embedding` (V, P), in the words' order.

    `<S>` and `</S>` have their own. An existing `outfile` is replaced.
    """
    words = _vocabulary(vocab_file)
    embedder = _load(options_file, weight_file)
    width = embedder.config.lstm.projection_dim

    vectors = np.empty((len(words), width), np.float32)

    def write(part: Path) -> None:
        for start in range(0, len(words), WORDS_AT_ONCE):
            some = words[start : start + WORDS_AT_ONCE]
            vectors[start : start + len(some)] = embedder.embed([some], layers="token")[0][:, :width]
        with new_hdf5(part) as add:
            add(DATA_SET, data=vectors)

    _write(outfile, write)


def _vocabulary(path: str | Path) -> list[str]:
    """The words of a list, a line each, in whichever order."""
    return [word for line in read_words(Path(path)) if (word := line.strip()) != NO_WORD]


def _longest(sentences: Sequence[Sentence]) -> int:
    for number, sentence in enumerate(sentences):
        refuse_string(sentence, number)
    return max(map(len, sentences), default=0) + 2


def _load(options_file: str | Path, weight_file: str | Path) -> Embedder:
    return Embedder(load_bilm(Path(weight_file), Path(options_file)))


def _require_file(path: str | Path) -> None:
    if not Path(path).is_file():
        raise ElmoError(f"{path}: no such file")


def _write(path: str | Path, write: Callable[[Path], object]) -> None:
    """Write a file, which takes its name when it is complete."""
    require_parent(Path(path))
    write_all({Path(path): write})
