"""SIGTERM: what is in hand is finished, what cannot be is told so, and the exit code is 0.

`--drain 600` where nothing may have to wait for it: a drain that does not notice its end runs into the guard of
`Paceproxy.stop`, long before.
"""

import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.behaviours import Drip, late, respond, silent
from tests.support.clients import RawClient
from tests.support.origin import Origin
from tests.support.proxy import Paceproxy
from tests.support.waiting import until


def terminate(proxy: Paceproxy) -> None:
    """Send SIGTERM, and return once the proxy has noticed."""
    port = proxy.port
    proxy.process.send_signal(signal.SIGTERM)
    until(lambda: refuses(port), "the proxy took no more connections")


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except ConnectionRefusedError:
        return True
    return False


def plain(proxy: Paceproxy, origin: Origin) -> RawClient:
    client = RawClient(proxy.port)
    client.get(origin.url("/first"))
    assert client.answer().status == 200
    return client


def tunnelled(proxy: Paceproxy, origin: Origin) -> RawClient:
    client = RawClient(proxy.port)
    assert client.connect(origin.host).status == 200
    client.start_tls("127.0.0.1", proxy.ca)
    client.send(f"GET /first HTTP/1.1\r\nHost: {origin.host}\r\n\r\n".encode())
    assert client.answer().status == 200
    return client


def connected(proxy: Paceproxy, origin: Origin) -> RawClient:
    return RawClient(proxy.port)


@pytest.mark.parametrize("connect", [connected, plain, tunnelled])
def test_idle_connections_do_not_delay_the_end(
    confdir: Path, connect: Callable[[Paceproxy, Origin], RawClient]
) -> None:
    with (
        Origin(tls=connect is tunnelled) as origin,
        Paceproxy("--drain", "600", "--ssl-insecure", confdir=confdir) as proxy,
        connect(proxy, origin) as client,
    ):
        proxy.stop()
        assert client.rest() == b""


def test_an_attempt_in_flight_is_finished_and_its_connection_closed(origin: Origin, confdir: Path) -> None:
    origin.script = {"/slow": late(1, respond(200, b"slow"))}
    with Paceproxy("--drain", "600", confdir=confdir) as proxy, RawClient(proxy.port) as client:
        client.get(origin.url("/slow"))
        origin.wait_for(lambda o: o.hits("/slow"))
        terminate(proxy)
        answer = client.answer()
        assert (answer.status, answer.body) == (200, b"slow")
        assert answer.values("Connection") == ["close"]
        assert client.rest() == b""
        assert proxy.wait() == 0


def test_a_waiting_request_whose_slot_comes_in_time_is_served(origin: Origin, confdir: Path) -> None:
    origin.script = {"/sick": [respond(503), respond(200, b"well")]}
    with (
        Paceproxy("--drain", "600", "--ladder", "0,1", confdir=confdir) as proxy,
        RawClient(proxy.port) as client,
    ):
        client.get(origin.url("/sick"))
        proxy.wait_for_metric("paceproxy_host_rung", 1, host=origin.host)
        terminate(proxy)
        answer = client.answer()
        assert (answer.status, answer.body) == (200, b"well")
        assert proxy.wait() == 0


def test_a_waiting_request_whose_slot_comes_too_late_is_told_so(origin: Origin, confdir: Path) -> None:
    origin.script = {"/sick": respond(503)}
    with (
        Paceproxy("--drain", "0.5", "--ladder", "0,100", confdir=confdir) as proxy,
        RawClient(proxy.port) as sick,
        RawClient(proxy.port) as unsent,
    ):
        sick.get(origin.url("/sick"))
        proxy.wait_for_metric("paceproxy_host_rung", 1, host=origin.host)
        unsent.get(origin.url("/unsent"))
        proxy.wait_for_metric("paceproxy_host_waiting", 2, host=origin.host)
        terminate(proxy)
        answers = [sick.answer(), unsent.answer()]
        assert [answer.status for answer in answers] == [503, 503]
        assert answers[1].values("Retry-After")
        assert proxy.wait() == 0
    assert origin.hits("/unsent") == 0


def test_an_attempt_without_a_head_at_the_end_of_the_drain_is_told_so(origin: Origin, confdir: Path) -> None:
    origin.mode = silent()
    with Paceproxy("--drain", "0.5", confdir=confdir) as proxy, RawClient(proxy.port) as client:
        client.get(origin.url("/silent"))
        origin.wait_for(lambda o: o.hits("/silent"))
        terminate(proxy)
        answer = client.answer()
        assert answer.status == 503
        assert answer.values("Retry-After")
        assert proxy.wait() == 0


def test_a_response_in_its_body_at_the_end_of_the_drain_is_reset(origin: Origin, confdir: Path) -> None:
    origin.script = {"/endless": Drip((b"x" * 1000,) * 1000, 0.1)}
    with Paceproxy("--drain", "0.5", confdir=confdir) as proxy, RawClient(proxy.port) as client:
        client.get(origin.url("/endless"))
        assert client.receive().startswith(b"HTTP/1.1 200 ")
        terminate(proxy)
        # It must not look like the end of the page.
        with pytest.raises(ConnectionResetError):
            client.rest()
        assert proxy.wait() == 0


def test_a_second_signal_ends_it_at_once(origin: Origin, confdir: Path) -> None:
    origin.mode = silent()
    with Paceproxy("--drain", "600", confdir=confdir) as proxy, RawClient(proxy.port) as client:
        client.get(origin.url("/silent"))
        origin.wait_for(lambda o: o.hits("/silent"))
        terminate(proxy)
        with pytest.raises(subprocess.TimeoutExpired):
            proxy.process.wait(0.5)  # it drains
        proxy.process.send_signal(signal.SIGTERM)
        assert proxy.wait() == 0
