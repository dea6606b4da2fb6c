"""Downloads models into a cache: one copy for all processes, resumed after a break, and verified on every use.

The transfer itself is the Hub client's `http_get`: it reports progress, asks for the rest of a file after a break, and
compares lengths. What it lacks is here: going on where an earlier process stopped, checksums, and locks.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from elmo.errors import ElmoError
from elmo.formats.files import read_json, write_all, write_json
from elmo.targets import naming, sync
from elmo.text.corpus import digest_of

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

LARGEST = 16 << 30
"""In bytes: the largest file that is fetched, several times the size of any published model."""

MOST_RESTARTS = 3
"""How often a download begins again from the start, with a server that can't continue one."""

OPTIONS, WEIGHTS = "options.json", "weights.hdf5"
"""The names in the cache of the two files of a model that is no archive."""

_ADDRESS = re.compile(r"https?://[^\s\x00-\x1f\x7f\ud800-\udfff]+", re.IGNORECASE)
"""Bytes of an argument that are not UTF-8 become surrogates, which no address can hold."""

_RECORD, _LOCK, _PART = ".download.json", ".lock", ".part"
_ABSENT = (403, 404, 410)
"""What servers answer if there is no such file. Amazon's, of which many models come, say 403."""


class AbsentError(ElmoError):
    """Raised if a server says that it does not have a file."""


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


def is_address(source: object) -> bool:
    """Return whether `source` is the address of a file that can be downloaded."""
    return isinstance(source, str) and bool(_ADDRESS.fullmatch(source))


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
                part = _download(address, folder / file)
                _refuse_web_page(part, address)
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


# --- One file


def _download(address: str, target: Path) -> Path:
    """Download a file, and return the path of what will become `target`."""
    from huggingface_hub.file_download import http_get

    headers = {"Accept-Encoding": "identity"}  # a compressed file can't be continued at an offset
    with _telling(address, "can't be reached", "check the network, or get the file elsewhere and name its path"):
        total, version, validator = _ask(address, headers)
    if total is not None and total > LARGEST:
        raise ElmoError(f"{address}: {total:,} bytes are more than any model has; it was not downloaded")
    # The part is named after the version of the file, so that it is never continued with bytes of another version.
    part = target.with_name(f"{target.name}.{version}{_PART}")
    for other in target.parent.glob(f"{target.name}.*{_PART}"):
        if other != part or not version or (total is not None and other.stat().st_size > total):
            other.unlink()
    with (
        _telling(address, "the download broke off", "do the same again to continue it"),
        naming(part),
        _BoundedFile(part, address) as file,
    ):
        # A server that has another version by now sends all of it, so that no file is made of two.
        headers |= {"If-Range": validator} if validator else {}
        http_get(address, file, resume_size=file.tell(), headers=headers, expected_size=total)
    sync(part)
    return part


_WEB_PAGE = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:(?:<\?.*?\?>|<!--.*?-->)\s*)*+<(?:!doctype html|html)\b", re.IGNORECASE | re.DOTALL
)
"""The beginning of HTML, perhaps after a byte-order mark, a declaration of XML and comments.

The possessive `*+` never goes back to divide these in another way, because trying all ways could take forever.
"""


def _refuse_web_page(part: Path, address: str) -> None:
    """Remove a page that was sent in place of the file, such as one to log in to a network, and say so."""
    with part.open("rb") as file:
        is_page = _WEB_PAGE.match(file.read(1024))
    if is_page:
        part.unlink()
        raise AbsentError(
            f"{address}: the server sent a web page in place of the file; open it in a browser to see why"
        )


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


def _ask(address: str, headers: dict[str, str]) -> tuple[int | None, str, str | None]:
    """Ask for a file without reading it.

    This is not a HEAD request, because some servers refuse those.

    Returns:
        Its size in bytes, or None if the server does not say; a hash of what tells one version of the file from
        another, which is empty if the server tells nothing; and what `If-Range` may hold to ask for more of this
        version only (RFC 9110: an `ETag` unless it is weak, or `Last-Modified`).
    """
    _ = urlsplit(address).port  # raises a ValueError for an impossible host or port
    with _opened(address, headers) as reply:
        if reply.status_code in _ABSENT:
            raise AbsentError(f"{address}: the server does not have it ({_status(reply.status_code)})")
        if reply.status_code != 200:
            raise ElmoError(f"{address}: the server answered {_status(reply.status_code)}; try it later")
        length = reply.headers.get("Content-Length")
        total = int(length) if length and "Content-Encoding" not in reply.headers else None
        marks = [reply.headers[name] for name in ("ETag", "Last-Modified") if name in reply.headers]
    version = hashlib.sha256("\n".join([*marks, str(total)]).encode()).hexdigest()[:12] if marks else ""
    return total, version, next((mark for mark in marks if not mark.startswith("W/")), None)


@contextmanager
def _opened(address: str, headers: dict[str, str]) -> Generator[Any]:
    """Open an address with the HTTP library of huggingface-hub (`http_errors` says which)."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    session: Any = get_session()
    options: dict[str, Any] = {"headers": headers, "timeout": constants.HF_HUB_DOWNLOAD_TIMEOUT}
    if callable(session.stream):
        opened: Any = session.stream("GET", address, **options)
    else:  # in requests, that is a setting and no method
        opened = session.get(address, stream=True, **options)
    with opened as reply:
        yield reply


def _status(code: int) -> str:
    """Return the code of an answer with what it stands for, such as `404 Not Found`."""
    known = {int(status): status.phrase for status in HTTPStatus}
    return f"{code} {known[code]}" if code in known else str(code)


@contextmanager
def _telling(address: str, what: str, advice: str) -> Generator[None]:
    """Turn any failure of the network into one sentence: the address, what happened, why, and what to do."""
    try:
        yield
    except ElmoError:
        raise
    except (*http_errors(), OSError, ValueError) as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise  # the disk's
        reason = next(filter(None, map(str.strip, str(error).split("\n"))), type(error).__name__).rstrip(".")
        raise ElmoError(f"{address}: {what} ({reason}); {advice}") from None


def http_errors() -> tuple[type[Exception], ...]:
    """Return the classes of the errors of huggingface-hub's HTTP library.

    It is httpx2, httpx or, before version 1.0, requests, whose errors are all an OSError.
    """
    from huggingface_hub.errors import HfHubHTTPError

    base = HfHubHTTPError.__bases__[0]
    library = sys.modules[base.__module__.partition(".")[0]]
    return base, getattr(library, "InvalidURL", base)  # in httpx, an invalid address is no HTTPError


class _BoundedFile(io.BufferedWriter):
    """A file that is appended to, until a server turns out to have no end or to break off again and again."""

    def __init__(self, path: Path, address: str) -> None:
        super().__init__(io.FileIO(path, "a"))
        self._address, self._num_restarts = address, 0

    def write(self, data: ReadableBuffer, /) -> int:
        """Write all of the data."""
        if self.tell() + memoryview(data).nbytes > LARGEST:
            raise ElmoError(f"{self._address}: sends more than {LARGEST:,} bytes, more than any model has; stopped")
        return super().write(data)

    def truncate(self, size: int | None = None, /) -> int:
        """Empty the file, as `http_get` does if a server sends all of it again instead of the rest.

        It would do so forever if such a server never sends all at once.
        """
        self._num_restarts += 1
        if self._num_restarts > MOST_RESTARTS:
            raise ElmoError(
                f"{self._address}: the download broke off {self._num_restarts} times, and this server only sends whole "
                "files; try it again with a better connection"
            )
        return super().truncate(size)


# --- The folder of a model


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
