"""Safe reading and writing of JSON and safetensors files.

Bad input gives an `ElmoError` of one sentence, no file is left half-written, and nothing is pickled.
"""

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
"""The metadata key of a file's checksum."""

_PARTIAL = ".partial"
"""The ending of a file's temporary name while it is being written."""

_LARGEST_JSON = 3 << 20
"""In bytes: far more than any options file needs."""

_LARGEST_HEADER, MOST_TENSORS = 1 << 22, 10_000
"""The size in bytes of a safetensors header and the number of tensors: far more than any model needs."""

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
"""The names of the types that we store, in the safetensors format."""


def read_json(path: Path, largest: int = _LARGEST_JSON) -> object:
    """Read a JSON file.

    Args:
        path: The file.
        largest: The largest size in bytes that is accepted.

    Raises:
        ElmoError: If the file is missing, too large or not valid JSON, which includes NaN and infinity.
    """
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
    except (ValueError, RecursionError) as error:  # NaN, a number with thousands of digits, or lists nested too deeply
        raise ElmoError(f"{path}: not valid JSON ({error})") from None


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not a number in JSON")


def write_json(path: Path, value: object) -> None:
    """Write `value` as indented JSON in UTF-8."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write `text` in UTF-8. Surrogates, which file names can contain, become escapes that JSON can read back."""
    path.write_text(text, encoding="utf-8", errors="backslashreplace")


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read a safetensors file. A file that `write_tensors` wrote is compared with its checksum.

    Returns:
        The tensors by name, memory-mapped, and the metadata without the checksum.

    Raises:
        ElmoError: If the file is missing, incomplete, damaged, or has more tensors than any real model.
    """
    require_file(path)
    try:
        with path.open("rb") as start:
            # The file begins with the size of its header. The library would parse any header of up to 100 MB, whose
            # tensors, however small, become Python objects.
            if (size := int.from_bytes(start.read(8), "little")) > _LARGEST_HEADER and size < path.stat().st_size:
                raise ElmoError(f"{path}: lists more tensors than any real model has (a header of {size:,} bytes)")
        with safe_open(path, framework="pt") as file:
            if len(file.keys()) > MOST_TENSORS:
                raise ElmoError(f"{path}: contains {len(file.keys()):,} tensors, more than any real model has")
            tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except FileNotFoundError:
        raise ElmoError(f"{path}: no such file") from None
    except SafetensorError as error:
        raise ElmoError(f"{path}: not a complete safetensors file ({error})") from None
    # Files of other programs have no checksum.
    wanted = metadata.pop(_CHECKSUM, None)
    if any(map(_is_damaged_key, metadata)) or wanted not in (None, checksum(tensors, metadata)):
        raise ElmoError(f"{path}: damaged since it was written (its checksum differs); get or make the file again")
    return tensors, metadata


def _is_damaged_key(key: str) -> bool:
    """Return whether a key is that of the checksum with one or two characters changed.

    With such a key the file would pass for one without a checksum and go unchecked.
    """
    return len(key) == len(_CHECKSUM) and sum(map(str.__ne__, key, _CHECKSUM)) in (1, 2)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file with a checksum, tensor by tensor, without copying tensors that are on the CPU.

    The library's own writer is not used, because it copies all tensors in memory. It also writes to a randomly named
    file first, which stays behind if the process is killed, and which only its owner can read.

    Args:
        path: The file to write.
        tensors: The tensors by name, on any device, of a type in `_TYPES`.
        metadata: Additional metadata of the file.
    """
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # The largest types come first, so that every tensor is aligned.
    plain = dict(sorted(plain.items(), key=lambda item: (-item[1].element_size(), item[0])))
    facts = {"format": "pt", **(metadata or {})}
    header: dict[str, object] = {"__metadata__": facts | {_CHECKSUM: checksum(plain, facts)}}
    end = 0
    for name, tensor in plain.items():
        start, end = end, end + tensor.nbytes
        header[name] = {"dtype": _TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the tensors begin at a multiple of 8 bytes, as the format asks
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in plain.values():
            file.write(_bytes(tensor))


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data


def checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """Return the CRC-32 of the metadata and of the names, types, shapes and values of `tensors`, in hexadecimal.

    It runs at 2.6 GB a second on one core.
    """
    value = zlib.crc32(json.dumps(metadata, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        value = zlib.crc32(f"{name} {tensor.dtype} {list(tensor.shape)}".encode(), value)
        value = zlib.crc32(_bytes(tensor), value)
    return f"{value:08x}"


def sync(path: Path) -> None:
    """Flush a closed file to the disk."""
    with path.open("r+b") as file:  # Windows syncs only files that are open for writing
        os.fsync(file.fileno())


def remove_partial(folder: Path) -> None:
    """Remove the temporary files that `write_all` left in `folder` when its process was killed.

    Call this only while holding the folder's lock (`alone_in`): otherwise another process may be writing them.
    """
    for path in folder.glob(f".*{_PARTIAL}"):
        path.unlink(missing_ok=True)


def write_all(writers: Mapping[Path, Callable[[Path], object]], optional: Iterable[Path] = ()) -> None:
    """Write files that belong together, and give them their names only when all of them are complete.

    Every file is first written under a temporary name in the same folder and flushed to the disk, so that neither a
    kill nor a power cut leaves a half-written file under a real name. The files then get their names in the order of
    `writers`.

    Args:
        writers: For each file, a function that writes it to the path it is given.
        optional: Files that are removed at the end if they are not among `writers`: they would belong to a model that
            was in the folder before.
    """
    temporaries = {path: path.with_name(f".{path.name}{_PARTIAL}") for path in writers}
    try:
        for path, write in writers.items():
            with naming(path):
                write(temporaries[path])
                sync(temporaries[path])  # otherwise a power cut could leave the new name with old or no contents
        for path, temporary in temporaries.items():
            temporary.replace(path)
        # Only now, so that a failed write leaves the old model complete.
        for path in optional:
            if path not in writers:
                path.unlink(missing_ok=True)
    finally:
        for temporary in temporaries.values():
            temporary.unlink(missing_ok=True)
