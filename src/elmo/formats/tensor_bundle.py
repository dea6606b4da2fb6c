"""Reads TensorFlow's checkpoint files (`x.index` and `x.data-00000-of-00001`) without TensorFlow.

TensorFlow weighs a gigabyte, and each of its versions runs on only a few versions of Python.

The index is a sorted table in the format of LevelDB. It consists of blocks with a CRC-32C each, whose keys omit the
beginning that they share with the key before. The last 48 bytes of the file (the footer) point to a block that points
to all the others. A key is the name of a variable. Its value is a protobuf message (`BundleEntryProto`) with the type,
the shape, the data file and the position of the numbers in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmo.errors import ElmoError
from elmo.formats.files import require_file
from elmo.formats.tensors import TensorInFile

INDEX = ".index"

_LARGEST_INDEX, _LONGEST_NAME, _MOST_VARIABLES = 1 << 20, 256, 10_000
"""Far more than the hundred variables of a biLM need. Names share beginnings, so a few bytes could expand to many."""

_FOOTER, _MAGIC, _TRAILER = 48, (0xDB4775248B80FB57).to_bytes(8, "little"), 5
_TYPES = {1: "<f4", 2: "<f8", 19: "<f2"}
"""The floating-point types by their number in TensorFlow's `DataType`."""


class _Entry(NamedTuple):
    """A variable's `BundleEntryProto`. `slices` counts the pieces of a variable that was saved in several."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    slices: int


def read_bundle(prefix: Path) -> tuple[dict[str, TensorInFile], int]:
    """Read the index of a checkpoint.

    Args:
        prefix: The path of the checkpoint without `.index`.

    Returns:
        The floating-point variables by name, and the total size of the data files in bytes.

    Raises:
        ElmoError: If the index is missing or damaged, or if a data file is missing.
    """
    path = prefix.with_name(prefix.name + INDEX)
    require_file(path)
    try:
        data = path.read_bytes() if path.stat().st_size <= _LARGEST_INDEX else b""
    except FileNotFoundError:
        raise ElmoError(f"{path}: no such file") from None
    if len(data) < _FOOTER or not data.endswith(_MAGIC):
        raise ElmoError(f"{path}: not the index of a TensorFlow checkpoint, or a truncated one")
    try:
        table = dict(islice(_table(data), _MOST_VARIABLES + 1))
        num_shards = _require_header(path, table.pop(b"", b""))
        if len(table) >= _MOST_VARIABLES:
            raise ValueError(f"more than {_MOST_VARIABLES:,} variables")
        entries = {key.decode(): _entry(value) for key, value in table.items()}
    except ElmoError:
        raise
    except (IndexError, ValueError) as error:
        raise ElmoError(f"{path}: a damaged index of a TensorFlow checkpoint ({error})") from None
    shards = [prefix.with_name(f"{prefix.name}.data-{i:05d}-of-{num_shards:05d}") for i in range(num_shards)]
    for shard in shards:
        if not shard.exists():
            raise ElmoError(f"{shard}: no such file, but {path.name} needs it")
        require_file(shard)
    # Integers such as the global step, and strings, are no weights.
    found = {
        name: TensorInFile(entry.shape, partial(_read, shards, name, entry))
        for name, entry in entries.items()
        if entry.dtype in _TYPES
    }
    return found, sum(shard.stat().st_size for shard in shards)


def _read(shards: list[Path], name: str, entry: _Entry) -> NDArray[np.float32]:
    """Read a variable as float32. What the index claims must be consistent and agree with the data file."""
    dtype = np.dtype(_TYPES[entry.dtype])
    if entry.shard >= len(shards) or entry.slices:
        raise ElmoError(f"{shards[0]}: variable '{name}' was saved in pieces, which can't be read")
    path = shards[entry.shard]
    if entry.size != math.prod(entry.shape) * dtype.itemsize:
        raise ElmoError(f"{path}: variable '{name}' of shape {entry.shape} does not fit its {entry.size} bytes")
    if entry.offset + entry.size > path.stat().st_size:
        raise ElmoError(f"{path}: ends before variable '{name}'; is the file complete?")
    numbers = np.fromfile(path, dtype, math.prod(entry.shape), offset=entry.offset)
    return numbers.astype(np.float32, copy=False).reshape(entry.shape)


def _require_header(path: Path, header: bytes) -> int:
    """Return the number of data files, and refuse big-endian ones, which hardly any machine with TensorFlow writes."""
    values = dict(_fields(header))
    num_shards, endianness = values.get(1, 0), values.get(2, 0)
    if not isinstance(num_shards, int) or not 0 < num_shards < 1000:
        raise ValueError("its number of data files is wrong")
    if endianness != 0:
        raise ElmoError(f"{path}: written in big-endian byte order, which can't be read; save it on another machine")
    return num_shards


# --- the table


def _table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of all blocks."""
    _, position = _handle(data, len(data) - _FOOTER)  # skips the handle of the block for statistics
    (index, size), _ = _handle(data, position)
    # Blocks must rise: an index whose entries all point to one block could yield the same variables without end.
    end = 0
    for _, value in _block(data, index, size):
        (offset, length), _ = _handle(value, 0)
        if offset < end:
            raise ValueError("blocks overlap")
        end = offset + length
        yield from _block(data, offset, length)


def _block(data: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of one block."""
    if offset + size + _TRAILER > len(data):
        raise ValueError("a block lies beyond its end")
    # After a block come five bytes: how it is compressed, and a checksum of all before it.
    kind, checksum = data[offset + size], int.from_bytes(data[offset + size + 1 : offset + size + _TRAILER], "little")
    if kind != 0:
        raise ValueError("it is compressed, which TensorFlow never does")
    if checksum != _masked_crc32c(data[offset : offset + size + 1]):
        raise ValueError("a checksum differs")
    block = data[offset : offset + size]
    # At the end of a block are the places where full keys are stored, for binary search, and their number. All entries
    # are read here, so only the number matters.
    end = len(block) - 4 - 4 * int.from_bytes(block[-4:], "little")
    key, position = b"", 0
    while position < end:
        shared, position = _varint(block, position)
        rest, position = _varint(block, position)
        length, position = _varint(block, position)
        key = key[:shared] + block[position : position + rest]
        if position + rest + length > end or len(key) > _LONGEST_NAME:
            raise ValueError("an entry lies beyond its end, or its name doesn't end")
        yield key, block[position + rest : position + rest + length]
        position += rest + length


def _handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    """Read the offset and size of a block. Also return the position after them."""
    offset, position = _varint(data, position)
    size, position = _varint(data, position)
    return (offset, size), position


@cache
def _crc_table() -> list[int]:
    """Return the table of CRC-32C, which differs from the CRC-32 of `zlib` by its polynomial."""
    table = list(range(256))
    for _ in range(8):
        table = [(value >> 1) ^ (0x82F63B78 if value & 1 else 0) for value in table]
    return table


def _masked_crc32c(data: bytes) -> int:
    """Return the checksum as LevelDB stores it: rotated, with a constant added."""
    table, value = _crc_table(), 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 255] ^ (value >> 8)
    value ^= 0xFFFFFFFF
    return (((value >> 15) | (value << 17)) + 0xA282EAD8) & 0xFFFFFFFF


# --- protobuf


def _entry(data: bytes) -> _Entry:
    # The fields of `BundleEntryProto`: 1 type, 2 shape, 3 data file, 4 offset, 5 size, 6 checksum, 7 slices. Protobuf
    # leaves out numbers that are 0.
    numbers = {1: 0, 3: 0, 4: 0, 5: 0}
    shape: tuple[int, ...] = ()
    slices = 0
    for field, value in _fields(data):
        if field == 2 and isinstance(value, bytes):
            shape = tuple(_dimension(dim) for key, dim in _fields(value) if key == 2 and isinstance(dim, bytes))
        elif field == 7:
            slices += 1
        elif field in numbers and isinstance(value, int):
            numbers[field] = value
    return _Entry(numbers[1], shape, numbers[3], numbers[4], numbers[5], slices)


def _dimension(data: bytes) -> int:
    size = dict(_fields(data)).get(1, 0)
    return size if isinstance(size, int) else 0


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field of a message."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        width = {1: 8, 5: 4}.get(tag & 7, 0)
        if tag & 7 == 0:
            value, position = _varint(data, position)
            yield tag >> 3, value
            continue
        if tag & 7 == 2:
            width, position = _varint(data, position)
        elif not width:
            raise ValueError("an unknown kind of field")
        if position + width > len(data):
            raise ValueError("a field lies beyond its end")
        piece = data[position : position + width]
        yield tag >> 3, piece if tag & 7 == 2 else int.from_bytes(piece, "little")
        position += width


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Read a number stored in pieces of seven bits, lowest first. Also return the position after it."""
    value = shift = 0
    while shift < 64:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
    raise ValueError("a number of too many bytes")
