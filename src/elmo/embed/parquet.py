"""Embeddings as Parquet: one row per sentence, for data frames and query engines."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray
from pyarrow import parquet as pyarrow_parquet

from elmo.embed.append import DATA, close_all, make_safe, open_at
from elmo.embed.layers import Entry, VectorLayout
from elmo.embed.parquet_footer import join_footers

ROW_GROUP_BYTES = 1 << 24
"""Rows are held until they have this size, then written as a row group."""

pa: Any = pyarrow
pq: Any = pyarrow_parquet
"""pyarrow has no types."""


class ParquetWriter:
    """Columns `sentence` (its number), `tokens` (list of strings) and the vectors (see `vector_columns`).

    Every commit ends a Parquet file of its own; they follow each other in one file, and the last footer tells of all.
    """

    def __init__(self, folder: Path, layout: VectorLayout, dtype: np.dtype[Any], sizes: Mapping[str, int]) -> None:
        self._layout, self._dtype = layout, dtype
        self._rows: list[Entry] = []
        self._num_bytes = 0
        self._count = sizes.get("sentences", 0)
        self._data, self._ends = (open_at(folder / name, sizes.get(name, 0)) for name in (DATA, "ends"))
        self._schema = pa.schema(
            [
                ("sentence", pa.int64()),
                ("tokens", pa.list_(pa.string())),
                *((name, column.type) for name, column in vector_columns([], layout, dtype).items()),
            ]
        )
        self._writer: Any = None

    def add(self, window: list[Entry]) -> None:
        """Append entries."""
        for tokens, vectors in window:
            self._rows.append(Entry(tokens, vectors.astype(self._dtype, copy=False)))
            self._num_bytes += self._rows[-1].vectors.nbytes
            if self._num_bytes >= ROW_GROUP_BYTES:
                self._flush()

    def commit(self) -> dict[str, int]:
        """Make what was added safe; returns the sizes to go on from."""
        self._flush()
        self._end()
        return {"sentences": self._count, DATA: make_safe(self._data), "ends": make_safe(self._ends)}

    def finish(self) -> list[str]:
        """Write the last row group and the footer."""
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
        """Close the files, finished or not."""
        close_all(*([self._writer] if self._writer is not None else []), self._data, self._ends)

    def _open(self) -> Any:
        """The Parquet file in hand, which begins where the one before ended."""
        if self._writer is None:
            # Floats of a network hardly repeat: dictionaries and compression would only cost time.
            self._writer = pq.ParquetWriter(self._data, self._schema, use_dictionary=False, compression="none")
        return self._writer

    def _end(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._ends.write(np.int64(self._data.tell()).tobytes())

    def _flush(self) -> None:
        """Write the rows held as one row group."""
        if not self._rows:
            return
        numbers = np.arange(self._count, self._count + len(self._rows))
        tokens = pa.array([list(map(_storable, entry.tokens)) for entry in self._rows], type=pa.list_(pa.string()))
        vectors = vector_columns([entry.vectors for entry in self._rows], self._layout, self._dtype)
        self._open().write_table(pa.table([pa.array(numbers), tokens, *vectors.values()], schema=self._schema))
        self._count += len(self._rows)
        self._rows, self._num_bytes = [], 0


def _storable(token: str) -> str:
    """A token with ? for lone surrogates, which Arrow can't hold."""
    return token.encode("utf-8", "replace").decode()


def vector_columns(arrays: Sequence[NDArray[Any]], layout: VectorLayout, dtype: np.dtype[Any]) -> dict[str, Any]:
    """Sentences' arrays (of the shape that `layout` tells) as Arrow columns, without a Python loop over numbers.

    `vectors` is a list of D numbers for each token; with all layers, `layer_0`, `layer_1`, … instead. Pooled:
    `vector`, or `layer_0`, …, with D numbers each. The D numbers are of Arrow's fixed-size list type.
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
