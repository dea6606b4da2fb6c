"""Reading and writing files the safe way: one sentence for bad input, nothing half-written, no pickle."""

import json
import os
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from elmo.errors import ElmoError
from elmo.targets import naming
from elmo.text.reading import require_file

_CHECKSUM = "crc32"
"""The key of the checksum among the metadata."""

_PARTIAL = ".partial"
"""How the temporary name of a file ends that is being written."""

_LARGEST_JSON = 3 << 20
"""Far more than any options file, in bytes."""

_LARGEST_HEADER, MOST_TENSORS = 1 << 22, 10_000
"""Far more than any model's list of tensors, in bytes, and their number."""

_TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""What the format calls the types that we store."""


def read_json(path: Path, largest: int = _LARGEST_JSON) -> object:
    """The JSON value in `path`, of at most `largest` bytes, or one sentence that says why there is none."""
    require_file(path)
    try:
        if path.stat().st_size > largest:
            raise ElmoError(f"{path}: too large for a settings file ({path.stat().st_size:,} bytes)")
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except ElmoError:
        raise
    except FileNotFoundError:
        raise ElmoError(f"{path}: no such file") from None
    except json.JSONDecodeError as error:
        raise ElmoError(f"{path}, line {error.lineno}: not valid JSON ({error.msg})") from None
    except UnicodeDecodeError:
        raise ElmoError(f"{path}: not valid JSON (not UTF-8 text)") from None
    except (ValueError, RecursionError) as error:  # NaN, a number of thousands of digits, lists in lists in lists
        raise ElmoError(f"{path}: not valid JSON ({error})") from None


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no number")


def write_json(path: Path, value: object) -> None:
    """Write `value` as readable JSON."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write UTF-8; bytes that are none, which names of files may have, as escapes that JSON reads back."""
    path.write_text(text, encoding="utf-8", errors="backslashreplace")


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a safetensors file, memory-mapped, and its metadata, or one sentence that says why there are none.

    What `write_tensors` wrote is compared with its checksum.
    """
    require_file(path)
    try:
        with path.open("rb") as start:
            if (size := int.from_bytes(start.read(8), "little")) > _LARGEST_HEADER and size < path.stat().st_size:
                raise ElmoError(f"{path}: lists more tensors than any real model ({size:,} bytes of names)")
        with safe_open(path, framework="pt") as file:
            if len(file.keys()) > MOST_TENSORS:
                raise ElmoError(f"{path}: holds {len(file.keys()):,} tensors, more than any real model")
            tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except FileNotFoundError:
        raise ElmoError(f"{path}: no such file") from None
    except SafetensorError as error:
        raise ElmoError(f"{path}: not a complete safetensors file ({error})") from None
    wanted = metadata.pop(_CHECKSUM, None)
    if any(map(_is_damaged_key, metadata)) or wanted not in (None, checksum(tensors, metadata)):
        raise ElmoError(f"{path}: damaged since it was written (its checksum differs)")
    return tensors, metadata


def _is_damaged_key(key: str) -> bool:
    """Whether a key is that of the checksum but for two characters: without it, the file would go unchecked."""
    return len(key) == len(_CHECKSUM) and sum(map(str.__ne__, key, _CHECKSUM)) in (1, 2)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file with a checksum, piece by piece: tensors on the CPU aren't copied in memory.

    Not by the library's own writer: that one fills a file of another, random name first, which a kill would leave
    behind for good, and which only its owner may read.
    """
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    plain = dict(sorted(plain.items(), key=lambda item: (-item[1].element_size(), item[0])))  # keeps all aligned
    facts = {"format": "pt", **(metadata or {})}
    header: dict[str, object] = {"__metadata__": facts | {_CHECKSUM: checksum(plain, facts)}}
    end = 0
    for name, tensor in plain.items():
        start, end = end, end + tensor.nbytes
        header[name] = {"dtype": _TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in plain.values():
            file.write(_bytes(tensor))


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data


def checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """CRC-32 of all that a file says: metadata, names, types, shapes and numbers (2.6 GB a second on one core)."""
    value = zlib.crc32(json.dumps(metadata, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        value = zlib.crc32(f"{name} {tensor.dtype} {list(tensor.shape)}".encode(), value)
        value = zlib.crc32(_bytes(tensor), value)
    return f"{value:08x}"


def sync(path: Path) -> None:
    """See to it that a closed file is on the disk."""
    with path.open("r+b") as file:  # to be written, or Windows refuses
        os.fsync(file.fileno())


def remove_partial(folder: Path) -> None:
    """Remove the temporary files that `write_all` left in `folder` when its process was killed.

    Only for who holds the folder's lock: they may be those of a process that is writing now.
    """
    for path in folder.glob(f".*{_PARTIAL}"):
        path.unlink(missing_ok=True)


def write_all(writers: Mapping[Path, Callable[[Path], object]], optional: Iterable[Path] = ()) -> None:
    """Write files that belong together: they take their places, in this order, only when all are complete.

    Those of `optional` that are not written now belong to a model that was here before: they are removed last.
    Each writer is given a temporary name beside its path. The data are on the disk before a name is taken, so
    that neither a kill nor a power cut leaves a half-written file under a real name.
    """
    temporaries = {path: path.with_name(f".{path.name}{_PARTIAL}") for path in writers}
    try:
        for path, write in writers.items():
            with naming(path):
                write(temporaries[path])
                sync(temporaries[path])
        for path, temporary in temporaries.items():
            temporary.replace(path)
        for path in optional:
            if path not in writers:
                path.unlink(missing_ok=True)
    finally:
        for temporary in temporaries.values():
            temporary.unlink(missing_ok=True)
