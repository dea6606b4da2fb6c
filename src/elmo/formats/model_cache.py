"""The cache of downloaded models: one copy for all processes, resumed after a break, and verified on every use."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from elmo.errors import ElmoError
from elmo.formats.download import download, is_address
from elmo.formats.files import read_json, write_all, write_json
from elmo.text.corpus import digest_of

OPTIONS, WEIGHTS = "options.json", "weights.hdf5"
"""The names in the cache of the two files of a model that is no archive."""

_RECORD, _LOCK = ".download.json", ".lock"


@dataclass(frozen=True)
class CachedModel:
    """A model in the cache: its name or address, its folder, its size in bytes, and whether all of it is there."""

    name: str
    folder: Path
    num_bytes: int
    is_complete: bool


def cache_folder() -> Path:
    """Return the folder of downloaded models: `ELMO_CACHE`, or `elmo` in the user's folder for caches.

    Raises:
        ElmoError: If there is no `ELMO_CACHE`, and the user has no home directory.
    """
    if own := os.environ.get("ELMO_CACHE"):
        try:
            return Path(own).expanduser()
        except RuntimeError as error:
            raise ElmoError(f"ELMO_CACHE={own}: {error}") from None
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or _home() / "AppData" / "Local") / "elmo" / "Cache"
    if sys.platform == "darwin":
        return _home() / "Library" / "Caches" / "elmo"
    return Path(os.environ.get("XDG_CACHE_HOME") or _home() / ".cache") / "elmo"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # a container's user of whom the system knows only the number
        raise ElmoError(
            "this user has no home directory; set ELMO_CACHE to a folder in which downloaded models are kept"
        ) from None


def file_name(address: str) -> str:
    """Return the name that the file at an address gets in the cache."""
    last = unquote(re.split(r"[?#]", address)[0].rpartition("/")[2])
    return re.sub(r"[^\w.-]", "_", last).lstrip(".")[-100:] or "model"


def fetch(name: str, addresses: Mapping[str, str]) -> Path:
    """Download the files of a model, unless they are in the cache.

    If they are, nothing is asked of the network. A file that was cut short, in this process or an earlier one, is
    continued if the server still has the same one. The checksum of a file is kept from its first download on, also
    after its removal, and the file is compared with it whenever it is used or downloaded again.

    Args:
        name: The name or the address of the model, by which `cached_models` shows and `remove_cached` removes it.
        addresses: The address of each file, by the name that it gets.

    Returns:
        The folder of the files.

    Raises:
        AbsentError: If a server does not have one of the files.
        ElmoError: If the cache can't be written to, if a server can't be reached or breaks off, or if a file is not the
            one that it was.
    """
    folder = _folder_of(name)
    verified: set[str] = set()
    if not all((folder / file).exists() for file in addresses):
        _make(folder)
        with _alone(folder):
            record = _read_record(folder) or {"name": name, "wanted": [], "files": {}}
            record["wanted"] = sorted({*record["wanted"], *addresses})
            _write_record(folder, record)  # from now on, the cache knows whose unfinished files these are
            for file, address in addresses.items():
                if (folder / file).exists():
                    continue
                part = download(address, folder / file)
                record["files"][file] = _facts(part, address, record["files"].get(file))
                # In this order: a file without a checksum would have to be trusted blindly.
                _write_record(folder, record)
                part.replace(folder / file)
                verified.add(file)  # its checksum was just computed
    files = (_read_record(folder) or {"files": {}})["files"]
    for file in (file for file in addresses if file not in verified):
        if file not in files:
            raise ElmoError(f"{folder / file}: has no checksum in {_RECORD}; remove {folder} and load the model again")
        if digest_of(folder / file) != files[file]["sha256"]:
            raise ElmoError(
                f"{folder / file}: has changed since it was downloaded; remove it (elmo models --remove {name}) and "
                "load it again"
            )
    return folder


def cached_models() -> list[CachedModel]:
    """List the models in the cache, also those that are only there in part, by their names."""
    found: list[CachedModel] = []
    for path in cache_folder().glob(f"*/{_RECORD}"):
        files = _files_in(path.parent)
        if files and (record := _read_record(path.parent)):
            is_complete = all((path.parent / name).exists() for name in record["wanted"])
            size = sum(each.stat().st_size for each in files)
            found.append(CachedModel(record["name"], path.parent, size, is_complete))
    return sorted(found, key=lambda model: model.name)


def remove_cached(name: str) -> CachedModel:
    """Remove the files of a model from the cache, and keep their checksums.

    Raises:
        ElmoError: If the model is not in the cache, or if another process is downloading it.
    """
    model = next((model for model in cached_models() if model.name == name), None)
    if model is None:
        raise ElmoError(f"{name}: is not in the cache, {cache_folder()} (elmo models --cached lists what is)")
    with _alone(model.folder, wait=False):
        for path in _files_in(model.folder):
            path.unlink()
    return model


def _facts(part: Path, address: str, known: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what the record says of a file, or remove it if it is not the file that the record knows."""
    facts = {"address": address, "num_bytes": part.stat().st_size, "sha256": digest_of(part)}
    if known is None:
        return facts | {"date": datetime.now(UTC).isoformat(timespec="seconds")}
    if known["sha256"] != facts["sha256"]:
        part.unlink()
        raise ElmoError(
            f"{address}: is not the file that it was on {known['date'][:10]} (SHA-256 {facts['sha256']} instead of "
            f"{known['sha256']}); if its publisher replaced it, remove {part.parent} and load it again"
        )
    return facts | {"date": known["date"]}


def _folder_of(name: str) -> Path:
    """Return the folder of a model in the cache. Addresses get a hash, because their last parts are often the same."""
    if not is_address(name):
        return cache_folder() / re.sub(r"[^\w.-]", "-", name)
    return cache_folder() / f"{file_name(name)}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def _make(folder: Path) -> None:
    """Make the folder of a model, or say that the cache may be elsewhere: services often have no home to write to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ElmoError(
            f"{folder}: can't be made ({error.strerror}); set ELMO_CACHE to another one for downloaded models"
        ) from None


@contextmanager
def _alone(folder: Path, *, wait: bool = True) -> Generator[None]:
    """Let no other process change the folder. If one does, wait for it or refuse."""
    from huggingface_hub.utils import WeakFileLock

    try:
        with WeakFileLock(folder / _LOCK, timeout=None if wait else 1):
            yield
    except TimeoutError:
        raise ElmoError(f"{folder}: another process is downloading into it; wait for that one, or end it") from None


def _files_in(folder: Path) -> list[Path]:
    """Return the files of a model, complete and in part; the record and the lock begin with a dot."""
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


def _read_record(folder: Path) -> dict[str, Any] | None:
    if not (folder / _RECORD).exists():
        return None
    advice = "remove the folder, and load the model again"
    try:
        record: Any = read_json(folder / _RECORD)
    except ElmoError as error:
        raise ElmoError(f"{error}; {advice}") from None
    if not _is_record(record):
        raise ElmoError(f"{folder / _RECORD}: is no record of downloads; {advice}")
    return record


def _is_record(record: Any) -> bool:
    kinds = {"name": str, "wanted": list, "files": dict}
    return (
        isinstance(record, dict)
        and all(isinstance(record.get(key), kind) for key, kind in kinds.items())
        and all(isinstance(name, str) for name in record["wanted"])
        and all(isinstance(facts, dict) and {"sha256", "date"} <= facts.keys() for facts in record["files"].values())
    )


def _write_record(folder: Path, record: Mapping[str, Any]) -> None:
    write_all({folder / _RECORD: lambda path: write_json(path, record)})
