"""Makes a single Parquet file of several that follow each other in one file, by a footer that describes them all.

A Parquet file ends with a footer that says where everything is (struct `FileMetaData` of the format's
`parquet.thrift`, in Thrift's compact protocol). A last footer that lists the row groups of all the files, at their
offsets in the whole, makes the whole a valid Parquet file; readers never look at the earlier footers.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from io import BytesIO
from typing import Any, BinaryIO

MAGIC = b"PAR1"
STOP, TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, STRUCT = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12
INTEGERS = (I16, I32, I64)
"""Types of values in the compact protocol; all of `INTEGERS` have the same encoding."""

NUM_ROWS, ROW_GROUPS = 3, 4
COLUMNS, GROUP_OFFSET, ORDINAL = 1, 5, 7
CHUNK_OFFSETS, COLUMN = (2, 4, 6), 3
COLUMN_OFFSETS = (9, 10, 11, 14)
"""Field numbers, line by line: of the footer, of a row group, of a column chunk, and of its metadata."""

Struct = dict[int, tuple[int, Any]]
"""The fields of a struct by number, each as (type, value). The value of a list is (type of its elements, elements)."""


def join_footers(file: BinaryIO, ends: Sequence[int]) -> None:
    """Append a footer that describes all Parquet files of which a file consists.

    Args:
        file: Parquet files one after the other, opened for reading and writing.
        ends: The offset at which each of them ends.
    """
    footer: Struct = {}
    groups: list[bytes] = []  # as bytes, because a long text has many, and objects would take more memory
    num_rows = 0
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        footer = _read_footer(file, end)
        num_rows += footer[NUM_ROWS][1]
        groups += [_move(group, start) for group in footer[ROW_GROUPS][1][1]]
    data = bytearray()
    _write(data, STRUCT, footer | {NUM_ROWS: (I64, num_rows), ROW_GROUPS: (LIST, (STRUCT, groups))})
    file.seek(0, 2)
    file.write(data + struct.pack("<I", len(data)) + MAGIC)


def _read_footer(file: BinaryIO, end: int) -> Struct:
    """Read the footer of the Parquet file that ends at `end`."""
    file.seek(end - 8)
    (length,) = struct.unpack("<I4x", file.read(8))
    file.seek(end - 8 - length)
    return _read(BytesIO(file.read(length)), STRUCT)


def _move(group: Struct, distance: int) -> bytes:
    """Encode a row group with all its offsets moved by `distance` bytes, and without its ordinal."""
    for chunk in group[COLUMNS][1][1]:
        _shift(chunk, CHUNK_OFFSETS, distance)
        _shift(chunk[COLUMN][1], COLUMN_OFFSETS, distance)
    _shift(group, (GROUP_OFFSET,), distance)
    data = bytearray()
    _write(data, STRUCT, {number: field for number, field in group.items() if number != ORDINAL})
    return bytes(data)


def _shift(fields: Struct, numbers: Sequence[int], distance: int) -> None:
    """Add `distance` to the offsets in the fields `numbers`. An offset of 0 means that there is none."""
    for number in numbers:
        if number in fields and fields[number][1] > 0:
            fields[number] = (fields[number][0], fields[number][1] + distance)


def _read(data: BytesIO, kind: int) -> Any:
    """Read a value of the compact protocol."""
    if kind in INTEGERS:
        number = _read_varint(data)
        return number >> 1 ^ -(number & 1)
    if kind in (TRUE, FALSE, BYTE):  # an element of a list; the boolean of a field is its type, without a value
        return data.read(1)
    if kind == DOUBLE:
        return data.read(8)
    if kind == BINARY:
        return data.read(_read_varint(data))
    if kind == LIST:
        header = data.read(1)[0]
        size = header >> 4 if header >> 4 < 15 else _read_varint(data)
        return header & 15, [_read(data, header & 15) for _ in range(size)]
    assert kind == STRUCT, f"Parquet's footers hold no values of type {kind}"
    fields: Struct = {}
    number = 0
    while (header := data.read(1)[0]) != STOP:
        kind = header & 15
        number = number + (header >> 4) if header >> 4 else _read(data, I16)
        fields[number] = (kind, None if kind in (TRUE, FALSE) else _read(data, kind))
    return fields


def _write(data: bytearray, kind: int, value: Any) -> None:
    """Append a value, as the reverse of `_read`. A struct may be given as its bytes."""
    ready: object = value
    if isinstance(ready, bytes) and kind != BINARY:
        data += ready
    elif kind in INTEGERS:
        _write_varint(data, value << 1 if value >= 0 else ~(value << 1))
    elif kind == BINARY:
        _write_varint(data, len(value))
        data += value
    elif kind == LIST:
        element, values = value
        data.append(min(len(values), 15) << 4 | element)
        if len(values) >= 15:
            _write_varint(data, len(values))
        for each in values:
            _write(data, element, each)
    elif kind == STRUCT:
        before = 0
        for number, (field, each) in sorted(value.items()):
            data.append((number - before) << 4 | field)  # fits: Parquet's field numbers leave no gaps of 16
            before = number
            if field not in (TRUE, FALSE):
                _write(data, field, each)
        data.append(STOP)


def _read_varint(data: BytesIO) -> int:
    number = shift = 0
    while True:
        byte = data.read(1)[0]
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number


def _write_varint(data: bytearray, number: int) -> None:
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    data.append(number)
