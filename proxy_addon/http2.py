"""HTTP/2 with origins, and what both sides have in common: repairs of mitmproxy's connections, and their windows.

What a stream may send is bounded: its window is given back only as fast as its data goes on, and the other streams do
not notice. An origin that says goodbye still answers what it has taken. Who may go on is decided in `flow_control.py`;
`tests/test_mitmproxy_api.py` fails where an upgrade changes what this relies on. The client's side is in
`http2_server.py`.
"""

from abc import ABCMeta, abstractmethod
from collections.abc import Callable

import h2.config
import h2.events
import h2.exceptions
from hyperframe.frame import Frame, GoAwayFrame
from mitmproxy import http
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers.http._base import HttpEvent, ReceiveHttp
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    RequestData,
    RequestHeaders,
    RequestProtocolError,
    RequestTrailers,
    ResponseProtocolError,
    ResponseTrailers,
)
from mitmproxy.proxy.layers.http._http2 import Http2Client, Http2Connection, normalize_h1_headers
from mitmproxy.proxy.layers.http._http_h2 import BufferedH2Connection

from proxy_addon.forwarding import forwarded_trailers, without_hop_by_hop

WINDOW_BYTES = 1048576
"""What a peer may send on one stream before any of it has gone on. At 50 ms away that is 20 MB/s for each stream."""


class GiveWindow(HttpEvent):
    """Look again which streams may go on."""


class Goodbye(h2.events.Event):
    """The peer opens and takes no more streams; those up to `last_stream_id` go on (RFC 9113 §6.8)."""

    def __init__(self, last_stream_id: int) -> None:
        self.last_stream_id = last_stream_id


class WindowedConnection(BufferedH2Connection):
    """Its state, as the library keeps it. What was received is owed to the peer until it is paid."""

    def __init__(self, config: h2.config.H2Configuration) -> None:
        super().__init__(config)
        self.local_settings.initial_window_size = WINDOW_BYTES
        self.local_settings.acknowledge()
        self.owed: dict[int, int] = {}
        """Bytes, by stream."""

    def acknowledge_received_data(self, acknowledged_size: int, stream_id: int) -> None:
        self.owed[stream_id] = self.owed.get(stream_id, 0) + acknowledged_size

    def pay(self, stream_id: int) -> None:
        super().acknowledge_received_data(self.owed.pop(stream_id), stream_id)

    def queued_bytes(self, stream_id: int) -> int:
        """What waits for the peer to give a window."""
        return sum(len(chunk.data) for chunk in self.stream_buffers.get(stream_id, ()))

    def _receive_goaway_frame(self, frame: GoAwayFrame) -> tuple[list[Frame], list[h2.events.Event]]:
        if frame.error_code:
            return super()._receive_goaway_frame(frame)
        # The library ends everything at once. Servers say goodbye after so many requests, in the middle of some.
        return [], [Goodbye(frame.last_stream_id)]


class PacedHttp2Connection(Http2Connection, metaclass=ABCMeta):
    """What both sides have in common."""

    h2_conn: WindowedConnection
    may_send: Callable[[int], bool]

    @abstractmethod
    def outer_id(self, stream_id: int) -> int:
        """The id by which the world outside knows a stream."""

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, RequestTrailers | ResponseTrailers):
            # HTTP/2 ends over a capital letter in a name, and over a field that speaks of the connection.
            is_client = isinstance(event, RequestTrailers)
            fields = normalize_h1_headers(list(event.trailers.fields), is_client=is_client)
            event = type(event)(event.stream_id, http.Headers(fields))
        if not isinstance(event, GiveWindow):
            yield from super()._handle_event(event)
        yield from self._give_window()

    def _give_window(self) -> CommandGenerator[None]:
        for stream_id in list(self.h2_conn.owed):
            if self.may_send(self.outer_id(stream_id)):
                self.h2_conn.pay(stream_id)
        if data := self.h2_conn.data_to_send():
            yield commands.SendData(self.conn, data)


class PacedHttp2Client(PacedHttp2Connection, Http2Client):
    """The origin's side. `may_send`: whether the origin may send more of an attempt's response."""

    def __init__(self, context: Context, may_send: Callable[[int], bool]) -> None:
        super().__init__(context)
        self.h2_conn = WindowedConnection(self.h2_conf)
        self.h2_conn.local_settings.enable_push = 0
        self.h2_conn.local_settings.acknowledge()
        self.may_send = may_send
        self._refused: list[int] = []
        """Attempts that the origin will not take, by a goodbye of just now."""
        self.goes_away = False
        """It takes no more requests."""

    def outer_id(self, stream_id: int) -> int:
        return self.their_stream_id.get(stream_id, 0)

    def queued_bytes(self, attempt_id: int) -> int:
        """What of a request waits for the origin to give a window, or a free stream."""
        if (waiting := self.stream_queue.get(attempt_id)) is not None:
            return sum(len(event.data) for event in waiting if isinstance(event, RequestData))
        ours = self.our_stream_id.get(attempt_id)
        return 0 if ours is None else self.h2_conn.queued_bytes(ours)

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, RequestProtocolError) and event.stream_id in self.stream_queue:
            del self.stream_queue[event.stream_id]  # Stock would send the request, only to reset it.
            return
        if isinstance(event, RequestHeaders):
            event = RequestHeaders(event.stream_id, _outgoing(event.request), event.end_stream)
        elif isinstance(event, RequestTrailers):
            trailers = forwarded_trailers(event.trailers)
            if not trailers:
                return
            event = RequestTrailers(event.stream_id, trailers)
        yield from super()._handle_event(event)
        while self._refused:
            why = "the host said goodbye before this request"
            yield ReceiveHttp(ResponseProtocolError(self._refused.pop(), why, ErrorCode.GENERIC_SERVER_ERROR))
        if self.goes_away and not self.streams:
            yield commands.CloseConnection(self.conn)

    def handle_h2_event(self, event: h2.events.Event) -> CommandGenerator[bool]:
        if not isinstance(event, Goodbye):
            return (yield from super().handle_h2_event(event))
        self.goes_away = True
        for stream_id in [one for one in self.streams if one > event.last_stream_id]:
            del self.streams[stream_id]
            self._refused.append(self.outer_id(stream_id))
        self._refused += self.stream_queue
        self.stream_queue.clear()
        return False


def _outgoing(request: http.Request) -> http.Request:
    outgoing = without_hop_by_hop(request, to_parent=False)
    if outgoing is not request and request.is_http2 and request.headers.get("te") == "trailers":
        # We do pass trailers on, from end to end: so this is ours to say. Servers of gRPC insist on it.
        outgoing.headers["te"] = "trailers"
    return outgoing
