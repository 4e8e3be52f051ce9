"""Origins whose connections or TLS do not come up: what each of them is called, and whether it is asked again."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.clients import Answer, curl
from tests.support.origin import Origin
from tests.support.proxy import Paceproxy
from tests.support.silence import full_backlog, mute_server

HANDSHAKE_FAILURE = b"\x15\x03\x03\x00\x02\x02\x28"
"""A TLS record with a fatal alert (RFC 8446 §6.2)."""


@pytest.fixture(scope="module")
def trusted() -> Iterator[Origin]:
    with Origin(tls=True) as running:
        yield running


@pytest.fixture(scope="module")
def misnamed() -> Iterator[Origin]:
    with Origin(tls=True, names=["somebody.example"]) as running:
        yield running


@pytest.fixture(scope="module")
def expired() -> Iterator[Origin]:
    with Origin(tls=True, expired=True) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(
    trusted: Origin, misnamed: Origin, expired: Origin, confdir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Paceproxy]:
    """It knows the authorities of these three, and gives every request two attempts, of a quarter of a second each."""
    bundle = tmp_path_factory.mktemp("trust") / "ca.pem"
    bundle.write_text("".join(origin.ca.read_text() for origin in (trusted, misnamed, expired)))
    flags = ("--connect-timeout", "0.25", "--ladder", "0,0.05", "--max-attempts", "2")
    with Paceproxy("--upstream-ca", str(bundle), *flags, confdir=confdir) as running:
        yield running


def ask(proxy: Paceproxy, port: int, scheme: str = "https") -> Answer:
    return curl(proxy.url, f"{scheme}://127.0.0.1:{port}/x", ca=proxy.ca).answer


def assert_failure(proxy: Paceproxy, port: int, error: str) -> None:
    """Answered after one attempt; the host is not slowed down."""
    answer = ask(proxy, port)
    assert (answer.status, f"error={error}" in answer.proxy_status) == (502, True), answer
    assert "attempts=" not in answer.proxy_status
    assert answer.values("Retry-After") == []
    assert not proxy.metrics().has("paceproxy_host_rung", host=f"127.0.0.1:{port}")


def assert_stall(proxy: Paceproxy, port: int, status: int, error: str, scheme: str = "https") -> None:
    """Asked again, and the host is slowed down."""
    answer = ask(proxy, port, scheme)
    assert (answer.status, f"error={error}" in answer.proxy_status) == (status, True), answer
    assert "attempts=2" in answer.proxy_status
    assert answer.values("Retry-After") == ["1"]
    assert proxy.metric("paceproxy_host_rung", host=f"127.0.0.1:{port}") == 1


@contextlib.contextmanager
def handshaking(act: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port that takes connections, reads the first of what the client says, and acts."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):  # The listener is shut down at the end.
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(65536)
                        act(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_a_certificate_that_is_in_order_is_no_fault(proxy: Paceproxy, trusted: Origin) -> None:
    assert ask(proxy, trusted.port).status == 200


def test_a_bad_certificate_is_never_asked_for_again(proxy: Paceproxy, misnamed: Origin, expired: Origin) -> None:
    with Origin(tls=True) as unknown:
        for origin in (misnamed, expired, unknown):
            assert_failure(proxy, origin.port, "tls_certificate_error")
            assert origin.requests == []


def test_an_alert_is_never_asked_for_again(proxy: Paceproxy) -> None:
    with handshaking(lambda connection: connection.sendall(HANDSHAKE_FAILURE)) as port:
        assert_failure(proxy, port, "tls_alert_received")


def test_an_origin_without_tls_on_its_port_is_never_asked_again(proxy: Paceproxy) -> None:
    with handshaking(lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as port:
        assert_failure(proxy, port, "tls_protocol_error")


def test_a_handshake_that_is_broken_off_is_a_stall(proxy: Paceproxy) -> None:
    with handshaking(reset) as port:
        assert_stall(proxy, port, 502, "connection_terminated")
    with handshaking(lambda connection: None) as port:
        assert_stall(proxy, port, 502, "connection_terminated")
    with handshaking(lambda connection: connection.sendall(b"\x16\x03\x03\x00\x7a\x02")) as port:
        assert_stall(proxy, port, 502, "connection_terminated")


def test_a_handshake_that_hangs_is_a_connection_that_does_not_come_up(proxy: Paceproxy) -> None:
    with mute_server() as port:
        assert_stall(proxy, port, 504, "connection_timeout")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_full_accept_backlog_is_a_connection_that_does_not_come_up(proxy: Paceproxy, scheme: str) -> None:
    with full_backlog() as port:
        assert_stall(proxy, port, 504, "connection_timeout", scheme)


def test_nothing_is_left_of_all_that(proxy: Paceproxy) -> None:
    proxy.assert_idle()
