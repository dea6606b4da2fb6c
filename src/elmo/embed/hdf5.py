"""Embeddings as HDF5, in the layout of AllenNLP's `elmo` command."""

import json
import tempfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from elmo.embed.layers import Entry, Layout

INDEX_BYTES = 1 << 26
"""The longest `sentence_to_index`: HDF5 takes a string in one piece, so it has to fit into memory."""

CHUNK_BYTES = 1 << 18
"""Size of the chunks in which the array of pooled vectors grows."""


class HDF5Writer:
    """Data sets `"0"`, `"1"`, …, one per sentence, (T, D) or (L+1, T, D), and `sentence_to_index`.

    `sentence_to_index`, (1,), holds JSON from a sentence (its tokens joined by spaces) to its data set's name; of
    equal sentences the last counts, as in AllenNLP. Pooled vectors are one data set `sentence_vectors`, (N, D) or
    (N, L+1, D), instead of the numbered ones.
    """

    def __init__(self, path: Path, layout: Layout, dtype: np.dtype[Any]) -> None:
        self._file: Any = h5py.File(path, "w")
        self._dtype = dtype
        self._count = 0
        self._index = tempfile.TemporaryFile(dir=path.parent)  # noqa: SIM115 - close() closes it
        self._vectors: Any = None
        if layout.pooled:
            rows = max(1, CHUNK_BYTES // (dtype.itemsize * int(np.prod(layout.pooled_shape))))
            self._vectors = self._file.create_dataset(
                "sentence_vectors",
                shape=(0, *layout.pooled_shape),
                maxshape=(None, *layout.pooled_shape),
                chunks=(rows, *layout.pooled_shape),
                dtype=dtype,
            )

    def add(self, window: list[Entry]) -> None:
        """Append entries."""
        if self._vectors is not None:
            self._vectors.resize(self._count + len(window), axis=0)
            self._vectors[self._count :] = np.stack([entry.vectors for entry in window])
        for number, (tokens, vectors) in enumerate(window, self._count):
            if self._vectors is None:
                self._file.create_dataset(str(number), data=vectors.astype(self._dtype, copy=False))
            item = f"{json.dumps(' '.join(tokens))}: {json.dumps(str(number))}"
            self._index.write(f"{', ' if number else '{'}{item}".encode())
        self._count += len(window)

    def finish(self) -> list[str]:
        """Store `sentence_to_index`, unless it is too long for that."""
        self._index.write(b"}" if self._count else b"{}")
        size = self._index.tell()
        if size > INDEX_BYTES:
            return [f"sentence_to_index is left out: it would take {size >> 20} MB; entries are in the text's order"]
        self._index.seek(0)
        self._file.create_dataset("sentence_to_index", (1,), dtype=h5py.string_dtype())[0] = self._index.read()
        return []

    def close(self) -> None:
        """Close the file, finished or not."""
        self._index.close()
        self._file.close()
