"""Whatever a client sends: a clear error, no crash in the log, and nothing left behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.behaviours import respond, silent
from tests.support.clients import RawClient, curl
from tests.support.origin import Origin
from tests.support.ports import refusing_port, unreachable_port
from tests.support.proxy import Paceproxy
from tests.support.waiting import until


@pytest.fixture(scope="module")
def running(confdir: Path) -> Iterator[Paceproxy]:
    flags = ("--ladder", "0,0.1", "--connect-timeout", "0.3", "--window", "2")
    with Paceproxy(*flags, confdir=confdir) as proxy:
        yield proxy


@pytest.fixture
def proxy(running: Paceproxy, origin: Origin) -> Iterator[Paceproxy]:
    """The module's proxy; after each test it must be idle, and still serve."""
    yield running
    running.assert_idle()
    origin.mode = None
    assert curl(running.url, origin.url("/after")).answer.status == 200


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x00\x01\x02\x03\r\n\r\n", id="binary"),
        pytest.param(b"GET\r\n\r\n", id="no target"),
        pytest.param(b"GET http://127.0.0.1:1/ SPDY/3\r\nHost: a\r\n\r\n", id="another protocol"),
        pytest.param(b"GET http://127.0.0.1:1/ HTTP/1.1\r\nno colon\r\n\r\n", id="a field without a colon"),
        pytest.param(b"GET http:// HTTP/1.1\r\nHost: a\r\n\r\n", id="no host"),
        pytest.param(b"GET http://127.0.0.1:port/ HTTP/1.1\r\nHost: a\r\n\r\n", id="a port that is no number"),
        pytest.param(b"GET ftp://127.0.0.1:1/ HTTP/1.1\r\nHost: a\r\n\r\n", id="another scheme"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="neither a target's host nor a Host field"),
        pytest.param(b"CONNECT a HTTP/1.1\r\n\r\n", id="CONNECT without a port"),
        pytest.param(
            b"POST http://127.0.0.1:1/ HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
            id="a negative length",
        ),
        pytest.param(
            b"POST http://127.0.0.1:1/ HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            id="two framings",
        ),
    ],
)
def test_what_is_no_request_is_answered_with_400(proxy: Paceproxy, data: bytes) -> None:
    with RawClient(proxy.port) as client:
        client.send(data)
        answer = client.answer()
        assert client.rest() == b""
    assert answer.status == 400
    assert answer.proxy_status.startswith("paceproxy; error=http_request_error")


def test_http2_without_tls_is_a_version_that_we_do_not_speak(proxy: Paceproxy) -> None:
    with RawClient(proxy.port) as client:
        client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        answer = client.answer()
        assert client.rest() == b""
    assert answer.status == 505
    assert answer.proxy_status.startswith("paceproxy; error=http_request_error")


def send_64_mb(client: RawClient) -> None:
    for _ in range(64):
        client.send(b"x" * 1_000_000)


def test_a_head_without_end_is_refused_before_it_fills_the_memory(proxy: Paceproxy) -> None:
    with RawClient(proxy.port) as client:
        client.send(b"GET http://127.0.0.1:1/ HTTP/1.1\r\nHost: a\r\nX: ")
        with pytest.raises(ConnectionError):
            send_64_mb(client)


def test_an_absurdly_long_head_is_answered_with_431(proxy: Paceproxy) -> None:
    with RawClient(proxy.port) as client:
        client.send(b"GET http://127.0.0.1:1/ HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 2_000_000 + b"\r\n\r\n")
        assert client.answer().status == 431


def test_an_unknown_method_is_the_origins_business(proxy: Paceproxy, origin: Origin) -> None:
    origin.script = {"/pot": [respond(503, b"not now"), respond()]}
    result = curl(proxy.url, origin.url("/pot"), "-X", "BREW")
    # Nobody knows whether BREW may be sent twice: so its own reply comes back.
    assert (result.answer.status, result.answer.body) == (503, b"not now")
    assert [request.method for request in origin.requests] == ["BREW"]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_port_that_refuses_is_answered_at_once(proxy: Paceproxy, method: str) -> None:
    with refusing_port() as port:
        answer = curl(proxy.url, f"http://127.0.0.1:{port}/", "-X", method).answer
    assert answer.status == 502
    assert "error=connection_refused" in answer.proxy_status


def test_connect_to_a_port_that_refuses_is_answered_inside_the_tunnel(proxy: Paceproxy) -> None:
    with refusing_port() as port:
        answer = curl(proxy.url, f"https://127.0.0.1:{port}/", ca=proxy.ca).answer
    assert answer.status == 502
    assert "error=connection_refused" in answer.proxy_status


def test_connect_to_a_port_that_never_answers_is_waited_out_until_the_window_closes(
    proxy: Paceproxy,
) -> None:
    with unreachable_port() as port:
        answer = curl(proxy.url, f"https://127.0.0.1:{port}/", ca=proxy.ca).answer
    assert answer.status == 504
    assert "error=connection_timeout" in answer.proxy_status


def test_connect_to_a_name_that_does_not_exist_is_answered_inside_the_tunnel(proxy: Paceproxy) -> None:
    answer = curl(proxy.url, "https://nowhere.invalid/", ca=proxy.ca).answer
    assert answer.status == 502
    assert "error=dns_error" in answer.proxy_status


def test_after_connect_only_tls_or_http_is_spoken(proxy: Paceproxy, origin: Origin) -> None:
    with RawClient(proxy.port) as client:
        assert client.connect(origin.host).status == 200
        # One line, after which its client waits for ours.
        client.send(b"SSH-2.0-OpenSSH_9.2\r\n")
        assert b"--tunnel-ports" in client.rest()
    assert origin.connections == []
    until(lambda: "neither TLS nor HTTP (see --tunnel-ports)" in proxy.log, "the log said why")


@pytest.mark.parametrize("way", ["close", "reset", "half_close"])
@pytest.mark.parametrize("framing", ["Content-Length: 1000", "Transfer-Encoding: chunked"])
def test_a_client_that_leaves_in_its_body_sends_nothing_to_the_origin(
    proxy: Paceproxy, origin: Origin, way: str, framing: str
) -> None:
    with RawClient(proxy.port) as client:
        head = f"POST {origin.url('/half')} HTTP/1.1\r\nHost: {origin.host}\r\n{framing}\r\n\r\n"
        client.send(head.encode() + b"5\r\nhello\r\n")
        getattr(client, way)()
    proxy.assert_idle()
    assert origin.hits("/half") == 0


def test_garbage_in_a_chunked_body_ends_the_request(proxy: Paceproxy, origin: Origin) -> None:
    with RawClient(proxy.port) as client:
        head = f"POST {origin.url('/half')} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        client.send(head.encode() + b"zz\r\n")
        client.rest()
    assert origin.hits("/half") == 0


@pytest.mark.parametrize("way", ["close", "reset", "half_close"])
def test_a_client_that_leaves_before_the_reply_is_abandoned(proxy: Paceproxy, origin: Origin, way: str) -> None:
    origin.mode = silent()
    before = proxy.metric("paceproxy_requests_total", outcome="abandoned")
    with RawClient(proxy.port) as client:
        client.get(origin.url("/silent"))
        origin.wait_for(lambda o: o.hits("/silent"))
        getattr(client, way)()
        proxy.wait_for_metric("paceproxy_requests_total", before + 1, outcome="abandoned")
    # Its attempt is called off as well.
    origin.wait_for(lambda o: o.connections[-1].closed_at)


@pytest.mark.parametrize("way", ["close", "reset", "half_close"])
def test_a_client_that_leaves_the_line_makes_no_attempt(proxy: Paceproxy, origin: Origin, way: str) -> None:
    origin.script = {"/limited": respond(429, fields=[("Retry-After", "1")])}
    with RawClient(proxy.port) as limited, RawClient(proxy.port) as client:
        limited.get(origin.url("/limited"))
        proxy.wait_for_metric("paceproxy_host_waiting", 1, host=origin.host)
        client.get(origin.url("/waiting"))
        proxy.wait_for_metric("paceproxy_host_waiting", 2, host=origin.host)
        getattr(client, way)()
        proxy.wait_for_metric("paceproxy_host_waiting", 1, host=origin.host)
    proxy.assert_idle()
    assert origin.hits("/waiting") == 0


def test_pipelined_requests_are_answered_in_order(proxy: Paceproxy, origin: Origin) -> None:
    origin.script = {f"/{n}": respond(200, f"page {n}".encode()) for n in range(3)}
    with RawClient(proxy.port) as client:
        client.send(
            b"".join(f"GET {origin.url(f'/{n}')} HTTP/1.1\r\nHost: {origin.host}\r\n\r\n".encode() for n in range(3))
        )
        assert [client.answer().body for _ in range(3)] == [b"page 0", b"page 1", b"page 2"]


def test_an_empty_line_before_a_request_is_ignored(proxy: Paceproxy, origin: Origin) -> None:
    with RawClient(proxy.port) as client:
        client.send(b"\r\n")
        client.get(origin.url("/"))
        assert client.answer().status == 200
