"""The status as it changes, for many readers: server-sent events (HTML standard, §9.2).

While there are readers the engine is looked at once a second; what has changed is encoded once, for all of them. A
reader is sent the newest when it has taken the one before: one that is slow misses what lies between, and nothing
is kept for it. What a status holds is in `documents.py`.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import cast

from tornado.http1connection import HTTP1Connection
from tornado.iostream import StreamClosedError

from proxy_addon.admin.answers import JsonHandler
from proxy_addon.admin.documents import Document, lasting
from proxy_addon.admin.server import Route
from proxy_addon.clock import Clock, sleep

LOOK_S = 1.0
"""Nobody can follow more than one change a second."""
HEARTBEAT_S = 15.0
"""Proxies and browsers give up on a connection that is silent for 30 or 60 s."""
TAKE_S = 60.0
"""A reader that takes nothing for so long has gone, though its connection has not."""
MAX_READERS = 32
"""More than an office of people; each is a connection, and a copy of the status each second."""

_HEARTBEAT = b":\n\n"

logger = logging.getLogger(__name__)


class Reader:
    """One who reads. `hang_up` ends its connection."""

    def __init__(self, first: bytes, clock: Clock, hang_up: Callable[[], None]) -> None:
        self._next: bytes | None = first
        self._clock = clock
        self._hang_up = hang_up
        self._wake = asyncio.Event()
        self._wake.set()
        self._ended = False
        self._given: float = clock.monotonic()
        self._taken = True

    async def next(self) -> bytes | None:
        """The newest that it has not had; None at the end. To ask for it is to have taken the one before."""
        self._taken = True
        await self._wake.wait()
        self._wake.clear()
        if self._ended:
            return None
        given, self._next = self._next, None
        self._given, self._taken = self._clock.monotonic(), False
        return given

    def offer(self, event: bytes) -> None:
        """Let it have this next, instead of what it has not taken yet."""
        self._next = event
        self._wake.set()

    def keep_alive(self) -> None:
        """Nothing has changed: a word from time to time for one that listens, and the end for one that has gone."""
        silent_s = self._clock.monotonic() - self._given
        if self._taken and silent_s >= HEARTBEAT_S and not self._wake.is_set():
            self.offer(_HEARTBEAT)
        elif not self._taken and silent_s > TAKE_S:
            self.end()
            self._hang_up()

    def end(self) -> None:
        """It gets nothing more."""
        self._ended = True
        self._wake.set()


class StatusFeed:
    """Looks at the status for its readers, and only while there are some."""

    def __init__(self, look: Callable[[], Document], clock: Clock) -> None:
        """`look` makes the status of this moment."""
        self._look = look
        self._clock = clock
        self._readers: set[Reader] = set()
        self._last: Document = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def join(self, hang_up: Callable[[], None]) -> Reader | None:
        """A new reader, which gets the status of this moment first. None: there are too many, or the end has come."""
        if self._closed or len(self._readers) >= MAX_READERS:
            return None
        status = self._look()
        reader = Reader(_encoded(status), self._clock, hang_up)
        self._readers.add(reader)
        if self._task is None:
            self._last = lasting(status)
            self._task = asyncio.get_running_loop().create_task(self._follow())
        return reader

    def leave(self, reader: Reader) -> None:
        """It reads no more. Harmless when called twice."""
        self._readers.discard(reader)
        if not self._readers and self._task is not None:
            self._task.cancel()
            self._task = None

    def close(self) -> None:
        """End all readers, now."""
        self._closed = True
        for reader in self._readers:
            reader.end()

    async def _follow(self) -> None:
        try:
            while True:
                await sleep(self._clock, LOOK_S)
                self._tell()
        except Exception:
            logger.exception("admin: the status could not be made; its readers are sent away.")
            self._task = None
            for reader in self._readers:
                reader.end()

    def _tell(self) -> None:
        status = self._look()
        changed = lasting(status)
        if changed != self._last:
            self._last = changed
            event = _encoded(status)
            for reader in self._readers:
                reader.offer(event)
        for reader in self._readers:
            reader.keep_alive()


def event_route(feed: StatusFeed) -> Route:
    """The route of the events."""
    return Route("/api/events", "the same, each time it changes (server-sent events)", _EventsHandler, {"feed": feed})


class _EventsHandler(JsonHandler):
    SUPPORTED_METHODS = ("GET",)

    _reader: Reader | None = None

    def initialize(self, feed: StatusFeed) -> None:
        self._feed = feed

    async def get(self) -> None:
        reader = self._reader = self._feed.join(cast(HTTP1Connection, self.request.connection).close)
        if reader is None:
            self.set_header("Retry-After", "15")
            self.answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{MAX_READERS} read the events already; end one of them.")
            return
        self.set_header("Content-Type", "text/event-stream; charset=utf-8")
        self.set_header("X-Accel-Buffering", "no")  # nginx would collect them
        try:
            while (event := await reader.next()) is not None:
                self.write(event)
                await self.flush()
        except StreamClosedError:
            pass  # it has gone
        finally:
            self._feed.leave(reader)

    def on_connection_close(self) -> None:
        if self._reader is not None:
            self._reader.end()


def _encoded(status: Document) -> bytes:
    return b"event: status\ndata: " + json.dumps(status, separators=(",", ":")).encode() + b"\n\n"
