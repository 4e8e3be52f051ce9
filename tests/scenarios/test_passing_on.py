"""What is not the proxy's business goes through as it came; what cannot be passed on is told as an error."""

import gzip
from contextlib import ExitStack

import pytest

from tests.support.behaviours import Raw, chain, garbage, informational, reset, respond, response_head, silent
from tests.support.clients import RawClient
from tests.support.origin import Origin
from tests.support.proxy import Paceproxy
from tests.support.visit import Behaviour

FINE = respond(200, b"fine")
CAPTCHA = b"<html><h1>Are you a robot?</h1></html>"


@pytest.fixture
def proxy(shared_proxy: Paceproxy) -> Paceproxy:
    return shared_proxy


def send(client: RawClient, method: str, url: str, body: bytes) -> None:
    head = f"{method} {url} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    client.send(head.encode() + body)


@pytest.mark.parametrize(
    ("status", "body"),
    [(200, CAPTCHA), (403, b"go away"), (404, b"not here"), (501, b"never heard of it"), (302, b"there")],
)
def test_an_answer_that_speaks_of_the_request_is_passed_on_at_once(
    proxy: Paceproxy, origin: Origin, status: int, body: bytes
) -> None:
    origin.mode = respond(status, body)
    before = proxy.metric("paceproxy_attempts_total", outcome="served")
    with RawClient(proxy.port) as client:
        for number in range(3):
            client.get(origin.url(f"/{number}"))
            answer = client.answer()
            assert (answer.status, answer.body, answer.proxy_status) == (status, body, "")
    assert len(origin.requests) == 3
    assert proxy.metric("paceproxy_attempts_total", outcome="served") == before + 3
    assert not proxy.metrics().has("paceproxy_host_rung", host=origin.host)


def test_names_keep_their_case_and_fields_their_order_both_ways(proxy: Paceproxy, origin: Origin) -> None:
    sent = b"X-CamelCase: a\r\nx-lower: b\r\nX-REPEATED: 1\r\nAccept: */*\r\nX-Repeated: 2\r\nx-repeated: 3\r\n"
    answered = b"HTTP/1.1 200 Oh Well\r\nX-CamelCase: a\r\nSet-Cookie: a=1\r\nx-lower: b\r\nset-cookie: b=2\r\n"
    whole = answered + b'CONTENT-length: 2\r\nETag: W/"x"\r\n\r\n'
    origin.mode = Raw(whole + b"ok")
    with RawClient(proxy.port) as client:
        client.send(f"GET {origin.url('/Page?Q=%7e')} HTTP/1.1\r\nHoSt: {origin.host}\r\n".encode() + sent + b"\r\n")
        answer = client.answer()
    (request,) = origin.requests
    assert request.head == f"GET /Page?Q=%7e HTTP/1.1\r\nHoSt: {origin.host}\r\n".encode() + sent + b"\r\n"
    assert answer.head == whole


def test_a_path_beyond_ascii_arrives_as_it_was_typed(proxy: Paceproxy, origin: Origin) -> None:
    with RawClient(proxy.port) as client:
        client.send(f"GET {origin.url('/stra')}".encode() + b"\xc3\x9fe?q=\xfc HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.answer().status == 200
    assert origin.requests[0].head.startswith(b"GET /stra\xc3\x9fe?q=\xfc HTTP/1.1\r\n")
    assert origin.requests[0].values("Host") == [origin.host]


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "zstd", "made-up", "gzip, gzip"])
def test_a_body_that_is_not_what_its_encoding_says_passes_byte_for_byte(
    proxy: Paceproxy, origin: Origin, encoding: str
) -> None:
    page = b"no such thing\x00\xff" + gzip.compress(b"or perhaps")
    origin.mode = respond(200, page, [("Content-Encoding", encoding)])
    with RawClient(proxy.port) as client:
        client.get(origin.url("/page"), "Accept-Encoding: gzip")
        answer = client.answer()
    assert (answer.status, answer.body, answer.values("Content-Encoding")) == (200, page, [encoding])


def test_a_chunked_response_with_trailers_arrives_and_leaves_its_connection_in_order(
    proxy: Paceproxy, origin: Origin
) -> None:
    origin.mode = respond(200, b"page", chunked=True, trailers=[("X-Checksum", "abc")])
    with RawClient(proxy.port) as client:
        for number in range(3):
            client.get(origin.url(f"/{number}"))
            answer = client.answer()
            assert (answer.status, answer.body, answer.proxy_status) == (200, b"page", "")
    assert [request.connection for request in origin.requests] == [1, 1, 1]


def test_early_hints_are_not_the_answer_and_count_as_nothing(proxy: Paceproxy, origin: Origin) -> None:
    hints = informational(103, [("Link", "</style.css>; rel=preload")])
    origin.mode = chain(hints, informational(102), hints, FINE)
    before = proxy.metric("paceproxy_attempts_total"), proxy.metric("paceproxy_requests_total")
    with RawClient(proxy.port) as client:
        for number in range(3):
            client.get(origin.url(f"/{number}"))
            answer = client.answer()
            while answer.status < 200:
                answer = client.answer()
            assert (answer.status, answer.body, answer.proxy_status) == (200, b"fine", "")
    after = proxy.metric("paceproxy_attempts_total"), proxy.metric("paceproxy_requests_total")
    assert after == (before[0] + 3, before[1] + 3)


@pytest.mark.parametrize("body", [b"2\r\nok\r\n0\r\n\r\n", b"ok"], ids=["chunked", "plain"])
def test_a_response_with_two_framings_is_refused(proxy: Paceproxy, origin: Origin, body: bytes) -> None:
    head = response_head(200, [("Content-Length", "2"), ("Transfer-Encoding", "chunked")])
    origin.mode = Raw(head + body)
    with RawClient(proxy.port) as client:
        client.get(origin.url("/page"))
        answer = client.answer()
        assert answer.status == 502
        assert "error=http_protocol_error" in answer.proxy_status
        # What came of it is not taken for the next response.
        origin.mode = FINE
        client.get(origin.url("/next"))
        assert client.answer().body == b"fine"
    assert [request.connection for request in origin.requests] == [1, 2]


def test_an_origin_that_says_nothing_is_a_stall_when_its_time_is_over(proxy: Paceproxy, origin: Origin) -> None:
    origin.mode = silent()
    before = proxy.metric("paceproxy_attempts_total", outcome="stall", error="http_response_timeout")
    with RawClient(proxy.port) as client:
        client.get(origin.url("/page"), "Pace-Window: 0")
        answer = client.answer()
    assert answer.status == 504
    assert "error=http_response_timeout" in answer.proxy_status
    assert proxy.metric("paceproxy_attempts_total", outcome="stall", error="http_response_timeout") == before + 1
    origin.wait_for(lambda o: o.requests[0].done_at)
    (request,) = origin.requests
    assert request.done_at is not None
    assert request.done_at - request.at >= 1.0 - 0.02


def test_connect_alone_dials_nothing(proxy: Paceproxy, secure_origin: Origin) -> None:
    with RawClient(proxy.port) as waiting, RawClient(proxy.port) as busy:
        assert waiting.connect(secure_origin.host).status == 200
        assert busy.connect(secure_origin.host).status == 200
        busy.start_tls("127.0.0.1", proxy.ca)
        busy.send(f"GET / HTTP/1.1\r\nHost: {secure_origin.host}\r\n\r\n".encode())
        assert busy.answer().status == 200
        assert len(secure_origin.connections) == 1
        waiting.start_tls("127.0.0.1", proxy.ca)
        waiting.send(f"GET / HTTP/1.1\r\nHost: {secure_origin.host}\r\n\r\n".encode())
        assert waiting.answer().status == 200
        assert len(secure_origin.connections) == 2


def test_the_attempts_counted_are_the_requests_in_the_origins_log(proxy: Paceproxy) -> None:
    """What was sent again over a fresh connection is no attempt: it has a counter of its own."""
    script: dict[str, Behaviour | list[Behaviour]] = {
        "/fine": FINE,
        "/gone": [reset(), FINE],
        "/chunked": respond(200, b"fine", chunked=True),
        "/hints": chain(informational(103), FINE),
        "/missing": respond(404),
        "/busy": [respond(503), respond(503), FINE],
        "/limited": [respond(429), FINE],
        "/reset": [reset(), FINE],
        "/garbage": [garbage(), FINE],
        "/cut": [chain(Raw(response_head(200, [("Content-Length", "9")]) + b"fi"), reset()), FINE],
        "/framings": Raw(response_head(200, [("Content-Length", "2"), ("Transfer-Encoding", "chunked")])),
        "/silent": [silent(), FINE],
        "/order": respond(500),
    }
    names = ("paceproxy_attempts_total", "paceproxy_redials_total", "paceproxy_requests_total")
    before = proxy.metrics()
    with ExitStack() as stack:
        origins = [stack.enter_context(Origin(script)) for _ in range(3)]
        clients = [stack.enter_context(RawClient(proxy.port)) for _ in origins]
        for path in script:
            for client, origin in zip(clients, origins, strict=True):
                if path == "/order":
                    send(client, "POST", origin.url(path), b"one")
                else:
                    client.get(origin.url(path))
            statuses = {client.answer().status for client in clients}
            assert statuses == {{"/missing": 404, "/framings": 502, "/order": 500}.get(path, 200)}, path
        logged = sum(len(origin.requests) for origin in origins)
        after = proxy.metrics()
    attempts, redials, requests = (after.value(name) - before.value(name) for name in names)
    assert requests == 3 * len(script)
    assert redials == 3
    assert attempts + redials == logged
