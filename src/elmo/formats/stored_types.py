"""The token vectors of a model's frequent words, which embedding then looks up instead of computing them.

They are a file of the model folder, which is mapped into memory: starting reads only the words, and each vector comes
from the disk when its word is first met. So every row has a checksum of its own, which is compared when it is read.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from elmo.errors import ElmoError
from elmo.formats.safetensors import AnyArray, checksum, map_arrays, read_arrays, write_arrays

TypeStorage = Literal["float16", "float32"]
"""The type that token vectors are stored in. float16 keeps 11 significant bits, and takes half the space."""

_BILM, _INDEX = "bilm", "index"
"""The metadata keys of the biLM's checksum, and of that of everything but the vectors."""


@dataclass(frozen=True)
class StoredTypes:
    """The vectors of V words, as the biLM's token encoder computes them in float32.

    Attributes:
        vectors: The vectors (V, P), float16 or float32, mapped into memory if they were read from a file.
        keys: The CRC-32 of each word in UTF-8 (V,), sorted. The other arrays have the same order.
        text: The words in UTF-8, one directly after the other.
        ends: The place in `text` where each word ends (V,), in bytes.
        row_checksums: The CRC-32 of each row of `vectors` (V,).
        bilm: The checksum of the biLM that they belong to (`checksum_of_weights`).
        origin: The file, for messages.
    """

    vectors: AnyArray
    keys: NDArray[np.uint32]
    text: bytes
    ends: NDArray[np.uint32]
    row_checksums: NDArray[np.uint32]
    bilm: str
    origin: str = "made in memory"

    @classmethod
    def of(cls, words: Sequence[str], vectors: NDArray[np.float32], bilm: str, storage: TypeStorage) -> StoredTypes:
        """Put V distinct words in order and round their vectors (V, P).

        Raises:
            ElmoError: If a number is too large for float16, or is not finite.
        """
        encoded = [_encode(word) for word in words]
        keys = _checksums(encoded)
        order = np.argsort(keys, kind="stable").tolist()
        with np.errstate(over="ignore"):
            rows = vectors[order].astype(storage)
        if not np.isfinite(vectors).all():
            raise ElmoError("the model's token vectors are not finite: its weights are damaged; get the model again")
        if not np.isfinite(rows).all():
            raise ElmoError(f"the model's token vectors have numbers that do not fit into {storage}; use float32")
        ends = np.cumsum([len(encoded[index]) for index in order], dtype=np.uint32)
        return cls(rows, keys[order], b"".join(encoded[index] for index in order), ends, _checksums(rows), bilm)

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def is_exact(self) -> bool:
        """Whether the vectors are stored as they were computed, and not rounded."""
        return self.vectors.dtype == np.float32

    @cached_property
    def checksum(self) -> str:
        """A checksum of the words, their vectors and the biLM that they belong to."""
        # The checksums of the rows stand for the vectors, which need not be read.
        return checksum(self._index(), {_BILM: self.bilm, "type": str(self.vectors.dtype)})

    def read(self, words: Sequence[str]) -> tuple[NDArray[np.float32], list[int]]:
        """Look up N words.

        Returns:
            The vectors (N, P), and the indices of the words that are not stored, whose rows are not initialized.

        Raises:
            ElmoError: If the file is damaged.
        """
        found = np.empty((len(words), self.vectors.shape[1]), np.float32)
        rows = self._rows(words)
        known = rows >= 0
        vectors = np.ascontiguousarray(self.vectors[rows[known]])
        if not np.array_equal(_checksums(vectors), self.row_checksums[rows[known]]):
            raise _damaged(self.origin)
        found[known] = vectors
        unknown: list[int] = np.flatnonzero(~known).tolist()
        return found, unknown

    def write(self, path: Path) -> None:
        """Write the file that `read_types` reads."""
        arrays: dict[str, AnyArray] = {"vectors": self.vectors, **self._index()}
        write_arrays(path, arrays, {_BILM: self.bilm, _INDEX: self.checksum})

    def is_in(self, path: Path) -> bool:
        """Return whether there is a file that holds the same, and is not damaged."""
        try:
            return path.is_file() and read_arrays(path)[1].get(_INDEX) == self.checksum
        except ElmoError:
            return False

    def _index(self) -> dict[str, AnyArray]:
        words = np.frombuffer(self.text, np.uint8)
        return {"keys": self.keys, "words": words, "ends": self.ends, "row_checksums": self.row_checksums}

    def _rows(self, words: Sequence[str]) -> NDArray[np.int64]:
        """Return the row of each word (N,), or -1 if it is not stored."""
        # This costs a few µs for each word when it is first met. A dictionary of 50,000 words would cost 15 ms and
        # several MB at each start.
        encoded = [_encode(word) for word in words]
        wanted = _checksums(encoded)
        first, end = (np.searchsorted(self.keys, wanted, side).tolist() for side in ("left", "right"))
        rows = (
            next((row for row in range(*bounds) if self._word(row) == word), -1)  # several words may have one key
            for word, *bounds in zip(encoded, first, end, strict=True)
        )
        return np.fromiter(rows, np.int64, len(words))

    def _word(self, row: int) -> bytes:
        return self.text[self.ends[row - 1] if row else 0 : self.ends[row]]


def read_types(path: Path, width: int, bilm: str, *, in_memory: bool = False) -> StoredTypes | None:
    """Open a file of token vectors without reading the vectors.

    Args:
        path: The file.
        width: The width P that the vectors must have.
        bilm: The checksum of the biLM that they must belong to.
        in_memory: Whether to read the vectors all the same, of a file that is about to be removed.

    Returns:
        The vectors, or None if they belong to another biLM, whose width may be another one, too.

    Raises:
        ElmoError: If the file is missing, incomplete or damaged, or does not hold what it should.
    """
    arrays, metadata = read_arrays(path) if in_memory else map_arrays(path)
    wanted = {"vectors": 2, "keys": 1, "words": 1, "ends": 1, "row_checksums": 1}
    if {name: array.ndim for name, array in arrays.items()} != wanted:
        raise ElmoError(f"{path}: must hold the tensors {', '.join(wanted)}, and nothing else")
    vectors, keys, words, ends, row_checksums = (arrays[name] for name in wanted)
    found = [str(array.dtype) for array in (vectors, keys, words, ends, row_checksums)]
    if found not in [[storage, "uint32", "uint8", "uint32", "uint32"] for storage in get_args(TypeStorage)]:
        raise ElmoError(f"{path}: has tensors of the types {', '.join(found)}, which those of token vectors are not")
    # The index is copied: it is searched for every word, and small.
    keys, ends, row_checksums = (np.array(array) for array in (keys, ends, row_checksums))
    types = StoredTypes(vectors, keys, words.tobytes(), ends, row_checksums, metadata.get(_BILM, ""), str(path))
    if metadata.get(_INDEX) != types.checksum:
        raise _damaged(str(path))
    if types.bilm != bilm:
        return None
    if vectors.shape != (len(ends), width) or not keys.shape == row_checksums.shape == ends.shape:
        raise ElmoError(f"{path}: tensor 'vectors' has shape {vectors.shape}, expected {(len(ends), width)}")
    if (np.diff(ends.astype(np.int64), prepend=0) < 0).any() or (ends[-1] if len(ends) else 0) != len(words):
        raise ElmoError(f"{path}: the places where its words end do not fit the words")
    return types


def _encode(word: str) -> bytes:
    return word.encode("utf-8", "surrogatepass")


def _checksums(items: Iterable[Any]) -> NDArray[np.uint32]:
    return np.array([zlib.crc32(item) for item in items], np.uint32)


def _damaged(where: str) -> ElmoError:
    return ElmoError(
        f"{where}: damaged since it was written (its checksum differs); make it again with 'elmo warm MODEL --types', "
        "or remove it"
    )
