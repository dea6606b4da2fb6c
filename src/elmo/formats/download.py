"""Downloads one file, or the rest of one that was cut short, and says in one sentence why it can't.

The transfer itself is the Hub client's `http_get`: it reports progress, asks for the rest of a file after a break, and
compares lengths. What it lacks is here: going on where an earlier process stopped, and limits.
"""

from __future__ import annotations

import hashlib
import io
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from elmo.errors import ElmoError
from elmo.targets import naming, sync

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

LARGEST = 16 << 30
"""In bytes: the largest file that is fetched, several times the size of any published model."""

MOST_RESTARTS = 3
"""How often a download begins again from the start, with a server that can't continue one."""

_ADDRESS = re.compile(r"https?://[^\s\x00-\x1f\x7f\ud800-\udfff]+", re.IGNORECASE)
"""Bytes of an argument that are not UTF-8 become surrogates, which no address can hold."""

_PART = ".part"
"""The ending of a file that is not yet complete."""

_ABSENT = (403, 404, 410)
"""What servers answer if there is no such file. Amazon's, from which many models come, say 403."""


class AbsentError(ElmoError):
    """Raised if a server says that it does not have a file."""


def is_address(source: object) -> bool:
    """Return whether `source` is the address of a file that can be downloaded."""
    return isinstance(source, str) and bool(_ADDRESS.fullmatch(source))


def download(address: str, target: Path) -> Path:
    """Download a file, and return the path of what will become `target` once it is checked.

    What an earlier call got of the file is continued if the server still has the same one.

    Raises:
        AbsentError: If the server does not have the file, or sends a web page in its place.
        ElmoError: If the server can't be reached, breaks off, or sends more than `LARGEST` bytes.
    """
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
    _refuse_web_page(part, address)
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
