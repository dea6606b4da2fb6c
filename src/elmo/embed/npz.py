"""Embeddings as NumPy's `.npz`: a zip file of arrays that `np.load` reads one by one."""

import shutil
import tempfile
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

import numpy as np
from numpy.lib import format as npy

from elmo.embed.layers import Entry, Layout


class NpzWriter:
    """Arrays `"0"`, `"1"`, …, one per sentence, (T, D) or (L+1, T, D); pooled: one array `sentence_vectors`.

    A zip file's directory is kept in memory until the end, about half a kilobyte for each array: for millions of
    unpooled sentences `.h5` or `.parquet` suits better.
    """

    def __init__(self, path: Path, layout: Layout, dtype: np.dtype[Any]) -> None:
        self._zip = ZipFile(path, "w")
        self._dtype = dtype
        self._layout = layout
        self._count = 0
        # An array's header says how long it is, so pooled vectors wait here until the last is known.
        self._pooled = tempfile.TemporaryFile(dir=path.parent)  # noqa: SIM115 - close() closes it

    def add(self, window: list[Entry]) -> None:
        """Append entries."""
        for number, (_, vectors) in enumerate(window, self._count):
            array = np.ascontiguousarray(vectors, dtype=self._dtype)
            if self._layout.pooled:
                self._pooled.write(array.tobytes())
            else:
                with self._zip.open(ZipInfo(f"{number}.npy"), "w", force_zip64=True) as member:
                    npy.write_array(member, array, allow_pickle=False)
        self._count += len(window)

    def finish(self) -> list[str]:
        """Write the pooled vectors, and the zip file's directory."""
        if self._layout.pooled:
            header = {
                "descr": npy.dtype_to_descr(self._dtype),
                "fortran_order": False,
                "shape": (self._count, *self._layout.pooled_shape),
            }
            self._pooled.seek(0)
            with self._zip.open(ZipInfo("sentence_vectors.npy"), "w", force_zip64=True) as member:
                npy.write_array_header_1_0(member, header)
                shutil.copyfileobj(self._pooled, member)
        return []

    def close(self) -> None:
        """Close the file, finished or not."""
        self._pooled.close()
        self._zip.close()
