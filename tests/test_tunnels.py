"""Tunnels of raw bytes: how a CONNECT to a tunnel port is asked for, what passes, and how it ends."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from mitmproxy import http

from proxy_addon.dial import PacedConnectionHandler
from proxy_addon.model import ErrorName
from tests.support.behaviours import Tunnel
from tests.support.clients import RawClient
from tests.support.origin import Origin
from tests.support.rig import Rig, ScriptedPacing
from tests.support.silence import closed_port, full_backlog
from tests.support.waiting import until

CALLS = ["accept", "prepare", "grant", "sending", "replied", "first_byte", "close"]
GREETING = b"SSH-2.0-OpenSSH_9\r\n"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server that speaks no HTTP: its connections are the test's."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(10)
        yield listening


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def tunnelling(port: int, **what: object) -> ScriptedPacing:
    return ScriptedPacing(tunnel_ports=frozenset({port}), **what)  # type: ignore[arg-type]


@contextlib.contextmanager
def tunnel(listener: socket.socket, confdir: Path) -> Iterator[tuple[Rig, RawClient, socket.socket]]:
    """The proxy, and both ends of a tunnel through it."""
    port = port_of(listener)
    with Rig(tunnelling(port), confdir=confdir) as rig, RawClient(rig.port) as client:
        assert client.connect(f"127.0.0.1:{port}").status == 200
        peer, _ = listener.accept()
        with peer:
            peer.settimeout(10)
            yield rig, client, peer


def test_bytes_pass_both_ways_and_the_server_may_speak_first(listener: socket.socket, confdir: Path) -> None:
    with tunnel(listener, confdir) as (rig, client, peer):
        peer.sendall(GREETING)
        assert client.receive() == GREETING
        client.send(b"\x00\xff no HTTP at all")
        assert peer.recv(100) == b"\x00\xff no HTTP at all"
        client.half_close()
        assert peer.recv(100) == b""
        peer.sendall(b"after the client's end")
        assert client.receive() == b"after the client's end"
        peer.close()
        assert client.rest() == b""
        rig.wait_for("close", "")
        assert rig.pacing.of("") == CALLS
        assert [(reply.status, reply.error) for reply in rig.pacing.replies("")] == [(200, None)]


def test_the_servers_end_is_passed_on_and_the_client_may_go_on(listener: socket.socket, confdir: Path) -> None:
    with tunnel(listener, confdir) as (rig, client, peer):
        peer.shutdown(socket.SHUT_WR)
        assert client.rest() == b""
        client.send(b"one more thing")
        assert peer.recv(100) == b"one more thing"
        assert rig.pacing.of("")[-1] == "first_byte"
        client.close()
        assert peer.recv(100) == b""
        rig.wait_for("close", "")


def test_a_reset_by_the_server_is_a_reset_for_the_client(listener: socket.socket, confdir: Path) -> None:
    with tunnel(listener, confdir) as (rig, client, peer):
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        peer.close()
        with pytest.raises(ConnectionResetError):
            client.rest()
        rig.wait_for("close", "")
        # The connection came up: what becomes of it later is no fault of the host.
        assert rig.pacing.of("") == CALLS


def test_a_client_that_resets_ends_the_tunnel(listener: socket.socket, confdir: Path) -> None:
    with tunnel(listener, confdir) as (rig, client, peer):
        client.reset()
        with contextlib.suppress(ConnectionResetError):
            assert peer.recv(100) == b""
        rig.wait_for("close", "")


def test_a_server_that_is_gone_for_good_ends_the_tunnel(listener: socket.socket, confdir: Path) -> None:
    """It closed both ways: what the client sends then is answered with a reset."""
    with tunnel(listener, confdir) as (rig, client, peer):
        peer.close()
        assert client.rest() == b""

        def is_over() -> bool:
            with contextlib.suppress(OSError):
                client.send(b"x")
            return "close" in rig.pacing.of("")

        until(is_over, "the tunnel had ended")


def test_a_client_that_is_gone_for_good_ends_the_tunnel(listener: socket.socket, confdir: Path) -> None:
    with tunnel(listener, confdir) as (rig, client, peer):
        client.close()
        assert peer.recv(100) == b""

        def is_over() -> bool:
            with contextlib.suppress(OSError):
                peer.sendall(b"x")
            return "close" in rig.pacing.of("")

        until(is_over, "the tunnel had ended")


def test_a_side_that_does_not_read_is_waited_for(listener: socket.socket, confdir: Path) -> None:
    with tunnel(listener, confdir) as (rig, client, peer):
        (handler,) = rig.master.addons.get("proxyserver").connections.values()
        assert isinstance(handler, PacedConnectionHandler)
        sent = send_until_stuck(client._socket)
        peer_end = [one for one in handler.transports if one is not handler.client]
        assert [rig.call(lambda: handler.unsent_bytes(peer_end[0])) < 1_000_000] == [True]
        received = 0
        while received < sent:
            received += len(peer.recv(1_000_000))
        sent = send_until_stuck(peer)
        assert rig.call(lambda: handler.unsent_bytes(handler.client)) < 1_000_000
        while sent:
            sent -= len(client.receive(1_000_000))


def send_until_stuck(sender: socket.socket) -> int:
    """How many bytes were taken until nothing moved for half a second."""
    sent = 0
    sender.settimeout(0.5)
    with contextlib.suppress(TimeoutError):
        while sent < 100_000_000:
            sent += sender.send(b"x" * 65536)
    sender.settimeout(10)
    assert sent < 100_000_000, "somebody holds it all in memory"
    return sent


def test_a_held_connect_is_not_dialled_and_what_came_early_is_not_lost(listener: socket.socket, confdir: Path) -> None:
    port = port_of(listener)
    with Rig(tunnelling(port, hold=True), confdir=confdir) as rig, RawClient(rig.port) as client:
        client.send(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\nearly".encode())
        rig.wait_for("hold", "")
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
        listener.settimeout(10)
        rig.release()
        assert client.answer(method="CONNECT").status == 200
        peer, _ = listener.accept()
        with peer:
            peer.settimeout(10)
            assert peer.recv(100) == b"early"


def test_a_client_that_leaves_while_held_is_noticed_and_nothing_is_dialled(
    listener: socket.socket, confdir: Path
) -> None:
    port = port_of(listener)
    with Rig(tunnelling(port, hold=True), confdir=confdir) as rig:
        with RawClient(rig.port) as client:
            client.send(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            rig.wait_for("hold", "")
        rig.wait_for("close", "")
        assert rig.pacing.of("") == ["accept", "prepare", "grant", "hold", "left", "close"]
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_a_connection_that_does_not_come_up_is_tried_again_and_then_answered(confdir: Path) -> None:
    with full_backlog() as port:
        pacing = tunnelling(port, connect_timeout_s=0.1, max_attempts=2)
        with Rig(pacing, confdir=confdir) as rig, RawClient(rig.port) as client:
            answer = client.connect(f"127.0.0.1:{port}")
            assert (answer.status, answer.proxy_status) == (504, "paceproxy; error=connection_timeout")
    assert pacing.errors("") == [ErrorName.CONNECTION_TIMEOUT] * 2


def test_a_refused_tunnel_is_answered_and_the_clients_connection_goes_on(origin: Origin, confdir: Path) -> None:
    port = closed_port()
    pacing = tunnelling(port, max_attempts=1)
    with Rig(pacing, confdir=confdir) as rig, RawClient(rig.port) as client:
        client.send(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert client.answer().body == b"error: connection_refused"
        client.get(origin.url("/x"))
        assert client.answer().status == 200


def test_every_address_of_a_tunnel_is_asked_about(listener: socket.socket, confdir: Path) -> None:
    def refuse(address: str, port: int, *, configured: bool) -> ErrorName | None:
        return ErrorName.DESTINATION_IP_PROHIBITED

    port = port_of(listener)
    pacing = tunnelling(port, max_attempts=1)
    with Rig(pacing, confdir=confdir, refuse=refuse) as rig, RawClient(rig.port) as client:
        assert "destination_ip_prohibited" in client.connect(f"127.0.0.1:{port}").proxy_status
    assert pacing.errors("") == [ErrorName.DESTINATION_IP_PROHIBITED]


def test_another_addon_may_refuse_a_tunnel(listener: socket.socket, confdir: Path) -> None:
    class Guard:
        def http_connect(self, flow: http.HTTPFlow) -> None:
            flow.response = http.Response.make(407, b"who are you?")

    port = port_of(listener)
    with Rig(tunnelling(port), confdir=confdir, addons=[Guard()]) as rig, RawClient(rig.port) as client:
        assert client.connect(f"127.0.0.1:{port}").status == 407
    assert rig.pacing.calls == []


@pytest.mark.parametrize("error", ["prepare", "grant", "sending", "replied"])
def test_an_error_of_ours_opens_no_tunnel(listener: socket.socket, confdir: Path, error: str) -> None:
    port = port_of(listener)
    pacing = tunnelling(port, raise_in=error)
    with Rig(pacing, confdir=confdir, faults=True) as rig, RawClient(rig.port) as client:
        assert client.connect(f"127.0.0.1:{port}").status == 500
        rig.wait_for("close", "")


def test_a_tunnel_goes_through_a_parents_tunnel(listener: socket.socket, confdir: Path) -> None:
    port = port_of(listener)
    with (
        Origin(default=Tunnel()) as parent,
        Rig(tunnelling(port), mode=f"upstream:{parent.url('')}", confdir=confdir) as rig,
        RawClient(rig.port) as client,
    ):
        assert client.connect(f"127.0.0.1:{port}", "Via: 1.1 somebody").status == 200
        peer, _ = listener.accept()
        with peer:
            peer.settimeout(10)
            peer.sendall(GREETING)
            assert client.receive() == GREETING
            client.send(b"hello")
            assert peer.recv(100) == b"hello"
    assert [(request.method, request.target) for request in parent.requests] == [("CONNECT", f"127.0.0.1:{port}")]
    assert parent.requests[0].values("Via") == ["1.1 somebody"]


@pytest.mark.parametrize("port", [53, 5353])
def test_not_even_a_name_lookup_passes_elsewhere(confdir: Path, port: int) -> None:
    """mitmproxy would speak DNS there, and dial by itself."""
    asked: list[int] = []

    def refuse(address: str, port: int, *, configured: bool) -> ErrorName | None:
        asked.append(port)
        return ErrorName.DESTINATION_IP_PROHIBITED

    with Rig(confdir=confdir, refuse=refuse) as rig, RawClient(rig.port) as client:
        assert client.connect(f"127.0.0.1:{port}").status == 200
        client.send(b"\x00\x1d\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04shop\x07example\x00\x00\x01\x00\x01")
        assert client.rest() == b""
    assert asked == []


def test_an_option_of_mitmproxys_opens_no_tunnel(listener: socket.socket, confdir: Path) -> None:
    with Rig(confdir=confdir, tcp_hosts=[".*"]) as rig, RawClient(rig.port) as client:
        assert client.connect(f"127.0.0.1:{port_of(listener)}").status == 200
        client.send(GREETING)
        assert client.rest() == b""
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_a_tunnel_is_tried_again_as_the_pacing_says(listener: socket.socket, confdir: Path) -> None:
    refused = [ErrorName.DESTINATION_IP_UNROUTABLE, None]

    def refuse(address: str, port: int, *, configured: bool) -> ErrorName | None:
        return refused.pop(0)

    port = port_of(listener)
    with Rig(tunnelling(port), confdir=confdir, refuse=refuse) as rig, RawClient(rig.port) as client:
        assert client.connect(f"127.0.0.1:{port}").status == 200
        assert rig.pacing.errors("") == [ErrorName.DESTINATION_IP_UNROUTABLE, None]
        listener.accept()[0].close()


@contextlib.contextmanager
def websocket(
    listener: socket.socket, confdir: Path, *addons: object
) -> Iterator[tuple[Rig, RawClient, socket.socket]]:
    """The proxy, and both ends of a WebSocket through it."""
    place = f"127.0.0.1:{port_of(listener)}"
    with Rig(confdir=confdir, addons=addons) as rig, RawClient(rig.port) as client:
        upgrade = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: a2V5")
        client.get(f"http://{place}/ws", *upgrade)
        peer, _ = listener.accept()
        with peer:
            peer.settimeout(10)
            assert peer.recv(65536).startswith(b"GET /ws HTTP/1.1\r\n")
            peer.sendall(b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
            assert client.answer().status == 101
            yield rig, client, peer


def test_the_beginning_of_a_websocket_message_does_not_wait_for_its_end(listener: socket.socket, confdir: Path) -> None:
    with websocket(listener, confdir) as (_, client, peer):
        begun = b"\x01\x7e\xff\xffthe beginning of a fragment"
        peer.sendall(begun)
        assert client.receive() == begun
        client.send(b"\x01\xfe\xff\xff\0\0\0\0the same")
        assert peer.recv(100) == b"\x01\xfe\xff\xff\0\0\0\0the same"


@pytest.mark.parametrize("who", ["client", "origin"])
def test_a_websocket_ends_with_either_side(listener: socket.socket, confdir: Path, who: str) -> None:
    ended = []

    class Listening:
        def websocket_end(self, flow: http.HTTPFlow) -> None:
            assert flow.websocket is not None
            ended.append((flow.live, flow.websocket.close_code, flow.websocket.closed_by_client))

    with websocket(listener, confdir, Listening()) as (rig, client, peer):
        if who == "client":
            client.send(b"\x88\x80\0\0\0\0")
            client.half_close()
            assert peer.recv(100) == b"\x88\x80\0\0\0\0"
            assert peer.recv(100) == b""
        else:
            peer.sendall(b"\x88\x00")
            peer.close()
        assert client.rest() == (b"" if who == "client" else b"\x88\x00")
        rig.wait_for("close", "/ws")
    assert ended == [(False, 1005, who == "client")]
