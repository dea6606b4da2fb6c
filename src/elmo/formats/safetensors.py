"""Reading and writing safetensors files with a checksum, and conversions of the types that they hold."""

from __future__ import annotations

import json
import math
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from elmo.errors import ElmoError
from elmo.formats.files import require_file

if TYPE_CHECKING:
    from torch import Tensor

AnyArray = NDArray[Any]
"""An array of any of the types in `_TYPES`."""

BF16 = np.dtype([("bf16", "<u2")])
"""The type of an array of bfloat16, of which NumPy has none: its bits, under a name that no other type has."""

_CHECKSUM = "crc32"
"""The metadata key of a file's checksum."""

_LARGEST_HEADER, MOST_TENSORS = 1 << 22, 10_000
"""The size in bytes of a safetensors header and the number of tensors: far more than any model needs."""

_TYPES = {
    np.dtype(np.float64): "F64",
    np.dtype(np.float32): "F32",
    np.dtype(np.float16): "F16",
    BF16: "BF16",
    np.dtype(np.int64): "I64",
    np.dtype(np.int32): "I32",
    np.dtype(np.uint32): "U32",
    np.dtype(np.uint8): "U8",
    np.dtype(np.bool_): "BOOL",
}
"""The names of the types that we store, in the safetensors format."""

_READ = {name: dtype for dtype, name in _TYPES.items()} | {
    "I16": np.dtype(np.int16),
    "I8": np.dtype(np.int8),
    "U16": np.dtype(np.uint16),
    "U64": np.dtype(np.uint64),
}
"""The types that are read, by their names in the safetensors format."""


def read_arrays(path: Path) -> tuple[dict[str, AnyArray], dict[str, str]]:
    """Read a safetensors file, without torch. A file that `write_arrays` wrote is compared with its checksum.

    Returns:
        The arrays by name, in the type that they are stored in, and the metadata without the checksum.

    Raises:
        ElmoError: If the file is missing, incomplete, damaged, or has more tensors than any real model, or tensors of
            a type that is not read here.
    """
    header, metadata, start = _read_header(path)
    with path.open("rb") as file:
        arrays = {name: _read_array(path, file, start, name, facts) for name, facts in header.items()}
    # Files of other programs have no checksum.
    wanted = metadata.pop(_CHECKSUM, None)
    if any(map(_is_damaged_key, metadata)) or wanted not in (None, checksum(arrays, metadata)):
        raise ElmoError(f"{path}: damaged since it was written (its checksum differs); get or make the file again")
    return arrays, metadata


def map_arrays(path: Path) -> tuple[dict[str, AnyArray], dict[str, str]]:
    """Map the arrays of a safetensors file into memory, read-only, without torch.

    Numbers are read from the disk when they are first used. So the file is not compared with its checksum, and must not
    be changed meanwhile; `write_all` replaces a file as a whole, which is safe.

    Returns:
        The arrays by name, in the type that they are stored in, and the metadata without the checksum.

    Raises:
        ElmoError: As `read_arrays` does, but not if numbers are damaged.
    """
    header, metadata, start = _read_header(path)
    whole = np.asarray(np.memmap(path, np.uint8, "r"))  # a plain array is sliced faster
    arrays: dict[str, AnyArray] = {}
    for name, facts in header.items():
        first, end = facts["data_offsets"]
        numbers = whole[start + first : start + end].view(_type_of(path, name, facts))
        arrays[name] = _shaped(path, name, numbers, facts)
    metadata.pop(_CHECKSUM, None)
    return arrays, metadata


def _read_header(path: Path) -> tuple[dict[str, dict[str, Any]], dict[str, str], int]:
    """Return the facts about each tensor of a safetensors file, its metadata, and where the tensors begin in bytes."""
    _require_little_endian(path)
    require_file(path)
    try:
        with path.open("rb") as file:
            # The file begins with the size of its header. The library would parse any header of up to 100 MB, whose
            # tensors, however small, become Python objects.
            if (size := int.from_bytes(file.read(8), "little")) > _LARGEST_HEADER and size < path.stat().st_size:
                raise ElmoError(f"{path}: lists more tensors than any real model has (a header of {size:,} bytes)")
            # The library compares the header with the file. Its own arrays are not used: it has none of bfloat16.
            try:
                checked = safe_open(path, framework="np")
            except FileNotFoundError:  # is what the library says of every file that it can't open
                path.open("rb").close()  # says the reason, such as too many open files
                raise
            with checked:
                metadata, num_tensors = checked.metadata() or {}, len(checked.keys())
            if num_tensors > MOST_TENSORS:
                raise ElmoError(f"{path}: contains {num_tensors:,} tensors, more than any real model has")
            header: dict[str, Any] = json.loads(file.read(size))
            header.pop("__metadata__", None)
            return header, metadata, 8 + size
    except FileNotFoundError:
        raise ElmoError(f"{path}: no such file") from None
    except SafetensorError as error:
        raise ElmoError(f"{path}: not a complete safetensors file ({error})") from None


def _read_array(path: Path, file: BinaryIO, start: int, name: str, facts: dict[str, Any]) -> AnyArray:
    """Read one tensor, whose place in the file the header gives, counted from `start`."""
    file.seek(start + facts["data_offsets"][0])
    # Read, not mapped to memory: the file may be replaced while the arrays are in use.
    return _shaped(path, name, np.fromfile(file, _type_of(path, name, facts), math.prod(facts["shape"])), facts)


def _shaped(path: Path, name: str, numbers: AnyArray, facts: dict[str, Any]) -> AnyArray:
    """Return the numbers of a tensor in its shape, and refuse one that NumPy can't have, which is no model's."""
    try:
        return numbers.reshape(cast("list[int]", facts["shape"]))
    except ValueError:  # too many dimensions, or no numbers in one that is too long
        raise ElmoError(f"{path}: tensor '{name}' has a shape that no array can have; the file is damaged") from None


def _type_of(path: Path, name: str, facts: dict[str, Any]) -> np.dtype[Any]:
    """Return the type of a tensor, and refuse one that is not read here."""
    if facts["dtype"] not in _READ:
        raise ElmoError(f"{path}: tensor '{name}' is stored as {facts['dtype']}, which can't be read")
    return _READ[facts["dtype"]]


def _require_little_endian(path: Path) -> None:
    """Refuse processors whose numbers have another order of bytes than the files."""
    if sys.byteorder == "big":
        raise ElmoError(f"{path}: elmo reads and writes files on little-endian processors only")


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read a safetensors file as `read_arrays` does, into tensors."""
    import torch

    arrays, metadata = read_arrays(path)

    def tensor(array: AnyArray) -> Tensor:
        if array.dtype == BF16:
            return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
        return torch.from_numpy(array)

    return {name: tensor(array) for name, array in arrays.items()}, metadata


def to_array(tensor: Tensor) -> AnyArray:
    """Return the numbers of a tensor, which is on any device, as an array of the same type."""
    import torch

    plain = tensor.detach().cpu().contiguous()
    return plain.view(torch.uint16).numpy().view(BF16) if plain.dtype == torch.bfloat16 else plain.numpy()


def as_float32(array: AnyArray) -> NDArray[np.float32]:
    """Return the numbers of an array as float32, contiguous. It is the same array if it is that already."""
    if array.dtype == BF16:  # the upper half of a float32
        return (array.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return np.asarray(array, np.float32, order="C")


def as_bf16(array: NDArray[np.float32]) -> AnyArray:
    """Round finite numbers to bfloat16: the nearest, of two the even one. Those that are too large become infinite."""
    bits, half = array.view(np.uint32), np.uint32(16)
    rounded = bits + np.uint32(0x7FFF) + (bits >> half & np.uint32(1))
    return (rounded >> half).astype("<u2").view(BF16)


def _is_damaged_key(key: str) -> bool:
    """Return whether a key is that of the checksum with one or two characters changed.

    With such a key the file would pass for one without a checksum and go unchecked.
    """
    return len(key) == len(_CHECKSUM) and sum(map(str.__ne__, key, _CHECKSUM)) in (1, 2)


def write_arrays(path: Path, arrays: Mapping[str, AnyArray], metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file with a checksum, array by array, without copying contiguous arrays.

    The library's own writer is not used, because it copies all arrays in memory. It also writes to a randomly named
    file first, which stays behind if the process is killed, and which only its owner can read.

    Args:
        path: The file to write.
        arrays: The arrays by name, of a type in `_TYPES`.
        metadata: Additional metadata of the file.
    """
    _require_little_endian(path)
    # The largest types come first, so that every tensor is aligned.
    arrays = dict(sorted(arrays.items(), key=lambda item: (-item[1].itemsize, item[0])))
    facts = {"format": "pt", **(metadata or {})}
    header: dict[str, object] = {"__metadata__": facts | {_CHECKSUM: checksum(arrays, facts)}}
    end = 0
    for name, array in arrays.items():
        start, end = end, end + array.nbytes
        header[name] = {"dtype": _TYPES[array.dtype], "shape": list(array.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the tensors begin at a multiple of 8 bytes, as the format asks
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            file.write(_bytes(array))


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file as `write_arrays` does, of tensors on any device."""
    write_arrays(path, {name: to_array(tensor) for name, tensor in tensors.items()}, metadata)


def _bytes(array: AnyArray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def checksum(numbers: Mapping[str, AnyArray | Tensor], metadata: Mapping[str, object]) -> str:
    """Return the CRC-32 of metadata and of the names, types, shapes and values of arrays or tensors, in hexadecimal.

    It runs at 2.6 GB a second on one core.
    """
    value = zlib.crc32(json.dumps(metadata, sort_keys=True).encode())
    for name, item in sorted(numbers.items()):
        array = item if isinstance(item, np.ndarray) else to_array(item)
        # Types go by torch's names for them, with which the first checksums were made.
        dtype = "torch.bfloat16" if array.dtype == BF16 else f"torch.{array.dtype.name}"
        value = zlib.crc32(f"{name} {dtype} {list(array.shape)}".encode(), value)
        value = zlib.crc32(_bytes(array), value)
    return f"{value:08x}"


def checksum_of_weights(weights: Mapping[str, AnyArray]) -> str:
    """Return a checksum that identifies a biLM, of its weights as they are after loading (float32).

    It can't be that of the file, because a model in memory, just trained or loaded from float16, must give the same.
    """
    return checksum({name: as_float32(array) for name, array in weights.items()}, {})
