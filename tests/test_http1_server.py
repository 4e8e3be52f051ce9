"""The reader and writer towards clients, without a network."""

import re

import pytest
from mitmproxy import http
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    RequestData,
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

from proxy_addon.http1_server import PacedHttp1Server
from tests.support.wire import Seen, context, drive

GET = b"GET http://site/x HTTP/1.1\r\nHost: site\r\n\r\n"
PUT = b"PUT http://site/x HTTP/1.1\r\nHost: site\r\nTransfer-Encoding: chunked\r\n\r\n"
REFUSED = re.compile(
    rb"HTTP/1\.1 (\d+) [^\r]+\r\nContent-Type: text/plain; charset=utf-8\r\n"
    rb"X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\nContent-Length: \d+\r\n"
    rb"Date: Thu, 01 Jan 1970 00:16:40 GMT\r\nProxy-Status: paceproxy; error=(\w+)\r\nConnection: close\r\n\r\n(.+)\n",
    re.DOTALL,
)


class Connection:
    def __init__(self) -> None:
        self.context = context()
        self.layer = PacedHttp1Server(self.context, lambda: 1000.0)
        drive(self.layer, events.Start())

    def receive(self, data: bytes) -> Seen:
        return drive(self.layer, events.DataReceived(self.context.client, data))

    def end(self) -> Seen:
        return drive(self.layer, events.ConnectionClosed(self.context.client))

    def respond(self, status: int = 200, fields: dict[str, str] | None = None, body: bytes = b"") -> Seen:
        """To the first request."""
        response = http.Response.make(status, b"", fields or {"Content-Length": str(len(body))})
        return self.say(response, ResponseData(1, body), ResponseEndOfMessage(1))

    def say(self, response: http.Response, *more: events.Event) -> Seen:
        return drive(self.layer, ResponseHeaders(1, response), *more)


def refusal(seen: Seen) -> tuple[int, str, str]:
    """Status, error name and text of one of our own responses."""
    found = REFUSED.fullmatch(seen.sent)
    assert found, seen.sent
    return int(found[1]), found[2].decode(), found[3].decode()


@pytest.mark.parametrize(
    ("data", "status", "text"),
    [
        (b"GARBAGE\r\n\r\n", 400, "This request cannot be read: Bad HTTP request line: b'GARBAGE'."),
        (b"\x16\x03\x01", 400, "This is no HTTP request."),
        (b" GET / HTTP/1.1\r\n", 400, "This is no HTTP request."),
        (b"SSH-2.0-OpenSSH_9.2\r\n", 400, "This is no HTTP request."),
        (b"\r\nEHLO crawler.example\r\n", 400, "This is no HTTP request."),
        (b"GET http://site/ HTTP/1.1\r\nno colon\r\n\r\n", 400, "This request cannot be read: Invalid header line"),
        (
            b"GET http://site/ HTTP/1.1\r\nContent-Length: x\r\n\r\n",
            400,
            "This request cannot be read: invalid content",
        ),
        (
            b"GET http://a:b@site/ HTTP/1.1\r\n\r\n",
            400,
            "This request cannot be read: its target holds a user or a pass",
        ),
        (b"GET ftp://site/ HTTP/x\r\n\r\n", 400, "This request cannot be read: Bad HTTP request line"),
        (b"CONNECT nowhere HTTP/1.1\r\n\r\n", 400, "This request cannot be read: Bad HTTP request line"),
        (b"G\0T http://site/ HTTP/1.1\r\n\r\n", 400, "The method of this request is not valid."),
        (b"GET: http://site/ HTTP/1.1\r\n\r\n", 400, "The method of this request is not valid."),
        (b"connect http://site/ HTTP/1.1\r\n\r\n", 400, "The method CONNECT is written in capital letters."),
        (b"connect / HTTP/1.1\r\nHost: site\r\n\r\n", 400, "The method CONNECT is written in capital letters."),
        (b"GET http://site/a\0b HTTP/1.1\r\n\r\n", 400, "The path of this request is not valid"),
        (b"GET http://site/a\x1b[2J HTTP/1.1\r\n\r\n", 400, "The path of this request is not valid"),
        (b"GET http://site/\x7f\xc3\xbc HTTP/1.1\r\n\r\n", 400, "The path of this request is not valid"),
        (b"GET * HTTP/1.1\r\nHost: site\r\n\r\n", 400, "The path of this request is not valid"),
        (GET[:-2] + b"X: a\x08b\r\n\r\n", 400, "This request has a control character in a field."),
        (b"CONNECT site:1 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 400, "A CONNECT request has no body."),
        (b"CONNECT site:1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "A CONNECT request has no body."),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "Speak HTTP/1.1 here. HTTP/2 needs TLS."),
        (b"x" * 65_537, 400, "This is no HTTP request: its first line does not end."),
        (GET[:-2] + b"X: " + b"y" * 65_537, 431, "The head of this request is longer than 65536 bytes."),
        (GET[:-2] + b"X: " + b"y" * 65_537 + b"\r\n\r\n", 431, "The head of this request is longer than 65536 bytes."),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_text(data: bytes, status: int, text: str) -> None:
    connection = Connection()
    seen = connection.receive(data)
    assert refusal(seen)[:2] == (status, "http_request_error")
    assert refusal(seen)[2].startswith(text)
    assert (seen.told, seen.closed) == ([], True)
    assert connection.receive(GET) == Seen()
    assert connection.end() == Seen()


def test_a_connect_may_say_that_it_has_no_body() -> None:
    (told,) = Connection().receive(b"CONNECT site:1 HTTP/1.1\r\nContent-Length: 0\r\n\r\n").told
    assert isinstance(told, RequestHeaders)


def test_a_long_line_is_not_repeated_in_the_refusal() -> None:
    assert len(refusal(Connection().receive(b"x" * 60_000 + b"\r\n\r\n"))[2]) < 300


def test_a_head_may_be_long_and_come_byte_by_byte() -> None:
    connection = Connection()
    head = GET[:-2] + b"X: " + b"y" * 60_000 + b"\r\n\r\n"
    for start in range(0, len(head) - 1, 4000):
        assert connection.receive(head[start : min(start + 4000, len(head) - 1)]).told == []
    assert [type(event) for event in connection.receive(head[-1:]).told] == [RequestHeaders, RequestEndOfMessage]


def test_empty_lines_before_a_request_are_ignored() -> None:
    told = Connection().receive(b"\r\n\r\n\n" + GET).told
    assert [type(event) for event in told] == [RequestHeaders, RequestEndOfMessage]


@pytest.mark.parametrize("came", [b"", b"GET http://site/x HTTP/1.1\r\nCookie: secret"])
def test_a_client_that_ends_before_its_head_is_complete_is_closed_without_a_word(came: bytes) -> None:
    connection = Connection()
    assert connection.receive(came) == Seen()
    assert connection.end() == Seen(closed=True)


def test_a_body_that_cannot_be_read_is_refused_and_told() -> None:
    connection = Connection()
    connection.receive(PUT)
    seen = connection.receive(b"zz\r\n")
    assert refusal(seen)[:2] == (400, "http_request_error")
    assert [type(event) for event in seen.told] == [RequestProtocolError]
    assert seen.closed


def test_a_body_that_cannot_be_read_after_the_answer_only_ends_the_connection() -> None:
    connection = Connection()
    connection.receive(PUT)
    connection.respond(200)
    seen = connection.receive(b"zz\r\n")
    assert (seen.sent, seen.closed) == (b"", True)


def test_a_client_that_leaves_in_its_body_is_told() -> None:
    connection = Connection()
    connection.receive(PUT + b"5\r\nhel")
    seen = connection.end()
    assert (seen.sent, seen.closed) == (b"", True)
    assert [type(event) for event in seen.told] == [RequestProtocolError]


def test_the_target_says_which_host_is_meant_and_the_host_field_is_made_to_agree() -> None:
    (told, _) = Connection().receive("GET http://BÜCHER.example:81/x HTTP/1.1\r\nHost: other\r\n\r\n".encode()).told
    assert isinstance(told, RequestHeaders)
    request = told.request
    assert (request.host, request.port, request.data.authority) == (
        "xn--bcher-kva.example",
        81,
        b"xn--bcher-kva.example:81",
    )
    assert request.headers.fields == ((b"Host", b"xn--bcher-kva.example:81"),)


def test_trailers_of_a_request_are_told() -> None:
    told = Connection().receive(PUT + b"2\r\nhi\r\n0\r\nX-Sum: 1\r\n\r\n").told
    assert [type(event) for event in told] == [RequestHeaders, RequestData, RequestTrailers, RequestEndOfMessage]
    assert isinstance(told[2], RequestTrailers)
    assert told[2].trailers.fields == ((b"X-Sum", b"1"),)


def test_trailers_of_a_response_are_written_where_it_is_chunked() -> None:
    for fields, end in ((CHUNKED, b"2\r\nhi\r\n0\r\nX-Sum: 1\r\n\r\n"), ({"Content-Length": "2"}, b"\r\n\r\nhi")):
        connection = Connection()
        connection.receive(GET)
        response = http.Response.make(200, b"", fields)
        trailers = ResponseTrailers(1, http.Headers(((b"X-Sum", b"1"),)))
        assert connection.say(response, ResponseData(1, b"hi"), trailers, ResponseEndOfMessage(1)).sent.endswith(end)


CHUNKED = {"Transfer-Encoding": "chunked"}


@pytest.mark.parametrize(("method", "status"), [(b"HEAD", 200), (b"GET", 304), (b"GET", 204)])
def test_a_response_without_a_body_has_no_last_chunk(method: bytes, status: int) -> None:
    connection = Connection()
    connection.receive(GET.replace(b"GET", method))
    assert connection.respond(status, CHUNKED).sent.endswith(b"chunked\r\n\r\n")


def test_a_pipelined_request_is_read_in_the_next_turn() -> None:
    connection = Connection()
    assert len(connection.receive(GET + GET.replace(b"/x", b"/y")).told) == 2
    seen = connection.respond(200)
    assert seen.told == []
    (timer,) = seen.others
    assert isinstance(timer, commands.RequestWakeup)
    told = drive(connection.layer, events.Wakeup(timer)).told
    assert isinstance(told[0], RequestHeaders)
    assert (told[0].stream_id, told[0].request.path) == (3, "/y")


def test_the_wakeup_does_no_harm_where_more_data_came_first() -> None:
    connection = Connection()
    connection.receive(GET + GET[:10])
    (timer,) = connection.respond(200).others
    assert isinstance(timer, commands.RequestWakeup)
    assert len(connection.receive(GET[10:]).told) == 2
    assert drive(connection.layer, events.Wakeup(timer)) == Seen()


def test_a_client_that_sends_ever_more_ahead_is_closed() -> None:
    connection = Connection()
    connection.receive(GET)
    for _ in range(16):
        assert connection.receive(b"x" * 65_536) == Seen()
    seen = connection.receive(b"x")
    assert [type(event) for event in seen.told] == [RequestProtocolError]
    assert seen.closed


@pytest.mark.parametrize("code", [ErrorCode.REQUEST_VALIDATION_FAILED, ErrorCode.DESTINATION_UNKNOWN])
def test_an_error_of_stock_code_is_answered_with_a_text(code: ErrorCode) -> None:
    connection = Connection()
    connection.receive(GET)
    seen = drive(connection.layer, ResponseProtocolError(1, "no good", code))
    assert refusal(seen) == (400, "http_request_error", "no good")
    assert seen.closed


def test_an_error_after_a_100_is_answered_too() -> None:
    connection = Connection()
    connection.receive(PUT)
    connection.say(http.Response.make(100, b"", {}))
    seen = drive(connection.layer, ResponseProtocolError(1, "too much", ErrorCode.REQUEST_TOO_LARGE))
    assert refusal(seen) == (413, "http_request_error", "too much")


def test_an_error_after_the_head_only_ends_the_connection() -> None:
    connection = Connection()
    connection.receive(GET)
    connection.say(http.Response.make(200, b"", {"Content-Length": "5"}))
    seen = drive(connection.layer, ResponseProtocolError(1, "cut", ErrorCode.GENERIC_SERVER_ERROR))
    assert (seen.sent, seen.closed) == (b"", True)
