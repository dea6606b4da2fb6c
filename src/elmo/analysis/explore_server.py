"""The server of `elmo explore`: that of uvicorn, with an end to what clients can keep waiting, connected or logged."""

from __future__ import annotations

import asyncio
import logging

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS, REQUEST_SECONDS, ANSWER_SECONDS = 64, 10.0, 600.0
"""Of all clients together; until a request is there as a whole; until its answer is computed and taken."""

MOST_LINES = 20
"""Of the log in a minute."""


def make_server(app: Starlette, *, request_seconds: float = REQUEST_SECONDS) -> uvicorn.Server:
    """A server of one page's application, to be run on a socket.

    A client that doesn't send its whole request within `request_seconds` is disconnected. Where `MOST_CONNECTIONS` are
    open, a new one takes the place of the one that has waited longest without a whole request.
    """
    config = uvicorn.Config(
        app,
        log_level="warning",
        http=type("Protocol", (_Protocol,), {"request_seconds": request_seconds}),
        ws="none",
        backlog=MOST_CONNECTIONS,
    )
    for name in ("uvicorn.error", "asyncio"):
        logging.getLogger(name).addFilter(_FewLines())
    return uvicorn.Server(config)


class _Protocol(H11Protocol):
    """A connection whose time is limited, which uvicorn does only for idle ones between two requests."""

    request_seconds = REQUEST_SECONDS

    _timer: asyncio.TimerHandle | None = None
    _is_answering = False
    _since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Start to wait, and make room for it."""
        super().connection_made(transport)
        self._wait(is_answering=False)
        waiting = [other for other in self.connections if isinstance(other, _Protocol) and not other._is_answering]
        if len(self.connections) > MOST_CONNECTIONS:
            oldest = min(waiting, key=lambda other: other._since)  # this one is among them
            oldest.connections.discard(oldest)  # at once: the others are counted before its end is noticed
            oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Stop waiting when the request is whole."""
        super().data_received(data)
        if not self._is_answering and self.cycle is not None and not self.cycle.response_complete:  # pyright: ignore[reportUnnecessaryComparison] - at first there is none
            self._wait(is_answering=True)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._wait(is_answering=False)

    def _wait(self, *, is_answering: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._is_answering, self._since = is_answering, loop.time()
        self._timer = loop.call_later(ANSWER_SECONDS if is_answering else self.request_seconds, self.transport.abort)


class _FewLines(logging.Filter):
    """Lets a number of messages a minute through: a client can cause any number of them."""

    _since = _left = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a message is logged; the last of a minute tells that more are left out."""
        if record.created - self._since >= 60:
            self._since, self._left = record.created, MOST_LINES
        self._left -= 1
        if self._left == 0:
            record.msg, record.args, record.exc_info = "more messages of this minute are left out", (), None
        return self._left >= 0
