"""What a file of vectors says about itself: its shape, and what made it.

HDF5 keeps that as attributes of the file, `.npz` as the comment of the zip file, and Parquet in its metadata.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from lzma import LZMAError
from pathlib import Path
from tokenize import TokenError
from typing import Any, cast
from zipfile import BadZipFile

import numpy as np
from numpy.lib import format as npy

from elmo.errors import ElmoError
from elmo.extras import import_extra
from elmo.formats.archive import open_zip
from elmo.formats.hdf5 import get_inside

POOLED, INDEX = "sentence_vectors", "sentence_to_index"
"""The names of two arrays: all pooled vectors (in `.h5` and `.npz` files), and the map from sentences to their numbers
(in `.h5` files)."""

KEY = "elmo"
"""The key of the facts in the metadata of a Parquet file."""

_DAMAGE = (BadZipFile, TokenError, struct.error, zlib.error, LZMAError)
"""What reading the zip file and the headers of its arrays may raise, besides Python's own errors."""

_LARGEST_HEADER = 1 << 16
"""The largest header of an array in bytes. NumPy's own take 128."""

_MOST_BYTES = 60_000
"""The largest size of all facts: `.npz` keeps them in the comment of a zip file, which holds 64 KB."""

Facts = Mapping[str, Any]
"""What made a file, by name (see `SentenceEmbedder.write`): strings and numbers. Other programs store anything."""


@dataclass(frozen=True)
class VectorFile:
    """The shape of a file of vectors.

    Attributes:
        num_sentences: The number of sentences.
        num_layers: The number of layers that are kept apart, or None if there is one vector per token or sentence.
        width: The width D of a vector; None if the file has none.
        dtype: The type of the numbers; None if the file has none.
        pooled: Whether there is one vector for each sentence instead of each token.
        facts: What made the file; empty for files of other programs, and of earlier versions.
    """

    num_sentences: int
    num_layers: int | None
    width: int | None
    dtype: str | None
    pooled: bool
    facts: Facts


def find_vectors(path: Path) -> VectorFile | None:
    """Read what a file says about itself, or return None if it is no file of vectors.

    A damaged HDF5 file also gives None: it may be a model's, and reading it as one will tell what is wrong.

    Raises:
        ElmoError: If a file of another format is damaged, or needs a package that is not installed.
    """
    readers = {".h5": _read_hdf5, ".hdf5": _read_hdf5, ".npz": _read_npz, ".parquet": _read_parquet}
    read = readers.get(path.suffix.lower())
    return read(path) if read is not None and path.is_file() else None


def _read_hdf5(path: Path) -> VectorFile | None:
    import h5py

    try:
        with h5py.File(path, "r", locking=False) as file:
            pooled = POOLED in file
            if not (pooled or "0" in file or INDEX in file):
                return None
            stored = {name: file.attrs[name] for name in file.attrs if not _varies(file.attrs.get_id(name))}
            facts = json.loads(json.dumps(stored, default=_plain))
            first: Any = get_inside(file, path, POOLED if pooled else "0")
            num_sentences = len(first) if pooled else len(file) - (INDEX in file)
            return _described(None if first is None else (first.shape, first.dtype), num_sentences, pooled, facts)
    except ElmoError:
        raise
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError, SystemError):
        return None  # damaged, or no HDF5: whoever reads it as a model will tell


def _varies(attribute: Any) -> bool:
    """Return whether the values of an attribute have no fixed length.

    Such values lie in a heap, and HDF5 (2.0) reads a damaged one for ever, without listening to Ctrl-C.
    """
    import h5py

    kind = attribute.get_type()
    if kind.detect_class(h5py.h5t.VLEN):
        return True
    if not kind.detect_class(h5py.h5t.STRING):
        return False
    return not isinstance(kind, h5py.h5t.TypeStringID) or kind.is_variable_str()


def _read_npz(path: Path) -> VectorFile | None:
    file = path.open("rb")  # an error of opening it isn't damage
    try:
        with file, open_zip(path, file) as archive:
            names = archive.namelist()
            pooled = f"{POOLED}.npy" in names
            first = f"{POOLED}.npy" if pooled else "0.npy"
            if names and first not in names:
                return None
            facts = _parse(archive.comment)
            if not names:
                return _described(None, 0, pooled, facts)
            with archive.open(first) as member:
                begin = BytesIO(member.read(_LARGEST_HEADER))  # NumPy would read all of a header, however long it is
            version = npy.read_magic(begin)
            read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, _, dtype = read_header(begin)
            return _described((shape, dtype), shape[0] if pooled and shape else len(names), pooled, facts)
    except ElmoError:
        raise
    except (*_DAMAGE, OSError, EOFError, ValueError, TypeError, RuntimeError, SyntaxError) as error:
        raise ElmoError(f"{path}: is damaged ({error}); write it again") from None


def _read_parquet(path: Path) -> VectorFile | None:
    pq = import_extra("pyarrow.parquet", f"{path}: reading Parquet")
    opened = path.open("rb")  # by Python, since pyarrow takes no names that aren't UTF-8
    try:
        with opened, pq.ParquetFile(opened) as file:
            schema, num_sentences = file.schema_arrow, file.metadata.num_rows
    except (OSError, ValueError) as error:  # pyarrow's errors are among them
        raise ElmoError(f"{path}: is damaged ({error}); write it again") from None
    names = [name for name in schema.names if name in ("vector", "vectors") or name.startswith("layer_")]
    if not names or "sentence" not in schema.names:
        return None
    facts = _parse((schema.metadata or {}).get(KEY.encode(), b""))
    types = import_extra("pyarrow.types", f"{path}: reading Parquet")
    kind = schema.field(names[0]).type
    pooled = types.is_fixed_size_list(kind)
    vector = kind.value_type if types.is_list(kind) else kind
    if not types.is_fixed_size_list(vector):
        return None  # of another program
    try:
        dtype = np.dtype(vector.value_type.to_pandas_dtype())
    except NotImplementedError:
        return None  # of another program, too
    layers = len(names) if names[0].startswith("layer_") else None
    return VectorFile(num_sentences, layers, vector.list_size, dtype.name, pooled, facts)


def _parse(stored: bytes) -> Facts:
    """Read the facts of a file. Those of another program, which may have written anything there, are none."""
    try:
        facts: object = json.loads(stored)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", facts) if isinstance(facts, dict) else {}


def _plain(value: object) -> object:
    """Return an attribute of an HDF5 file that JSON cannot store as one that it can."""
    if isinstance(value, np.generic | np.ndarray):
        return cast("object", value.tolist())
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def checked_facts(facts: Facts) -> dict[str, str | int | float]:
    """Return facts as every format can store them. A file name that is not UTF-8 gets escapes in place of its bytes.

    Raises:
        ElmoError: If a fact is neither a string nor a number, or if some format can't store it.
    """
    checked: dict[str, str | int | float] = {}
    for name, value in facts.items():
        if not isinstance(name, str) or not name or not name.isprintable():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ElmoError(f"`facts`: {name!r} can't be the name of a fact; give a short word")
        if isinstance(value, str) and "\0" in value:
            raise ElmoError(f"`facts`: {name} holds a NUL character, which HDF5 can't store; leave it out")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ElmoError(f"`facts`: {name} is a number of more than 64 bits; give it as a string")
        if not isinstance(value, str | int | float):
            raise ElmoError(f"`facts`: {name} is {value!r}; give a string or a number")
        checked[name] = value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
    if (size := len(json.dumps(checked))) > _MOST_BYTES:
        raise ElmoError(f"`facts`: they take {size:,} bytes, more than the {_MOST_BYTES:,} of a file; give fewer")
    return checked


def _described(
    first: tuple[tuple[int, ...], np.dtype[Any]] | None, num_sentences: int, pooled: bool, facts: Facts
) -> VectorFile | None:
    """Describe a file by the shape of its first array, (T, D) or (L+1, T, D), or of all pooled vectors.

    Returns:
        The description, or None if the array is of another program.
    """
    if first is None:
        return VectorFile(num_sentences, None, None, None, pooled, facts)
    shape, dtype = first
    if len(shape) < 2:
        return None
    width = shape[-1]
    layers = None if len(shape) == 2 else shape[1 if pooled else 0]
    return VectorFile(num_sentences, layers, width, dtype.name, pooled, facts)
