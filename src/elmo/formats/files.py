"""Reading and writing files the safe way: one sentence for bad input, nothing half-written, no pickle."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from elmo.errors import ElmoError


def read_json(path: Path) -> object:
    """The JSON value in `path`, or one sentence that says why there is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ElmoError(f"{path}: no such file") from None
    except json.JSONDecodeError as error:
        raise ElmoError(f"{path}, line {error.lineno}: not valid JSON ({error.msg})") from None
    except UnicodeDecodeError:
        raise ElmoError(f"{path}: not valid JSON (not UTF-8 text)") from None


def write_json(path: Path, value: object) -> None:
    """Write `value` as readable JSON."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a safetensors file and its metadata, or one sentence that says why there are none."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except FileNotFoundError:
        raise ElmoError(f"{path}: no such file") from None
    except SafetensorError as error:
        raise ElmoError(f"{path}: not a complete safetensors file ({error})") from None


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file; a full disk is an `OSError`, as for any other file."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(plain, path, metadata={"format": "pt", **(metadata or {})})
    except SafetensorError as error:
        raise OSError(f"{path}: can't be written ({error})") from None


def write_all(writers: Mapping[Path, Callable[[Path], object]], optional: Iterable[Path] = ()) -> None:
    """Write files that belong together: they take their places, in this order, only when all are complete.

    Those of `optional` that are not written now belong to a model that was here before: they are removed last.
    Each writer is given a temporary name beside its path. The data are on the disk before a name is taken, so
    that neither a kill nor a power cut leaves a half-written file under a real name.
    """
    temporaries = {path: path.with_name(f".{path.name}.partial") for path in writers}
    try:
        for path, write in writers.items():
            write(temporaries[path])
            with temporaries[path].open("rb") as file:
                os.fsync(file.fileno())
        for path, temporary in temporaries.items():
            temporary.replace(path)
        for path in optional:
            if path not in writers:
                path.unlink(missing_ok=True)
    finally:
        for temporary in temporaries.values():
            temporary.unlink(missing_ok=True)
