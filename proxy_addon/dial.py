"""Sockets: mitmproxy's connection handler with dialling of our own, and what the paced layer asks of it.

It dials what the layers ask for, by `reach.py`, and keeps for the paced layer why that failed. It knows nothing of
HTTP, attempts or pacing. One of the few modules that use mitmproxy's private API: `tests/test_mitmproxy_api.py` fails
where an upgrade changes that.
"""

import asyncio
import contextlib
import functools
import logging
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

from mitmproxy import flow
from mitmproxy.addonmanager import traverse
from mitmproxy.connection import Connection, ConnectionState, Server
from mitmproxy.proxy import commands, events, mode_servers, server_hooks
from mitmproxy.proxy.server import ConnectionIO

from proxy_addon.apart import take_apart
from proxy_addon.clock import Clock
from proxy_addon.model import ErrorName, Reply
from proxy_addon.reach import DialError, Names, Reader, dial

logger = logging.getLogger(__name__)

LAST_WORDS_S = 60.0
"""How long a client that is being closed has for taking what was written to it."""

HURRIES = 8
"""How often `hurry` looks: a layer may set one timer after the other, but not for ever."""

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER with a time of 0: closing the socket sends RST."""

type Refuse = Callable[[str, int], ErrorName | None]
"""Asked about each address (numeric) and port that would be dialled; not None: it is not dialled, and this is why."""


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
        self._hooks: dict[commands.StartHook, asyncio.Task[None]] = {}
        """Begun by `run_hook`, and not done."""
        self._at_end: list[Callable[[], None]] = []
        self._in_body: list[Callable[[], bool]] = []
        self._timers: set[commands.RequestWakeup] = set()
        self._gone = False

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
        return io is not None and isinstance(io.reader, Reader) and io.reader.was_reset

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

    def run_hook(self, hook: commands.StartHook) -> bool:
        """Tell the addons; whether that is done already. If not, the hook has to be yielded, and goes on from there.

        Stock takes a task and a turn of the loop for each hook, most of which nobody listens to.
        """
        if hook in self._hooks:
            return False
        if not self._is_heard(hook):
            return True
        task = asyncio.Task(self.handle_hook(hook), loop=asyncio.get_running_loop(), eager_start=True)
        if task.done():
            task.result()
            return True
        self._hooks[hook] = task
        return False

    def _is_heard(self, hook: commands.StartHook) -> bool:
        subject = getattr(hook, "flow", None)
        names: tuple[str, ...] = (hook.name,)
        if isinstance(subject, flow.Flow):
            if subject.intercepted:
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

    async def hurry(self) -> None:
        """Let the time be over that the layers wait for, now; also that which they then begin to wait for."""
        for _ in range(HURRIES):
            for timer in list(self._timers):
                self._timers.discard(timer)
                await self.server_event(events.Wakeup(timer))

    def hang_up(self) -> None:
        """End the client's connection, and with it those to origins. A response in its body is cut off visibly."""
        if any(in_body() for in_body in self._in_body):
            self.reset_client()
        io = self.transports.get(self.client)
        if io is not None and io.handler is not None:
            io.handler.cancel("shutting down")

    def ask_whether_in_body(self, question: Callable[[], bool]) -> None:
        """`question` says whether a response to the client is in its body."""
        self._in_body.append(question)

    def at_end(self, callback: Callable[[], None]) -> None:
        """Call this once the client and all its connections are gone."""
        self._at_end.append(callback)

    # What mitmproxy calls.

    async def handle_client(self) -> None:
        io = self.transports.get(self.client)
        try:
            await super().handle_client()
        finally:
            if io is not None and io.handler is not None:
                # Where all tasks are cancelled at once, the connection's own still looks for it in `transports`.
                await asyncio.wait((io.handler,))
            self._let_go(self.client, io)
            for callback in self._at_end:
                callback()
            self._gone = True
            self._at_end.clear()
            self._in_body.clear()
            self.timeout_watchdog.callback = _nothing
            take_apart(self.layer)

    async def handle_connection(self, connection: Connection) -> None:
        try:
            await super().handle_connection(connection)
        except asyncio.CancelledError as error:
            # Stock keeps it in a variable of the very frame that its traceback refers to.
            raise error.with_traceback(None) from None

    async def wakeup(self, request: commands.RequestWakeup) -> None:
        self._timers.add(request)
        try:
            await super().wakeup(request)
        finally:
            self._timers.discard(request)

    async def server_event(self, event: events.Event) -> None:
        if not self._gone:  # A hook that was waited for may come back late.
            await super().server_event(event)

    async def handle_hook(self, hook: commands.StartHook) -> None:
        running = self._hooks.pop(hook, None)
        if running is not None:
            await running
        elif self._is_heard(hook):
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
            await _drain(self.client, client)
            return
        for connection, io in [entry for entry in self.transports.items() if entry[0] is not self.client]:
            await _drain(connection, io)
        if self._held_back is not None:
            await self._held_back.wait()

    async def open_connection(self, command: commands.OpenConnection) -> None:
        """Dial, tell the layer, and then serve the connection until its end. Runs in a task of its own."""
        server = command.connection
        data = server_hooks.ServerConnectionHookData(client=self.client, server=server)
        try:
            await self.handle_hook(server_hooks.ServerConnectHook(data))
            io = await self._open(server)
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
            self._let_go(server, io)
            server.timestamp_end = self._clock.now()
            await self.handle_hook(server_hooks.ServerDisconnectedHook(data))

    async def _open(self, server: Server) -> ConnectionIO:
        if not server.address:
            raise DialError(ErrorName.DNS_ERROR, "the request names no host")
        server.timestamp_start = self._clock.now()
        host, port = server.address[:2]
        addresses = await self._permitted(server, host, port)
        if server.error:  # An addon vetoed it in the `server_connect` hook.
            raise DialError(ErrorName.DESTINATION_IP_PROHIBITED, "the connection is not permitted")
        reader, writer = await dial(addresses, port, server.sockname)
        server.timestamp_tcp_setup = self._clock.now()
        server.state = ConnectionState.OPEN
        server.peername = writer.get_extra_info("peername")
        server.sockname = writer.get_extra_info("sockname")
        io = self.transports[server] = ConnectionIO(asyncio.current_task(), reader, writer)
        return io

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
            self._let_go(server, self.transports.get(server))
            self._failures.pop(server, None)

    def _let_go(self, connection: Connection, io: ConnectionIO | None) -> None:
        """Close it for good. Stock does not where it is cancelled at the wrong moment, nor while data is unsent.

        An origin that is given up need not get the rest of its request; a client shall have its response.
        """
        self.transports.pop(connection, None)
        connection.state = ConnectionState.CLOSED
        if io is None or not isinstance(io.writer, asyncio.StreamWriter):
            return
        io.writer.close()
        if io.writer.transport.get_write_buffer_size():
            grace_s = LAST_WORDS_S if connection is self.client else 0.0
            asyncio.get_running_loop().call_later(grace_s, io.writer.transport.abort)
        io.handler = None  # The task leads back to it, by the exception that it ended with.


async def _drain(connection: Connection, io: ConnectionIO) -> None:
    if io.writer is None:
        return
    try:
        await io.writer.drain()
    except OSError as error:
        # Whoever reads from it learns of this as well, but has perhaps not read all that came before. Stock ends the
        # reading, and with it the answer of an origin that did not want to see the whole request.
        if io.handler is not None and not connection.state & ConnectionState.CAN_READ:
            io.handler.cancel(f"Error sending data: {error}")


async def _nothing() -> None:
    """For a callback that nobody is to call any more."""


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
