"""Writes embeddings as HDF5, in the layout of AllenNLP's `elmo` command."""

import json
from collections.abc import Iterator, Mapping
from os import SEEK_END
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from elmo.embed.append import DATA, close_all, make_safe, open_at
from elmo.embed.description import INDEX, POOLED, Facts
from elmo.embed.hdf5_stream import BLOCK, DATA_START, describe_data_sets
from elmo.embed.layers import Entry, VectorLayout, rounded

INDEX_BYTES = 1 << 26
"""Maximum size of `sentence_to_index`. HDF5 takes a string in one piece, so the whole of it has to fit into memory."""

ROOM_BYTES = 1 << 16
"""At least as many bytes as HDF5 writes besides the string itself."""


class HDF5Writer:
    """Writes data sets `"0"`, `"1"`, …, one per sentence, (T, D) or (L+1, T, D), and `sentence_to_index`.

    What made the file is in its attributes.

    `sentence_to_index`, (1,), holds a JSON object that maps a sentence (its tokens joined by spaces) to the name of
    its data set; among equal sentences the last one wins, as in AllenNLP. Pooled vectors are one data set
    `sentence_vectors`, (N, D) or (N, L+1, D), instead of the numbered ones.

    Args:
        folder: The folder of unfinished work.
        layout: The shape of a sentence's array.
        dtype: The type of the stored numbers.
        sizes: The result of the last `commit` of an interrupted run, from which to continue; empty to start.
        facts: What makes the file.
    """

    def __init__(
        self, folder: Path, layout: VectorLayout, dtype: np.dtype[Any], sizes: Mapping[str, int], facts: Facts
    ) -> None:
        self._path, self._layout, self._facts = folder / DATA, layout, facts
        self._dtype = dtype.newbyteorder("<")  # as `describe_data_sets` says, whatever the processor's own order
        self._count = sizes.get("sentences", 0)
        self._data, self._lengths, self._index = self._files = [
            open_at(folder / name, sizes.get(name, 0)) for name in (DATA, "lengths", "index")
        ]
        if self._data.tell() == 0:
            self._data.write(bytes(DATA_START))

    def add(self, window: list[Entry]) -> None:
        """Append the entries of a window."""
        for number, (tokens, vectors) in enumerate(window, self._count):
            self._data.write(rounded(vectors, self._dtype).data)
            item = f"{json.dumps(' '.join(tokens))}: {json.dumps(str(number))}"
            self._index.write(f"{', ' if number else '{'}{item}".encode())
        self._lengths.write(np.array([len(tokens) for tokens, _ in window], np.int32).tobytes())
        self._count += len(window)

    def commit(self) -> dict[str, int]:
        """Flush all added entries to disk, and return the file sizes from which to continue."""
        data, lengths, index = map(make_safe, self._files)
        return {"sentences": self._count, DATA: data, "lengths": lengths, "index": index}

    def finish(self) -> list[str]:
        """Describe the data sets, and store `sentence_to_index`. If that is too long, return a note that says so."""
        pooled = self._layout.pooled
        *apart, width = self._layout.pooled_shape
        shapes = ((*apart, length, width) for block in self._stored_lengths() for length in block.tolist())
        self._data.truncate()
        names = describe_data_sets(
            self._data,
            iter([(self._count, *self._layout.pooled_shape)]) if pooled else shapes,
            1 if pooled else self._count,
            self._dtype,
            POOLED if pooled else "",
        )
        self._index.write(b"}" if self._count else b"{}")
        size = self._index.tell()
        is_short = size <= INDEX_BYTES
        # To add the name of one more data set, HDF5's library copies all names into twice the space.
        self._reserve(size + 2 * names if is_short else 0)
        self._data.close()
        self._index.seek(0)
        with h5py.File(self._path, "r+", locking=False) as file:
            facts = {name: _fixed(fact) if isinstance(fact, str) else fact for name, fact in self._facts.items()}
            num_tokens = sum(int(block.sum()) for block in self._stored_lengths())
            file.attrs.update({**facts, "num_sentences": self._count, "num_tokens": num_tokens})
            if is_short:
                file.create_dataset(INDEX, (1,), dtype=h5py.string_dtype())[0] = self._index.read()
        if is_short:
            return []
        return [f"{INDEX} is left out: it would take {size >> 20} MB; entries are in the text's order"]

    def _stored_lengths(self) -> Iterator[NDArray[np.int32]]:
        """Yield the lengths of all sentences, block by block."""
        self._lengths.seek(0)
        while block := self._lengths.read(4 * BLOCK):
            yield np.frombuffer(block, np.int32)

    def _reserve(self, size: int) -> None:
        """Reserve `size` more bytes on the disk, since HDF5's library ends the process if the disk is full."""
        self._data.seek(0, SEEK_END)
        for _ in range(0, size + ROOM_BYTES, ROOM_BYTES):
            self._data.write(bytes(ROOM_BYTES))
        self._data.flush()

    def close(self) -> None:
        """Close the files, whether they are complete or not."""
        close_all(*self._files)


def _fixed(text: str) -> NDArray[Any]:
    """Return a string of fixed length. Those of variable length are not read again (see `description`)."""
    data = text.encode()
    return np.array(data, h5py.string_dtype("utf-8", max(1, len(data))))
