"""HTTP/1 on the wire: repairs of mitmproxy's reader and writer, on both sides.

Towards origins: 1xx responses are skipped, trailers pass, hop-by-hop fields stay here, a head has a limit, and the
connection is free again before the end of its response is told. Towards clients: what cannot be read is answered
with a short text. It knows nothing of attempts or pacing, and everything of mitmproxy's private `_http1` module;
`tests/test_http1.py` fails where an upgrade changes that.
"""

import re
from abc import ABCMeta, abstractmethod
from collections.abc import Callable

import h11
from h11._receivebuffer import ReceiveBuffer
from mitmproxy import http
from mitmproxy.connection import ConnectionState
from mitmproxy.net.http import http1
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers.http._base import HttpEvent, ReceiveHttp
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    RequestData,
    RequestEndOfMessage,
    RequestHeaders,
    RequestProtocolError,
    RequestTrailers,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseProtocolError,
    ResponseTrailers,
)
from mitmproxy.proxy.layers.http._http1 import (
    Http1Client,
    Http1Connection,
    Http1Server,
    make_body_reader,
    should_make_pipe,
)

from proxy_addon.model import ErrorName
from proxy_addon.refusals import refusal

REQUEST_HEAD_LIMIT_BYTES = 65536
"""Longer request heads are refused with 431. Servers stop at 8 kB (Apache, per line) to 64 kB (HAProxy's usual
maximum): no origin would read more."""
RESPONSE_HEAD_LIMIT_BYTES = 262144
"""The limit of Chromium."""
_PIPELINED_LIMIT_BYTES = 1048576
"""What a client may send ahead while its request is held. More would be memory for the asking."""

_STATUS_LINE = re.compile(rb"HTTP/\d\.\d [1-9]\d\d(?: |$)")


class _PacedConnection(Http1Connection, metaclass=ABCMeta):
    """What both sides have in common: a body that may end with trailers."""

    ReceiveTrailers: type[RequestTrailers | ResponseTrailers]

    def read_body(self, event: events.Event) -> CommandGenerator[None]:
        assert self.stream_id is not None
        found: h11.Data | h11.EndOfMessage | None
        while True:
            try:
                if isinstance(event, events.ConnectionClosed):
                    found = self.body_reader.read_eof()
                else:
                    found = self.body_reader(self.buf)
                    if found is None and len(self.buf) > REQUEST_HEAD_LIMIT_BYTES:
                        raise h11.RemoteProtocolError("a chunk's line, or the trailers, are too long")
            except h11.ProtocolError as error:
                yield from self.body_failed(event, str(error))
                return
            if found is None:
                return
            if isinstance(found, h11.Data):
                if found.data:
                    yield ReceiveHttp(self.ReceiveData(self.stream_id, bytes(found.data)))
                continue
            if found.headers:
                trailers = http.Headers(found.headers.raw_items())
                yield ReceiveHttp(self.ReceiveTrailers(self.stream_id, trailers))
            yield from self.body_ended()
            return

    @abstractmethod
    def body_failed(self, event: events.Event, message: str) -> CommandGenerator[None]:
        """The body is cut short (`event` is ConnectionClosed) or cannot be read."""

    @abstractmethod
    def body_ended(self) -> CommandGenerator[None]:
        """The body is complete."""


class PacedHttp1Server(_PacedConnection, Http1Server):
    """The client's side."""

    ReceiveTrailers = RequestTrailers

    def __init__(self, context: Context, now: Callable[[], float]) -> None:
        super().__init__(context)
        self._now = now
        self._trailers: http.Headers | None = None

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, events.Wakeup):  # See `mark_done`.
            event = events.DataReceived(self.conn, b"")
        yield from super()._handle_event(event)

    def send(self, event: HttpEvent) -> CommandGenerator[None]:
        if isinstance(event, ResponseTrailers):
            self._trailers = event.trailers
        elif isinstance(event, ResponseEndOfMessage):
            yield from self._end_response()
        elif isinstance(event, ResponseProtocolError):
            yield from self._break_off(event)
        else:
            yield from super().send(event)

    def _end_response(self) -> CommandGenerator[None]:
        assert self.request is not None
        assert self.response is not None
        trailers, self._trailers = self._trailers, None
        # A 304 may carry the Transfer-Encoding that a 200 would have had; it has no body all the same.
        has_body = self.request.data.method.upper() != b"HEAD" and self.response.status_code not in (204, 304)
        if has_body and _is_chunked(self.response.headers):
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
            yield from self._check_incomplete_head()
            return
        if sum(map(len, lines)) > REQUEST_HEAD_LIMIT_BYTES:
            yield from self._refuse_head(431, "The head of this request is longer than 65536 bytes.")
            return
        try:
            self.request = http1.read_request_head([bytes(line) for line in lines])
            size = http1.expected_http_body_size(self.request)
        except ValueError as error:
            self.request = None
            yield from self._refuse_head(400, f"This request cannot be read: {str(error)[:200]}.")
            return
        yield ReceiveHttp(RequestHeaders(self.stream_id, self.request, size == 0))
        self.body_reader = make_body_reader(size)
        self.state = self.read_body
        yield from self.state(event)

    def _check_incomplete_head(self) -> CommandGenerator[None]:
        if len(self.buf) > REQUEST_HEAD_LIMIT_BYTES:
            if b"\n" in bytes(self.buf):
                yield from self._refuse_head(431, "The head of this request is longer than 65536 bytes.")
            else:
                yield from self._refuse_head(400, "This is no HTTP request: its first line does not end.")
        elif self.buf and self.buf.is_next_line_obviously_invalid_request_line():
            yield from self._refuse_head(400, "This is no HTTP request.")

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


class PacedHttp1Client(_PacedConnection, Http1Client):
    """The origin's side."""

    ReceiveTrailers = ResponseTrailers

    def __init__(self, context: Context, was_reset: Callable[[], bool]) -> None:
        super().__init__(context)
        self._was_reset = was_reset
        self._chunked = False
        self._trailers: http.Headers | None = None

    @property
    def is_idle(self) -> bool:
        """Ready for a request."""
        return self.stream_id is None and self.state == self.read_headers

    def send(self, event: HttpEvent) -> CommandGenerator[None]:
        if isinstance(event, RequestHeaders):
            yield from self._send_head(event)
        elif isinstance(event, RequestTrailers):
            self._trailers = event.trailers
        elif isinstance(event, RequestData) and self._chunked:
            if event.data:
                yield commands.SendData(self.conn, b"%x\r\n%s\r\n" % (len(event.data), event.data))
        elif isinstance(event, RequestEndOfMessage) and self._chunked:
            trailers, self._trailers = self._trailers, None
            yield commands.SendData(self.conn, b"0\r\n" + (bytes(trailers) if trailers else b"") + b"\r\n")
            yield from self.mark_done(request=True)
        else:
            yield from super().send(event)

    def _send_head(self, event: RequestHeaders) -> CommandGenerator[None]:
        request = event.request
        to_parent = self.context.server.via is not None and not self.context.server.tls
        outgoing = without_hop_by_hop(request, to_parent=to_parent)
        self._chunked = _is_chunked(outgoing.headers)
        self._trailers = None
        if request.is_http2 and not event.end_stream and not _has_length(outgoing.headers):
            # HTTP/2 delimits a body without a length by itself; here it would be taken for the next request.
            outgoing = _with_fields(outgoing, (*outgoing.headers.fields, (b"Transfer-Encoding", b"chunked")))
            self._chunked = True
        if outgoing is request:
            yield from super().send(event)
        else:
            yield from super().send(RequestHeaders(event.stream_id, outgoing, event.end_stream))
            self.request = request

    def read_headers(self, event: events.ConnectionEvent) -> CommandGenerator[None]:
        if not isinstance(event, events.DataReceived):
            yield from self._closed_before_head()
            return
        if self.request is None or self.stream_id is None:
            yield commands.CloseConnection(self.conn)
            return
        while (lines := self.buf.maybe_extract_lines()) is not None:
            if not lines:
                continue
            if sum(map(len, lines)) > RESPONSE_HEAD_LIMIT_BYTES:
                break
            if (yield from self._read_head([bytes(line) for line in lines])):
                self.state = self.read_body
                yield from self.state(event)
                return
            if self.state == self.done:
                return
        if lines is not None or len(self.buf) > RESPONSE_HEAD_LIMIT_BYTES:
            yield from self._fail("the response head is too long", ErrorCode.RESPONSE_VALIDATION_FAILED)

    def _read_head(self, lines: list[bytes]) -> CommandGenerator[bool]:
        """Whether this was the final response. On False it was a 1xx, or no response (then `state` is `done`)."""
        assert self.request is not None
        assert self.stream_id is not None
        if not _STATUS_LINE.match(lines[0]):
            yield from self._fail("what came is no HTTP response", ErrorCode.GENERIC_SERVER_ERROR)
            return False
        try:
            response = http1.read_response_head(lines)
            size = http1.expected_http_body_size(self.request, response)
        except ValueError as error:
            yield from self._fail(f"invalid response head: {error}", ErrorCode.RESPONSE_VALIDATION_FAILED)
            return False
        if response.status_code == 101 and "upgrade" not in self.request.headers:
            yield from self._fail("101 to a request without Upgrade", ErrorCode.RESPONSE_VALIDATION_FAILED)
            return False
        if response.status_code < 200 and response.status_code != 101:
            return False
        self.response = response
        yield ReceiveHttp(ResponseHeaders(self.stream_id, response, size == 0))
        self.body_reader = make_body_reader(size)
        return True

    def _closed_before_head(self) -> CommandGenerator[None]:
        if self.stream_id is None:
            if self.conn.state & ConnectionState.CAN_WRITE:
                yield commands.CloseConnection(self.conn)
            return
        came = "in the middle of the response head" if self.buf else "without a response"
        yield from self._fail(f"the connection was closed {came}", ErrorCode.GENERIC_SERVER_ERROR)

    def body_failed(self, event: events.Event, message: str) -> CommandGenerator[None]:
        yield from self._fail(message, ErrorCode.GENERIC_SERVER_ERROR)

    def _fail(self, message: str, code: ErrorCode) -> CommandGenerator[None]:
        assert self.stream_id is not None
        self.state = self.done
        yield commands.CloseConnection(self.conn)
        yield ReceiveHttp(ResponseProtocolError(self.stream_id, message, code))

    def read_body(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, events.ConnectionClosed) and self._was_reset():
            # A body that ends with the connection ends with FIN; stock takes RST for an end as well.
            yield from self._fail("the connection was reset", ErrorCode.GENERIC_SERVER_ERROR)
            return
        yield from super().read_body(event)

    def body_ended(self) -> CommandGenerator[None]:
        assert self.stream_id is not None
        stream_id = self.stream_id
        if self._becomes_pipe():
            yield ReceiveHttp(ResponseEndOfMessage(stream_id))
            yield from self.mark_done(response=True)
            return
        # Done first, told then: whoever hears of the end may send the next request at once.
        if not self.request_done:
            self.state = self.await_request_end
        yield from self.mark_done(response=True)
        yield ReceiveHttp(ResponseEndOfMessage(stream_id))

    def await_request_end(self, event: events.Event) -> CommandGenerator[None]:
        """The origin has answered before it had the whole request, which is still being sent."""
        assert self.stream_id is not None
        if isinstance(event, events.ConnectionClosed) or self.buf:
            yield from self._fail("the connection was closed after the response", ErrorCode.GENERIC_SERVER_ERROR)

    def _becomes_pipe(self) -> bool:
        assert self.request is not None
        assert self.response is not None
        return should_make_pipe(self.request, self.response)


_NEVER_FORWARDED = frozenset({b"keep-alive", b"te", b"proxy-connection", b"proxy-authenticate"})
_CREDENTIALS = b"proxy-authorization"
_CONNECTION_OPTIONS = frozenset({b"close", b"keep-alive"})


def without_hop_by_hop(request: http.Request, *, to_parent: bool) -> http.Request:
    """The request as it goes to the next server: without what was meant for us (RFC 9110 §7.6.1).

    The same object where nothing has to go, else a copy: the connection to the client lives or dies by the fields
    of the original. Transfer-Encoding stays, and so does what a WebSocket needs. `to_parent`: it goes to a parent
    proxy, and Proxy-Authorization may be meant for that.
    """
    fields = request.headers.fields
    named: set[bytes] = set()
    websocket = False
    affected = False
    for name, value in fields:
        key = name.lower()
        if key == b"connection":
            named.update(option.strip().lower() for option in value.split(b","))
        elif key == b"upgrade":
            websocket = value.strip().lower() == b"websocket"
            affected = affected or not websocket
        elif key in _NEVER_FORWARDED or (key == _CREDENTIALS and not to_parent):
            affected = True
    if not affected and named <= _CONNECTION_OPTIONS:
        return request
    dropped = (named | _NEVER_FORWARDED | {b"upgrade"}) - {b"transfer-encoding", b"content-length", b"host"}
    if not to_parent:
        dropped |= {_CREDENTIALS}
    if websocket:
        dropped -= {b"upgrade"}
    kept_options = [option for option in named if option in _CONNECTION_OPTIONS or (option == b"upgrade" and websocket)]
    return _with_fields(request, tuple(_forwarded(fields, dropped, kept_options)))


def _forwarded(
    fields: tuple[tuple[bytes, bytes], ...], dropped: set[bytes] | frozenset[bytes], options: list[bytes]
) -> list[tuple[bytes, bytes]]:
    kept = []
    for name, value in fields:
        key = name.lower()
        if key == b"connection":
            said = [part.strip() for part in value.split(b",") if part.strip().lower() in options]
            if said:
                kept.append((name, b", ".join(said)))
        elif key not in dropped:
            kept.append((name, value))
    return kept


def _with_fields(request: http.Request, fields: tuple[tuple[bytes, bytes], ...]) -> http.Request:
    """A copy of the head of a request with other fields. (`Request.copy` takes fifty times as long.)"""
    data = request.data
    return http.Request(
        host=data.host,
        port=data.port,
        method=data.method,
        scheme=data.scheme,
        authority=data.authority,
        path=data.path,
        http_version=data.http_version,
        headers=http.Headers(fields),
        content=None,
        trailers=None,
        timestamp_start=data.timestamp_start,
        timestamp_end=None,
    )


def _is_chunked(headers: http.Headers) -> bool:
    return "chunked" in headers.get("transfer-encoding", "").lower()


def _has_length(headers: http.Headers) -> bool:
    return "content-length" in headers or "transfer-encoding" in headers
