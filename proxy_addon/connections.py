"""Which connection an attempt gets: one that is open and good enough, or a new one, dialled once for all who wait.

A part of the layer, which has all connections of one client. What a connection is made of is in `origins.py`; sockets
are in `dial.py`.
"""

import math

from mitmproxy.connection import Connection, Server
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers.http import (
    GetHttpConnection,
    GetHttpConnectionCompleted,
    HttpLayer,
    HTTPMode,
    RegisterHttpConnection,
)

from proxy_addon.border import Border
from proxy_addon.dial import PacedConnectionHandler
from proxy_addon.exchange import Pacing
from proxy_addon.flow_control import FlowControl
from proxy_addon.model import IDEMPOTENT_METHODS, ErrorName, Reply
from proxy_addon.origins import Origin, make_origin, parent_failure

MOST_IDLE = 16
"""How many connections to origins are kept for a client's connection that uses none of them now. A crawler may go
through thousands of hosts over one connection, and most origins close an idle one only after a minute. It is enough for
one that goes round a few hosts in turn."""


class Connections(HttpLayer):
    """See the module's text."""

    def __init__(self, context: Context, mode: HTTPMode, pacing: Pacing, handler: PacedConnectionHandler) -> None:
        super().__init__(context, mode)
        self.pacing = pacing
        self.handler = handler
        self.origins: dict[Server, Origin] = {}
        """By what the streams speak to; the newest last. Every one is also in `connections`."""
        self.flow_control = FlowControl(context.client, handler, self._stream)

    def _stream(self, stream_id: int) -> Border | None:
        """By its own id, or by that of its attempt."""
        found = self.streams.get(stream_id)
        return found if isinstance(found, Border) else None

    def distinct_streams(self) -> list[Border]:
        """Each is there by its own id and by that of its attempt."""
        return [s for key, s in self.streams.items() if isinstance(s, Border) and key == s.stream_id]

    def find_origin(self, wanted: GetHttpConnection, *, method: str, fresh: bool) -> Origin | None:
        """The newest open connection that fits: never used if `fresh`, used lately if the method asks for that."""
        idle_since = -math.inf
        if method not in IDEMPOTENT_METHODS:
            idle_since = self.pacing.clock.monotonic() - self.pacing.idle_reuse_s
        for origin in reversed(self.origins.values()):
            if (
                not (fresh and origin.requests)
                and origin.is_idle
                and origin.idle_since >= idle_since
                and wanted.connection_spec_matches(origin.server)
            ):
                return origin
        return None

    def get_connection(self, event: GetHttpConnection, *, reuse: bool = True) -> CommandGenerator[None]:
        """Dial, or join a dial to the same place that is on its way. (Open connections: see `find_origin`.)"""
        yield from self._clear_out(event)
        if reuse:
            for server, waiting in self.waiting_for_establishment.items():
                if event.connection_spec_matches(server):
                    waiting.append(event)
                    return
        origin = make_origin(
            self.context.fork(), event, self.mode, self.handler.was_reset, self.flow_control.may_download
        )
        self.origins[origin.server] = origin
        self.connections[origin.server] = origin.top
        self.waiting_for_establishment[origin.server] = [event]
        yield from self.event_to_child(origin.top, events.Start())

    def let_idle_go(self, address: tuple[str, int]) -> CommandGenerator[None]:
        in_use = {s.origin.server for s in self.distinct_streams() if s.attempt_id is not None and s.origin is not None}
        for server, origin in list(self.origins.items()):
            idle = server not in self.waiting_for_establishment and server not in in_use
            if idle and server.address == address and not origin.is_shared:
                yield from self._forget(origin)

    def _clear_out(self, wanted: GetHttpConnection) -> CommandGenerator[None]:
        """Forget dead connections, and close those that this request would have used, had it been allowed to; and of
        too many idle ones those that were idle for longest."""
        in_use = {stream.origin.server for stream in self.distinct_streams() if stream.origin is not None}
        idle: list[Origin] = []
        for server, origin in list(self.origins.items()):
            if server in self.waiting_for_establishment or server in in_use:
                continue
            if not server.connected or wanted.connection_spec_matches(server):
                yield from self._forget(origin)
            else:
                idle.append(origin)
        idle.sort(key=lambda origin: origin.idle_since)
        for origin in idle[:-MOST_IDLE]:
            yield from self._forget(origin)

    def _forget(self, origin: Origin) -> CommandGenerator[None]:
        """Drop a connection in whatever state it is; what still comes of it is ignored."""
        del self.origins[origin.server]
        for command in [c for c, child in self.command_sources.items() if child is origin.top]:
            del self.command_sources[command]
        for connection in [c for c, child in self.connections.items() if child is origin.top]:
            del self.connections[connection]
            yield commands.CloseConnection(connection)

    def register_connection(self, command: RegisterHttpConnection) -> CommandGenerator[None]:
        server = command.connection
        waiting = self.waiting_for_establishment.pop(server, None)
        if waiting is None:
            return  # Given up meanwhile.
        origin = self._origin(server)
        result: Origin | Reply = origin
        if command.err:
            result = self._failure(origin, command.err)
            yield from self._forget(origin)
        else:
            origin.ready = True
            origin.idle_since = self.pacing.clock.monotonic()
        # An HTTP/1 connection serves one stream at a time, and ours only ever one: the others each dial their own.
        takes_one = not command.err and self.context.client.alpn == b"h2" and server.alpn != b"h2"
        for wanted in waiting[:1] if takes_one else waiting:
            yield from self._answer(wanted, result)
        if takes_one:
            for wanted in waiting[1:]:
                yield from self.get_connection(wanted, reuse=False)

    def _answer(self, wanted: GetHttpConnection, result: Origin | Reply) -> CommandGenerator[None]:
        stream = self.command_sources.pop(wanted, None)
        if stream is not None:
            # Only our own stream asks, and it knows how to take this.
            yield from self.event_to_child(stream, GetHttpConnectionCompleted(wanted, result))  # type: ignore[arg-type]

    def _failure(self, origin: Origin, text: str) -> Reply:
        if origin.failure is not None:
            return origin.failure
        failure = self.handler.failure(origin.dialled)
        if failure is None:
            failure = Reply(error=ErrorName.CONNECTION_TERMINATED, details=text)
        return failure if origin.dialled is origin.server else parent_failure(failure)

    def abandon_dial(self, stream: Border, failure: Reply) -> CommandGenerator[None]:
        wanted = stream.dialling
        if wanted is None:
            return
        for server, waiting in list(self.waiting_for_establishment.items()):
            if not any(other is wanted for other in waiting):
                continue
            waiting[:] = [other for other in waiting if other is not wanted]
            if not waiting:
                del self.waiting_for_establishment[server]
                yield from self._forget(self._origin(server))
        yield from self._answer(wanted, failure)

    def _origin(self, server: Connection) -> Origin:
        assert isinstance(server, Server)
        return self.origins[server]

    def dial_timed_out(self, stream: Border) -> CommandGenerator[None]:
        for server, waiting in self.waiting_for_establishment.items():
            if any(other is stream.dialling for other in waiting):
                origin = self._origin(server)
                failure = self.handler.overdue(origin.dialled)
                if not origin.is_parent_reached:
                    failure = parent_failure(failure)
                yield from self.abandon_dial(stream, failure)
                return
