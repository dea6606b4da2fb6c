"""Writes embeddings as Parquet, one row per sentence, for data frames and query engines."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow
from numpy.typing import NDArray
from pyarrow import parquet as pyarrow_parquet

from elmo.embed.append import DATA, close_all, make_safe, open_at
from elmo.embed.description import KEY, Facts
from elmo.embed.layers import Entry, VectorLayout, rounded
from elmo.embed.parquet_footer import join_footers
from elmo.text.located import LocatedSentence

ROW_GROUP_BYTES = 1 << 24
"""Rows are held in memory until their vectors have this size, and are then written as one row group."""

pa: Any = pyarrow
pq: Any = pyarrow_parquet
"""pyarrow has no type annotations, so it is used as `Any`."""

_PLACES = (
    ("file", pa.string()),
    ("id", pa.string()),
    ("start", pa.list_(pa.int64())),
    ("end", pa.list_(pa.int64())),
)


class ParquetWriter:
    """Writes columns `sentence` (its number), `tokens` (list of strings) and the vectors (see `vector_columns`).

    If the sentences know where they are from, further columns are `file`, `id`, and `start` and `end` (lists of the
    places of the tokens in the file, see `LocatedSentence`). What made the file is in its metadata, as JSON.

    Every commit completes a small Parquet file, so that nothing before it is rewritten. These files follow each other
    in one file, and its last footer describes all of them.

    Its arguments are those of `HDF5Writer`.
    """

    def __init__(
        self, folder: Path, layout: VectorLayout, dtype: np.dtype[Any], sizes: Mapping[str, int], facts: Facts
    ) -> None:
        self._layout, self._dtype = layout, dtype
        self._rows: list[Entry] = []
        self._num_bytes = 0
        self._count = sizes.get("sentences", 0)
        self._data, self._ends = (open_at(folder / name, sizes.get(name, 0)) for name in (DATA, "ends"))
        self._schema = pa.schema(
            [
                ("sentence", pa.int64()),
                ("tokens", pa.list_(pa.string())),
                *(_PLACES if layout.located else ()),
                *((name, column.type) for name, column in vector_columns([], layout, dtype).items()),
            ],
            {KEY: json.dumps(facts)},
        )
        self._writer: Any = None

    def add(self, window: list[Entry]) -> None:
        """Append the entries of a window."""
        for tokens, vectors in window:
            self._rows.append(Entry(tokens, rounded(vectors, self._dtype)))
            self._num_bytes += self._rows[-1].vectors.nbytes
            if self._num_bytes >= ROW_GROUP_BYTES:
                self._flush()

    def commit(self) -> dict[str, int]:
        """Flush all added entries to disk, and return the file sizes from which to continue."""
        self._flush()
        self._end()
        return {"sentences": self._count, DATA: make_safe(self._data), "ends": make_safe(self._ends)}

    def finish(self) -> list[str]:
        """Write the last row group and the footer. There are no notes."""
        self._flush()
        if self._data.tell() == 0:
            self._open()
        self._end()
        self._ends.seek(0)
        ends: list[int] = np.frombuffer(self._ends.read(), np.int64).tolist()
        if len(ends) > 1:
            join_footers(self._data, ends)
        self._data.truncate()
        self._data.close()
        return []

    def close(self) -> None:
        """Close the files, whether they are complete or not."""
        close_all(*([self._writer] if self._writer is not None else []), self._data, self._ends)

    def _open(self) -> Any:
        """Return the current Parquet file, which begins at the end of the previous one; start it if necessary."""
        if self._writer is None:
            # The numbers of a network hardly ever repeat, so dictionaries and compression would only cost time.
            self._writer = pq.ParquetWriter(self._data, self._schema, use_dictionary=False, compression="none")
        return self._writer

    def _end(self) -> None:
        """Complete the current Parquet file, if there is one."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._ends.write(np.int64(self._data.tell()).tobytes())

    def _flush(self) -> None:
        """Write the rows in memory as one row group."""
        if not self._rows:
            return
        numbers = np.arange(self._count, self._count + len(self._rows))
        tokens = pa.array([list(map(_storable, entry.tokens)) for entry in self._rows], type=pa.list_(pa.string()))
        vectors = vector_columns([entry.vectors for entry in self._rows], self._layout, self._dtype)
        places = _place_columns([entry.tokens for entry in self._rows]) if self._layout.located else ()
        columns = [pa.array(numbers), tokens, *places, *vectors.values()]
        self._open().write_table(pa.table(columns, schema=self._schema))
        self._count += len(self._rows)
        self._rows, self._num_bytes = [], 0


def _place_columns(sentences: Sequence[Sequence[str]]) -> list[Any]:
    """Return the columns of `_PLACES` of located sentences."""
    located = cast("Sequence[LocatedSentence]", sentences)
    values = (
        [_storable(sentence.file) for sentence in located],
        [_storable(sentence.id) for sentence in located],
        [sentence.starts for sentence in located],
        [sentence.ends for sentence in located],
    )
    return [pa.array(column, type=kind) for column, (_, kind) in zip(values, _PLACES, strict=True)]


def _storable(token: str) -> str:
    """Replace lone surrogates in a token by ?, since Arrow's strings are UTF-8."""
    return token.encode("utf-8", "replace").decode()


def vector_columns(arrays: Sequence[NDArray[Any]], layout: VectorLayout, dtype: np.dtype[Any]) -> dict[str, Any]:
    """Convert sentences' arrays to Arrow columns, without a Python loop over numbers.

    Args:
        arrays: One array per sentence, of the shape that `layout` describes.
        layout: The shape of a sentence's array.
        dtype: The type of the stored numbers.

    Returns:
        Columns by name: `vectors`, or `layer_0`, `layer_1`, … if the layers are kept apart. A row holds a list of T
        vectors. With pooled vectors, `vector` or `layer_0`, …, and a row holds one vector. A vector is a fixed-size
        list of D numbers.
    """
    if layout.num_layers is None:
        return {"vector" if layout.pooled else "vectors": _column(arrays, layout, dtype)}
    layers = range(layout.num_layers)
    return {f"layer_{layer}": _column([array[layer] for array in arrays], layout, dtype) for layer in layers}


def _column(arrays: Sequence[NDArray[Any]], layout: VectorLayout, dtype: np.dtype[Any]) -> Any:
    flat: NDArray[Any] = np.concatenate([np.empty(0, dtype), *(array.reshape(-1) for array in arrays)], dtype=dtype)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(flat), layout.width)
    if layout.pooled:
        return vectors
    offsets = np.cumsum([0, *(len(array) for array in arrays)], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), vectors)
