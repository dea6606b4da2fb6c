"""The server of `elmo explore`: uvicorn, with limits on waiting requests, open connections and log messages."""

from __future__ import annotations

import asyncio
import ipaddress
import logging

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS, REQUEST_SECONDS, ANSWER_SECONDS = 64, 10.0, 600.0
"""Limits: connections of all clients, seconds for a request to arrive, seconds to compute and send its answer."""

MOST_LINES = 20
"""Most lines that are logged in a minute."""


def make_server(app: Starlette, *, request_seconds: float = REQUEST_SECONDS) -> uvicorn.Server:
    """Return a server for the page's application, to be run on a socket.

    A client that does not send its whole request within `request_seconds` is disconnected. If `MOST_CONNECTIONS` are
    open, a new connection replaces the one that has waited longest without a whole request.
    """
    config = uvicorn.Config(
        app,
        log_level="warning",
        # Uvicorn makes the connections itself, from a class, so the limit has to be an attribute of the class.
        http=type("Protocol", (_Protocol,), {"request_seconds": request_seconds}),
        ws="none",
        backlog=MOST_CONNECTIONS,
    )
    for name in ("uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        for old in [known for known in logger.filters if isinstance(known, _FewLines)]:  # that of an earlier server
            logger.removeFilter(old)
        logger.addFilter(_FewLines())
    return uvicorn.Server(config)


def is_loopback(host: str) -> bool:
    """Return whether only programs on this machine can connect to a server that listens on this address.

    A host name other than `localhost` is never taken for one: nothing tells what it will be resolved to.
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Protocol(H11Protocol):
    """A connection with time limits. Uvicorn itself limits only idle connections between two requests."""

    request_seconds = REQUEST_SECONDS

    _timer: asyncio.TimerHandle | None = None
    _is_answering = False
    _since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Start waiting for a request, and close the oldest waiting connection if there are too many."""
        super().connection_made(transport)
        self._wait(is_answering=False)
        waiting = [other for other in self.connections if isinstance(other, _Protocol) and not other._is_answering]
        if len(self.connections) > MOST_CONNECTIONS:
            oldest = min(waiting, key=lambda other: other._since)  # this one is among them
            # At once, since new connections may be counted before its end is noticed.
            oldest.connections.discard(oldest)
            oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the time limit."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Start the time limit for the answer once the request is complete."""
        super().data_received(data)
        if not self._is_answering and self.cycle is not None and not self.cycle.response_complete:  # pyright: ignore[reportUnnecessaryComparison] - at first there is none
            self._wait(is_answering=True)

    def on_response_complete(self) -> None:
        """Start waiting for the next request, unless it has arrived already and is being answered."""
        answered = self.cycle
        super().on_response_complete()
        self._wait(is_answering=self.cycle is not answered)

    def _wait(self, *, is_answering: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._is_answering, self._since = is_answering, loop.time()
        self._timer = loop.call_later(ANSWER_SECONDS if is_answering else self.request_seconds, self.transport.abort)


class _FewLines(logging.Filter):
    """Limits the messages per minute, since a client can cause any number of them."""

    _since = _left = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a message. The last one of a minute is replaced by a note that more are left out."""
        if record.created - self._since >= 60:
            self._since, self._left = record.created, MOST_LINES
        self._left -= 1
        if self._left == 0:
            record.msg, record.args, record.exc_info = "more messages of this minute are left out", (), None
        return self._left >= 0
