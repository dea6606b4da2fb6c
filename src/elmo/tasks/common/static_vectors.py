"""Static word vectors in the text formats of word2vec and GloVe, plain or compressed.

A file may have millions of lines. It is read twice, one line at a time: first for its words, from which `find_words`
chooses the ones that a model keeps, and then for their vectors, which `set_word_vectors` copies into the model.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from elmo.errors import ElmoError
from elmo.formats.word_vectors import BINARY, KEYED
from elmo.tasks.common.modules import UNKNOWN, WordEmbedding
from elmo.tasks.common.scores import percent
from elmo.tasks.recipe import WordsConfig
from elmo.text.decoding import read_lines

_OF_NUMBERS = b"0123456789.+-eE "
"""All characters that numbers and the blanks between them consist of."""


class StaticVectors(NamedTuple):
    """Words, and a vector for each: (N, D)."""

    words: list[str]
    vectors: NDArray[np.float32]


class FileWords(NamedTuple):
    """Which words a recipe's files have vectors for, and how much of a task's data they cover.

    Attributes:
        words: The words that a model keeps, in the order of the files.
        num_words: The number of distinct words of the data.
        num_known: How many of these have a vector, as they are or in lower case.
        num_tokens: The number of tokens of the data.
        num_known_tokens: How many of these have a vector.
    """

    words: list[str]
    num_words: int
    num_known: int
    num_tokens: int
    num_known_tokens: int


class _Entry(NamedTuple):
    """A line of a file: its number, its word, and its numbers as text separated by single blanks."""

    line: int
    word: str
    numbers: str


def read_vectors(path: str | Path) -> StaticVectors:
    """Read all vectors of a file with a word and its numbers on each line, separated by blanks.

    A first line of two numbers, as word2vec writes it, is skipped. A word may contain blanks.

    Raises:
        ElmoError: If a line does not have the width of the first one, or holds anything but finite numbers.
    """
    words: list[str] = []
    rows: list[NDArray[np.float32]] = []
    for entry in _entries(path):
        words.append(entry.word)
        rows.append(_vector(path, entry))
    return StaticVectors(words, np.stack(rows))


def find_words(sentences: Iterable[Sequence[str]], config: WordsConfig) -> FileWords:
    """Choose the words of the recipe's files that a model keeps: those of `sentences`, and the most frequent others.

    Files begin with their most frequent words, so the others are the first words of the first file, then those of the
    next one, until there are `max_words` in all. All words of the sentences are kept, even if there are more. A word of
    the sentences that is in no file is looked up in lower case. Memory grows with `max_words` and with the words of the
    sentences, not with the files.

    Raises:
        ElmoError: As in `read_vectors`, except that a mistake like 1-2 or 1e99 is found only when the vector is copied
            into a model; and if the widths of the files do not add up to the recipe's `dim`.
    """
    counts = Counter(chain.from_iterable(sentences))
    if not config.files:
        return FileWords([], len(counts), 0, counts.total(), 0)
    _require_width(config)
    # Words of the data are looked for throughout the files, in lower case too; other words only until there are enough.
    wanted = {*counts, *map(str.lower, counts)}
    seen: dict[str, None] = {}
    for entry in chain.from_iterable(map(_entries, config.files)):
        if len(seen) < config.max_words or entry.word in wanted:
            seen[entry.word] = None
    known = {word: word if word in seen else word.lower() for word in counts}
    known = {word: found for word, found in known.items() if found in seen}
    # The words of the data come first, even if they are more than `max_words`; then the files' first words fill up. The
    # list is needed because `others` looks at `kept`, which must not change before it is done.
    kept = set(known.values())
    others = (word for word in seen if word not in kept)
    kept.update(list(islice(others, max(0, config.max_words - len(kept)))))
    num_tokens = sum(counts[word] for word in known)
    return FileWords([word for word in seen if word in kept], len(counts), len(known), counts.total(), num_tokens)


def describe_words(config: WordsConfig, file_words: FileWords | None) -> str | None:
    """Return one sentence about the word vectors of a training for its user, or None if there is nothing to say.

    It tells how much of the data the recipe's files cover, or that vectors without a file are trained although the
    recipe has `trainable: false`.
    """
    if file_words is not None:
        kept, num_words, num_known, num_tokens, num_known_tokens = file_words
        words = f"{num_known:,} of the data's {num_words:,} words ({percent(num_known, num_words):.1f} %)"
        tokens = f"{num_known_tokens:,} of its {num_tokens:,} tokens ({percent(num_known_tokens, num_tokens):.1f} %)"
        return f"{', '.join(config.files)}: vectors for {words} and {tokens}; {len(kept):,} words are kept in all"
    if not config.files and not config.trainable:
        return (
            "words.vectors is null: word vectors are random at first and are trained; words.trainable: false only "
            "applies to vectors from a file"
        )
    return None


def choose_words(
    sentences: Iterable[Sequence[str]], config: WordsConfig, file_words: FileWords | None = None
) -> list[str]:
    """Return the words that get a vector of their own: those kept from the files, then others of the training set.

    A word that a file has only in lower case shares that vector.

    Args:
        sentences: The sentences of the training set.
        config: The recipe's word vectors.
        file_words: What the files have of all the data. None looks up `sentences`.
    """
    sentences = list(sentences)
    given = dict.fromkeys((find_words(sentences, config) if file_words is None else file_words).words)
    if config.unknown == "zeros" and not config.are_trained:
        return list(given)  # other words would keep zeros, just as an unknown word does
    counts = Counter(chain.from_iterable(sentences))
    own = [word for word, count in counts.most_common() if count >= config.min_count]
    return [*given, *(word for word in own if word not in given and word.lower() not in given)]


@torch.no_grad()
def set_word_vectors(model: nn.Module, config: WordsConfig | None) -> None:
    """Copy the vectors of the recipe's files, if it names any, into each `WordEmbedding` of a new model on the CPU.

    Where a file lacks a word, the file's part of that word's vector is zeros or stays random, as `unknown` says. The
    vector of unknown words becomes zeros, or the mean of all vectors.

    The constructor of a model doesn't do this: a trained model is made again from its vocabularies and weights alone,
    because the files may be gone by then.
    """
    if config is None or not config.files:
        return
    for part in model.modules():
        if isinstance(part, WordEmbedding):
            _fill(part, config)


def _fill(embedding: WordEmbedding, config: WordsConfig) -> None:
    widths = _require_width(config)
    rows = embedding.weight.detach().numpy()  # shares the model's memory, so that what is written here is in the model
    if config.unknown == "zeros":
        rows[:] = 0
    end = 0
    for path, width in zip(config.files, widths, strict=True):
        columns, end = rows[:, end : end + width], end + width
        # If a word occurs twice in a file, its first vector counts: it is no longer among those left.
        left, total = set(embedding.places), np.zeros(width)
        for entry in _entries(path):
            if entry.word in left:
                left.remove(entry.word)
                vector = _vector(path, entry)
                if config.normalize:  # to a length of 1, except vectors of zeros, which have no direction
                    vector = (vector / (np.linalg.norm(vector) or 1)).astype(np.float32)
                columns[embedding.places[entry.word]] = vector
                total += vector
        num_set = len(embedding.places) - len(left)
        if config.unknown == "random" and num_set:
            columns[UNKNOWN] = total / num_set


def _require_width(config: WordsConfig) -> list[int]:
    """Return the widths of the recipe's files, which must add up to the recipe's."""
    widths = [len(next(_entries(path)).numbers.split(" ")) for path in config.files]
    if sum(widths) != config.dim:
        total = " + ".join(map(str, widths)) + (f" = {sum(widths)}" if len(widths) > 1 else "")
        raise ElmoError(f"words.dim: is {config.dim}, but the vectors of {' and '.join(config.files)} have {total}")
    return widths


def _entries(path: str | Path) -> Iterator[_Entry]:
    """Yield the lines of a file, at least one, all of the same width. `_vector` must still check their numbers."""
    if Path(path).suffix.lower() in (*BINARY, KEYED):
        raise ElmoError(
            f"{path}: is binary by its name; word vectors are read from text with a word and its numbers on each line, "
            "as gensim's save_word2vec_format writes it"
        )
    # Trailing blanks are removed because word2vec writes one at the end of each line. Any other blank counts: what is a
    # word and what are its numbers is decided by the number of blanks, without parsing the numbers.
    lines = ((number, line.rstrip()) for number, line in enumerate(read_lines(path), 1))
    first = list(islice(lines, 1))
    header = first[0][1].split() if first else []
    is_header = len(header) == 2 and all(part.isdecimal() and len(part) < 19 for part in header)
    width, is_empty = int(header[1]) if is_header else 0, True
    for number, line in chain([] if is_header else first, lines):
        if not line:
            continue
        is_empty, width = False, width or line.count(" ")
        if line.count(" ") == width:
            word, _, numbers = line.partition(" ")
        else:
            word, numbers = _split(path, number, line, width)
        if not word or not numbers:
            raise ElmoError(f"{path}, line {number}: expected a word and {width or 'its'} numbers, separated by blanks")
        entry = _Entry(number, word, numbers)
        # A line with any other character is parsed, which raises ElmoError unless it holds finite numbers after all.
        # Parsing every line would take much longer, and most lines are of words that are not kept.
        if numbers.encode("ascii", "replace").translate(None, _OF_NUMBERS):
            _vector(path, entry)
        yield entry
    if is_empty:
        raise ElmoError(f"{path}: holds no vectors; expected a word and its numbers on each line")


def _split(path: str | Path, number: int, line: str, width: int) -> tuple[str, str]:
    """Split a line in which the number of blanks is not the number of numbers: a word may itself contain blanks."""
    word, *fields = line.rsplit(" ", width)
    if len(fields) < width:
        return "", ""
    last = word.rpartition(" ")[2]
    if not last.isdecimal() and _is_number(last):
        raise ElmoError(f"{path}, line {number}: expected a word and {width} numbers, found more")
    return word, " ".join(fields)


def _vector(path: str | Path, entry: _Entry) -> NDArray[np.float32]:
    """Parse the numbers of a line, which must be finite."""
    fields = entry.numbers.split(" ")
    try:
        with np.errstate(over="ignore"):  # 1e99 becomes infinite, which is reported below
            vector = np.array(fields, dtype=np.float32)
    except ValueError:
        strange = next((field for field in fields if not _is_number(field)), fields[0])
        raise ElmoError(f"{path}, line {entry.line}: {strange!r} is not a number") from None
    if not np.isfinite(vector).all():
        strange = fields[int(np.argmin(np.isfinite(vector)))]
        raise ElmoError(
            f"{path}, line {entry.line}: the vector of {entry.word!r} holds {strange}, which is not a finite number; "
            "correct the line or remove it"
        )
    return vector


def _is_number(text: str) -> bool:
    try:
        return not math.isnan(float(text))
    except ValueError:
        return False
