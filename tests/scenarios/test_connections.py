"""Connections to origins that end, by FIN or by RST, at every phase of a request, and what origins send unasked.

On a fresh connection that is a stall, which is waited out; on one that was kept alive nobody notices, since the
origin may have closed it just as the request went out.
"""

import ssl
from collections.abc import Iterator

import pytest

from tests.support.behaviours import (
    Gate,
    HalfClose,
    Hear,
    Raw,
    chain,
    close,
    late,
    reset,
    respond,
    response_head,
    silent,
)
from tests.support.clients import RawClient
from tests.support.h2peers import END, Answer, H2Client, H2Origin, Stream
from tests.support.origin import Origin
from tests.support.proxy import Paceproxy
from tests.support.visit import Behaviour

FINE = respond(200, b"fine")
UPLOAD = b"u" * 500_000
BEGUN = response_head(200, [("Content-Length", "1000")]) + b"begun"
BEGUN_CHUNKS = response_head(200, [("Transfer-Encoding", "chunked")]) + b"5\r\nbegun\r\n"
REQUEST_TIMEOUT = response_head(408, [("Content-Length", "0"), ("Connection", "close")])

ENDS = pytest.mark.parametrize("end", [pytest.param(HalfClose(), id="FIN"), pytest.param(reset(), id="RST")])

BEFORE_A_HEAD = pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"", id="instead of a head"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Le", id="in the middle of a head"),
        pytest.param(response_head(103, [("Link", "</style.css>")]), id="after an informational response"),
    ],
)
IN_A_BODY = pytest.mark.parametrize(
    "said",
    [
        pytest.param(BEGUN, id="in a body with a length"),
        pytest.param(BEGUN_CHUNKS, id="in a chunked body"),
        pytest.param(BEGUN_CHUNKS + b"0\r\n", id="before the end of the trailers"),
    ],
)


@pytest.fixture
def proxy(shared_proxy: Paceproxy) -> Paceproxy:
    return shared_proxy


@pytest.fixture
def client(proxy: Paceproxy) -> Iterator[RawClient]:
    with RawClient(proxy.port) as connected:
        yield connected


def stalls(proxy: Paceproxy) -> dict[str, float]:
    """How many attempts have stalled so far, by error."""
    samples = proxy.metrics()
    names = ("connection_terminated", "http_response_incomplete", "http_response_timeout")
    return {name: samples.value("paceproxy_attempts_total", outcome="stall", error=name) for name in names}


def attempts(proxy: Paceproxy) -> float:
    return proxy.metric("paceproxy_attempts_total")


def keep_alive(client: RawClient, origin: Origin) -> None:
    """Let the proxy have a connection to the origin that it keeps for this client."""
    client.get(origin.url("/before"))
    assert client.answer().status == 200


# A fresh connection.


@ENDS
@BEFORE_A_HEAD
def test_a_fresh_connection_that_ends_before_a_head_is_waited_out(
    proxy: Paceproxy, client: RawClient, origin: Origin, said: bytes, end: Behaviour
) -> None:
    origin.script = {"/page": [chain(Raw(said), end), FINE]}
    before = stalls(proxy)["connection_terminated"]
    client.get(origin.url("/page"))
    answer = client.answer()
    assert (answer.status, answer.body) == (200, b"fine")
    assert "attempts=2" in answer.proxy_status
    assert stalls(proxy)["connection_terminated"] == before + 1


@pytest.mark.parametrize("end", [pytest.param(close(), id="FIN"), pytest.param(reset(), id="RST")])
def test_a_connection_that_ends_as_it_is_accepted_is_waited_out(
    proxy: Paceproxy, client: RawClient, origin: Origin, end: Behaviour
) -> None:
    origin.greetings = {1: end}
    before = stalls(proxy)["connection_terminated"]
    client.get(origin.url("/page"))
    answer = client.answer()
    assert answer.status == 200
    assert "attempts=2" in answer.proxy_status
    assert stalls(proxy)["connection_terminated"] == before + 1
    assert [request.connection for request in origin.requests] == [2]


@ENDS
@pytest.mark.parametrize("heard", [pytest.param(1, id="after one byte"), pytest.param(512, id="after 512 bytes")])
def test_a_connection_that_ends_in_the_tls_handshake_is_a_stall(
    proxy: Paceproxy, client: RawClient, origin: Origin, heard: int, end: Behaviour
) -> None:
    # Plain origins, which hear a TLS handshake and do not speak of it.
    origin.greetings = dict.fromkeys(range(1, 10), chain(Hear(heard), end))
    before = stalls(proxy)["connection_terminated"]
    assert client.connect(origin.host).status == 200
    client.start_tls("127.0.0.1", proxy.ca)
    client.send(b"GET / HTTP/1.1\r\nHost: x\r\nPace-Window: 0.05\r\n\r\n")
    answer = client.answer()
    assert answer.status == 502
    assert "error=connection_terminated" in answer.proxy_status
    assert stalls(proxy)["connection_terminated"] == before + 1
    assert len(origin.connections) == 1
    origin.greetings = {}
    proxy.wait_for_metric("paceproxy_host_rung", 1, host=origin.host)
    client.close()
    with RawClient(proxy.port) as again:
        again.get(origin.url("/"))
        assert again.answer().status == 200


@ENDS
@IN_A_BODY
def test_a_connection_that_ends_in_a_body_not_yet_released_is_waited_out(
    proxy: Paceproxy, client: RawClient, origin: Origin, said: bytes, end: Behaviour
) -> None:
    origin.script = {"/page": [chain(Raw(said), end), FINE]}
    before = stalls(proxy)["http_response_incomplete"]
    client.get(origin.url("/page"))
    answer = client.answer()
    assert (answer.status, answer.body) == (200, b"fine")
    assert "attempts=2" in answer.proxy_status
    assert stalls(proxy)["http_response_incomplete"] == before + 1


@ENDS
def test_a_connection_that_ends_in_a_body_that_flows_resets_the_client(
    proxy: Paceproxy, client: RawClient, origin: Origin, end: Behaviour
) -> None:
    head = response_head(200, [("Content-Length", "600000")])
    gate = Gate()
    origin.script = {"/page": chain(Raw(head + b"x" * 300_000), gate, end)}
    client.get(origin.url("/page"))
    assert client.receive().startswith(b"HTTP/1.1 200 ")
    gate.opened = True
    with pytest.raises(ConnectionResetError):
        client.rest()
    proxy.wait_for_metric("paceproxy_host_rung", 1, host=origin.host)
    assert origin.hits("/page") == 1
    with RawClient(proxy.port) as next_one:
        next_one.get(origin.url("/next"))
        assert next_one.answer().status == 200


@pytest.mark.parametrize("secure", [False, True], ids=["HTTP", "HTTPS"])
def test_a_body_without_a_length_that_is_reset_in_the_flow_does_not_end_cleanly(
    proxy: Paceproxy, client: RawClient, secure: bool
) -> None:
    gate = Gate()
    with Origin({"/page": chain(Raw(response_head(200) + b"half"), gate, reset())}, tls=secure) as origin:
        if secure:
            assert client.connect(origin.host).status == 200
            client.start_tls("127.0.0.1", proxy.ca)
        client.send(f"GET {'' if secure else origin.url('')}/page HTTP/1.1\r\nHost: {origin.host}\r\n\r\n".encode())
        assert client.receive().startswith(b"HTTP/1.1 200 ")
        gate.opened = True
        with pytest.raises((ConnectionResetError, ssl.SSLEOFError)):
            client.rest()
        proxy.wait_for_metric("paceproxy_host_rung", 1, host=origin.host)


def test_a_reset_is_no_end_of_a_body_that_ends_with_the_connection(
    proxy: Paceproxy, client: RawClient, origin: Origin
) -> None:
    origin.script = {
        "/page": [chain(Raw(response_head(200) + b"half"), reset()), respond(200, b"whole", until_close=True)]
    }
    client.get(origin.url("/page"))
    answer = client.answer()
    assert (answer.status, answer.body) == (200, b"whole")
    assert "attempts=2" in answer.proxy_status


@pytest.mark.parametrize("method", ["PUT", "POST"])
@ENDS
def test_a_connection_that_ends_in_the_middle_of_an_upload(
    proxy: Paceproxy, client: RawClient, origin: Origin, end: Behaviour, method: str
) -> None:
    end = HalfClose(reads_body=False) if isinstance(end, HalfClose) else end
    origin.script = {"/page": [chain(Hear(1000), end), FINE]}
    before = stalls(proxy)["connection_terminated"]
    head = f"{method} {origin.url('/page')} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(UPLOAD)}\r\n\r\n"
    client.send(head.encode() + UPLOAD)
    answer = client.answer()
    assert stalls(proxy)["connection_terminated"] == before + 1
    if method == "PUT":
        assert (answer.status, answer.body) == (200, b"fine")
        assert "attempts=2" in answer.proxy_status
        assert origin.requests[-1].body == UPLOAD
        return
    assert answer.status == 502
    assert "error=connection_terminated" in answer.proxy_status
    assert origin.hits("/page") == 1
    client.get(origin.url("/next"))
    assert client.answer().status == 200


@pytest.mark.parametrize("secure", [False, True], ids=["HTTP", "HTTPS"])
@pytest.mark.parametrize("end", [pytest.param(close(), id="FIN"), pytest.param(reset(), id="RST")])
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_an_end_after_the_complete_response_disturbs_nobody(
    proxy: Paceproxy, client: RawClient, secure: bool, end: Behaviour, chunked: bool
) -> None:
    page = respond(200, b"fine", chunked=chunked)
    before = stalls(proxy)
    with Origin(lambda request: chain(page, end), tls=secure) as origin:
        if secure:
            assert client.connect(origin.host).status == 200
            client.start_tls("127.0.0.1", proxy.ca)
        for number in range(10):
            target = f"/{number}" if secure else origin.url(f"/{number}")
            client.send(f"GET {target} HTTP/1.1\r\nHost: {origin.host}\r\n\r\n".encode())
            answer = client.answer()
            assert (answer.status, answer.body, answer.proxy_status) == (200, b"fine", "")
        assert len(origin.requests) == 10
    assert stalls(proxy) == before


# A connection that was kept alive.


@ENDS
@BEFORE_A_HEAD
def test_a_kept_alive_connection_that_ends_as_the_request_goes_out_is_redialled_and_nobody_notices(
    proxy: Paceproxy, client: RawClient, origin: Origin, said: bytes, end: Behaviour
) -> None:
    origin.script = {"/page": [chain(Raw(said), end), FINE]}
    keep_alive(client, origin)
    before = stalls(proxy)
    client.get(origin.url("/page"))
    answer = client.answer()
    assert (answer.status, answer.body, answer.proxy_status) == (200, b"fine", "")
    assert [request.connection for request in origin.requests] == [1, 1, 2]
    assert stalls(proxy) == before


@pytest.mark.parametrize("end", [pytest.param(close(), id="FIN"), pytest.param(reset(), id="RST")])
def test_a_kept_alive_connection_that_ended_while_idle_is_not_used_any_more(
    proxy: Paceproxy, client: RawClient, origin: Origin, end: Behaviour
) -> None:
    origin.script = {"/before": chain(FINE, end)}
    keep_alive(client, origin)
    origin.wait_for(lambda o: o.connections[0].closed_at is not None)
    before = attempts(proxy), stalls(proxy)
    for path in ("/first", "/second"):
        client.get(origin.url(path))
        answer = client.answer()
        assert (answer.status, answer.proxy_status) == (200, "")
    assert [request.connection for request in origin.requests] == [1, 2, 2]
    assert (attempts(proxy), stalls(proxy)) == (before[0] + 2, before[1])


@pytest.mark.parametrize("end", [pytest.param(close(), id="FIN"), pytest.param(reset(), id="RST")])
def test_a_kept_alive_connection_with_tls_that_ends_is_redialled_too(
    proxy: Paceproxy, client: RawClient, secure_origin: Origin, end: Behaviour
) -> None:
    secure_origin.script = {"/page": [end, FINE]}
    assert client.connect(secure_origin.host).status == 200
    client.start_tls("127.0.0.1", proxy.ca)
    before = stalls(proxy)
    for path in ("/before", "/page"):
        client.send(f"GET {path} HTTP/1.1\r\nHost: {secure_origin.host}\r\n\r\n".encode())
        answer = client.answer()
        assert (answer.status, answer.proxy_status) == (200, "")
    assert [request.connection for request in secure_origin.requests] == [1, 1, 2]
    assert stalls(proxy) == before


def test_an_http2_connection_that_ends_is_redialled_for_all_its_requests(proxy: Paceproxy) -> None:
    def answer(stream: Stream) -> Answer:
        if stream.connection > 1 or stream.path == "/before":
            return 200, b"fine"
        return END if stream.path == "/end" else None

    before = stalls(proxy)
    with H2Origin(answer) as origin, H2Client(proxy.port, "localhost", origin.port, proxy.ca) as client:
        assert client.get("/before").status == 200
        streams = [client.send(path) for path in ("/first", "/second", "/end")]
        answers = [client.answer(stream) for stream in streams]
    assert [(one.status, one.body) for one in answers] == [(200, b"fine")] * 3
    assert all("proxy-status" not in dict(one.fields) for one in answers)
    assert [origin.hits(path) for path in ("/first", "/second", "/end")] == [2, 2, 2]
    assert stalls(proxy) == before


def test_an_origin_that_ends_each_connection_after_a_few_requests_serves_them_all(
    proxy: Paceproxy, client: RawClient, origin: Origin
) -> None:
    # Every third request of a connection finds it closed: the counter of requests, as many servers have one.
    seen: dict[int, int] = {}

    def script(request: object) -> Behaviour:
        number = origin.requests[-1].connection
        seen[number] = seen.get(number, 0) + 1
        return reset() if seen[number] == 3 else FINE

    origin.script = script
    before = attempts(proxy), stalls(proxy)
    for number in range(12):
        client.get(origin.url(f"/{number}"))
        answer = client.answer()
        assert (answer.status, answer.proxy_status) == (200, "")
    assert (attempts(proxy), stalls(proxy)) == (before[0] + 12, before[1])


def test_a_crawl_that_finds_all_its_connections_stale_goes_on(proxy: Paceproxy, origin: Origin) -> None:
    clients = [RawClient(proxy.port) for _ in range(20)]
    try:
        for client in clients:
            client.get(origin.url("/before"))
        assert [client.answer().status for client in clients] == [200] * 20
        before = attempts(proxy), stalls(proxy)
        # The origin has let go of all of them without a word: the next request on each meets with RST.
        stale = {connection.number for connection in origin.connections}
        origin.script = lambda request: reset() if request.connection in stale else FINE
        for client in clients:
            client.get(origin.url("/after"))
        answers = [client.answer() for client in clients]
    finally:
        for client in clients:
            client.close()
    assert [(answer.status, answer.proxy_status) for answer in answers] == [(200, "")] * 20
    assert (attempts(proxy), stalls(proxy)) == (before[0] + 20, before[1])


def test_a_second_end_of_one_request_is_a_stall(proxy: Paceproxy, client: RawClient, origin: Origin) -> None:
    origin.script = {"/page": [reset(), reset(), FINE]}
    keep_alive(client, origin)
    before = stalls(proxy)["connection_terminated"]
    client.get(origin.url("/page"))
    answer = client.answer()
    assert (answer.status, answer.body) == (200, b"fine")
    assert "attempts=2" in answer.proxy_status
    assert stalls(proxy)["connection_terminated"] == before + 1


# What origins send unasked.


def test_a_response_on_an_idle_connection_is_nobodys_answer(
    proxy: Paceproxy, client: RawClient, origin: Origin
) -> None:
    # Apache and many load balancers say this before they close an idle connection; this one waits for us to do so.
    origin.script = {"/before": chain(FINE, late(0.05, Raw(REQUEST_TIMEOUT)), silent())}
    keep_alive(client, origin)
    origin.wait_for(lambda o: o.connections[0].closed_at is not None)
    client.get(origin.url("/page"))
    answer = client.answer()
    assert (answer.status, answer.body, answer.proxy_status) == (200, b"ok", "")
    assert [request.connection for request in origin.requests] == [1, 2]


def test_a_response_too_many_is_nobodys_answer(proxy: Paceproxy, client: RawClient, origin: Origin) -> None:
    origin.script = {"/before": Raw(response_head(200, [("Content-Length", "2")]) + b"ok" + REQUEST_TIMEOUT)}
    keep_alive(client, origin)
    client.get(origin.url("/page"))
    answer = client.answer()
    assert (answer.status, answer.body) == (200, b"ok")
    assert [request.connection for request in origin.requests] == [1, 2]


def test_a_request_timeout_that_crosses_the_request_is_not_its_answer(
    proxy: Paceproxy, client: RawClient, origin: Origin
) -> None:
    origin.script = {"/page": [chain(Raw(REQUEST_TIMEOUT), HalfClose()), FINE]}
    keep_alive(client, origin)
    before = attempts(proxy), stalls(proxy)
    client.get(origin.url("/page"))
    answer = client.answer()
    assert (answer.status, answer.body, answer.proxy_status) == (200, b"fine", "")
    assert [request.connection for request in origin.requests] == [1, 1, 2]
    assert (attempts(proxy), stalls(proxy)) == (before[0] + 1, before[1])


@pytest.mark.parametrize(
    "end", [pytest.param(silent(), id="never closes"), pytest.param(HalfClose(), id="half-closes")]
)
def test_a_connection_that_its_origin_gives_up_is_closed(
    proxy: Paceproxy, client: RawClient, origin: Origin, end: Behaviour
) -> None:
    said = response_head(200, [("Content-Length", "2"), ("Connection", "close")]) + b"ok"
    origin.script = {"/page": chain(Raw(said), end)}
    client.get(origin.url("/page"))
    answer = client.answer()
    assert (answer.status, answer.body) == (200, b"ok")
    origin.wait_for(lambda o: o.connections[0].closed_at is not None)


def test_a_connection_that_is_half_closed_after_the_response_is_closed(
    proxy: Paceproxy, client: RawClient, origin: Origin
) -> None:
    # It does not say that it will, unlike `Connection: close`.
    origin.script = {"/before": chain(FINE, HalfClose())}
    keep_alive(client, origin)
    origin.wait_for(lambda o: o.connections[0].closed_at is not None)
    client.get(origin.url("/page"))
    assert client.answer().status == 200
    assert [request.connection for request in origin.requests] == [1, 2]
