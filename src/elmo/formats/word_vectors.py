"""Writes one vector for each word: word2vec's text format, or gensim's `KeyedVectors`."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmo.errors import ElmoError
from elmo.extras import import_extra
from elmo.formats.files import write_all
from elmo.targets import require_new_file
from elmo.text.opening import COMPRESSED

KEYED = ".kv"
"""The ending of files that gensim's `KeyedVectors.load` reads. All others are word2vec's text format."""


BINARY = (".bin", ".model", ".npy", ".npz")
"""Endings of files in which other programs keep word vectors, and which are not text."""

_OTHER_FORMATS = (*COMPRESSED, *BINARY, ".zip", ".h5", ".hdf5", ".parquet", ".csv", ".tsv", ".json")
"""Endings of formats that word vectors are not written in. A file of text must not have such a name."""


def require_word_vector_target(path: Path) -> None:
    """Check that word vectors can be written to a path, before anything is computed.

    Raises:
        ElmoError: If the path exists already or its folder does not, if its ending is that of another format, or if its
            format needs gensim, and that is not installed.
    """
    require_new_file(path)
    if path.suffix.lower() in _OTHER_FORMATS:
        raise ElmoError(f"{path}: word vectors are text (.txt or .vec) or gensim's ({KEYED}); name such a file")
    if path.suffix == KEYED:
        import_extra("gensim", f"a file that ends in {KEYED}")


def write_word_vectors(
    path: Path, words: Sequence[str], vectors: NDArray[np.float32], counts: Sequence[int] | None = None
) -> None:
    """Write a vector for each word, in the format that the ending of `path` names.

    Args:
        path: The file, which must be new. `.kv` is gensim's own format, one file for `KeyedVectors.load`. Any other
            ending is the text format of word2vec, which `KeyedVectors.load_word2vec_format` and many other programs
            read.
        words: The distinct words, the most frequent first: programs that read only a part of a file read its beginning.
        vectors: A vector for each word, (V, D).
        counts: How often each word occurs. Only `.kv` keeps it, as the attribute "count".

    Raises:
        ElmoError: If the ending is `.kv` and gensim is not installed, or if there is a file at `path`. The vectors,
            which may have taken hours, are then in a file of another name, which the message says.
    """
    if os.path.lexists(path):
        names = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in itertools.count(2))
        other = next(name for name in names if not os.path.lexists(name))
        write_word_vectors(other, words, vectors, counts)
        raise ElmoError(f"{path}: was created by another program in the meantime; the vectors are in {other}")
    if path.suffix != KEYED:
        write_all({path: lambda partial: _write_text(partial, words, vectors)})
        return
    models: Any = import_extra("gensim.models", f"a file that ends in {KEYED}")
    keyed = models.KeyedVectors(vectors.shape[1])
    keyed.add_vectors(list(words), vectors)
    if counts is not None:
        for word, count in zip(words, counts, strict=True):
            keyed.set_vecattr(word, "count", count)
    # gensim would put arrays of ten million numbers or more into files of their own next to this one.
    write_all({path: lambda partial: keyed.save(str(partial), sep_limit=vectors.size + 1)})


def _write_text(path: Path, words: Sequence[str], vectors: NDArray[np.float32]) -> None:
    """Write the vectors with five digits, which is a thousand times finer than two trainings agree."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(f"{len(words)} {vectors.shape[1]}\n")
        for word, row in zip(words, vectors, strict=True):
            file.write(f"{word} {' '.join(f'{number:.5g}' for number in row.tolist())}\n")
