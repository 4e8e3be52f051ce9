"""Sockets: mitmproxy's connection handler with dialling of our own, and what the paced layer asks of it.

It turns a name into addresses, dials them, and says with an `ErrorName` why that failed, decided where the
exception is at hand. It knows nothing of HTTP, attempts or pacing. One of the few modules that use mitmproxy's
private API; `tests/test_dial.py` fails where an upgrade changes it.
"""

import asyncio
import contextlib
import errno
import functools
import logging
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mitmproxy import flow
from mitmproxy.addonmanager import traverse
from mitmproxy.connection import Connection, ConnectionState, Server
from mitmproxy.proxy import commands, events, mode_servers, server_hooks
from mitmproxy.proxy.server import ConnectionIO

from proxy_addon.clock import Clock
from proxy_addon.model import ErrorName, Reply

logger = logging.getLogger(__name__)

LOOKUPS_AT_ONCE = 64
"""Threads that may be in the system's resolver at a time. A dead name server keeps one for up to half a minute, so
there must be far more of them than names that are dead at the same time."""

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER with a time of 0: closing the socket sends RST."""

type Refuse = Callable[[str, int], ErrorName | None]
"""Asked about each address (numeric) and port that would be dialled; not None: it is not dialled, and this is why."""


class DialError(Exception):
    """No connection. `reply` says why."""

    def __init__(self, error: ErrorName, details: str, *, charged: bool = True) -> None:
        super().__init__(details)
        self.reply = Reply(error=error, details=details, charged=charged)


class Names:
    """Looks up names in threads of its own, one at a time per name, so that a slow name holds up no other."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(LOOKUPS_AT_ONCE)
        self._pending: dict[tuple[str, int], asyncio.Task[list[str]]] = {}

    async def addresses(self, host: str, port: int) -> list[str]:
        """The numeric addresses of a name, in the system's order, without duplicates.

        A numeric `host` is itself its address and needs no thread. Raises `DialError`. Cancelling it leaves the
        lookup running for whoever else waits for it.
        """
        with contextlib.suppress(OSError, UnicodeError):
            return _numeric(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
        lookup = self._pending.get((host, port))
        if lookup is None:
            lookup = asyncio.create_task(self._look_up(host, port))
            if not lookup.done():
                self._pending[host, port] = lookup
                lookup.add_done_callback(functools.partial(self._forget, (host, port)))
        try:
            return await asyncio.shield(lookup)
        except socket.gaierror as error:
            raise _lookup_error(error) from error
        except UnicodeError as error:
            raise DialError(ErrorName.DNS_ERROR, "the name is not a valid host name") from error

    async def _look_up(self, host: str, port: int) -> list[str]:
        async with self._room:
            loop = asyncio.get_running_loop()
            found: asyncio.Future[list[str]] = loop.create_future()
            # A daemon: a resolver that hangs must not keep the process from ending.
            threading.Thread(
                target=_ask_system, args=(loop, found, host, port), name=f"lookup of {host}", daemon=True
            ).start()
            return await found

    def _forget(self, name: tuple[str, int], lookup: asyncio.Task[list[str]]) -> None:
        del self._pending[name]
        if not lookup.cancelled():
            lookup.exception()  # Marks it as seen: everybody who waited may have left.


def _ask_system(loop: asyncio.AbstractEventLoop, found: "asyncio.Future[list[str]]", host: str, port: int) -> None:
    """In a thread: look a name up, and hand the result or the exception to the loop."""
    answer: Callable[[], None]
    try:
        addresses = _numeric(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        answer = functools.partial(found.set_result, addresses)
    except (OSError, UnicodeError) as error:
        answer = functools.partial(found.set_exception, error)
    with contextlib.suppress(RuntimeError):  # The loop has been closed meanwhile.
        loop.call_soon_threadsafe(_unless_done, found, answer)


def _unless_done(found: "asyncio.Future[list[str]]", answer: Callable[[], None]) -> None:
    if not found.done():
        answer()


def _numeric(found: Sequence[tuple[Any, ...]]) -> list[str]:
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


_FOR_THE_MOMENT = frozenset({socket.EAI_AGAIN, socket.EAI_MEMORY, socket.EAI_SYSTEM})


def _lookup_error(error: socket.gaierror) -> DialError:
    if error.errno in _FOR_THE_MOMENT:
        return DialError(ErrorName.DNS_TIMEOUT, "the name lookup failed for the moment")
    return DialError(ErrorName.DNS_ERROR, "the name does not resolve")


_BY_ERRNO: dict[int | None, tuple[ErrorName, str]] = {
    errno.ECONNREFUSED: (ErrorName.CONNECTION_REFUSED, "connection refused"),
    errno.ETIMEDOUT: (ErrorName.CONNECTION_TIMEOUT, "no answer to the connection attempt"),
    errno.ECONNRESET: (ErrorName.CONNECTION_TERMINATED, "connection reset while connecting"),
    errno.ECONNABORTED: (ErrorName.CONNECTION_TERMINATED, "connection reset while connecting"),
    errno.EPIPE: (ErrorName.CONNECTION_TERMINATED, "connection reset while connecting"),
    errno.EHOSTUNREACH: (ErrorName.DESTINATION_IP_UNROUTABLE, "no route to the host"),
    errno.ENETUNREACH: (ErrorName.DESTINATION_IP_UNROUTABLE, "no route to the host"),
    errno.EACCES: (ErrorName.DESTINATION_IP_UNROUTABLE, "this machine does not let us connect there"),
    errno.EPERM: (ErrorName.DESTINATION_IP_UNROUTABLE, "this machine does not let us connect there"),
    errno.EAFNOSUPPORT: (ErrorName.DESTINATION_IP_UNROUTABLE, "this machine has no such network"),
    errno.EINVAL: (ErrorName.DESTINATION_IP_UNROUTABLE, "not an address that can be dialled"),
}


def connect_error(errors: Sequence[OSError]) -> DialError:
    """What it means that every address of a host failed, each with one of `errors` (at least one).

    With several, one that came from the host itself says more than "no route": a machine without IPv6 fails on
    every IPv6 address in that way. An errno that is not in the table (too many open files, no free port) is a fault
    of this machine.
    """
    known = [found for error in errors if (found := _BY_ERRNO.get(error.errno)) is not None]
    if not known:
        return DialError(
            ErrorName.PROXY_INTERNAL_ERROR,
            f"cannot connect: {errno.errorcode.get(errors[-1].errno or 0, 'unknown error')}",
            charged=False,
        )
    telling = [found for found in known if found[0] is not ErrorName.DESTINATION_IP_UNROUTABLE]
    name, details = (telling or known)[0]
    return DialError(name, details)


class PacedConnectionHandler(mode_servers.ProxyConnectionHandler):
    """One client connection with the server connections that it led to."""

    def __init__(self, *arguments: Any, clock: Clock, names: Names, refuse: Refuse) -> None:
        super().__init__(*arguments)  # type: ignore[no-untyped-call]
        self._clock = clock
        self._names = names
        self._refuse = refuse
        self._failures: dict[Connection, Reply] = {}
        self._looking_up: set[Connection] = set()
        self._held_back: asyncio.Event | None = None
        self._at_end: list[Callable[[], None]] = []

    # What the paced layer asks.

    def failure(self, connection: Connection) -> Reply | None:
        """Why dialling this connection failed; asked once."""
        return self._failures.pop(connection, None)

    def overdue(self, connection: Connection) -> Reply:
        """What it means that this connection, which is still being dialled, is not there in time."""
        if connection in self._looking_up:
            return Reply(error=ErrorName.DNS_TIMEOUT, details="the name lookup took too long")
        return Reply(error=ErrorName.CONNECTION_TIMEOUT, details="the connection was not set up in time")

    def unsent_bytes(self, connection: Connection) -> int:
        """How much of what was written to it has not been handed to the system yet."""
        io = self.transports.get(connection)
        if io is None or not isinstance(io.writer, asyncio.StreamWriter):
            return 0
        return io.writer.transport.get_write_buffer_size()

    def was_reset(self, connection: Connection) -> bool:
        """Whether the connection, whose end was just told, ended by an error and not by FIN."""
        io = self.transports.get(connection)
        return io is not None and isinstance(io.reader, asyncio.StreamReader) and io.reader.exception() is not None

    def hold_back(self) -> None:
        """Read no more from the client, except for what is on its way into this process already."""
        if self._held_back is None:
            self._held_back = asyncio.Event()

    def read_on(self) -> None:
        """Undo `hold_back`."""
        if self._held_back is not None:
            self._held_back.set()
            self._held_back = None

    def reset_client(self) -> None:
        """Whenever the client's connection is closed from now on, it is with RST."""
        io = self.transports.get(self.client)
        if io is not None and isinstance(io.writer, asyncio.StreamWriter):
            connection = io.writer.get_extra_info("socket")
            with contextlib.suppress(OSError):  # It is gone already.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)

    def is_heard(self, hook: commands.StartHook) -> bool:
        """Whether any addon listens to this hook. Where none does, its task can be saved."""
        (data,) = hook.args()
        names: tuple[str, ...] = (hook.name,)
        if isinstance(data, flow.Flow):
            if data.intercepted:
                return True
            names = (hook.name, "update")
        return any(
            getattr(addon, name, None) is not None for addon in traverse(self.master.addons.chain) for name in names
        )

    def keep_awake(self) -> None:
        """The watchdog must not end an idle client whose attempt is on its way. To be paired with `rest`."""
        self.timeout_watchdog.blocker += 1
        self.timeout_watchdog.can_timeout.clear()

    def rest(self) -> None:
        """Undo one `keep_awake`."""
        self.timeout_watchdog.blocker -= 1
        if self.timeout_watchdog.blocker == 0:
            self.timeout_watchdog.register_activity()
            self.timeout_watchdog.can_timeout.set()

    def at_end(self, callback: Callable[[], None]) -> None:
        """Call this once the client and all its connections are gone."""
        self._at_end.append(callback)

    # What mitmproxy calls.

    async def handle_client(self) -> None:
        try:
            await super().handle_client()
        finally:
            self._let_go(self.client)
            for callback in self._at_end:
                callback()

    async def handle_hook(self, hook: commands.StartHook) -> None:
        if self.is_heard(hook):
            await super().handle_hook(hook)

    async def drain_writers(self) -> None:
        """Called after each read from a connection: wait until what was read has room where it goes.

        Stock waits for all of the connections, one task at a time: an origin that answers without reading the
        request would then block its own answer.
        """
        client = self.transports.get(self.client)
        if client is None:
            return
        if client.handler is not asyncio.current_task():
            await _drain(client)
            return
        for io in [io for connection, io in self.transports.items() if connection is not self.client]:
            await _drain(io)
        if self._held_back is not None:
            await self._held_back.wait()

    async def open_connection(self, command: commands.OpenConnection) -> None:
        """Dial, tell the layer, and then serve the connection until its end. Runs in a task of its own."""
        server = command.connection
        data = server_hooks.ServerConnectionHookData(client=self.client, server=server)
        try:
            await self.handle_hook(server_hooks.ServerConnectHook(data))
            await self._open(server)
            await self.handle_hook(server_hooks.ServerConnectedHook(data))
            await self.server_event(events.OpenConnectionCompleted(command, None))
        except asyncio.CancelledError:
            await self._not_opened(command, data, Reply(error=ErrorName.CONNECTION_TERMINATED, details="given up"))
            raise
        except DialError as error:
            await self._not_opened(command, data, error.reply)
            return
        except Exception:
            logger.exception("Dialling failed because of an error in Paceproxy.")
            reply = Reply(error=ErrorName.PROXY_INTERNAL_ERROR, details="internal error", charged=False)
            await self._not_opened(command, data, reply)
            return
        try:
            await self.handle_connection(server)
        finally:
            self._let_go(server)
            server.timestamp_end = self._clock.now()
            await self.handle_hook(server_hooks.ServerDisconnectedHook(data))

    async def _open(self, server: Server) -> None:
        if not server.address:
            raise DialError(ErrorName.DNS_ERROR, "the request names no host")
        server.timestamp_start = self._clock.now()
        host, port = server.address[:2]
        addresses = await self._permitted(server, host, port)
        if server.error:  # An addon vetoed it in the `server_connect` hook.
            raise DialError(ErrorName.DESTINATION_IP_PROHIBITED, "the connection is not permitted")
        reader, writer = await _dial(addresses, port, server.sockname)
        server.timestamp_tcp_setup = self._clock.now()
        server.state = ConnectionState.OPEN
        server.peername = writer.get_extra_info("peername")
        server.sockname = writer.get_extra_info("sockname")
        self.transports[server] = ConnectionIO(asyncio.current_task(), reader, writer)

    async def _permitted(self, server: Server, host: str, port: int) -> list[str]:
        """The addresses to dial for a name: all that it has, without those that are refused."""
        self._looking_up.add(server)
        try:
            addresses = await self._names.addresses(host, port)
        finally:
            self._looking_up.discard(server)
        verdicts = [(address, self._refuse(address, port)) for address in addresses]
        permitted = [address for address, error in verdicts if error is None]
        if permitted:
            return permitted
        error = next((error for _, error in verdicts if error is not None), ErrorName.DNS_ERROR)
        raise DialError(error, "none of the host's addresses may be dialled", charged=error is ErrorName.DNS_ERROR)

    async def _not_opened(
        self, command: commands.OpenConnection, data: server_hooks.ServerConnectionHookData, reply: Reply
    ) -> None:
        server = command.connection
        self.log(f"no connection: {reply.error}: {reply.details}")
        server.error = reply.details
        self._failures[server] = reply
        try:
            await self.handle_hook(server_hooks.ServerConnectErrorHook(data))
            await self.server_event(events.OpenConnectionCompleted(command, reply.details))
        finally:
            # Not earlier: this task may have come here before it was entered in `transports`.
            self._let_go(server)
            self._failures.pop(server, None)

    def _let_go(self, connection: Connection) -> None:
        """Stock does this too, but not where it is cancelled at the wrong moment. Harmless when done twice."""
        io = self.transports.pop(connection, None)
        if io is not None and io.writer is not None:
            connection.state = ConnectionState.CLOSED
            io.writer.close()


async def _drain(io: ConnectionIO) -> None:
    if io.writer is None:
        return
    try:
        await io.writer.drain()
    except OSError as error:
        if io.handler is not None:
            io.handler.cancel(f"Error sending data: {error}")


async def _dial(
    addresses: Sequence[str], port: int, local: tuple[str, int] | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the first of these addresses that takes one."""
    errors: list[OSError] = []
    for address in addresses:
        try:
            return await asyncio.open_connection(address, port, local_addr=local)
        except OSError as error:
            errors.append(error)
    raise connect_error(errors) from errors[0]


@contextlib.contextmanager
def paced_connections(*, clock: Clock, refuse: Refuse) -> Iterator[None]:
    """While it lasts, new client connections get our handler. Enter it before the proxy listens.

    mitmproxy makes its handlers by a name in a module; there is no other way to have it make ours.
    """
    stock = mode_servers.ProxyConnectionHandler
    make = functools.partial(PacedConnectionHandler, clock=clock, names=Names(), refuse=refuse)
    mode_servers.ProxyConnectionHandler = make  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        mode_servers.ProxyConnectionHandler = stock  # type: ignore[misc]
