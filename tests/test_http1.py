"""The reader and writer towards origins, without a network."""

import pytest
from mitmproxy import http
from mitmproxy.proxy import events
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    RequestData,
    RequestEndOfMessage,
    RequestHeaders,
    RequestTrailers,
    ResponseData,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseProtocolError,
    ResponseTrailers,
)

from proxy_addon.http1 import PacedHttp1Client
from tests.support.wire import Seen, context, drive, request

CHUNKED = (b"Transfer-Encoding", b"chunked")


class Connection:
    """A client of ours that has sent a request, attempt 7."""

    def __init__(self, sent: http.Request | None = None, *, body: bytes = b"", was_reset: bool = False) -> None:
        self.context: Context = context()
        self.layer = PacedHttp1Client(self.context, lambda: was_reset)
        drive(self.layer, events.Start())
        self.first = self.send(sent or request(), body)

    def send(self, sent: http.Request, body: bytes = b"", trailers: http.Headers | None = None) -> Seen:
        parts = [RequestHeaders(7, sent, not body)]
        more = [RequestData(7, body)] if body else []
        last = [RequestTrailers(7, trailers)] if trailers else []
        return drive(self.layer, *parts, *more, *last, RequestEndOfMessage(7))

    def receive(self, data: bytes) -> Seen:
        return drive(self.layer, events.DataReceived(self.context.server, data))

    def end(self) -> Seen:
        return drive(self.layer, events.ConnectionClosed(self.context.server))


def described(seen: Seen) -> list[object]:
    """The events in short: status, body, trailers, error code."""
    short: list[object] = []
    for event in seen.told:
        assert event.stream_id == 7
        match event:
            case ResponseHeaders():
                short.append(event.response.status_code)
            case ResponseData():
                short.append(event.data)
            case ResponseTrailers():
                short.append(event.trailers.fields)
            case ResponseEndOfMessage():
                short.append("end")
            case ResponseProtocolError():
                short.append(event.code)
    return short


def test_a_request_is_written_as_it_is() -> None:
    assert Connection().first.sent == b"GET /x HTTP/1.1\r\nHost: site\r\n\r\n"
    with_body = Connection(request("PUT", ((b"Content-Length", b"2"),)), body=b"hi")
    assert with_body.first.sent == b"PUT /x HTTP/1.1\r\nHost: site\r\nContent-Length: 2\r\n\r\nhi"


def test_credentials_for_the_proxy_do_not_reach_the_origin() -> None:
    sent = Connection(request(fields=((b"Proxy-Authorization", b"Basic c2VjcmV0"),))).first.sent
    assert sent == b"GET /x HTTP/1.1\r\nHost: site\r\n\r\n"


def test_credentials_reach_a_parent_proxy_with_a_plain_request_but_not_through_its_tunnel() -> None:
    for tls, wanted in ((False, True), (True, False)):
        made = context(tls=tls, via=("http", ("parent", 3128)))
        layer = PacedHttp1Client(made, lambda: False)
        sent = drive(
            layer, events.Start(), RequestHeaders(7, request(fields=((b"Proxy-Authorization", b"Basic x"),)), True)
        ).sent
        assert (b"Proxy-Authorization" in sent) is wanted


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_informational_responses_are_skipped_however_they_arrive(size: int) -> None:
    data = (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine"
    )
    connection = Connection()
    told = []
    for start in range(0, len(data), size):
        told += described(connection.receive(data[start : start + size]))
    assert (told[0], b"".join(part for part in told[1:-1] if isinstance(part, bytes)), told[-1]) == (
        200,
        b"fine",
        "end",
    )
    assert connection.layer.is_idle


def test_the_connection_is_free_before_the_end_is_told() -> None:
    connection = Connection()
    generator = connection.layer.handle_event(
        events.DataReceived(connection.context.server, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    )
    told = [next(generator), next(generator)]
    assert isinstance(getattr(told[1], "event", None), ResponseEndOfMessage)
    assert connection.layer.is_idle
    # The next request is sent from within.
    assert connection.send(request("HEAD")).sent == b"HEAD /x HTTP/1.1\r\nHost: site\r\n\r\n"
    assert list(generator) == []
    assert described(connection.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")) == [200, "end"]


def test_trailers_are_told_before_the_end() -> None:
    data = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Sum: 1\r\nx-b: 2\r\n\r\n"
    connection = Connection()
    assert described(connection.receive(data)) == [200, b"hi", ((b"X-Sum", b"1"), (b"x-b", b"2")), "end"]
    assert connection.layer.is_idle


def test_trailers_of_a_chunked_request_are_sent() -> None:
    connection = Connection()
    connection.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    sent = connection.send(request("PUT", (CHUNKED,)), b"hi", http.Headers(((b"X-Sum", b"1"),))).sent
    assert sent.endswith(b"\r\n\r\n2\r\nhi\r\n0\r\nX-Sum: 1\r\n\r\n")


def test_a_body_that_came_without_a_length_over_http2_is_chunked() -> None:
    sent = Connection(request("POST", version="HTTP/2.0"), body=b"hi").first.sent
    assert sent == b"POST /x HTTP/1.1\r\nHost: site\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"NOT HTTP AT ALL\r\n\r\n", ErrorCode.GENERIC_SERVER_ERROR),
        (b"HTTP/1.1 099 X\r\n\r\n", ErrorCode.GENERIC_SERVER_ERROR),
        (b"HTTP/1.1 20 X\r\n\r\n", ErrorCode.GENERIC_SERVER_ERROR),
        (b"HTTP/1.1 99 X\r\n\r\n", ErrorCode.GENERIC_SERVER_ERROR),
        (b"HTTP/1.1 1000 X\r\n\r\n", ErrorCode.GENERIC_SERVER_ERROR),
        (b"ICY 200 OK\r\n\r\n", ErrorCode.GENERIC_SERVER_ERROR),
        (b"HTTP/2.0 200 OK\r\n\r\n", ErrorCode.RESPONSE_VALIDATION_FAILED),
        (b"HTTP/9.9 200 OK\r\n\r\n", ErrorCode.RESPONSE_VALIDATION_FAILED),
        (b"HTTP/1.1 200 OK\r\n X: folded\r\n\r\n", ErrorCode.RESPONSE_VALIDATION_FAILED),
        (b"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n", ErrorCode.RESPONSE_VALIDATION_FAILED),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\n", ErrorCode.RESPONSE_VALIDATION_FAILED),
        (b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", ErrorCode.RESPONSE_VALIDATION_FAILED),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n", ErrorCode.RESPONSE_VALIDATION_FAILED),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n", ErrorCode.RESPONSE_VALIDATION_FAILED),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", ErrorCode.RESPONSE_VALIDATION_FAILED),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", ErrorCode.RESPONSE_VALIDATION_FAILED),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", ErrorCode.RESPONSE_VALIDATION_FAILED),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: x\r\n\r\n", ErrorCode.RESPONSE_VALIDATION_FAILED),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", ErrorCode.RESPONSE_VALIDATION_FAILED),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 262_144 + b"\r\n\r\n", ErrorCode.RESPONSE_VALIDATION_FAILED),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 262_144, ErrorCode.RESPONSE_VALIDATION_FAILED),
    ],
)
def test_what_is_no_response_ends_the_connection(data: bytes, code: ErrorCode) -> None:
    connection = Connection()
    seen = connection.receive(data)
    assert (described(seen), seen.closed) == ([code], True)
    assert not connection.layer.is_idle
    assert described(connection.receive(b"HTTP/1.1 200 OK\r\n\r\n")) == []
    assert described(connection.end()) == []


@pytest.mark.parametrize("came", [b"", b"HTTP/1.1 200 OK\r\nContent-Le"])
def test_a_connection_that_ends_before_the_head_is_complete(came: bytes) -> None:
    connection = Connection()
    assert described(connection.receive(came)) == []
    assert described(connection.end()) == [ErrorCode.GENERIC_SERVER_ERROR]


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhi",
    ],
)
def test_a_body_cut_short_is_an_error(data: bytes) -> None:
    connection = Connection()
    assert described(connection.receive(data)) == [200, b"hi"]
    assert described(connection.end()) == [ErrorCode.GENERIC_SERVER_ERROR]


@pytest.mark.parametrize(("was_reset", "last"), [(False, "end"), (True, ErrorCode.GENERIC_SERVER_ERROR)])
def test_a_body_that_ends_with_the_connection_must_end_with_fin(was_reset: bool, last: object) -> None:
    connection = Connection(was_reset=was_reset)
    assert described(connection.receive(b"HTTP/1.1 200 OK\r\n\r\nhi")) == [200, b"hi"]
    assert described(connection.end()) == [last]


@pytest.mark.parametrize("line", [b"zz\r\n", b"1" * 100_000, b"0\r\n" + b"x: y\r\n" * 20_000])
def test_a_chunk_that_makes_no_sense_is_an_error(line: bytes) -> None:
    connection = Connection()
    seen = connection.receive(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + line)
    assert described(seen) == [200, ErrorCode.GENERIC_SERVER_ERROR]
    assert seen.closed


def test_data_that_nobody_asked_for_ends_the_connection() -> None:
    connection = Connection()
    seen = connection.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhimore")
    assert described(seen) == [200, b"hi", "end"]
    assert seen.closed


def test_a_response_before_the_end_of_the_request_is_told_and_the_request_goes_on() -> None:
    connection = Connection()
    connection.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    drive(connection.layer, RequestHeaders(7, request("PUT", ((b"Content-Length", b"4"),)), False))
    assert described(connection.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")) == [200, b"hi", "end"]
    assert not connection.layer.is_idle
    assert drive(connection.layer, RequestData(7, b"late")).sent == b"late"
    drive(connection.layer, RequestEndOfMessage(7))
    assert connection.layer.is_idle


def test_a_connection_that_ends_after_an_early_response_is_told() -> None:
    connection = Connection()
    connection.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    drive(connection.layer, RequestHeaders(7, request("PUT", ((b"Content-Length", b"4"),)), False))
    connection.receive(b"HTTP/1.1 413 X\r\nContent-Length: 0\r\n\r\n")
    assert described(connection.end()) == [ErrorCode.GENERIC_SERVER_ERROR]


def test_an_idle_connection_that_ends_tells_nobody() -> None:
    connection = Connection()
    connection.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    seen = connection.end()
    assert (seen.told, seen.closed) == ([], True)


@pytest.mark.parametrize(
    "asked",
    [
        (),
        ((b"Upgrade", b"h2c"), (b"Connection", b"Upgrade")),
        ((b"Upgrade", b"websocket"), (b"Connection", b"Upgrade"), (b"Sec-WebSocket-Version", b"8")),
    ],
)
def test_a_101_that_nobody_asked_for_is_no_response(asked: tuple[tuple[bytes, bytes], ...]) -> None:
    seen = Connection(request(fields=asked)).receive(b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\n\r\n")
    assert (described(seen), seen.closed) == ([ErrorCode.RESPONSE_VALIDATION_FAILED], True)


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\ncontent-length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\n",
        b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: CHUNKED\r\n\r\n1;a=b\r\nh\r\n1;c\r\ni\r\n0;x\r\n\r\n",
        b"HTTP/1.1 999 Denied\r\nContent-Length: 2\r\n\r\n",
    ],
)
def test_what_is_odd_but_clear_is_a_response(head: bytes) -> None:
    connection = Connection()
    data = head if b"CHUNKED" in head else head + b"hi"
    status, *body, end = described(connection.receive(data))
    assert (b"".join(part for part in body if isinstance(part, bytes)), end) == (b"hi", "end")
    assert status in (200, 999)
    assert connection.layer.is_idle


@pytest.mark.parametrize("more", [b"x", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"])
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("head", [b"HTTP/1.1 204 X\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n", b""])
def test_what_comes_after_a_response_is_never_taken_for_the_next(head: bytes, together: bool, more: bytes) -> None:
    connection = Connection()
    whole = head or b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    if together:
        seen = connection.receive(whole + more)
        assert len(described(seen)) == 2
    else:
        assert len(described(connection.receive(whole))) == 2
        seen = connection.receive(more)
        assert described(seen) == []
    assert seen.closed
    assert not connection.layer.is_idle


def test_a_websocket_becomes_a_pipe_with_what_came_after_its_head() -> None:
    upgrade = ((b"Upgrade", b"websocket"), (b"Connection", b"Upgrade"), (b"Sec-WebSocket-Version", b"13"))
    connection = Connection(request(fields=upgrade))
    assert b"Upgrade: websocket\r\nConnection: Upgrade\r\n" in connection.first.sent
    seen = connection.receive(b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\n\r\n\x81\x02hi")
    assert described(seen) == [101, "end", b"\x81\x02hi"]
