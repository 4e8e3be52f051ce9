"""What the head of a response says."""

import pytest
from mitmproxy import http

from proxy_addon.responses import fault, for_http10, is_event_stream, lacks_body, repaired
from tests.support.wire import request

type Fields = tuple[tuple[bytes, bytes], ...]

UPGRADE: Fields = ((b"Upgrade", b"websocket"), (b"Connection", b"Upgrade"), (b"Sec-WebSocket-Version", b"13"))


def response(*fields: tuple[bytes, bytes], status: int = 200, version: str = "HTTP/1.1") -> http.Response:
    made = http.Response.make(status, b"", http.Headers(fields))
    made.headers = http.Headers(fields)
    made.http_version = version
    return made


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (b"text/event-stream", True),
        (b"text/event-stream; charset=utf-8", True),
        (b"Text/Event-STREAM;charset=utf-8", True),
        (b" text/event-stream ; a=b", True),
        (b"text/event-streams", False),
        (b"text/html; x=text/event-stream", False),
        (b"", False),
    ],
)
def test_an_event_stream_is_known_by_its_type(value: bytes, wanted: bool) -> None:
    assert is_event_stream(http.Headers(((b"content-TYPE", value),))) is wanted


def test_what_says_no_type_is_no_event_stream() -> None:
    assert not is_event_stream(http.Headers())


@pytest.mark.parametrize(
    ("given", "asked", "wanted"),
    [
        (response((b"A", b"b")), request(), ""),
        (response((b"Bad Name", b"b")), request(), "invalid header name"),
        (response((b"A", b"b\x00c")), request(), "a control character"),
        (response((b"A", b"b\r\n c")), request(), "a control character"),
        (response((b"Content-Length", b"4"), (b"Transfer-Encoding", b"chunked")), request(), "with both"),
        (response((b"Content-Length", b"4"), (b"Content-Length", b"5")), request(), "multiple content-length"),
        (response((b"Content-Length", b"-4")), request(), "invalid content-length"),
        (response((b"Transfer-Encoding", b"chunked"), version="HTTP/1.0"), request(), "for HTTP/1.0"),
        (response((b"Transfer-Encoding", b"gzip, chunked")), request(), ""),
        (response((b"Transfer-Encoding", b"gzip, chunked")), request(version="HTTP/1.0"), "does not know"),
        (response((b"Transfer-Encoding", b"gzip")), request(version="HTTP/2.0"), "does not know"),
        (response((b"Transfer-Encoding", b"chunked")), request(version="HTTP/1.0"), ""),
        (response((b"Upgrade", b"WebSocket"), status=101), request(fields=UPGRADE), ""),
        (response((b"Upgrade", b"websocket"), status=101), request(), "no such upgrade"),
        (response((b"Upgrade", b"h2c"), status=101), request(fields=UPGRADE), "no such upgrade"),
        (response(status=101), request(fields=UPGRADE), "no such upgrade"),
        (response((b"Upgrade", b"websocket"), status=101), request(fields=UPGRADE[:2]), "no such upgrade"),
    ],
)
def test_a_response_that_must_not_reach_the_client_has_a_fault(
    given: http.Response, asked: http.Request, wanted: str
) -> None:
    found = fault(given, asked, strict=True, websockets=True)
    assert wanted in found
    assert bool(wanted) is bool(found)


@pytest.mark.parametrize("status", [99, 1000])
def test_a_status_that_does_not_exist_is_a_fault(status: int) -> None:
    found = fault(response(status=status), request(version="HTTP/2.0"), strict=True, websockets=True)
    assert found == "invalid response: no such status"


@pytest.mark.parametrize(
    ("length", "status", "method", "wanted"),
    [
        (b"10", 200, "GET", True),
        (b"10", 404, "POST", True),
        (b"0", 200, "GET", False),
        (b"10", 200, "HEAD", False),
        (b"10", 204, "GET", False),
        (b"10", 304, "GET", False),
        (b"10", 101, "GET", False),
    ],
)
def test_a_length_at_the_end_of_a_head_wants_a_body(length: bytes, status: int, method: str, wanted: bool) -> None:
    assert lacks_body(response((b"Content-Length", length), status=status), request(method)) is wanted


@pytest.mark.parametrize("reason", [b"O\rSet-Cookie: a=b", b"O\x1b[2J", b"\x00"])
def test_a_status_line_with_a_control_character_has_a_fault(reason: bytes) -> None:
    given = response()
    given.data.reason = reason
    wanted = "invalid response: a control character in the status line"
    assert fault(given, request(), strict=False, websockets=True) == wanted


def test_without_checks_only_the_worst_is_a_fault() -> None:
    assert fault(response((b"Bad Name", b"b")), request(), strict=False, websockets=True) == ""
    assert fault(response((b"A", b"\x00")), request(), strict=False, websockets=True)


def test_a_websocket_that_we_cannot_carry_does_not_begin() -> None:
    begun = response((b"Upgrade", b"websocket"), status=101)
    assert "no such upgrade" in fault(begun, request(fields=UPGRADE), strict=True, websockets=False)


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        (((b"A", b"1"), (b"a ", b"2"), (b"B\t", b"3")), ((b"A", b"1"), (b"a", b"2"), (b"B", b"3"))),
        (((b"Content-Length", b"5, 5"), (b"A", b"1")), ((b"Content-Length", b"5"), (b"A", b"1"))),
        (
            ((b"Content-Length", b"5"), (b"A", b"1"), (b"content-length", b"5")),
            ((b"Content-Length", b"5"), (b"A", b"1")),
        ),
    ],
)
def test_what_is_clear_all_the_same_is_repaired(fields: Fields, wanted: Fields) -> None:
    assert repaired(response(*fields)).headers.fields == wanted


@pytest.mark.parametrize(
    "fields",
    [
        ((b"A", b"1"), (b"a", b"2"), (b"Content-Length", b"5")),
        ((b"Content-Length", b"5, 6"),),
        ((b"Content-Length", b"5"), (b"Content-Length", b"05")),
        ((b"Transfer-Encoding", b"chunked"),),
    ],
)
def test_what_is_well_or_beyond_repair_is_left_alone(fields: Fields) -> None:
    given = response(*fields)
    assert repaired(given) is given


def test_a_204_loses_its_transfer_encoding() -> None:
    given = response((b"Transfer-Encoding", b"chunked"), (b"A", b"1"), status=204)
    assert repaired(given).headers.fields == ((b"A", b"1"),)


def test_an_http_1_0_client_gets_no_chunks_and_knows_when_its_connection_ends() -> None:
    chunked = response((b"Transfer-Encoding", b"chunked"), (b"Trailer", b"X-Sum"), (b"A", b"1"))
    for keep_alive in (True, False):
        assert for_http10(chunked, keep_alive=keep_alive).headers.fields == ((b"A", b"1"), (b"Connection", b"close"))
    sized = response((b"Content-Length", b"5"))
    assert for_http10(sized, keep_alive=False) is sized
    kept = for_http10(sized, keep_alive=True)
    assert kept.headers.fields == ((b"Content-Length", b"5"), (b"Connection", b"keep-alive"))
    closing = response((b"Content-Length", b"5"), (b"Connection", b"close"))
    assert for_http10(closing, keep_alive=True) is closing
