"""Comparisons of folders, whose contents must be equal except for times and the name of the machine."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from safetensors.numpy import load_file

TIMES = {"seconds", "tokens_per_second", "machine", "examples_per_second", "seconds_per_epoch"}
"""Columns and keys of figures that differ from run to run."""

_MINUTES = re.compile(r"[0-9.]+ minutes")
"""How long a training took, in the figures of a model, such as "40 steps, 800 predictions a direction, 0.1 minutes"."""

FREE = ("README.md", "tensorboard", "start.json")
"""Files and folders that hold dates, or that are only for people, and may differ."""


def names_in(folder: Path) -> set[str]:
    """Return the paths of everything in a folder."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def snapshot(folder: Path) -> dict[str, str]:
    """Return the checksum of each file in a folder by its path, and the mode of everything that is not a plain file."""
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        is_plain = path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 27
        found[name] = hashlib.sha1(path.read_bytes()).hexdigest() if is_plain else oct(path.lstat().st_mode)
    return found


def difference(found: Path, wanted: Path) -> str:
    """Return the first difference between two files or folders, or an empty text if there is none."""
    if not found.exists():
        return f"{found.name}: is missing"
    if wanted.is_dir():
        return _folder_difference(found, wanted)
    try:
        same = _content(found) == _content(wanted)
    except Exception as error:
        return f"{found.name}: can't be read ({error!r})"
    return "" if same else f"{found.name}: is different"


def _folder_difference(found: Path, wanted: Path) -> str:
    if not found.is_dir():
        return f"{found.name}: is no folder"
    if wanted.name == "checkpoints":  # only the newest ones are compared, since their number depends on the time
        newest, other = max(wanted.iterdir()), max(found.iterdir(), default=found / "none")
        return difference(other, newest) if newest.name == other.name else f"{other}: instead of {newest.name}"
    names = {path.name for path in wanted.iterdir()}
    for name in sorted({path.name for path in found.iterdir()} | names):
        if name not in names and name not in FREE:
            return f"{found.name}/{name}: is left over"
        if name in names and name not in FREE and (text := difference(found / name, wanted / name)):
            return f"{found.name}/{text}"
    return ""


def _content(path: Path) -> Any:
    match path.suffix:
        case ".safetensors":
            return {name: (array.dtype, array.shape, array.tobytes()) for name, array in load_file(path).items()}
        case ".h5" | ".hdf5":
            return _data_sets(path)
        case ".npz":
            with np.load(path) as arrays:
                return {name: arrays[name].tobytes() for name in arrays.files}
        case ".csv":
            with path.open(newline="") as file:
                return [{k: v for k, v in row.items() if k not in TIMES} for row in csv.DictReader(file)]
        case ".json":
            return _without_times(json.loads(path.read_text(encoding="utf-8")))
        case _:
            return path.read_bytes()


def _data_sets(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def collect(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            value = item[()]
            found[name] = (str(item.dtype), item.shape, value.tobytes() if item.dtype != object else value.tolist())

    with h5py.File(path) as file:
        file.visititems(collect)
    return found


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(inner) for key, inner in value.items() if key not in TIMES}
    if isinstance(value, list):
        return [_without_times(inner) for inner in value]
    return _MINUTES.sub("", value) if isinstance(value, str) else value
