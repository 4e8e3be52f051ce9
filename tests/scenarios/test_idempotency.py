"""What may be sent twice, and what may not, on the real proxy: an order must not be placed again.

Every request goes over a raw socket, so that bytes can be compared with bytes.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.behaviours import Raw, close, garbage, late, partial_head, reset, respond, silent, truncated
from tests.support.clients import Answer, RawClient
from tests.support.origin import Origin
from tests.support.proxy import Paceproxy
from tests.support.silence import full_backlog
from tests.support.visit import Behaviour
from tests.support.waiting import until

IDLE_REUSE_S = 0.2
BODY = b"a=1&b=\x00\xff"
UNLIKELY = (
    b"Content-Length: 12\r\nX-CamelCase: a\r\nx-lower: b\r\nX-Twice: 1\r\nX-Twice: 2\r\nSERVER: odd  one\r\n\r\n"
    b"out to lunch"
)
"""Fields and a body that would not look like this had anybody written them anew."""


@pytest.fixture(scope="module")
def running(confdir: Path) -> Iterator[Paceproxy]:
    flags = (
        *("--ladder", "0,0.1,0.2", "--pause-after", "0", "--attempt-timeout", "0.4", "--connect-timeout", "0.3"),
        *("--idle-reuse", str(IDLE_REUSE_S), "--hold-request", "10k"),
    )
    with Paceproxy(*flags, confdir=confdir) as proxy:
        yield proxy


@pytest.fixture
def proxy(running: Paceproxy) -> Iterator[Paceproxy]:
    yield running
    running.assert_idle()


@pytest.fixture
def client(proxy: Paceproxy) -> Iterator[RawClient]:
    with RawClient(proxy.port) as connected:
        yield connected


def ask(client: RawClient, method: str, url: str, *lines: str, body: bytes = BODY) -> Answer:
    """A request with fields in an order and a case of its own."""
    host = url.split("/", 3)[2]
    fields = [f"Host: {host}", "X-CamelCase: a", "x-lower: b", f"Content-Length: {len(body)}", *lines]
    client.send(f"{method} {url} HTTP/1.1\r\n".encode() + "\r\n".join([*fields, "\r\n"]).encode() + body)
    return client.answer(method=method)


def sent(origin: Origin, path: str = "/x") -> list[tuple[bytes, bytes]]:
    return [(request.head, request.body) for request in origin.requests if request.path == path]


# `put` is not PUT: names of methods have a case, and this is one that nobody knows.
UNSAFE = pytest.mark.parametrize("method", ["POST", "PATCH", "put"])


@UNSAFE
@pytest.mark.parametrize(
    ("fault", "status"),
    [
        pytest.param(respond(500, b"no"), 500, id="500"),
        pytest.param(respond(503, b"no", [("Retry-After", "0")]), 503, id="503"),
        pytest.param(respond(429, b"no"), 429, id="429"),
        pytest.param(respond(409, b"no"), 409, id="409"),
        pytest.param(silent(), 504, id="silence"),
        pytest.param(reset(), 502, id="reset"),
        pytest.param(close(), 502, id="close"),
        pytest.param(garbage(), 502, id="garbage"),
        pytest.param(partial_head(), 502, id="part of a head"),
    ],
)
def test_what_is_not_idempotent_reaches_the_origin_once_whatever_happens(
    client: RawClient, origin: Origin, method: str, fault: Behaviour, status: int
) -> None:
    origin.script = {"/x": [fault, respond(200, b"again")]}
    assert ask(client, method, origin.url("/x"), "Pace-Window: 0.6").status == status
    assert [(head.split(b" ")[0].decode(), body) for head, body in sent(origin)] == [(method, BODY)]


def test_a_body_cut_short_is_not_asked_for_again(client: RawClient, origin: Origin) -> None:
    origin.script = {"/x": [truncated(), respond(200, b"again")]}
    with pytest.raises((ConnectionResetError, AssertionError)):
        ask(client, "POST", origin.url("/x"))
    assert origin.hits("/x") == 1


@UNSAFE
@pytest.mark.parametrize("status", [b"500 Oh No", b"503 Out To Lunch", b"429 ", b"599 Unnamed"])
def test_the_origins_own_error_passes_byte_for_byte(
    client: RawClient, origin: Origin, method: str, status: bytes
) -> None:
    head, body = (b"HTTP/1.1 " + status + b"\r\n" + UNLIKELY).split(b"\r\n\r\n")
    origin.script = {"/x": Raw(head + b"\r\n\r\n" + body)}
    answer = ask(client, method, origin.url("/x"))
    assert (answer.head, answer.body) == (head + b"\r\n\r\n", body)


def test_to_an_error_that_was_waited_for_only_that_is_added(client: RawClient, origin: Origin) -> None:
    head, body = (b"HTTP/1.1 503 Out To Lunch\r\n" + UNLIKELY).split(b"\r\n\r\n")
    origin.script = {"/x": Raw(head + b"\r\n\r\n" + body)}
    first, second = ask(client, "POST", origin.url("/x")), ask(client, "POST", origin.url("/x"))
    assert first.head == head + b"\r\n\r\n"
    assert second.head.startswith(head + b"\r\nProxy-Status: paceproxy;attempts=1;waited=0.")
    assert second.head.endswith(b";rung=1\r\n\r\n")
    assert second.body == body


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"])
def test_what_is_idempotent_is_sent_again_byte_for_byte(client: RawClient, origin: Origin, method: str) -> None:
    origin.script = {"/x": [reset(), respond(503), respond(200, b"well")]}
    answer = ask(client, method, origin.url("/x"), body=BODY if method in ("PUT", "DELETE") else b"")
    assert answer.status == 200
    first, *others = sent(origin)
    assert first[0].startswith(
        f"{method} /x HTTP/1.1\r\nHost: {origin.host}\r\nX-CamelCase: a\r\nx-lower: b\r\n".encode()
    )
    assert others == [first, first]


def test_a_chunked_body_is_sent_again_as_it_was(client: RawClient, origin: Origin) -> None:
    origin.script = {"/x": [respond(503), respond(200)]}
    head = f"PUT {origin.url('/x')} HTTP/1.1\r\nHost: {origin.host}\r\nTransfer-Encoding: chunked\r\n\r\n"
    client.send(head.encode() + b"3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\n\r\n")
    assert client.answer().status == 200
    first, second = sent(origin)
    assert first[1] == b"abcdefg"
    assert first == second


@UNSAFE
def test_a_key_makes_it_fit_to_be_sent_again_byte_for_byte(client: RawClient, origin: Origin, method: str) -> None:
    origin.script = {"/x": [respond(503), silent(), reset(), respond(201, b"made")]}
    answer = ask(client, method, origin.url("/x"), 'Idempotency-Key: "8e03978e"')
    assert (answer.status, answer.body) == (201, b"made")
    first, *others = sent(origin)
    assert b'\r\nIdempotency-Key: "8e03978e"\r\n' in first[0]
    assert others == [first] * 3


def test_in_progress_is_waited_out_and_slows_nobody(proxy: Paceproxy, client: RawClient, origin: Origin) -> None:
    origin.script = {"/x": [respond(409), respond(409), late(0.2, respond(201, b"made"))]}
    before = proxy.metric("paceproxy_attempts_total", outcome="stall", error="in_progress")
    client.send(
        f"POST {origin.url('/x')} HTTP/1.1\r\nHost: a\r\nIdempotency-Key: 1\r\nContent-Length: 0\r\n\r\n".encode()
    )
    origin.wait_for(lambda o: o.hits("/x") == 3)
    assert not proxy.metrics().has("paceproxy_host_rung", host=origin.host)
    answer = client.answer()
    assert (answer.status, answer.body) == (201, b"made")
    assert "attempts=3" in answer.proxy_status
    assert proxy.metric("paceproxy_attempts_total", outcome="stall", error="in_progress") == before + 2
    times = [request.at for request in origin.requests]
    assert times[1] - times[0] >= 0.1 - 0.02
    assert times[2] - times[1] >= 0.2 - 0.02


def test_what_never_left_the_proxy_may_be_sent_again(proxy: Paceproxy, client: RawClient) -> None:
    before = proxy.metric("paceproxy_attempts_total", error="connection_timeout")
    with full_backlog() as port:
        answer = ask(client, "POST", f"http://127.0.0.1:{port}/x", "Pace-Window: 1")
    assert answer.status == 504
    assert "error=connection_timeout" in answer.proxy_status
    assert proxy.metric("paceproxy_attempts_total", error="connection_timeout") >= before + 2


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_body_that_is_too_long_to_be_held_is_streamed_once(client: RawClient, origin: Origin, framing: str) -> None:
    origin.script = {"/x": [respond(503, b"full"), respond(200, b"again")]}
    body = b"u" * 50_000
    if framing == "length":
        answer = ask(client, "PUT", origin.url("/x"), body=body)
    else:
        client.send(f"PUT {origin.url('/x')} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        client.send(b"c350\r\n" + body + b"\r\n0\r\n\r\n")
        answer = client.answer()
    assert (answer.status, answer.body) == (503, b"full")
    assert [body for _, body in sent(origin)] == [body]


def test_a_post_never_goes_over_a_connection_that_was_idle_for_long(client: RawClient, origin: Origin) -> None:
    def connection_of(method: str) -> int:
        assert ask(client, method, origin.url("/x")).status == 200
        return origin.requests[-1].connection

    first = connection_of("GET")
    rested_at = time.monotonic() + IDLE_REUSE_S + 0.05
    until(lambda: time.monotonic() > rested_at, "the connection was idle for long")
    assert connection_of("GET") == first
    rested_at = time.monotonic() + IDLE_REUSE_S + 0.05
    until(lambda: time.monotonic() > rested_at, "the connection was idle for long")
    assert connection_of("POST") != first


@UNSAFE
@pytest.mark.parametrize("end", [close(), reset()], ids=["FIN", "RST"])
def test_on_a_connection_that_the_origin_ends_at_that_moment_it_is_lost_and_not_sent_again(
    client: RawClient, origin: Origin, method: str, end: Behaviour
) -> None:
    origin.script = {"/x": [end, respond(200, b"again")]}
    client.get(origin.url("/before"))
    assert client.answer().status == 200
    answer = ask(client, method, origin.url("/x"))
    assert answer.status == 502
    assert "error=connection_terminated" in answer.proxy_status
    assert origin.hits("/x") == 1


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_head_in_lower_case_is_no_head_and_has_a_body(client: RawClient, origin: Origin, chunked: bool) -> None:
    origin.script = {"/x": respond(200, b"body", chunked=chunked)}
    for _ in range(2):
        answer = ask(client, "head", origin.url("/x"))
        assert (answer.status, answer.body) == (200, b"body")
