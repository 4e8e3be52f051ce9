"""HTTP/1 with clients: repairs of mitmproxy's reader and writer.

What cannot be read is answered with a short text, a head has a limit, trailers pass, and a client that speaks HTTP/1.0
gets what it understands. It knows nothing of attempts
or pacing, and everything of mitmproxy's private `_http1` module: `tests/test_mitmproxy_api.py` fails where an upgrade
changes that. The origin's side, and what both have in common, is in `http1.py`.
"""

import logging
from collections.abc import Callable

from h11._receivebuffer import ReceiveBuffer
from mitmproxy import http
from mitmproxy.connection import ConnectionState
from mitmproxy.net.http import http1
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers.http import HttpLayer
from mitmproxy.proxy.layers.http._base import HttpEvent, ReceiveHttp
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    RequestEndOfMessage,
    RequestHeaders,
    RequestProtocolError,
    RequestTrailers,
    ResponseData,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseProtocolError,
    ResponseTrailers,
)
from mitmproxy.proxy.layers.http._http1 import (
    Http1Server,
    make_body_reader,
    should_make_pipe,
)

from proxy_addon.http1 import PacedConnection, in_small_letters, is_chunked
from proxy_addon.model import ErrorName
from proxy_addon.refusals import refusal
from proxy_addon.responses import for_http10
from proxy_addon.targets import fault, read_request_head

logger = logging.getLogger(__name__)

REQUEST_HEAD_LIMIT_BYTES = 65536
"""Longer request heads are refused with 431. Servers stop at 8 kB (Apache, per line) to 64 kB (HAProxy's usual
maximum): no origin would read more."""
_PIPELINED_LIMIT_BYTES = 1048576
"""What a client may send ahead while its request is held. More would be memory for the asking."""


class PacedHttp1Server(PacedConnection, Http1Server):
    """The client's side."""

    ReceiveTrailers = RequestTrailers

    def __init__(self, context: Context, now: Callable[[], float]) -> None:
        super().__init__(context)
        self._now = now
        self._trailers: http.Headers | None = None
        self._first_line_seen = False
        """Of the head that is coming: its first line is there, and is one of HTTP."""

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, events.Wakeup):  # See `mark_done`.
            event = events.DataReceived(self.conn, b"")
        yield from super()._handle_event(event)

    def send(self, event: HttpEvent) -> CommandGenerator[None]:
        if isinstance(event, ResponseHeaders):
            yield from self._send_head(event)
        elif isinstance(event, ResponseTrailers):
            self._trailers = event.trailers
        elif isinstance(event, ResponseData) and not event.data:
            return  # An empty chunk would be the last.
        elif isinstance(event, ResponseEndOfMessage):
            yield from self._end_response()
        elif isinstance(event, ResponseProtocolError):
            yield from self._break_off(event)
        else:
            yield from super().send(event)

    def _send_head(self, event: ResponseHeaders) -> CommandGenerator[None]:
        assert self.request is not None
        if self.request.http_version == "HTTP/1.0":
            if event.response.status_code < 200:
                return  # RFC 9110 §15.2: such a client knows none of these.
            keep_alive = not http1.connection_close("HTTP/1.0", in_small_letters(self.request).headers)
            event = ResponseHeaders(event.stream_id, for_http10(event.response, keep_alive=keep_alive))
        yield from super().send(event)

    def _end_response(self) -> CommandGenerator[None]:
        assert self.request is not None
        assert self.response is not None
        trailers, self._trailers = self._trailers, None
        # A 304 may carry the Transfer-Encoding that a 200 would have had; it has no body all the same.
        has_body = self.request.data.method != b"HEAD" and self.response.status_code not in (204, 304)
        if has_body and is_chunked(self.response.headers):
            end = b"0\r\n" + (bytes(trailers) if trailers else b"") + b"\r\n"
            yield commands.SendData(self.conn, end)
        yield from self.mark_done(response=True)

    def _break_off(self, event: ResponseProtocolError) -> CommandGenerator[None]:
        if not self.conn.state & ConnectionState.CAN_WRITE:
            return
        status = event.code.http_status_code()
        if not self._has_answered() and status is not None:
            error = ErrorName.HTTP_REQUEST_ERROR if status < 500 else ErrorName.HTTP_RESPONSE_INCOMPLETE
            yield self._refuse(status, error, event.message)
        yield commands.CloseConnection(self.conn)

    def _has_answered(self) -> bool:
        # The 100 that stock sends is no response yet.
        return self.response is not None and self.response.status_code != 100

    def _refuse(self, status: int, error: ErrorName, text: str) -> commands.SendData:
        response = refusal(status, error, text, self._now())
        if self.request is not None and self.request.data.method == b"HEAD":
            response.raw_content = b""
        return commands.SendData(self.conn, http1.assemble_response(response))

    def read_headers(self, event: events.ConnectionEvent) -> CommandGenerator[None]:
        if not isinstance(event, events.DataReceived):
            # Stock logs the bytes of a head that was not completed, credentials and all.
            yield commands.CloseConnection(self.conn)
            return
        lines = self.buf.maybe_extract_lines()
        while lines == []:  # An empty line before a request line is to be ignored (RFC 9112 §2.2).
            lines = self.buf.maybe_extract_lines()
        if lines is None:
            yield from self._check_incomplete_head(event)
            return
        self._first_line_seen = False
        if sum(map(len, lines)) > REQUEST_HEAD_LIMIT_BYTES:
            yield from self._refuse_head(431, "The head of this request is longer than 65536 bytes.")
            return
        try:
            self.request = read_request_head([bytes(line) for line in lines])
            size = http1.expected_http_body_size(self.request)
        except ValueError as error:
            self.request = None
            yield from self._refuse_head(400, f"This request cannot be read: {str(error)[:200]}.")
            return
        if not self.request.http_version.startswith("HTTP/1."):
            # Above all "PRI * HTTP/2.0": HTTP/2 without TLS, of which an HTTP/1 proxy can make nothing.
            self.request = None
            yield from self._refuse_head(505, "Speak HTTP/1.1 here. HTTP/2 needs TLS.")
            return
        if invalid := fault(self.request):
            self.request = None
            yield from self._refuse_head(400, invalid)
            return
        yield ReceiveHttp(RequestHeaders(self.stream_id, self.request, size == 0))
        self.body_reader = make_body_reader(size)
        self.state = self.read_body
        yield from self.state(event)

    def _check_incomplete_head(self, event: events.DataReceived) -> CommandGenerator[None]:
        if len(self.buf) > REQUEST_HEAD_LIMIT_BYTES:
            if b"\n" in bytes(self.buf):
                yield from self._refuse_head(431, "The head of this request is longer than 65536 bytes.")
            else:
                yield from self._refuse_head(400, "This is no HTTP request: its first line does not end.")
        elif self.buf and (
            self.buf.is_next_line_obviously_invalid_request_line() or self._begins_with_another_line(event)
        ):
            yield from self._refuse_other_protocol()

    def _begins_with_another_line(self, event: events.DataReceived) -> bool:
        """Whether the first line is there and of another protocol: SSH, say, whose client then waits for an answer."""
        if self._first_line_seen or b"\n" not in event.data:
            return False
        line, end, _ = bytes(self.buf).lstrip(b"\r\n").partition(b"\n")
        self._first_line_seen = bool(end)
        return bool(end) and b" HTTP/" not in line

    def _refuse_other_protocol(self) -> CommandGenerator[None]:
        text = "This is no HTTP request."
        if sum(isinstance(layer, HttpLayer) for layer in self.context.layers) > 1:
            text += " After CONNECT only TLS and HTTP pass, but for the ports that --tunnel-ports names."
            logger.info("A tunnel is closed: what came after CONNECT is neither TLS nor HTTP (see --tunnel-ports).")
        yield from self._refuse_head(400, text)

    def _refuse_head(self, status: int, text: str) -> CommandGenerator[None]:
        yield self._refuse(status, ErrorName.HTTP_REQUEST_ERROR, text)
        yield commands.CloseConnection(self.conn)
        self.state = self.done

    def wait(self, event: events.Event) -> CommandGenerator[None]:
        if len(self.buf) > _PIPELINED_LIMIT_BYTES:
            yield from self._give_up("the client sends ever more before it has its response")
            return
        yield from super().wait(event)

    def body_failed(self, event: events.Event, message: str) -> CommandGenerator[None]:
        if isinstance(event, events.DataReceived) and not self._has_answered():
            yield self._refuse(400, ErrorName.HTTP_REQUEST_ERROR, f"The body cannot be read: {message}.")
        yield from self._give_up(f"HTTP/1 protocol error: {message}")

    def _give_up(self, message: str) -> CommandGenerator[None]:
        self.state = self.done
        yield commands.CloseConnection(self.conn)
        yield ReceiveHttp(RequestProtocolError(self.stream_id, message, ErrorCode.GENERIC_CLIENT_ERROR))

    def body_ended(self) -> CommandGenerator[None]:
        assert self.request is not None
        if self.request.data.method.upper() != b"CONNECT":
            yield ReceiveHttp(RequestEndOfMessage(self.stream_id))
        yield from self.mark_done(request=True)

    def mark_done(self, *, request: bool = False, response: bool = False) -> CommandGenerator[None]:
        # Stock reads a pipelined request from within the end of the response before it: its whole life would be
        # one more level of recursion. Ours has to wait for the next turn of the loop.
        both = (request or self.request_done) and (response or self.response_done)
        ahead = self.buf
        if not both or not ahead or self._becomes_pipe():
            yield from super().mark_done(request=request, response=response)
            return
        self.buf = ReceiveBuffer()
        yield from super().mark_done(request=request, response=response)
        self.buf = ahead
        if self.state == self.read_headers:
            yield commands.RequestWakeup(0)

    def _becomes_pipe(self) -> bool:
        return bool(self.request and self.response and should_make_pipe(self.request, self.response))
