"""Tunnels of raw bytes through the real command: paced at CONNECT, counted as one request, reset at a drain's end."""

import signal
import socket
from pathlib import Path

import pytest

from tests.support.clients import RawClient
from tests.support.proxy import Paceproxy
from tests.support.silence import closed_port, full_backlog


def test_a_tunnel_is_one_request_of_its_host_and_ends_with_the_drain(confdir: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        full_backlog() as dead_port,
        Paceproxy(
            *("--tunnel-ports", f"{listener.getsockname()[1]},{dead_port}"),
            *("--connect-timeout", "0.2", "--ladder", "0,0.1", "--window", "0.5", "--drain", "0.5"),
            confdir=confdir,
        ) as proxy,
    ):
        listener.settimeout(10)
        with RawClient(proxy.port) as client:
            answer = client.connect(f"127.0.0.1:{dead_port}")
            assert (answer.status, "error=connection_timeout" in answer.proxy_status) == (504, True)
            assert "attempts=" in answer.proxy_status
            assert proxy.metric("paceproxy_host_rung", host=f"127.0.0.1:{dead_port}") == 1
        with RawClient(proxy.port) as client:
            answer = client.connect(f"127.0.0.1:{listener.getsockname()[1]}")
            assert (answer.status, answer.values("Proxy-Status")) == (200, [])
            peer, _ = listener.accept()
            with peer:
                peer.sendall(b"220 mail.example\r\n")
                assert client.receive() == b"220 mail.example\r\n"
                assert proxy.metric("paceproxy_attempts_total", outcome="served") == 1
                proxy.process.send_signal(signal.SIGTERM)
                with pytest.raises(ConnectionResetError):
                    client.rest()
        assert proxy.wait() == 0


def test_two_proxies_that_are_each_others_parents_let_no_request_and_no_tunnel_go_round(confdir: Path) -> None:
    first_port = closed_port()
    ports = ("--tunnel-ports", "22")
    with (
        Paceproxy("--upstream", f"http://127.0.0.1:{first_port}", *ports, confdir=confdir) as second,
        Paceproxy("--listen", f"127.0.0.1:{first_port}", "--upstream", second.url, *ports, confdir=confdir) as first,
    ):
        with RawClient(first.port) as client:
            client.send(b"CONNECT shop.example:22 HTTP/1.1\r\nHost: shop.example\r\n\r\n")
            tunnel = client.answer()
        with RawClient(first.port) as client:
            client.get("http://shop.example/")
            page = client.answer()
        attempts = [proxy.metric("paceproxy_attempts_total") for proxy in (first, second)]
        rungs = [proxy.metrics().has("paceproxy_host_rung") for proxy in (first, second)]
    for answer in (tunnel, page):
        assert (answer.status, answer.proxy_status.count("proxy_loop_detected")) == (508, 1)
        assert answer.values("Retry-After") == []
    # Of each request, one attempt by each of them: the second time round it is not sent.
    assert attempts == [2, 2]
    assert rungs == [False, False]
