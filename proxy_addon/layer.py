"""mitmproxy's `HttpLayer` with streams that pace: one client connection, its requests and its origins.

It makes the streams and keeps the one timer. Which connection an attempt gets is in `connections.py`, what happens to a
request in `stream.py`, and how it is put where mitmproxy's own layer would be in `installing.py`.
"""

import itertools
import logging
import math

from mitmproxy.proxy import commands, events
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers.http import HTTPMode
from mitmproxy.proxy.layers.http._base import HttpConnection

from proxy_addon.border import Border
from proxy_addon.connections import Connections
from proxy_addon.dial import PacedConnectionHandler
from proxy_addon.exchange import SHUTTING_DOWN, Pacing
from proxy_addon.http1_server import PacedHttp1Server
from proxy_addon.http2 import GiveWindow
from proxy_addon.http2_server import PacedHttp2Server, say_goodbye
from proxy_addon.phases import BreakOff, CutOff, Deadline, Phase
from proxy_addon.stream import PacedHttpStream

__all__ = ["PacedHttpLayer", "PacedHttpStream"]

logger = logging.getLogger(__name__)

_FIRST_ATTEMPT_ID = 1 << 40
"""Far from any id that a client's connection gives: those of HTTP/2 end at 2**31."""
_NEVER_S = 1e9


class PacedHttpLayer(Connections):
    """See the module's text."""

    def __init__(self, context: Context, mode: HTTPMode, pacing: Pacing, handler: PacedConnectionHandler) -> None:
        super().__init__(context, mode, pacing, handler)
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
                elif self.flow_control.has_drained(event.command):
                    pass  # Looked at below.
                elif event.command in self.command_sources:
                    yield from super()._handle_event(event)
            else:
                if isinstance(event, events.Start):
                    yield from self._start()
                yield from super()._handle_event(event)
            yield from self._even_out()
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
        context, now = self.context.fork(), self.pacing.clock.now
        side: HttpConnection = PacedHttp1Server(context, now)
        if is_h2:
            side = PacedHttp2Server(context, now, self.flow_control.may_upload)
        self.connections[self.context.client] = side
        if is_h2:
            # For `hurry`: so that it reaches us though nothing is going on.
            timer = commands.RequestWakeup(_NEVER_S)
            self._wakeups[timer] = math.inf
            yield timer

    def _even_out(self) -> CommandGenerator[None]:
        """Let those go on whose data has gone on meanwhile."""
        for connection in self.flow_control.to_look_at():
            if (child := self.connections.get(connection)) is not None:
                yield from self.event_to_child(child, GiveWindow(0))
        self.flow_control.read_on()
        yield from self.flow_control.new_waits()

    def stop_origin(self, stream: Border) -> None:
        if stream.origin is not None and not stream.origin.is_shared:
            self.flow_control.stop(stream.origin.dialled, stream)

    def queued_for_client(self, stream_id: int) -> int:
        server = self.connections.get(self.context.client)
        return server.queued_bytes(stream_id) if isinstance(server, PacedHttp2Server) else 0

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
        for stream in self.distinct_streams():
            if stream.deadline is None:
                continue
            if stream.deadline > now:
                self._armed.add(stream)
            elif stream.phase is Phase.CONNECTING:
                stream.deadline = None
                yield from self.dial_timed_out(stream)
            else:
                stream.deadline = None
                yield from self.event_to_child(stream, Deadline(stream.stream_id))

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

    # Failures, and the end.

    def _is_busy(self) -> bool:
        """Whether something is still to be sent or, while there is time, the rest of an upload to be dropped."""
        return any(not self.pacing.is_cut_off or s.phase is not Phase.ENDED for s in self.distinct_streams())

    def _cut_off(self) -> CommandGenerator[None]:
        for stream in self.distinct_streams():
            if stream.phase is Phase.CONNECTING:
                yield from self.abandon_dial(stream, SHUTTING_DOWN)
            else:
                yield from self.event_to_child(stream, CutOff(stream.stream_id))

    def _break_off(self) -> CommandGenerator[None]:
        """End every request of this connection, each as well as it can be. Which one failed is not known."""
        for stream in self.distinct_streams():
            try:
                yield from self.event_to_child(stream, BreakOff(stream.stream_id))
            except Exception:
                logger.exception("Ending a request failed because of an error in Paceproxy.")
                stream.close()
                self.streams.pop(stream.stream_id, None)
                yield commands.CloseConnection(self.context.client)

    def _is_in_body(self) -> bool:
        return any(stream.released and stream.phase is Phase.ANSWERING for stream in self.distinct_streams())

    def _client_is_gone(self) -> None:
        """Everything should have ended by itself. What has not, ends here."""
        for stream in self.distinct_streams():
            stream.close()
        self.streams.clear()
