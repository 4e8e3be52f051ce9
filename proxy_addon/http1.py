"""HTTP/1 with origins: repairs of mitmproxy's reader and writer.

1xx responses are skipped, trailers pass, hop-by-hop fields stay here, a head has a limit, and the connection is free
again before the end of its response is told. It knows nothing of attempts or pacing, and everything of mitmproxy's
private `_http1` module: `tests/test_mitmproxy_api.py` fails where an upgrade changes that. The client's side is in
`http1_server.py`.
"""

import re
from abc import ABCMeta, abstractmethod
from collections.abc import Callable

import h11
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
    RequestTrailers,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseProtocolError,
    ResponseTrailers,
)
from mitmproxy.proxy.layers.http._http1 import (
    Http1Client,
    Http1Connection,
    make_body_reader,
    should_make_pipe,
)

from proxy_addon.forwarding import forwarded_trailers, with_fields, without_hop_by_hop
from proxy_addon.responses import repaired

RESPONSE_HEAD_LIMIT_BYTES = 262144
"""The limit of Chromium."""
_LINE_LIMIT_BYTES = 65536
"""For the line before a chunk, and for the trailers."""

_STATUS_LINE = re.compile(rb"HTTP/(\d\.\d) [1-9]\d\d(?: |$)")
_OUR_VERSIONS = (b"1.0", b"1.1")


class PacedConnection(Http1Connection, metaclass=ABCMeta):
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
                    if found is None and len(self.buf) > _LINE_LIMIT_BYTES:
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

    def mark_done(self, *, request: bool = False, response: bool = False) -> CommandGenerator[None]:
        if (request or self.request_done) and (response or self.response_done):
            # Stock knows `close` and `keep-alive` in small letters only, and looks for them now, for the last time.
            self.request = self.request and in_small_letters(self.request)
            self.response = self.response and in_small_letters(self.response)
        yield from super().mark_done(request=request, response=response)

    @abstractmethod
    def body_failed(self, event: events.Event, message: str) -> CommandGenerator[None]:
        """The body is cut short (`event` is ConnectionClosed) or cannot be read."""

    @abstractmethod
    def body_ended(self) -> CommandGenerator[None]:
        """The body is complete."""


class PacedHttp1Client(PacedConnection, Http1Client):
    """The origin's side."""

    ReceiveTrailers = ResponseTrailers

    def __init__(self, context: Context, was_reset: Callable[[], bool]) -> None:
        super().__init__(context)
        self._was_reset = was_reset
        self._chunked = False
        self._asks_upgrade = False
        self._trailers: http.Headers | None = None

    @property
    def is_idle(self) -> bool:
        """Ready for a request."""
        return self.stream_id is None and self.state == self.read_headers

    def send(self, event: HttpEvent) -> CommandGenerator[None]:
        if isinstance(event, RequestHeaders):
            yield from self._send_head(event)
        elif isinstance(event, RequestTrailers):
            self._trailers = forwarded_trailers(event.trailers)
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
        self._chunked = is_chunked(outgoing.headers)
        self._asks_upgrade = "upgrade" in outgoing.headers
        self._trailers = None
        if request.is_http2 and not event.end_stream and not _has_length(outgoing.headers):
            # HTTP/2 delimits a body without a length by itself; here it would be taken for the next request.
            outgoing = with_fields(outgoing, (*outgoing.headers.fields, (b"Transfer-Encoding", b"chunked")))
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
            # Nobody asked for it. Whatever it is, it must not become the next response.
            self.state = self.done
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
        status_line = _STATUS_LINE.match(lines[0])
        if not status_line:
            yield from self._fail("what came is no HTTP response", ErrorCode.GENERIC_SERVER_ERROR)
            return False
        if status_line[1] not in _OUR_VERSIONS:
            yield from self._fail("a response in another version of HTTP", ErrorCode.RESPONSE_VALIDATION_FAILED)
            return False
        try:
            response = repaired(http1.read_response_head(lines))
            size = _body_size(self.request, response)
        except ValueError as error:
            yield from self._fail(f"invalid response head: {error}", ErrorCode.RESPONSE_VALIDATION_FAILED)
            return False
        if response.status_code == 101 and not self._asks_upgrade:
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


def in_small_letters[Message: (http.Request, http.Response)](message: Message) -> Message:
    """The message with the options of its Connection field in small letters."""
    options = message.headers.get("Connection", "")
    if options == options.lower():
        return message
    copy = message.copy()
    copy.headers["Connection"] = options.lower()
    return copy


def is_chunked(headers: http.Headers) -> bool:
    return "chunked" in headers.get("transfer-encoding", "").lower()


def _has_length(headers: http.Headers) -> bool:
    return "content-length" in headers or "transfer-encoding" in headers


def _body_size(request: http.Request, response: http.Response) -> int | None:
    """As stock says, but for `head`, which is a method that nobody knows, and whose response has a body."""
    if request.method == "HEAD" and request.data.method != b"HEAD":
        request = request.copy()
        request.method = "GET"
    return http1.expected_http_body_size(request, response)
