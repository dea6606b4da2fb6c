"""Embeddings as Parquet: one row per sentence, for data frames and query engines."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray
from pyarrow import parquet as pyarrow_parquet

from elmo.embed.layers import Entry, Layout

ROW_GROUP_BYTES = 1 << 24
"""Rows are held until they have this size, then written as a row group."""

pa: Any = pyarrow
pq: Any = pyarrow_parquet
"""pyarrow has no types."""


class ParquetWriter:
    """Columns `sentence` (its number), `tokens` (list of strings) and the vectors.

    `vectors` is a list of D numbers for each token; with all layers, `layer_0`, `layer_1`, … instead. Pooled:
    `vector`, or `layer_0`, …, with D numbers each.
    """

    def __init__(self, path: Path, layout: Layout, dtype: np.dtype[Any]) -> None:
        self._layout = layout
        self._dtype = dtype
        self._rows: list[Entry] = []
        self._num_bytes = 0
        self._count = 0
        vector = pa.list_(pa.from_numpy_dtype(dtype), layout.width)
        if layout.num_layers is not None:
            self._columns = [f"layer_{number}" for number in range(layout.num_layers)]
        else:
            self._columns = ["vector" if layout.pooled else "vectors"]
        column = vector if layout.pooled else pa.list_(vector)
        self._schema = pa.schema(
            [
                ("sentence", pa.int64()),
                ("tokens", pa.list_(pa.string())),
                *((name, column) for name in self._columns),
            ]
        )
        # Floats of a network hardly repeat: dictionaries and compression would only cost time.
        self._writer: Any = pq.ParquetWriter(path, self._schema, use_dictionary=False, compression="none")

    def add(self, window: list[Entry]) -> None:
        """Append entries."""
        for tokens, vectors in window:
            self._rows.append(Entry(tokens, vectors.astype(self._dtype, copy=False)))
            self._num_bytes += self._rows[-1].vectors.nbytes
            if self._num_bytes >= ROW_GROUP_BYTES:
                self._flush()

    def finish(self) -> list[str]:
        """Write the last row group."""
        self._flush()
        return []

    def close(self) -> None:
        """Close the file, finished or not."""
        self._writer.close()

    def _flush(self) -> None:
        """Write the rows held as one row group."""
        if not self._rows:
            return
        numbers = np.arange(self._count, self._count + len(self._rows))
        tokens = pa.array([list(entry.tokens) for entry in self._rows], type=pa.list_(pa.string()))
        columns = [self._column(number) for number in range(len(self._columns))]
        self._writer.write_table(pa.table([pa.array(numbers), tokens, *columns], schema=self._schema))
        self._count += len(self._rows)
        self._rows, self._num_bytes = [], 0

    def _column(self, number: int) -> Any:
        """The rows' vectors (of layer `number` where layers are apart), made from NumPy without a Python loop."""
        apart = self._layout.num_layers is not None
        arrays = [entry.vectors[number] if apart else entry.vectors for entry in self._rows]
        flat: NDArray[Any] = np.concatenate([array.reshape(-1) for array in arrays])
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(flat), self._layout.width)
        if self._layout.pooled:
            return vectors
        offsets = np.cumsum([0, *(len(array) for array in arrays)], dtype=np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), vectors)
