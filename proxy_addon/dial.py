"""Dialling: what a layer wants to reach becomes a connection, or a typed reason why there is none.

It looks names up, asks about every address, dials by `reach.py`, and keeps for the paced layer why that failed. The
rest of the connection handler is in `handler.py`. It knows nothing of HTTP, attempts or pacing. One of the few modules
that use mitmproxy's private API: `tests/test_mitmproxy_api.py` fails where an upgrade changes that.
"""

import asyncio
import contextlib
import functools
import logging
from collections.abc import Iterator
from typing import Any, Protocol

from mitmproxy.connection import Connection, ConnectionState, Server
from mitmproxy.proxy import commands, events, mode_servers, server_hooks
from mitmproxy.proxy.mode_specs import ReverseMode, UpstreamMode
from mitmproxy.proxy.server import ConnectionIO

from proxy_addon.clock import Clock
from proxy_addon.handler import SafeConnectionHandler
from proxy_addon.model import ErrorName, Reply
from proxy_addon.names import Names
from proxy_addon.reach import DialError, Reader, dial

logger = logging.getLogger(__name__)


class Refuse(Protocol):
    """Asked about each address that would be dialled."""

    def __call__(self, address: str, port: int, *, configured: bool) -> ErrorName | None:
        """Why it is not to be dialled; None: it may be. `address` is numeric. `configured`: it belongs to the parent
        proxy or the reverse target that the operator named."""


_NOT_PERMITTED = {
    ErrorName.DESTINATION_IP_PROHIBITED: "an address that must not be connected to",
    ErrorName.PROXY_LOOP_DETECTED: "an address of this proxy",
}
"""What to say of a host whose addresses are all refused. Never which: clients need not know our networks."""


class PacedConnectionHandler(SafeConnectionHandler):
    """One client connection, and how the connections to origins that it leads to are made."""

    def __init__(self, *arguments: Any, clock: Clock, names: Names, refuse: Refuse) -> None:
        super().__init__(*arguments)
        self._clock = clock
        self._names = names
        self._refuse = refuse
        self._failures: dict[Connection, Reply] = {}
        self._looking_up: set[Connection] = set()

    # What the paced layer asks.

    def failure(self, connection: Connection) -> Reply | None:
        """Why dialling this connection failed; asked once."""
        return self._failures.pop(connection, None)

    def overdue(self, connection: Connection) -> Reply:
        """What it means that this connection, which is still being dialled, is not there in time."""
        if connection in self._looking_up:
            return Reply(error=ErrorName.DNS_TIMEOUT, details="the name lookup took too long")
        return Reply(error=ErrorName.CONNECTION_TIMEOUT, details="the connection was not set up in time")

    def was_reset(self, connection: Connection) -> bool:
        """Whether the connection, whose end was just told, ended by an error and not by FIN."""
        io = self.transports.get(connection)
        return io is not None and isinstance(io.reader, Reader) and io.reader.was_reset

    # What mitmproxy calls.

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
            self.let_go(server, io)
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
        reader, writer = await dial(addresses, port, server.sockname, clock=self._clock)
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
            addresses = await self._names.addresses(host)
        finally:
            self._looking_up.discard(server)
        mode = self.client.proxy_mode
        configured = isinstance(mode, UpstreamMode | ReverseMode) and mode.address == (host, port)
        verdicts = [(address, self._refuse(address, port, configured=configured)) for address in addresses]
        permitted = [address for address, error in verdicts if error is None]
        if permitted:
            return permitted
        error = next((error for _, error in verdicts if error is not None), ErrorName.DNS_ERROR)
        raise DialError(
            error, _NOT_PERMITTED.get(error, "the name has no address"), charged=error not in _NOT_PERMITTED
        )

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
            self.let_go(server, self.transports.get(server))
            self._failures.pop(server, None)


@contextlib.contextmanager
def paced_connections(*, clock: Clock, refuse: Refuse) -> Iterator[None]:
    """While it lasts, new client connections get our handler. Enter it before the proxy listens.

    mitmproxy makes its handlers by a name in a module; there is no other way to have it make ours.
    """
    stock = mode_servers.ProxyConnectionHandler
    make = functools.partial(PacedConnectionHandler, clock=clock, names=Names(clock), refuse=refuse)
    mode_servers.ProxyConnectionHandler = make  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        mode_servers.ProxyConnectionHandler = stock  # type: ignore[misc]
