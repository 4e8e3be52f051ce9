"""HTTP/2 with clients: repairs of mitmproxy's side, and the end of a client's connection.

What cannot be read is answered as over HTTP/1. The origin's side, and what both have in common, is in `http2.py`;
`tests/test_mitmproxy_api.py` fails where an upgrade changes what this relies on.
"""

from collections.abc import Callable

import h2.events
from mitmproxy.connection import ConnectionState
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layer import CommandGenerator, Layer
from mitmproxy.proxy.layers.http._base import ReceiveHttp
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    RequestHeaders,
    ResponseData,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseProtocolError,
)
from mitmproxy.proxy.layers.http._http2 import Http2Server

from proxy_addon.http2 import Goodbye, PacedHttp2Connection, WindowedConnection
from proxy_addon.model import ErrorName
from proxy_addon.refusals import refusal
from proxy_addon.targets import STAND_IN, Authority, fault, is_plain, read_authority


class PacedHttp2Server(PacedHttp2Connection, Http2Server):
    """The client's side. `may_send`: whether the client may send more on a stream."""

    def __init__(self, context: Context, now: Callable[[], float], may_send: Callable[[int], bool]) -> None:
        super().__init__(context)
        self.h2_conn = WindowedConnection(self.h2_conf)
        self.may_send = may_send
        self._now = now
        self._heads: set[int] = set()
        """The streams whose request is a HEAD, and which have no response yet."""

    def outer_id(self, stream_id: int) -> int:
        return stream_id

    def queued_bytes(self, stream_id: int) -> int:
        """What waits on a stream for the client to give a window."""
        return self.h2_conn.queued_bytes(stream_id)

    def handle_h2_event(self, event: h2.events.Event) -> CommandGenerator[bool]:
        if isinstance(event, Goodbye):
            return False  # It still wants its answers, or it would close the connection.
        if isinstance(event, h2.events.RequestReceived) and (b":method", b"HEAD") in event.headers:
            self._heads.add(event.stream_id)
        elif isinstance(event, h2.events.StreamReset):
            self._heads.discard(event.stream_id)
        if isinstance(event, h2.events.RequestReceived):
            return (yield from self._receive_head(event))
        return (yield from super().handle_h2_event(event))

    def _receive_head(self, event: h2.events.RequestReceived) -> CommandGenerator[bool]:
        """As over HTTP/1, the parser gets a stand-in for what it cannot read, and what cannot be read is refused: it
        would end the whole connection."""
        fields = [(bytes(name), bytes(value)) for name, value in event.headers]
        text = next((value for name, value in fields if name == b":authority"), None)
        authority: Authority | None = None
        if text is not None and not is_plain(text):
            try:
                authority = read_authority(text)
            except ValueError as error:
                yield from self._refuse(event.stream_id, f"This request cannot be read: {error}.")
                return False
            stand_in = STAND_IN + authority.port
            event.headers = [(name, stand_in if name == b":authority" else value) for name, value in fields]
        head = super().handle_h2_event(event)
        while True:
            try:
                command = next(head)
            except StopIteration as end:
                return bool(end.value)
            if isinstance(command, ReceiveHttp) and isinstance(command.event, RequestHeaders):
                request = command.event.request
                if authority is not None:
                    request.data.host, request.data.authority = authority.host, bytes(authority)
                if invalid := fault(request) or _length_fault(command.event):
                    del self.streams[event.stream_id]
                    yield from self._refuse(event.stream_id, invalid)
                    continue
            yield command

    def _refuse(self, stream_id: int, text: str) -> CommandGenerator[None]:
        yield from self._handle_event(ResponseProtocolError(stream_id, text, ErrorCode.REQUEST_VALIDATION_FAILED))

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, ResponseProtocolError) and not self._has_head(event.stream_id):
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


def _length_fault(head: RequestHeaders) -> str:
    """The library counts what comes of a body, but not that nothing comes (RFC 9113 §8.1.1): the origin would wait."""
    if head.end_stream and head.request.headers.get("content-length", "").strip("0"):
        return "This request has a Content-Length, and no body."
    return ""


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
