"""The JSON API: the status, the hosts, and what an operator may do to a host.

It asks and tells the engine by the callables it is handed. What a document holds is in `documents.py`, what a change
may be in `host_changes.py`, who may make one in `guard.py`.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Self, assert_never, cast

from tornado.http1connection import HTTP1Connection
from tornado.web import stream_request_body

from proxy_addon.admin.answers import JsonHandler
from proxy_addon.admin.documents import Document, host_document, host_documents
from proxy_addon.admin.guard import CHANGE_FIELD, ChangeAsked, Guard
from proxy_addon.admin.host_changes import BadChange, Floor, HostChange, Pause, Resume, parse_change
from proxy_addon.admin.server import Route
from proxy_addon.clock import Clock
from proxy_addon.engine import Engine
from proxy_addon.hosts import keys_of
from proxy_addon.model import HostView, Snapshot

MAX_CHANGE_BYTES = 4096
"""Of a change's body. Far more than any needs."""
MAX_DISCARDED_BYTES = 4 * 1024 * 1024
"""A body up to this is read to its end and thrown away, so that its sender gets to read the answer: a connection
that is closed while it still sends would be reset."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Operations:
    """The engine, as far as it is seen and operated from here."""

    now: Callable[[], float]
    """Unix seconds."""
    snapshot: Callable[[], Snapshot]
    """All hosts: with thousands of them it takes a while."""
    view: Callable[[str], HostView | None]
    """None: it has never heard of this host."""
    resume: Callable[[str], Awaitable[HostView]]
    pause: Callable[[str, float], Awaitable[HostView]]
    set_floor: Callable[[str, float], Awaitable[HostView]]
    """These two raise ValueError, with a text for people, for a number that is not sensible."""

    @classmethod
    def of(cls, engine: Engine, clock: Clock) -> Self:
        """Those of a whole engine."""
        return cls(clock.now, engine.snapshot, engine.view, engine.resume, engine.pause, engine.set_floor)

    async def make(self, host: str, change: HostChange) -> HostView:
        """Make the change; the host as it is then."""
        match change:
            case Resume():
                return await self.resume(host)
            case Pause(seconds):
                return await self.pause(host, seconds)
            case Floor(seconds):
                return await self.set_floor(host, seconds)
            case _:
                assert_never(change)


def api_routes(status: Callable[[], Document], operations: Operations) -> list[Route]:
    """`status` makes the whole document of this moment."""
    return [
        Route("/api/status", "all there is to see, as JSON", _StatusHandler, {"status": status}),
        Route("/api/hosts", "the hosts that are slow", _HostsHandler, {"operations": operations}),
        Route(
            "/api/hosts/(.+)",
            "one of them; POST resumes it, pauses it, or sets its floor",
            _HostHandler,
            {"operations": operations},
            shown="/api/hosts/NAME",
        ),
    ]


def nothing_else_route() -> Route:
    """Anything else under `/api/`: after all the others."""
    return Route("/api/.*", "", _NothingHandler)


class _StatusHandler(JsonHandler):
    def initialize(self, status: Callable[[], Document]) -> None:
        self._status = status

    def get(self) -> None:
        self.send(self._status())

    head = get


class _HostsHandler(JsonHandler):
    def initialize(self, operations: Operations) -> None:
        self._operations = operations

    def get(self) -> None:
        self.send(host_documents(self._operations.snapshot()))

    head = get


@stream_request_body
class _HostHandler(JsonHandler):
    SUPPORTED_METHODS = ("GET", "HEAD", "POST")

    def initialize(self, operations: Operations) -> None:
        self._operations = operations
        self._body = bytearray()
        cast(HTTP1Connection, self.request.connection).set_max_body_size(MAX_DISCARDED_BYTES)

    def decode_argument(self, value: bytes, name: str | None = None) -> str:
        # What is no UTF-8 is the name of no host, and is told so in the same words.
        return value.decode("utf-8", "replace")

    def prepare(self) -> None:
        super().prepare()
        if not self._finished and self.request.method == "POST":
            self._guard()

    def _guard(self) -> None:
        fields = self.request.headers
        guard: Guard = self.settings["guard"]
        refusal = guard.refusal(
            ChangeAsked(
                host=fields.get("Host"),
                content_type=fields.get("Content-Type"),
                change=fields.get(CHANGE_FIELD),
                origin=fields.get("Origin"),
                fetch_site=fields.get("Sec-Fetch-Site"),
                authorization=fields.get("Authorization"),
            )
        )
        if refusal is None:
            return
        logger.warning("admin: a change asked for by %s was refused: %s", self.request.remote_ip, refusal.text)
        if refusal.status is HTTPStatus.UNAUTHORIZED:
            self.set_header("WWW-Authenticate", 'Bearer realm="paceproxy"')
        self.answer(refusal.status, refusal.text)

    def data_received(self, chunk: bytes) -> None:
        if len(self._body) <= MAX_CHANGE_BYTES:
            self._body += chunk

    def get(self, name: str) -> None:
        if (view := self._known(name)) is not None:
            self.send(host_document(view, at=self._operations.now()))

    head = get

    async def post(self, name: str) -> None:
        if len(self._body) > MAX_CHANGE_BYTES:
            self.answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A change must have at most {MAX_CHANGE_BYTES} bytes.")
            return
        try:
            change = parse_change(bytes(self._body))
            if (view := self._known(name)) is None:
                return
            view = await self._operations.make(view.host, change)
        except (BadChange, ValueError) as error:
            self.answer(HTTPStatus.BAD_REQUEST, str(error))
            return
        logger.info("%s was %s by an operator at %s.", view.host, change, self.request.remote_ip)
        self.send(host_document(view, at=self._operations.now()))

    def _known(self, name: str) -> HostView | None:
        """The host of this name; None, and that is answered, where there is none."""
        for key in keys_of(name):
            if (view := self._operations.view(key)) is not None:
                return view
        self.answer(
            HTTPStatus.NOT_FOUND,
            f"The proxy has not been asked for the host {name[:100]!r}; /api/hosts lists those that are slow.",
        )
        return None


class _NothingHandler(JsonHandler):
    SUPPORTED_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

    def _nothing(self) -> None:
        self.answer(
            HTTPStatus.NOT_FOUND,
            "There is nothing here. There is: /api/status, /api/hosts, /api/hosts/NAME, /api/events.",
        )

    get = head = post = put = patch = delete = options = _nothing
