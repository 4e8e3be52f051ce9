"""HTTP/2: repairs of mitmproxy's two sides, and the end of a client's connection.

With origins, a request that is given up while it waits for a free stream is not sent any more. With clients, what
cannot be read is answered as over HTTP/1, and trailers that came over HTTP/1 are written as HTTP/2 wants them.
`tests/test_mitmproxy_api.py` fails where an upgrade changes what this relies on.
"""

from collections.abc import Callable

import h2.events
from mitmproxy import http
from mitmproxy.connection import ConnectionState
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layer import CommandGenerator, Layer
from mitmproxy.proxy.layers.http._events import (
    RequestProtocolError,
    ResponseData,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseProtocolError,
    ResponseTrailers,
)
from mitmproxy.proxy.layers.http._http2 import Http2Client, Http2Server, normalize_h1_headers

from proxy_addon.model import ErrorName
from proxy_addon.refusals import refusal


class PacedHttp2Client(Http2Client):
    """The origin's side."""

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, RequestProtocolError) and event.stream_id in self.stream_queue:
            del self.stream_queue[event.stream_id]  # Stock would send the request, only to reset it.
        else:
            yield from super()._handle_event(event)


class PacedHttp2Server(Http2Server):
    """The client's side."""

    def __init__(self, context: Context, now: Callable[[], float]) -> None:
        super().__init__(context)
        self._now = now
        self._heads: set[int] = set()
        """The streams whose request is a HEAD, and which have no response yet."""

    def handle_h2_event(self, event: h2.events.Event) -> CommandGenerator[bool]:
        if isinstance(event, h2.events.RequestReceived) and (b":method", b"HEAD") in event.headers:
            self._heads.add(event.stream_id)
        elif isinstance(event, h2.events.StreamReset):
            self._heads.discard(event.stream_id)
        return (yield from super().handle_h2_event(event))

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, ResponseTrailers):
            # HTTP/2 ends over a capital letter in a name, and over a field that speaks of the connection.
            fields = normalize_h1_headers(list(event.trailers.fields), is_client=False)
            event = ResponseTrailers(event.stream_id, http.Headers(fields))
        elif isinstance(event, ResponseProtocolError) and not self._has_head(event.stream_id):
            status = event.code.http_status_code()
            if status is not None:
                # In place of mitmproxy's own page.
                error = ErrorName.HTTP_REQUEST_ERROR if status < 500 else ErrorName.HTTP_RESPONSE_INCOMPLETE
                response = refusal(status, error, event.message, self._now())
                has_body = event.stream_id not in self._heads
                yield from super()._handle_event(ResponseHeaders(event.stream_id, response))
                if has_body:
                    yield from super()._handle_event(ResponseData(event.stream_id, response.raw_content or b""))
                event = ResponseEndOfMessage(event.stream_id)
        if isinstance(event, ResponseHeaders | ResponseEndOfMessage):
            self._heads.discard(event.stream_id)
        yield from super()._handle_event(event)

    def _has_head(self, stream_id: int) -> bool:
        """The client has a response's head, or does not want one any more."""
        if not self.is_open_for_us(stream_id):
            return True
        return bool(self.h2_conn.streams[stream_id].state_machine.headers_sent)


def say_goodbye(server: Layer | None) -> CommandGenerator[None]:
    """End a client's connection with GOAWAY (RFC 9113 §6.8), once nothing is left to be sent on it.

    Not earlier, though a client would then open no more streams: those built on Python's h2 give up all that are open
    when they see it.
    """
    if not isinstance(server, Http2Server) or not server.conn.state & ConnectionState.CAN_WRITE:
        return
    if any(server.h2_conn.stream_buffers.values()):
        return  # The client takes the rest of a response first.
    server.h2_conn.close_connection()
    yield commands.SendData(server.conn, server.h2_conn.data_to_send())
    yield commands.CloseConnection(server.conn)
