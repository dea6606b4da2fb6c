"""Writes embeddings as NumPy's `.npz`: a zip file of arrays that `np.load` reads one by one."""

import json
import shutil
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import ZipFile, ZipInfo

import numpy as np
from numpy.lib import format as npy

from elmo.embed.append import DATA, close_all, make_safe, open_at
from elmo.embed.description import POOLED, Facts
from elmo.embed.layers import Entry, VectorLayout, rounded


class NpzWriter:
    """Writes arrays `"0"`, `"1"`, …, one per sentence, (T, D) or (L+1, T, D).

    Pooled vectors are one array `sentence_vectors`, (N, D) or (N, L+1, D), instead. What made the file is the
    comment of the zip file, as JSON.

    The directory of the zip file stays in memory until the end, at about half a kilobyte per array. Prefer `.h5` or
    `.parquet` for millions of sentences that are not pooled.

    Its arguments are those of `HDF5Writer`.
    """

    def __init__(
        self, folder: Path, layout: VectorLayout, dtype: np.dtype[Any], sizes: Mapping[str, int], facts: Facts
    ) -> None:
        self._dtype, self._layout = dtype, layout
        self._count = sizes.get("sentences", 0)
        # The header of an array states its length, so pooled vectors wait in a separate file until all are there.
        self._data, self._pooled = (open_at(folder / name, sizes.get(name, 0)) for name in (DATA, "pooled"))
        members = list(_members(self._data, self._data.tell()))
        self._zip = ZipFile(self._data, "w")  # appends at the current position of the file
        self._zip.infolist().extend(members)
        self._zip.comment = json.dumps(facts).encode()

    def add(self, window: list[Entry]) -> None:
        """Append the entries of a window."""
        for number, (_, vectors) in enumerate(window, self._count):
            array = rounded(vectors, self._dtype)
            if self._layout.pooled:
                self._pooled.write(array.tobytes())
            else:
                with self._zip.open(ZipInfo(f"{number}.npy"), "w", force_zip64=True) as member:
                    npy.write_array(member, array, allow_pickle=False)
        self._count += len(window)

    def commit(self) -> dict[str, int]:
        """Flush all added entries to disk, and return the file sizes from which to continue."""
        return {"sentences": self._count, DATA: make_safe(self._data), "pooled": make_safe(self._pooled)}

    def finish(self) -> list[str]:
        """Write the pooled vectors, if any, and the directory of the zip file. There are no notes."""
        if self._layout.pooled:
            header = {
                "descr": npy.dtype_to_descr(self._dtype),
                "fortran_order": False,
                "shape": (self._count, *self._layout.pooled_shape),
            }
            self._pooled.seek(0)
            with self._zip.open(ZipInfo(f"{POOLED}.npy"), "w", force_zip64=True) as member:
                npy.write_array_header_1_0(member, header)
                shutil.copyfileobj(self._pooled, member)
        self._zip.close()
        return []

    def close(self) -> None:
        """Close the files, whether they are complete or not."""
        close_all(self._zip, self._pooled, self._data)


def _members(file: BinaryIO, end: int) -> Iterator[ZipInfo]:
    """List the members of a zip file of `end` bytes that has no directory yet, from the header before each member.

    Leaves the file positioned at `end`. The offsets are those of the local header and its zip64 field (PKWARE's
    APPNOTE 4.3.7 and 4.5.3).
    """
    file.seek(0)
    while (start := file.tell()) < end:
        crc, name_size, extra_size = struct.unpack("<14x I 8x HH", file.read(30))
        info = ZipInfo(file.read(name_size).decode())
        info.file_size, info.compress_size = struct.unpack_from("<4x QQ", file.read(extra_size))
        info.CRC, info.header_offset = crc, start
        info.create_version = info.extract_version = 45  # zip64; `ZipFile.open` sets this and the next field alike
        info.external_attr = 0o600 << 16
        file.seek(info.compress_size, 1)
        yield info
    file.seek(end)
