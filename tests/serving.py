"""A web server for tests of downloads, which can break off replies, send them slowly or announce a false length."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import cast

import pytest


@dataclass
class Site:
    """What a server offers and how it behaves. Tests change it while the server runs.

    Attributes:
        address: Its address, such as `http://127.0.0.1:40000`.
        files: The contents of files by their paths.
        redirects: Paths that lead to others.
        status: The status that answers every request instead of a file, if not None.
        break_after: How many bytes of a reply are sent before the connection is closed.
        num_bytes_at_once: The length of a piece of a reply.
        pause_seconds: How long the server waits before each piece.
        exaggeration: How many bytes too many each reply announces.
        announces_length: Whether replies say how long they are.
        has_ranges: Whether a part of a file can be asked for.
        versions: The `ETag` of files by their paths. Other files have none.
        requests: The path and the range of each request.
        conditions: The versions that are the condition of a range (`If-Range`).
    """

    address: str
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    redirects: dict[str, str] = field(default_factory=dict[str, str])
    status: int | None = None
    break_after: int | None = None
    num_bytes_at_once: int = 100
    pause_seconds: float = 0.0
    exaggeration: int = 0
    announces_length: bool = True
    has_ranges: bool = True
    versions: dict[str, str] = field(default_factory=dict[str, str])
    requests: list[tuple[str, str | None]] = field(default_factory=list[tuple[str, str | None]])
    conditions: list[str] = field(default_factory=list[str])

    def ranges(self) -> list[str]:
        """Return the ranges that were asked for."""
        return [wanted for _, wanted in self.requests if wanted is not None]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    site: Site


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        site, path, wanted = cast(_Server, self.server).site, self.path.partition("?")[0], self.headers["Range"]
        site.requests.append((path, wanted))
        if (condition := self.headers["If-Range"]) is not None:
            site.conditions.append(condition)
            wanted = wanted if condition == site.versions.get(path) else None
        if path in site.redirects:
            self.send_response(302)
            self.send_header("Location", site.redirects[path])
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif site.status is not None or path not in site.files:
            self.send_error(site.status or 404)
        else:
            self._send(site, path, wanted)

    def _send(self, site: Site, path: str, wanted: str | None) -> None:
        whole = site.files[path]
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and site.has_ranges else 0
        if start >= len(whole):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(whole) - 1}/{len(whole) + site.exaggeration}")
        if site.announces_length:
            self.send_header("Content-Length", str(len(whole) - start + site.exaggeration))
        if path in site.versions:
            self.send_header("ETag", site.versions[path])
        self.end_headers()
        body = whole[start:][: site.break_after]
        try:
            for offset in range(0, len(body), site.num_bytes_at_once):
                time.sleep(site.pause_seconds)
                self.wfile.write(body[offset : offset + site.num_bytes_at_once])
        except ConnectionError:  # the client has closed the connection
            self.close_connection = True


@contextmanager
def serving() -> Generator[Site]:
    """Run a server until the end of the block. Clients reach it directly, even where a proxy is set."""
    with pytest.MonkeyPatch.context() as patch, _Server(("127.0.0.1", 0), _Handler) as server:
        for name in ("NO_PROXY", "no_proxy"):
            patch.setenv(name, "127.0.0.1")
        server.site = Site(f"http://127.0.0.1:{server.server_address[1]}")
        thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server.site
        finally:
            server.shutdown()
            thread.join()
