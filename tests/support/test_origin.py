"""The scripted origin does what its script says: the other tests stand on it."""

import pytest

from tests.support.behaviours import (
    Drip,
    chain,
    close,
    garbage,
    informational,
    late,
    partial_head,
    reset,
    respond,
    silent,
    truncated,
)
from tests.support.clients import RawClient
from tests.support.origin import Origin
from tests.support.visit import Behaviour, Request


def ask(client: RawClient, method: str = "GET", path: str = "/", body: str = "") -> None:
    client.send(f"{method} {path} HTTP/1.1\r\nHost: a\r\n{body or '\r\n'}".encode())


def test_successive_hits_get_successive_behaviours_and_the_last_repeats(origin: Origin) -> None:
    origin.script = {"/a": [respond(503), respond(200)]}
    with RawClient(origin.port) as client:
        statuses = []
        for path in ("/a", "/a", "/a", "/b"):
            ask(client, path=path)
            statuses.append(client.answer().status)
    assert statuses == [503, 200, 200, 200]
    assert (origin.hits("/a"), origin.hits("/b")) == (3, 1)
    assert {request.connection for request in origin.requests} == {1}


@pytest.mark.parametrize(
    ("behaviour", "raw"),
    [
        (respond(body=b"a", fields=[("X", "1")]), b"HTTP/1.1 200 OK\r\nX: 1\r\nContent-Length: 1\r\n\r\na"),
        (respond(204), b"HTTP/1.1 204 No Content\r\n\r\n"),
        (
            respond(body=b"abc", chunked=True, trailers=[("T", "1")]),
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nT: 1\r\n\r\n",
        ),
        (respond(body=b"abc", until_close=True), b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc"),
        (
            chain(informational(), respond(304)),
            b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 304 Not Modified\r\n\r\n",
        ),
        (garbage(), b"NOT HTTP AT ALL\r\n\r\n"),
        (partial_head(), b"HTTP/1.1 200 OK\r\nContent-Le"),
        (truncated(b"abc", 9), b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"),
        (
            Drip((b"ab", b"c"), 0.01),
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
        ),
        (close(), b""),
        (late(0.01, close()), b""),
    ],
)
def test_a_behaviour_puts_exactly_this_on_the_wire(origin: Origin, behaviour: Behaviour, raw: bytes) -> None:
    origin.mode = chain(behaviour, close())
    with RawClient(origin.port) as client:
        ask(client)
        assert client.rest() == raw


def test_a_reset_is_a_reset(origin: Origin) -> None:
    origin.mode = reset()
    with RawClient(origin.port) as client:
        ask(client)
        with pytest.raises(ConnectionResetError):
            client.rest()


def test_silence_lasts_until_the_client_leaves(origin: Origin) -> None:
    origin.mode = silent()
    with RawClient(origin.port) as client:
        ask(client)
        origin.wait_for(lambda o: o.requests)
        assert origin.requests[0].done_at is None
    origin.wait_for(lambda o: o.connections[0].closed_at)
    assert origin.requests[0].done_at is not None


@pytest.mark.parametrize(
    "body",
    [
        "Content-Length: 5\r\n\r\nhello",
        "Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nT: 1\r\n\r\n",
    ],
)
def test_a_body_is_recorded_without_its_framing(origin: Origin, body: str) -> None:
    with RawClient(origin.port) as client:
        ask(client, "POST", "/form", body)
        assert client.answer().status == 200
    assert (origin.requests[0].body, origin.requests[0].whole) == (b"hello", True)


def test_a_port_that_is_closed_refuses_and_can_be_opened_again(origin: Origin) -> None:
    origin.stop_listening()
    with pytest.raises(ConnectionRefusedError):
        RawClient(origin.port)
    origin.start_listening()
    with RawClient(origin.port) as client:
        ask(client)
        assert client.answer().status == 200


def test_a_fault_in_a_script_is_not_swallowed() -> None:
    def faulty(request: Request) -> Behaviour:
        raise LookupError(request.path)

    def meet_it() -> None:
        with Origin(faulty) as origin, RawClient(origin.port) as client:
            ask(client, path="/oops")
            assert client.rest() == b""

    with pytest.raises(LookupError, match="/oops"):
        meet_it()


def test_over_tls_requests_are_marked_secure(secure_origin: Origin) -> None:
    with RawClient(secure_origin.port) as client:
        assert client.start_tls("localhost", secure_origin.ca) == "http/1.1"
        ask(client)
        assert client.answer().status == 200
    assert [request.secure for request in secure_origin.requests] == [True]
