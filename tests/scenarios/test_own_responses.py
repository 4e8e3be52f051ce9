"""Every response that the proxy itself makes, provoked on the real command and read by httplint: no fault in any."""

import base64
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.behaviours import Close, Raw, Silent, chain, close, respond, silent, truncated
from tests.support.clients import Answer, RawClient
from tests.support.h2_client import H2Client, Stream
from tests.support.lint import faults
from tests.support.origin import Origin
from tests.support.ports import greeting_port, refusing_port, unreachable_port
from tests.support.proxy import Paceproxy
from tests.support.visit import Behaviour
from tests.support.waiting import until

COMMAND = Path(__file__).parents[1] / "support" / "faulty_command.py"
FAULT = "engine:Engine.grant"
JOE_BCRYPT = "$2b$04$cyq6IeiSGF4m9vB2WruR7ultvf3SOmbQITnkUfooTTRslk2Fj0h8y"
JOE = "Proxy-Authorization: Basic " + base64.b64encode(b"joe:secret").decode()
FLAGS = (
    *("--ladder", "0,0.05", "--window", "0.5", "--attempt-timeout", "0.2", "--connect-timeout", "0.2"),
    *("--body-timeout", "0.3", "--drain", "1", "--pause-after", "3", "--pause-per-request", "3", "--http2"),
)

NO_FAULT = {
    # Nothing but what these statuses mean, for whoever sent the request.
    ": The server didn't understand the request.",
    ": The request HTTP version isn't supported.",
}
NO_FAULT_OF_CONNECT = {
    # Nothing is dated here: what follows are the bytes of a tunnel. Proxies answer with a status line alone, and
    # there are clients that look for no more.
    ": This response doesn't have a Date header.",
}
GREETINGS = {
    "tls_protocol_error": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    # A record with the fatal alert handshake_failure, RFC 8446 §6.
    "tls_alert_received": b"\x15\x03\x03\x00\x02\x02\x28",
}
BOTH_LENGTHS = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Running:
    proxy: Paceproxy
    fault: Path

    def ask(self, url: str, *lines: str, method: str = "GET", body: bytes = b"") -> Answer:
        more = "".join(f"{line}\r\n" for line in (JOE, *lines))
        head = f"{method} {url} HTTP/1.1\r\nHost: {url.split('/')[2]}\r\n{more}\r\n"
        return self.send(head.encode() + body, method=method)

    def send(self, data: bytes, *, method: str = "GET") -> Answer:
        with RawClient(self.proxy.port) as client:
            client.send(data)
            return client.answer(method=method)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, confdir: Path) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("files")
    users, fault = folder / "htpasswd", folder / "armed"
    users.write_text(f"joe:{JOE_BCRYPT}\n")
    fault.write_text("")
    command = (sys.executable, str(COMMAND), str(fault), FAULT)
    with Paceproxy("--htpasswd", str(users), *FLAGS, command=command, confdir=confdir, crashes=True) as proxy:
        yield Running(proxy, fault)


def check(answer: Answer, status: int, error: str | None, *, method: str = "GET", target: str = "/") -> None:
    """It is the one that was to be provoked, and has no fault."""
    assert answer.status == status, answer
    if error is not None:
        assert re.match(rf"paceproxy; ?{error}\b", answer.proxy_status), answer
    forgiven = NO_FAULT | (NO_FAULT_OF_CONNECT if method == "CONNECT" and status == 200 else set())
    assert [f for f in faults(answer, method=method, target=target) if f not in forgiven] == [], answer


# --- requests that are not sent on

UPLOAD = b"POST http://127.0.0.1:1/ HTTP/1.1\r\nHost: a\r\n" + JOE.encode() + b"\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("status", "data"),
    [
        pytest.param(400, b"\x00\x01\r\n\r\n", id="no HTTP"),
        pytest.param(400, b"GET\r\n\r\n", id="no target"),
        pytest.param(400, b"x" * 70_000, id="a line without end"),
        pytest.param(400, b"GET / HTTP/1.1\r\n\r\n", id="no host"),
        pytest.param(400, b"GET http://a/ HTTP/1.1\r\nno colon\r\n\r\n", id="a field without a colon"),
        pytest.param(400, b"GET http://a/ HTTP/1.1\r\nHost: a\r\nX: \x01\r\n\r\n", id="a control character"),
        pytest.param(400, UPLOAD + b"zz\r\n", id="a chunk without a size"),
        pytest.param(431, b"GET http://a/ HTTP/1.1\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", id="a head too long"),
        pytest.param(431, b"GET http://a/ HTTP/1.1\r\nX: " + b"x" * 70_000, id="a head without end"),
        pytest.param(505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="HTTP/2 without TLS"),
    ],
)
def test_a_refusal_to_read_a_request_has_no_fault(running: Running, status: int, data: bytes) -> None:
    check(running.send(data), status, "error=http_request_error")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_refusal_of_a_field_has_no_fault(running: Running, method: str) -> None:
    with RawClient(running.proxy.port) as client:
        client.send(f"{method} http://a/ HTTP/1.1\r\nHost: a\r\nno(name: x\r\n\r\n".encode())
        check(client.answer(method=method), 400, "error=http_request_error", method=method)
        assert client.rest() == b""


@pytest.mark.parametrize("method", ["GET", "HEAD", "CONNECT"])
def test_a_refusal_of_somebody_unknown_has_no_fault(running: Running, method: str) -> None:
    target = "127.0.0.1:1" if method == "CONNECT" else "http://127.0.0.1:1/"
    answer = running.send(f"{method} {target} HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n".encode(), method=method)
    check(answer, 407, "error=proxy_internal_response", method=method, target=target)


def test_the_answer_to_connect_has_no_fault(running: Running) -> None:
    with RawClient(running.proxy.port) as client:
        check(client.connect("127.0.0.1:1", JOE), 200, None, method="CONNECT", target="127.0.0.1:1")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_an_error_of_our_own_has_no_fault(running: Running, origin: Origin, method: str) -> None:
    running.fault.write_text(FAULT)
    check(running.ask(origin.url(), method=method), 500, "error=proxy_internal_error", method=method)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_refusal_of_an_address_has_no_fault(running: Running, method: str) -> None:
    answer = running.ask("http://169.254.169.254/latest/", method=method)
    check(answer, 403, "error=destination_ip_prohibited", method=method)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_loop_has_no_fault(running: Running, method: str) -> None:
    check(running.ask(f"{running.proxy.url}/", method=method), 508, "error=proxy_loop_detected", method=method)


def test_an_upload_that_stops_has_no_fault(running: Running, origin: Origin) -> None:
    answer = running.ask(origin.url(), "Content-Length: 1000", method="POST", body=b"half")
    check(answer, 408, "error=http_request_error", method="POST")


# --- what origins do

EACH_METHOD = pytest.mark.parametrize("method", ["GET", "HEAD"])


@EACH_METHOD
@pytest.mark.parametrize(
    ("behaviour", "status", "error"),
    [
        pytest.param(close(), 502, "connection_terminated", id="close"),
        pytest.param(silent(), 504, "http_response_timeout", id="silent"),
        pytest.param(chain(Raw(BOTH_LENGTHS), Close()), 502, "http_protocol_error", id="two lengths"),
    ],
)
def test_what_is_said_for_an_origin_has_no_fault(
    running: Running, origin: Origin, behaviour: Behaviour, status: int, error: str, method: str
) -> None:
    origin.mode = behaviour
    check(running.ask(origin.url(), method=method), status, f"error={error}", method=method)


def test_what_is_said_of_a_body_that_breaks_off_has_no_fault(running: Running, origin: Origin) -> None:
    origin.mode = truncated()
    check(running.ask(origin.url()), 502, "error=http_response_incomplete")


@EACH_METHOD
@pytest.mark.parametrize(
    ("port", "status", "error"),
    [(refusing_port, 502, "connection_refused"), (unreachable_port, 504, "connection_timeout")],
)
def test_what_is_said_of_a_host_that_takes_no_connection_has_no_fault(
    running: Running, port: Callable[[], AbstractContextManager[int]], status: int, error: str, method: str
) -> None:
    with port() as number:
        check(running.ask(f"http://127.0.0.1:{number}/", method=method), status, f"error={error}", method=method)


@EACH_METHOD
def test_what_is_said_of_a_name_that_does_not_exist_has_no_fault(running: Running, method: str) -> None:
    check(running.ask("http://nowhere.invalid/", method=method), 502, "error=dns_error", method=method)


@EACH_METHOD
@pytest.mark.parametrize("error", ["tls_certificate_error", "tls_protocol_error", "tls_alert_received"])
def test_what_is_said_of_tls_that_fails_has_no_fault(running: Running, error: str, method: str) -> None:
    with ExitStack() as stack:
        if error == "tls_certificate_error":
            port = stack.enter_context(Origin(tls=True)).port
        else:
            port = stack.enter_context(greeting_port(GREETINGS[error]))
        client = stack.enter_context(RawClient(running.proxy.port))
        assert client.connect(f"127.0.0.1:{port}", JOE).status == 200
        client.start_tls("127.0.0.1", running.proxy.ca)
        client.send(f"{method} / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        check(client.answer(method=method), 502, f"error={error}", method=method)


def test_what_is_said_of_an_origin_that_reads_no_upload_has_no_fault(running: Running, origin: Origin) -> None:
    origin.mode = Silent(reads_body=False)
    size = 40_000_000  # more than the buffers of two connections take
    answer = running.ask(origin.url(), f"Content-Length: {size}", method="POST", body=b"x" * size)
    check(answer, 504, "error=http_request_timeout", method="POST")


@EACH_METHOD
def test_what_is_said_of_a_blocked_host_has_no_fault(running: Running, origin: Origin, method: str) -> None:
    origin.mode = respond(429, fields=[("Retry-After", "60")])
    assert running.ask(origin.url()).status == 429
    check(running.ask(origin.url(), method=method), 503, "error=destination_unavailable", method=method)
    answer = running.ask(origin.url(), "Pace-Window: 0", method=method)
    check(answer, 503, "error=destination_unavailable", method=method)


def test_what_is_said_of_a_paused_host_has_no_fault(running: Running, origin: Origin) -> None:
    origin.mode = close()
    for _ in range(3):
        running.ask(origin.url(), method="POST")
    check(running.ask(origin.url()), 503, "error=destination_unavailable")


def test_what_stands_for_a_reply_too_long_to_be_kept_has_no_fault(running: Running, origin: Origin) -> None:
    origin.mode = respond(503, b"x" * 20_000)
    check(running.ask(origin.url()), 503, "received-status=503")


# --- HTTP/2


def test_what_is_said_over_http2_has_no_fault(running: Running) -> None:
    with refusing_port() as port, H2Client(running.proxy.port, f"127.0.0.1:{port}", running.proxy.ca, JOE) as client:
        for method in ("GET", "HEAD"):
            (stream,) = client.wait(client.request("/", method=method))
            check(over_http1(stream), 502, "error=connection_refused", method=method)


def test_a_refusal_to_read_a_request_has_no_fault_over_http2(running: Running, secure_origin: Origin) -> None:
    with H2Client(running.proxy.port, secure_origin.host, running.proxy.ca, JOE) as client:
        for method in ("GET", "HEAD"):
            (stream,) = client.wait(client.request("/", method=method, fields=[("no(name", "x")]))
            assert bool(stream.body) is (method == "GET")
            check(over_http1(stream), 400, "error=http_request_error", method=method)
    assert secure_origin.requests == []


def over_http1(stream: Stream) -> Answer:
    """The same, as the reader of responses takes it."""
    head = f"HTTP/2 {stream.status}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in stream.fields[1:])
    return Answer(stream.status, head.encode(), stream.body)


# --- draining, and the admin address


def ask_admin(proxy: Paceproxy, path: str, *, method: str, host: str = "localhost") -> Answer:
    with RawClient(proxy.admin_port) as client:
        client.send(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        return client.answer(method=method)


@EACH_METHOD
@pytest.mark.parametrize(("path", "status"), [("/metrics", 200), ("/healthz", 200), ("/readyz", 200), ("/none", 404)])
def test_what_the_admin_address_says_has_no_fault(running: Running, path: str, status: int, method: str) -> None:
    check(ask_admin(running.proxy, path, method=method), status, None, method=method, target=path)


def test_what_the_admin_address_refuses_has_no_fault(running: Running) -> None:
    check(ask_admin(running.proxy, "/metrics", method="PUT"), 405, None, method="PUT")
    check(ask_admin(running.proxy, "/metrics", method="GET", host="rebound.example"), 421, None)


def test_the_refusal_of_somebody_unknown_in_front_of_an_origin_has_no_fault(
    tmp_path: Path, origin: Origin, confdir: Path
) -> None:
    users = tmp_path / "htpasswd"
    users.write_text(f"joe:{JOE_BCRYPT}\n")
    flags = ("--htpasswd", str(users), "--reverse", origin.url(""))
    with Paceproxy(*flags, confdir=confdir) as proxy, RawClient(proxy.port) as client:
        client.send(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{proxy.port}\r\n\r\n".encode())
        check(client.answer(), 401, "error=proxy_internal_response")


def test_what_is_said_while_the_proxy_shuts_down_has_no_fault(origin: Origin, confdir: Path) -> None:
    origin.mode = silent()
    with Paceproxy("--drain", "0.5", confdir=confdir) as proxy, RawClient(proxy.port) as client:
        client.get(origin.url("/silent"))
        origin.wait_for(lambda o: o.hits("/silent"))
        proxy.process.send_signal(signal.SIGTERM)
        # Not before it drains: until then it is ready.
        until(lambda: ask_admin(proxy, "/readyz", method="GET").status == 503, "it was not ready any more")
        check(ask_admin(proxy, "/readyz", method="GET"), 503, None)
        check(client.answer(), 503, "error=proxy_internal_response")
        assert proxy.wait() == 0
