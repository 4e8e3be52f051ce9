"""Why a connection did not come about: TLS with origins, and parent proxies. Real OpenSSL, real sockets."""

import contextlib
import datetime
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from proxy_addon.model import ErrorName, Reply
from proxy_addon.origins import parent_failure, tls_error
from tests.support.behaviours import Close, Raw, Reset, Silent, Tunnel, respond
from tests.support.clients import Answer, RawClient, curl
from tests.support.origin import Origin
from tests.support.rig import Rig, ScriptedPacing
from tests.support.silence import closed_port, full_backlog, mute_server
from tests.support.visit import Behaviour


def one_attempt(**changes: float) -> ScriptedPacing:
    return ScriptedPacing(max_attempts=1, **changes)  # type: ignore[arg-type]


def get_secure(rig: Rig, port: int, host: str = "localhost", path: str = "/x") -> Answer:
    """A GET in a tunnel. What the client trusts does not matter here."""
    return curl(rig.url, f"https://{host}:{port}{path}", "-k").answer


@contextlib.contextmanager
def tls_peer(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server that does this with each connection it takes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = listener.accept()
                with peer, contextlib.suppress(OSError, ssl.SSLError):
                    serve(peer)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(10)


def alert(peer: socket.socket) -> None:
    """A fatal handshake_failure, record by record (RFC 8446 §6)."""
    peer.recv(65536)
    peer.sendall(b"\x15\x03\x03\x00\x02\x02\x28")
    peer.recv(1)


def old_version(peer: socket.socket) -> None:
    """A fatal protocol_version."""
    peer.recv(65536)
    peer.sendall(b"\x15\x03\x03\x00\x02\x02\x46")
    peer.recv(1)


def plain_http(peer: socket.socket) -> None:
    peer.recv(65536)
    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    peer.recv(1)


def hang_up(peer: socket.socket) -> None:
    peer.recv(65536)


def slam(peer: socket.socket) -> None:
    peer.recv(65536)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


@pytest.mark.parametrize(
    ("serve", "error"),
    [
        (alert, ErrorName.TLS_ALERT_RECEIVED),
        (old_version, ErrorName.TLS_ALERT_RECEIVED),
        (plain_http, ErrorName.TLS_PROTOCOL_ERROR),
        (hang_up, ErrorName.CONNECTION_TERMINATED),
        (slam, ErrorName.CONNECTION_TERMINATED),
    ],
)
def test_a_handshake_that_fails_has_its_name(
    confdir: Path, serve: Callable[[socket.socket], None], error: ErrorName
) -> None:
    with tls_peer(serve) as port, Rig(one_attempt(), confdir=confdir) as rig:
        assert get_secure(rig, port).proxy_status == f"paceproxy; error={error}"
    (reply,) = rig.pacing.replies("/x")
    assert (reply.error, reply.charged) == (error, True)


@pytest.mark.parametrize("known", [False, True])
def test_a_certificate_that_cannot_be_trusted_has_its_name(confdir: Path, known: bool) -> None:
    """First an unknown authority, then a known one with the wrong name."""
    with Origin(tls=True, names=["elsewhere.test" if known else "localhost"]) as origin:
        settings: dict[str, Any] = {"ssl_verify_upstream_trusted_ca": str(origin.ca)} if known else {}
        with Rig(one_attempt(), confdir=confdir, **settings) as rig:
            answer = get_secure(rig, origin.port)
            assert answer.proxy_status == "paceproxy; error=tls_certificate_error"
        (reply,) = rig.pacing.replies("/x")
        assert reply.details == (
            "certificate: hostname mismatch" if known else "certificate: unable to get local issuer certificate"
        )
        assert origin.requests == []


def test_an_expired_certificate_has_its_name(confdir: Path, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    expired = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    authority.issue_cert("localhost", not_after=expired, not_before=expired.replace(year=2019)).configure_cert(context)

    def serve(peer: socket.socket) -> None:
        context.wrap_socket(peer, server_side=True).close()

    settings: dict[str, Any] = {"ssl_verify_upstream_trusted_ca": str(tmp_path / "ca.pem")}
    with tls_peer(serve) as port, Rig(one_attempt(), confdir=confdir, **settings) as rig:
        get_secure(rig, port)
    assert rig.pacing.replies("/x") == [
        Reply(error=ErrorName.TLS_CERTIFICATE_ERROR, details="certificate: certificate has expired")
    ]


def test_a_trusted_certificate_is_accepted(secure_origin: Origin, confdir: Path) -> None:
    with Rig(confdir=confdir, ssl_verify_upstream_trusted_ca=str(secure_origin.ca)) as rig:
        assert curl(rig.url, secure_origin.url("/x", host="localhost"), ca=rig.ca).answer.status == 200


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("Certificate verify failed: certificate has expired", ErrorName.TLS_CERTIFICATE_ERROR),
        ("connection closed", ErrorName.CONNECTION_TERMINATED),
        ("tlsv1 alert unknown ca", ErrorName.TLS_ALERT_RECEIVED),
        ("ssl/tls alert bad certificate", ErrorName.TLS_ALERT_RECEIVED),
        ("OpenSSL Error([('SSL routines', '', 'sslv3 alert handshake failure')])", ErrorName.TLS_ALERT_RECEIVED),
        ("OpenSSL Error([('SSL routines', '', 'no protocols available')])", ErrorName.TLS_PROTOCOL_ERROR),
        ("The remote server does not speak TLS.", ErrorName.TLS_PROTOCOL_ERROR),
    ],
)
def test_the_texts_of_failed_handshakes(text: str, error: ErrorName) -> None:
    assert tls_error(text)[0] is error


# Time.


def test_a_host_that_does_not_take_connections_times_out(confdir: Path) -> None:
    with full_backlog() as port, Rig(one_attempt(connect_timeout_s=0.3), confdir=confdir) as rig:
        assert curl(rig.url, f"http://127.0.0.1:{port}/x").answer.status == 504
    assert rig.pacing.replies("/x") == [
        Reply(error=ErrorName.CONNECTION_TIMEOUT, details="the connection was not set up in time")
    ]


def test_tls_that_does_not_get_anywhere_times_out(confdir: Path) -> None:
    with mute_server() as port, Rig(one_attempt(connect_timeout_s=0.3), confdir=confdir) as rig:
        assert get_secure(rig, port).status == 504
    assert rig.pacing.errors("/x") == [ErrorName.CONNECTION_TIMEOUT]


def test_a_connection_that_comes_after_several_time_outs_is_used(origin: Origin, confdir: Path) -> None:
    pacing = ScriptedPacing(connect_timeout_s=0.2, max_attempts=50)
    with full_backlog() as port, Rig(pacing, confdir=confdir) as rig, RawClient(rig.port) as client:
        client.get(f"http://127.0.0.1:{port}/x")
        rig.wait_for("replied", "/x", 3)
        assert rig.pacing.errors("/x")[:3] == [ErrorName.CONNECTION_TIMEOUT] * 3


def test_a_refused_connection_and_a_name_that_does_not_resolve_have_their_names(
    confdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Rig(one_attempt(), confdir=confdir) as rig:
        curl(rig.url, f"http://127.0.0.1:{closed_port()}/refused")
        monkeypatch.setattr(socket, "getaddrinfo", _no_such_name)
        curl(rig.url, "http://site.test/no-name")
    assert rig.pacing.errors("/refused") == [ErrorName.CONNECTION_REFUSED]
    assert rig.pacing.errors("/no-name") == [ErrorName.DNS_ERROR]
    assert [reply.details for reply in rig.pacing.replies("/refused")] == ["connection refused"]


def _no_such_name(*_: object, **__: object) -> None:
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def test_a_lookup_that_takes_too_long_has_its_name(confdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    system = socket.getaddrinfo

    def slow(host: str, port: int, *, type: int, flags: int = 0) -> object:
        if not flags:
            go_on.wait(20)
        return system(host, port, type=type, flags=flags)

    with Rig(one_attempt(connect_timeout_s=0.3), confdir=confdir) as rig:
        monkeypatch.setattr(socket, "getaddrinfo", slow)
        curl(rig.url, "http://localhost:1/x")
        go_on.set()
    assert rig.pacing.replies("/x") == [Reply(error=ErrorName.DNS_TIMEOUT, details="the name lookup took too long")]


# Parent proxies.


@pytest.mark.parametrize("secure", [False, True])
def test_requests_go_through_a_parent_proxy_and_are_sent_again(
    origin: Origin, secure_origin: Origin, confdir: Path, secure: bool
) -> None:
    target = secure_origin if secure else origin
    target.script = {"/x": [respond(503), respond(200, b"fine")]}
    with Origin(lambda request: _forward(request.method)) as parent:
        mode = f"upstream:http://127.0.0.1:{parent.port}"
        with Rig(confdir=confdir, mode=mode, ssl_insecure=True) as rig:
            if secure:
                assert get_secure(rig, secure_origin.port).body == b"fine"
                # The tunnel is a connection to the origin: it is not kept through the wait.
                assert [request.method for request in parent.requests] == ["CONNECT", "CONNECT"]
                assert secure_origin.hits("/x") == 2
            else:
                # A plain request goes to the parent itself, which answers in the origin's place.
                answer = curl(rig.url, "http://site.test/x", "--proxy-header", "Proxy-Authorization: Basic x").answer
                assert answer.body == b"from the parent"
                assert [request.target for request in parent.requests] == ["http://site.test/x"]
                assert parent.requests[0].values("Proxy-Authorization") == ["Basic x"]


def _forward(method: str) -> Behaviour:
    return Tunnel() if method == "CONNECT" else respond(200, b"from the parent")


@pytest.mark.parametrize(
    ("behaviour", "details"),
    [
        (respond(502), "the parent proxy answered CONNECT with 502 Bad Gateway"),
        (respond(503), "the parent proxy answered CONNECT with 503 Service Unavailable"),
        (respond(407), "the parent proxy answered CONNECT with 407 Proxy Authentication Required"),
        (Raw(b"HTTP/1.1 599 \xff\xfe\r\n\r\n"), "the parent proxy answered CONNECT with 599"),
        (Raw(b"what?\r\n\r\n"), "the parent proxy's answer to CONNECT is no HTTP"),
        (Raw(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 300_000), "the parent proxy's answer to CONNECT is too long"),
        (Close(), "the parent proxy closed the connection instead of answering CONNECT"),
        (Reset(), "the parent proxy closed the connection instead of answering CONNECT"),
    ],
)
def test_a_parent_proxy_that_refuses_is_no_fault_of_the_origin(
    confdir: Path, behaviour: Behaviour, details: str
) -> None:
    with Origin(lambda request: behaviour) as parent:
        mode = f"upstream:http://127.0.0.1:{parent.port}"
        with Rig(one_attempt(), confdir=confdir, mode=mode, ssl_insecure=True) as rig:
            assert get_secure(rig, 443, "site.test").status == 504
        assert rig.pacing.replies("/x") == [
            Reply(error=ErrorName.PROXY_INTERNAL_RESPONSE, details=details, charged=False)
        ]


def test_a_parent_proxy_that_cannot_be_reached_is_no_fault_of_the_origin(confdir: Path) -> None:
    with Rig(one_attempt(), confdir=confdir, mode=f"upstream:http://127.0.0.1:{closed_port()}") as rig:
        curl(rig.url, "http://site.test/plain")
        get_secure(rig, 443, "site.test", "/secure")
    refused = Reply(
        error=ErrorName.CONNECTION_REFUSED, details="the parent proxy refused the connection", charged=False
    )
    assert rig.pacing.replies("/plain") == [refused]
    assert rig.pacing.replies("/secure") == [refused]
    with full_backlog() as port:
        pacing = one_attempt(connect_timeout_s=0.3)
        with Rig(pacing, confdir=confdir, mode=f"upstream:http://127.0.0.1:{port}") as rig:
            curl(rig.url, "http://site.test/slow")
        assert [(reply.error, reply.charged) for reply in pacing.replies("/slow")] == [
            (ErrorName.PROXY_INTERNAL_RESPONSE, False)
        ]


def test_tls_with_a_parent_proxy_that_does_not_get_anywhere_is_no_fault_of_the_origin(confdir: Path) -> None:
    with mute_server() as port:
        pacing = one_attempt(connect_timeout_s=0.3)
        with Rig(pacing, confdir=confdir, mode=f"upstream:https://127.0.0.1:{port}", ssl_insecure=True) as rig:
            curl(rig.url, "http://site.test/x")
        assert [(reply.error, reply.charged) for reply in pacing.replies("/x")] == [
            (ErrorName.PROXY_INTERNAL_RESPONSE, False)
        ]


def test_a_parent_proxy_that_waits_for_the_origin_is_the_fault_of_the_origin(confdir: Path) -> None:
    with Origin(lambda request: Silent()) as parent:
        pacing = one_attempt(connect_timeout_s=0.3)
        mode = f"upstream:http://127.0.0.1:{parent.port}"
        with Rig(pacing, confdir=confdir, mode=mode, ssl_insecure=True) as rig:
            get_secure(rig, 443, "site.test")
        assert [(reply.error, reply.charged) for reply in pacing.replies("/x")] == [
            (ErrorName.CONNECTION_TIMEOUT, True)
        ]


def test_tls_with_the_origin_fails_through_a_parent_proxy_as_without(confdir: Path) -> None:
    with Origin(lambda request: Tunnel()) as parent, Origin(tls=True) as untrusted:
        mode = f"upstream:http://127.0.0.1:{parent.port}"
        with Rig(one_attempt(), confdir=confdir, mode=mode) as rig:
            get_secure(rig, untrusted.port)
        assert [(reply.error, reply.charged) for reply in rig.pacing.replies("/x")] == [
            (ErrorName.TLS_CERTIFICATE_ERROR, True)
        ]


def test_a_secure_parent_proxy_that_cannot_be_trusted_is_no_fault_of_the_origin(confdir: Path) -> None:
    with Origin(tls=True) as parent:
        mode = f"upstream:https://localhost:{parent.port}"
        with Rig(one_attempt(), confdir=confdir, mode=mode) as rig:
            curl(rig.url, "http://site.test/x")
        (reply,) = rig.pacing.replies("/x")
        assert (reply.error, reply.charged) == (ErrorName.TLS_CERTIFICATE_ERROR, False)
        trusted: dict[str, Any] = {"ssl_verify_upstream_trusted_ca": str(parent.ca)}
        with Rig(confdir=confdir, mode=mode, **trusted) as rig:
            assert curl(rig.url, "http://site.test/y").answer.status == 200
        assert [request.target for request in parent.requests] == ["http://site.test/y"]


def test_what_fails_at_the_parent_is_charged_to_no_host() -> None:
    lost = parent_failure(Reply(error=ErrorName.DNS_ERROR, details="the name does not resolve"))
    assert lost == Reply(
        error=ErrorName.PROXY_INTERNAL_RESPONSE,
        details="the parent proxy cannot be reached: the name does not resolve",
        charged=False,
    )
