"""mitmproxy's `HttpLayer` with streams that pace: one client connection, its requests and its origins.

It makes the streams, keeps the one timer, and decides which connection an attempt gets. What happens to a request is
in `stream.py`, and how it is put where mitmproxy's own layer would be in `installing.py`.
"""

import itertools
import logging
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
from proxy_addon.exchange import SHUTTING_DOWN, Pacing
from proxy_addon.http1_server import PacedHttp1Server
from proxy_addon.http2 import PacedHttp2Server, say_goodbye
from proxy_addon.model import IDEMPOTENT_METHODS, ErrorName, Reply
from proxy_addon.origins import Origin, make_origin, parent_failure
from proxy_addon.phases import BreakOff, CutOff, Deadline, Phase
from proxy_addon.stream import PacedHttpStream

__all__ = ["PacedHttpLayer", "PacedHttpStream"]

logger = logging.getLogger(__name__)

_FIRST_ATTEMPT_ID = 1 << 40
"""Far from any id that a client's connection gives: those of HTTP/2 end at 2**31."""
_NEVER_S = 1e9

MOST_IDLE = 16
"""How many connections to origins are kept for a client's connection that uses none of them now. A crawler may go
through thousands of hosts over one connection, and most origins close an idle one only after a minute. It is enough for
one that goes round a few hosts in turn."""


class PacedHttpLayer(HttpLayer):
    """See the module's text."""

    def __init__(self, context: Context, mode: HTTPMode, pacing: Pacing, handler: PacedConnectionHandler) -> None:
        super().__init__(context, mode)
        self.pacing = pacing
        self.handler = handler
        self.origins: dict[Server, Origin] = {}
        """By what the streams speak to; the newest last. Every one is also in `connections`."""
        self._attempt_ids = itertools.count(_FIRST_ATTEMPT_ID)
        self._wakeups: dict[commands.Command, float] = {}
        """Timers on their way, and when they fire (monotonic seconds). One, or few: each is earlier than the last."""
        self._armed: set[Border] = set()
        """Those that have set a deadline during the event of this moment."""
        self._dropped: list[Border] = []
        """They have ended while the event of this moment is handled."""
        handler.at_end(self._client_is_gone)
        handler.ask_whether_in_body(self._is_in_body)

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        try:
            if isinstance(event, events.ConnectionEvent):
                # None: late news of a connection that was given up.
                if (child := self.connections.get(event.connection)) is not None:
                    yield from self.event_to_child(child, event)
            elif isinstance(event, events.CommandCompleted):
                if event.command in self._wakeups:
                    yield from self._wake(event.command)
                elif event.command in self.command_sources:
                    yield from super()._handle_event(event)
            else:
                if isinstance(event, events.Start):
                    yield from self._start()
                yield from super()._handle_event(event)
        except Exception:
            logger.exception("A connection failed because of an error in Paceproxy.")
            yield from self._break_off()
        if self._armed:
            yield from self._set_timer()
        while self._dropped:
            self._dropped.pop().come_apart()
        if self.pacing.is_draining and not self._is_busy():
            yield from say_goodbye(self.connections.get(self.context.client))

    def _start(self) -> CommandGenerator[None]:
        is_h2 = self.context.client.alpn == b"h2"
        side = PacedHttp2Server if is_h2 else PacedHttp1Server
        self.connections[self.context.client] = side(self.context.fork(), self.pacing.clock.now)
        if is_h2:
            # For `hurry`: so that it reaches us though nothing is going on.
            timer = commands.RequestWakeup(_NEVER_S)
            self._wakeups[timer] = math.inf
            yield timer

    def dropped(self, stream: Border) -> None:
        self._dropped.append(stream)

    def make_stream(self, stream_id: int) -> CommandGenerator[None]:
        stream = self.streams[stream_id] = PacedHttpStream(self.context.fork(), stream_id, self)
        yield from self.event_to_child(stream, events.Start())

    # Time.

    def arm(self, stream: Border, when: float) -> None:
        self._armed.add(stream)

    def _set_timer(self) -> CommandGenerator[None]:
        """One for the earliest deadline, if none fires before that. Most deadlines are gone again by now."""
        wanted_at = min((s.deadline for s in self._armed if s.deadline is not None), default=math.inf)
        self._armed.clear()
        if wanted_at < min(self._wakeups.values(), default=math.inf):
            timer = commands.RequestWakeup(max(0.0, wanted_at - self.pacing.clock.monotonic()))
            self._wakeups[timer] = wanted_at
            yield timer

    def _wake(self, timer: commands.Command) -> CommandGenerator[None]:
        wanted_at = self._wakeups.pop(timer)
        if self.pacing.is_cut_off:
            yield from self._cut_off()
            return
        # Sleeping may end a clock tick early: what is due at the moment asked for is due now.
        now = max(self.pacing.clock.monotonic(), wanted_at)
        for stream in self._distinct_streams():
            if stream.deadline is None:
                continue
            if stream.deadline > now:
                self._armed.add(stream)
            elif stream.phase is Phase.CONNECTING:
                stream.deadline = None
                yield from self._dial_timed_out(stream)
            else:
                stream.deadline = None
                yield from self.event_to_child(stream, Deadline(stream.stream_id))

    def _distinct_streams(self) -> list[Border]:
        """Each is there by its own id and by that of its attempt."""
        return [s for key, s in self.streams.items() if isinstance(s, Border) and key == s.stream_id]

    # Attempts.

    def start_attempt(self, stream: Border) -> int:
        attempt_id = next(self._attempt_ids)
        self.streams[attempt_id] = stream
        return attempt_id

    def end_attempt(self, stream: Border) -> None:
        if stream.attempt_id is not None:
            self.streams.pop(stream.attempt_id, None)
        if stream.origin is not None:
            stream.origin.idle_since = self.pacing.clock.monotonic()

    # Which connection an attempt gets.

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
        origin = make_origin(self.context.fork(), event, self.mode, self.handler.was_reset)
        self.origins[origin.server] = origin
        self.connections[origin.server] = origin.top
        self.waiting_for_establishment[origin.server] = [event]
        yield from self.event_to_child(origin.top, events.Start())

    def let_idle_go(self, address: tuple[str, int]) -> CommandGenerator[None]:
        in_use = {
            s.origin.server for s in self._distinct_streams() if s.attempt_id is not None and s.origin is not None
        }
        for server, origin in list(self.origins.items()):
            idle = server not in self.waiting_for_establishment and server not in in_use
            if idle and server.address == address and server.alpn != b"h2":
                yield from self._forget(origin)

    def _clear_out(self, wanted: GetHttpConnection) -> CommandGenerator[None]:
        """Forget dead connections, and close those that this request would have used, had it been allowed to; and of
        too many idle ones those that were idle for longest."""
        in_use = {stream.origin.server for stream in self._distinct_streams() if stream.origin is not None}
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

    def _dial_timed_out(self, stream: Border) -> CommandGenerator[None]:
        for server, waiting in self.waiting_for_establishment.items():
            if any(other is stream.dialling for other in waiting):
                origin = self._origin(server)
                failure = self.handler.overdue(origin.dialled)
                if not origin.is_parent_reached:
                    failure = parent_failure(failure)
                yield from self.abandon_dial(stream, failure)
                return

    # Failures, and the end.

    def _is_busy(self) -> bool:
        """Whether something is still to be sent or, while there is time, the rest of an upload to be dropped."""
        return any(not self.pacing.is_cut_off or s.phase is not Phase.ENDED for s in self._distinct_streams())

    def _cut_off(self) -> CommandGenerator[None]:
        for stream in self._distinct_streams():
            if stream.phase is Phase.CONNECTING:
                yield from self.abandon_dial(stream, SHUTTING_DOWN)
            else:
                yield from self.event_to_child(stream, CutOff(stream.stream_id))

    def _break_off(self) -> CommandGenerator[None]:
        """End every request of this connection, each as well as it can be. Which one failed is not known."""
        for stream in self._distinct_streams():
            try:
                yield from self.event_to_child(stream, BreakOff(stream.stream_id))
            except Exception:
                logger.exception("Ending a request failed because of an error in Paceproxy.")
                stream.close()
                self.streams.pop(stream.stream_id, None)
                yield commands.CloseConnection(self.context.client)

    def _is_in_body(self) -> bool:
        return any(stream.released and stream.phase is Phase.ANSWERING for stream in self._distinct_streams())

    def _client_is_gone(self) -> None:
        """Everything should have ended by itself. What has not, ends here."""
        for stream in self._distinct_streams():
            stream.close()
        self.streams.clear()
