"""Writes checkpoints as bilm-tf's training leaves them, without TensorFlow: `model.ckpt-7.index` and its data files.

The index is a sorted table as LevelDB writes it, with blocks of a few entries, keys that share their beginnings, and
masked CRC-32Cs, and its values are protobuf messages. This does not need `elmo`. It can be called as a script:
`python tests/make_tensorflow.py some/folder`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path

import numpy as np

from make_bilm_hdf5 import Options, Weights, make_options, make_weights

PREFIX = "model.ckpt_batch-7"
MAGIC = 0xDB4775248B80FB57
TYPES = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "float16": 19}


def crc32c(data: bytes) -> int:
    """Return Castagnoli's checksum, computed bit by bit."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 * (value & 1))
    return value ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    """Return the checksum as it is stored."""
    value = crc32c(data)
    return ((((value >> 15) | (value << 17)) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")


def varint(value: int) -> bytes:
    """Return a number with seven bits in each byte, the lowest first."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def message(*fields: tuple[int, int | bytes]) -> bytes:
    """Return a protobuf message of numbers and byte strings."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def block(entries: list[tuple[bytes, bytes]]) -> bytes:
    """Return one block of the table with its trailer. Every third key is written in full."""
    out, restarts, before = b"", [], b""
    for number, (key, value) in enumerate(entries):
        pairs = zip(before, key, strict=False) if number % 3 else ()
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        if not number % 3:
            restarts.append(len(out))
        out += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        before = key
    out += b"".join(place.to_bytes(4, "little") for place in restarts or [0])
    out += len(restarts or [0]).to_bytes(4, "little")
    return out + b"\0" + masked(out + b"\0")


def table(entries: Mapping[bytes, bytes]) -> bytes:
    """Return the whole file of an index."""
    out, handles = b"", []
    ordered = sorted(entries.items())
    for start in range(0, len(ordered), 7):
        part = ordered[start : start + 7]
        data = block(part)
        handles.append((part[-1][0] + b"\0", varint(len(out)) + varint(len(data) - 5)))
        out += data
    places = []
    for data in (block([]), block(handles)):
        places.append(varint(len(out)) + varint(len(data) - 5))
        out += data
    return out + b"".join(places).ljust(40, b"\0") + MAGIC.to_bytes(8, "little")


def write_bundle(prefix: Path, arrays: Mapping[str, np.ndarray], num_shards: int = 1, endianness: int = 0) -> None:
    """Write arrays as a checkpoint, spread over data files one after the other."""
    shards = [b""] * num_shards
    entries = {b"": message((1, num_shards), (2, endianness), (3, message((1, 1))))}
    for number, (name, array) in enumerate(sorted(arrays.items())):
        shard, data = number % num_shards, array.tobytes()
        shape = message(*((2, message((1, size))) for size in array.shape))
        checksum = varint(6 << 3 | 5) + masked(b"")  # our reader does not check that of an array
        fields = ((1, TYPES[array.dtype.name]), (2, shape), (3, shard), (4, len(shards[shard])), (5, len(data)))
        entries[name.encode()] = message(*fields) + checksum
        shards[shard] += data
    prefix.with_name(prefix.name + ".index").write_bytes(table(entries))
    for number, data in enumerate(shards):
        prefix.with_name(f"{prefix.name}.data-{number:05d}-of-{num_shards:05d}").write_bytes(data)


def name_in_training(name: str, options: Options) -> str:
    """Return the name that a published array has in bilm-tf's graph."""
    scope, _, rest = name.partition("/RNN/")
    if not rest:
        return f"lm/{name}"
    _, cell, _, part = rest.split("/")
    variable = {"W_0": "kernel", "B": "bias", "W_P_0": "projection/kernel"}[part]
    stack = f"multi_rnn_cell/cell_{cell.removeprefix('Cell')}/" if options["lstm"]["n_layers"] > 1 else ""
    direction = f"{scope}/" if options.get("bidirectional", True) else ""
    return f"lm/{direction}rnn/{stack}lstm_cell/{variable}"


def make(folder: Path, variant: str = "softmax", num_shards: int = 1) -> tuple[Options, Weights, Weights]:
    """Write a checkpoint, `checkpoint` and `options.json`, and return options, weights and Adagrad's sums."""
    options = make_options(variant)
    options["n_tokens_vocab"] = 17
    weights = make_weights(options)
    sums = {name: 1 + abs(array) ** 2 for name, array in make_weights(options, seed=1).items()}
    variables: dict[str, np.ndarray] = {"global_step": np.array(7), "train_perplexity": np.array(0, np.float32)}
    for name, array in weights.items():
        variables[name_in_training(name, options)] = array
        variables[f"{name_in_training(name, options)}/Adagrad"] = sums[name]
    folder.mkdir(parents=True, exist_ok=True)
    write_bundle(folder / PREFIX, variables, num_shards)
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "/home/me/run/{PREFIX}"\n', encoding="utf-8")
    (folder / "options.json").write_text(json.dumps(options), encoding="utf-8")
    return options, weights, sums


if __name__ == "__main__":
    make(Path(sys.argv[1]))
