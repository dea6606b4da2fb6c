"""Runs code written for bilm-tf: `Batcher`, `TokenBatcher`, `dump_bilm_embeddings` and `dump_token_embeddings`.

Only the import has to change (see `docs/migrating.md`). What builds a graph of TensorFlow
(`BidirectionalLanguageModel`, `weight_layers`) has no counterpart; use `elmo.load` and `elmo.Elmo` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmo.config import BOS, EOS, SHORTEST, UNK
from elmo.embed.embedder import Embedder
from elmo.errors import ElmoError
from elmo.formats.bilm_hdf5 import EMBEDDING, load_bilm
from elmo.formats.files import require_existing_file, write_all
from elmo.formats.hdf5 import new_hdf5
from elmo.formats.words import read_words
from elmo.targets import require_file_target
from elmo.text.characters import encode_words, require_sentence
from elmo.text.reading import read_sentences
from elmo.text.vocabulary import NO_WORD

__all__ = ["Batcher", "TokenBatcher", "dump_bilm_embeddings", "dump_token_embeddings"]

Ids = NDArray[np.int64]
Sentence = Sequence[str]

WORDS_AT_ONCE = 1024
"""Number of words whose token vectors are computed together."""


_GRAPH = {"BidirectionalLanguageModel": "elmo.load", "weight_layers": "elmo.Elmo"}
"""Names that build a graph of TensorFlow, and what to use instead."""


def __getattr__(name: str) -> object:
    if name in _GRAPH:
        raise ImportError(f"{name} builds a graph of TensorFlow; use {_GRAPH[name]} instead (docs/migrating.md)")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class Batcher:
    """Converts tokenized sentences to character ids.

    Args:
        lm_vocab_file: A vocabulary. It must exist, but is not read: ids depend on the characters alone, and bilm-tf
            used it only as a cache.
        max_token_length: Number of ids per word (C).

    Raises:
        ElmoError: If there is no such file, or `max_token_length` leaves no room for a character.
    """

    def __init__(self, lm_vocab_file: str | Path, max_token_length: int) -> None:
        require_existing_file(Path(lm_vocab_file))
        if max_token_length < SHORTEST:
            raise ElmoError(
                f"`max_token_length`: {max_token_length} has no room for a character; use {SHORTEST} or more"
            )
        self._max_token_length = max_token_length

    def batch_sentences(self, sentences: Sequence[Sentence]) -> Ids:
        """Return ids (B, T+2, C), shifted by one so that padding is 0, with `<S>` and `</S>` around each sentence."""
        ids = np.zeros((len(sentences), _longest(sentences), self._max_token_length), np.int64)
        for row, sentence in zip(ids, sentences, strict=True):
            row[: len(sentence) + 2] = encode_words([BOS, *sentence, EOS], self._max_token_length)
        return ids


class TokenBatcher:
    """Converts tokenized sentences to word ids, which are the line numbers of a vocabulary.

    Args:
        lm_vocab_file: A vocabulary with one word per line, which must contain `<S>` and `</S>`.

    Raises:
        ElmoError: If the vocabulary cannot be read, or one of the two is missing.
    """

    def __init__(self, lm_vocab_file: str | Path) -> None:
        self._path = lm_vocab_file
        self._ids = {word: number for number, word in enumerate(_vocabulary(lm_vocab_file), 1)}
        for word in (BOS, EOS):
            if word not in self._ids:
                raise ElmoError(f"{lm_vocab_file}: {word} is missing, which marks a boundary of each sentence; add it")

    def batch_sentences(self, sentences: Sequence[Sentence]) -> Ids:
        """Convert sentences to word ids, with `<S>` and `</S>` around each sentence.

        Args:
            sentences: B lists of tokens. A word that the vocabulary does not contain is read as `<UNK>`.

        Returns:
            (B, T+2) line numbers counted from 1, and 0 at padding.

        Raises:
            ElmoError: If a word is not in the vocabulary and `<UNK>` is not either.
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
    """Write all layers of a tokenized text to HDF5, as data sets "0", "1", … of shape (L+1, T, D).

    As in bilm-tf, sentences run one at a time, and each starts from the state in which the previous one ended.
    `elmo embed` is faster, since its sentences do not depend on each other.

    Args:
        vocab_file: A vocabulary. It must exist, but is not read.
        dataset_file: The text, one sentence per line with tokens separated by spaces. A blank line is an entry without
            tokens.
        options_file: The model's options.
        weight_file: The model's weights.
        outfile: The file to write. An existing file is replaced.
    """
    require_existing_file(Path(vocab_file))
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
    """Write the token vectors of a vocabulary's words to HDF5, as a data set `embedding` (V, P).

    Args:
        vocab_file: A vocabulary with one word per line. The vectors have its order. `<S>` and `</S>` are encoded as
            boundaries, not as words.
        options_file: The model's options.
        weight_file: The model's weights.
        outfile: The file to write. An existing file is replaced.
    """
    words = _vocabulary(vocab_file)
    embedder = _load(options_file, weight_file)
    width = embedder.config.lstm.projection_dim

    vectors = np.empty((len(words), width), np.float32)

    def write(part: Path) -> None:
        for start in range(0, len(words), WORDS_AT_ONCE):
            some = words[start : start + WORDS_AT_ONCE]
            # Layer 0 has the token vector once for each direction; bilm-tf wrote it once.
            vectors[start : start + len(some)] = embedder.embed([some], layers="token")[0][:, :width]
        with new_hdf5(part) as add:
            add(EMBEDDING, data=vectors)

    _write(outfile, write)


def _vocabulary(path: str | Path) -> list[str]:
    """Read the words of a vocabulary, one per line, in any order."""
    return [word for line in read_words(Path(path)) if (word := line.strip()) != NO_WORD]


def _longest(sentences: Sequence[Sentence]) -> int:
    """Return the number of tokens in the longest sentence, including its boundaries."""
    for number, sentence in enumerate(sentences):
        require_sentence(sentence, number)
    return max(map(len, sentences), default=0) + 2


def _load(options_file: str | Path, weight_file: str | Path) -> Embedder:
    return Embedder(load_bilm(Path(weight_file), Path(options_file), with_softmax=False))


def _write(path: str | Path, write: Callable[[Path], object]) -> None:
    """Write a file that appears under its name only when it is complete."""
    require_file_target(Path(path))
    write_all({Path(path): write})
