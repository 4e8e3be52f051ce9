"""A scripted origin on raw sockets, which records every request and can misbehave as real ones do.

It runs in a thread and an event loop of its own, on a loopback address and a port that the system chooses.
What it does with a request is a behaviour (`tests.support.behaviours`), chosen by path and by how often that
path was asked for before. How to misbehave does not belong here, but there.
"""

import asyncio
import contextlib
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import trustme

from tests.support.behaviours import Respond
from tests.support.visit import Behaviour, Request, Visit

_HEAD_LIMIT_BYTES = 1 << 22
"""The longest head, or line of a chunked body, that the origin takes: more than any proxy lets through."""
_BACKLOG = 1024
_STOP_TIMEOUT_S = 10.0
_WELL = Respond()
_GONE = (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError, TimeoutError)
"""What a client does to the connection, at whatever moment, is no fault of the origin."""


@dataclass(slots=True, eq=False)
class Connection:
    """One connection that a client made, TLS handshake done. Times as in `Request.at`."""

    number: int
    opened_at: float
    """When it was accepted; with TLS, when the handshake began."""
    closed_at: float | None = None


type Script = Callable[[Request], Behaviour] | Mapping[str, Behaviour | Sequence[Behaviour]]


class Origin:
    """A scripted HTTP/1.1 origin; use it as a context manager.

    `script` maps a path (with its query) to one behaviour, or to a list of them for successive requests, of
    which the last repeats; a path that is not in it gets `default`. Or it is a function from a request to a
    behaviour. `mode`, while it is not None, overrules the script: an outage of everything. `names` are those
    in the TLS certificate, which may be `expired`. An exception in a script or behaviour is raised again when the
    origin ends.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        default: Behaviour = _WELL,
        tls: bool = False,
        names: Sequence[str] = ("localhost", "127.0.0.1", "::1"),
        expired: bool = False,
        address: str = "127.0.0.1",
        keep_alive: bool = True,
    ) -> None:
        self.script: Script = {} if script is None else script
        self.mode: Behaviour | None = None
        self.greetings: dict[int, Behaviour] = {}
        """By the number of a connection: what happens on it before any request is read (over TLS: after the
        handshake)."""
        self.requests: list[Request] = []
        """In the order in which their heads were complete."""
        self.connections: list[Connection] = []
        self.tls = tls
        self.address = address
        self.keep_alive = keep_alive
        self.port = 0
        self._default = default
        self._names = names
        self._expired = expired
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="origin", daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: socket.socket | None = None
        self._fault: Exception | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._context: ssl.SSLContext | None = None
        self._hellos: dict[int, float] = {}

    def __enter__(self) -> Self:
        if self.tls:
            self._folder = tempfile.TemporaryDirectory(prefix="origin-")
            self._context = self._certify()
        self._thread.start()
        self.start_listening()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_listening()
        asyncio.run_coroutine_threadsafe(self._end_connections(), self._loop).result(_STOP_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_TIMEOUT_S)
        self._loop.close()
        if self._folder is not None:
            self._folder.cleanup()
        if self._fault is not None and error is None:
            raise self._fault

    @property
    def ca(self) -> Path:
        """A PEM file with the certificate authority that signed the origin's certificate."""
        assert self._folder is not None, "an origin without TLS has no CA"
        return Path(self._folder.name) / "ca.pem"

    @property
    def host(self) -> str:
        """The origin's pacing key, where it is asked for by its address."""
        return f"{_bracketed(self.address)}:{self.port}"

    def url(self, path: str = "/", *, host: str | None = None) -> str:
        """The URL of a path. `host` replaces the address, for example by `localhost`."""
        return f"{'https' if self.tls else 'http'}://{_bracketed(host or self.address)}:{self.port}{path}"

    def hits(self, path: str) -> int:
        """How many requests there were for a path (with its query)."""
        return sum(1 for request in self.requests if request.path == path)

    def wait_for(self, condition: Callable[[Self], object], timeout: float = 10.0) -> None:
        """Return once `condition` holds, looking whenever a request or a connection changed.

        `timeout` only guards against hanging: past it, an AssertionError says what was there instead.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: condition(self), timeout):
                seen = [f"{request.method} {request.path}" for request in self.requests[-20:]]
                raise AssertionError(f"the origin waited {timeout} s in vain; its last requests were {seen}")

    def stop_listening(self) -> None:
        """Close the port, so that new connections are refused. Open connections stay."""
        asyncio.run_coroutine_threadsafe(self._unlisten(), self._loop).result(_STOP_TIMEOUT_S)

    def start_listening(self) -> None:
        """Open the port, the same one as before if there was one."""
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(_STOP_TIMEOUT_S)

    async def _listen(self) -> None:
        # Not `asyncio.start_server`: nobody can end the connections that it is just about to accept.
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        listening = socket.create_server((self.address, self.port), family=family, backlog=_BACKLOG)
        listening.setblocking(False)
        self.port = listening.getsockname()[1]
        self._listening = listening
        self._loop.add_reader(listening, self._accept, listening)

    async def _unlisten(self) -> None:
        if self._listening is not None:
            self._loop.remove_reader(self._listening)
            self._listening.close()
            self._listening = None

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_BACKLOG):
            try:
                client, _ = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            client.setblocking(False)
            # Asyncio does it for the sockets of its own servers. Without it a short response waits for an
            # acknowledgement, and one that is followed by RST is lost.
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = self._loop.create_task(self._serve(client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _end_connections(self) -> None:
        # A transport that was just made can be closed from the next turn of the loop on.
        for _ in range(2):
            await asyncio.sleep(0)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Transports close in a callback, over TLS in several: let them run before the loop ends.
        for _ in range(3):
            await asyncio.sleep(0)

    async def _serve(self, client: socket.socket) -> None:
        reader = asyncio.StreamReader(limit=_HEAD_LIMIT_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await self._loop.connect_accepted_socket(lambda: protocol, client, ssl=self._context)
        except (*_GONE, asyncio.CancelledError):
            client.close()
            return
        writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
        hello_at = self._hellos.pop(id(writer.get_extra_info("ssl_object")), None)
        connection = Connection(len(self.connections) + 1, hello_at or time.monotonic())
        self._note(lambda: self.connections.append(connection))
        try:
            with contextlib.suppress(*_GONE):
                if (greeting := self.greetings.get(connection.number)) is not None:
                    nothing_yet = Request(connection.opened_at, connection.number, self.tls, b"")
                    await greeting.act(Visit(nothing_yet, reader, writer, persistent=True))
                while await self._serve_one(connection, reader, writer):
                    pass
        except asyncio.CancelledError:
            # The origin ends.
            writer.transport.abort()
        except Exception as fault:
            self._fault = fault
            writer.transport.abort()
        finally:
            if (
                not writer.is_closing()
            ):  # To close it twice would be to give up its TLS, which could not be aborted then.
                writer.close()
            try:
                with contextlib.suppress(*_GONE):
                    await writer.wait_closed()
            except asyncio.CancelledError:
                # The origin ends, and somebody has not taken all that was written for him.
                writer.transport.abort()
            self._note(lambda: setattr(connection, "closed_at", time.monotonic()))

    async def _serve_one(
        self, connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Read one request and do what the script says; whether the connection is good for another one."""
        first = await reader.read(1)
        at = time.monotonic()
        if not first:
            return False
        head = first + await reader.readuntil(b"\r\n\r\n")
        request = Request(at, connection.number, self.tls, head)
        with self._changed:
            # Both in one step: a test that saw the request may change `mode` for the next one.
            self.requests.append(request)
            behaviour = self._choose(request)
            self._changed.notify_all()
        persistent = self.keep_alive and "close" not in (v.lower() for v in request.values("Connection"))
        visit = Visit(request, reader, writer, persistent=persistent)
        if behaviour.reads_body:
            await visit.read_body()
            self._note(lambda: None)
        try:
            await behaviour.act(visit)
        finally:
            request.done_at = time.monotonic()
            self._note(lambda: None)
        return visit.open and visit.persistent

    def _choose(self, request: Request) -> Behaviour:
        if self.mode is not None:
            return self.mode
        if callable(self.script):
            return self.script(request)
        found = self.script.get(request.path, self._default)
        if isinstance(found, Sequence):
            return found[min(self.hits(request.path), len(found)) - 1]
        return found

    def _note(self, change: Callable[[], object]) -> None:
        with self._changed:
            change()
            self._changed.notify_all()

    def _certify(self) -> ssl.SSLContext:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.ca)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        not_after = datetime(2001, 1, 1, tzinfo=UTC) if self._expired else None
        authority.issue_cert(*self._names, not_after=not_after).configure_cert(context)
        context.set_alpn_protocols(["http/1.1"])
        # It is called for each handshake, also where the client names no host.
        context.sni_callback = lambda tls, name, context: self._hellos.__setitem__(id(tls), time.monotonic())
        return context


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
