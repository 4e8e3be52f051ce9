"""SIGTERM: what is in hand is finished, what cannot be is told so, and the exit code is 0.

`--drain 600` where nothing may have to wait for it: a drain that does not notice its end runs into the guard of
`Paceproxy.stop`, long before.
"""

import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.support.behaviours import Drip, WebSocketEcho, late, respond, silent
from tests.support.clients import RawClient
from tests.support.h2_client import H2Client
from tests.support.origin import Origin
from tests.support.ports import unreachable_port
from tests.support.proxy import Paceproxy
from tests.support.visit import Behaviour, Request
from tests.support.waiting import until

WEBSOCKET = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
)
SILENTLY_CLOSED = {"idle", "idle tunnel", "in the handshake", "in the head"}
"""There is no request that could be answered."""
CUT = {"in the flow", "in a WebSocket"}


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


def test_everybody_gets_what_the_phase_of_the_request_allows(confdir: Path) -> None:
    """One client in each phase that there is; its name says which."""
    sse = Drip((b"data: x\n\n",) * 1000, 0.1, fields=(("Content-Type", "text/event-stream"),))
    script: dict[str, Behaviour] = {
        "/silent": silent(),
        "/slow": late(1, respond(200, b"slow")),
        "/held": Drip((b"x",) * 1000, 0.1),
        "/sse": sse,
        "/ends": Drip((b"data: x\n\n",) * 10, 0.1, fields=sse.fields),
        "/ws": WebSocketEcho(),
    }

    def choose(request: Request) -> Behaviour:
        return script.get(request.path.partition("?")[0], respond())

    with ExitStack() as stack:
        origin = stack.enter_context(Origin(choose))
        secure = stack.enter_context(Origin(choose, tls=True))
        well_soon = stack.enter_context(Origin({"/line": [respond(503), respond(200, b"well")]}))
        blocked = stack.enter_context(Origin({"/line": respond(429, fields=[("Retry-After", "100")])}))
        unreachable = stack.enter_context(unreachable_port())
        flags = ("--drain", "3", "--ladder", "0,1,100", "--http2", "--ssl-insecure", "--hold-time-healthy", "60")
        proxy = stack.enter_context(Paceproxy(*flags, "--hold-request", "1000", "--in-flight", "off", confdir=confdir))
        clients: dict[str, RawClient] = {}

        def connect(name: str) -> RawClient:
            clients[name] = client = stack.enter_context(RawClient(proxy.port))
            return client

        def upload(name: str, size: int) -> None:
            url = origin.url("/silent")
            head = f"POST {url} HTTP/1.1\r\nHost: {origin.host}\r\nContent-Length: {size}\r\n\r\n"
            connect(name).send(head.encode() + b"beginning")

        connect("in line, blocked").get(blocked.url("/line"))
        proxy.wait_for_metric("paceproxy_host_waiting", 1, host=blocked.host)
        connect("in line, blocked, never sent").get(blocked.url("/other"))
        connect("connecting").get(f"http://127.0.0.1:{unreachable}/")
        upload("uploading, held", 100)
        upload("uploading, streamed", 100_000)
        connect("waiting for the head").get(origin.url("/silent?get"))
        connect("in the hold").get(origin.url("/held"))
        connect("in the flow").get(origin.url("/sse"))
        connect("idle").get(origin.url("/first"))
        assert clients["idle"].answer().status == 200
        assert connect("idle tunnel").connect(secure.host).status == 200
        assert connect("in the handshake").connect(secure.host).status == 200
        clients["in the handshake"].send(b"\x16\x03\x01\x02\x00\x01")
        connect("in the head").send(b"GET http://127.0.0.1")
        websocket = connect("in a WebSocket")
        websocket.get(origin.url("/ws"), *WEBSOCKET)
        assert websocket.answer().status == 101
        assert connect("in TLS").connect(secure.host).status == 200
        clients["in TLS"].start_tls("127.0.0.1", proxy.ca)
        clients["in TLS"].send(f"GET /silent HTTP/1.1\r\nHost: {secure.host}\r\n\r\n".encode())
        h2 = stack.enter_context(H2Client(proxy.port, secure.host, proxy.ca))
        h2_slow, h2_flow = h2.request("/slow"), h2.request("/sse")
        h2_silent = [h2.request(f"/silent?{number}") for number in range(12)]
        h2_upload = h2.request("/silent?upload", method="POST", body=b"beginning", ends=False)
        h2_idle = stack.enter_context(H2Client(proxy.port, secure.host, proxy.ca))
        h2_idle.wait(h2_idle.request("/first"))
        origin.wait_for(lambda o: {"/silent", "/silent?get", "/held", "/sse"} <= {r.path for r in o.requests})
        secure.wait_for(lambda o: len(o.requests) == 1 + 1 + 1 + 12 + 1)
        connect("in the flow, ends in time").get(origin.url("/ends"))
        connect("waiting for the head, comes in time").get(origin.url("/slow"))
        connect("in line, slot in time").get(well_soon.url("/line"))
        proxy.wait_for_metric("paceproxy_waiting_requests", 2 + 1)

        terminate(proxy)
        assert proxy.get("/readyz")[0] == 503
        websocket.send(b"\x81\x82\0\0\0\0hi")
        assert websocket.receive() == b"\x81\x07echo:hi"
        finished = {
            # Its head had been sent before.
            "in the flow, ends in time": (200, b"data: x\n\n" * 10, []),
            "waiting for the head, comes in time": (200, b"slow", ["close"]),
            "in line, slot in time": (200, b"well", ["close"]),
        }
        answers = {name: clients.pop(name).answer() for name in finished}
        assert {name: (a.status, a.body, a.values("Connection")) for name, a in answers.items()} == finished
        told = {name: client.answer() for name, client in clients.items() if name not in SILENTLY_CLOSED | CUT}
        ended, cut, *refused = h2.wait(h2_slow, h2_flow, *h2_silent, h2_upload)
        assert (h2.wait_for_goodbye()[1], h2_idle.wait_for_goodbye()[1]) == (0, 0)
        for name in SILENTLY_CLOSED:
            assert clients[name].rest() == b"", name
        for name in CUT:
            # It must not look like the end of the page.
            with pytest.raises(ConnectionResetError):
                clients[name].rest()
        assert proxy.wait() == 0

    assert {name: answer.status for name, answer in told.items()} == dict.fromkeys(
        clients.keys() - SILENTLY_CLOSED - CUT, 503
    )
    assert all("the proxy is shutting down" in answer.proxy_status for answer in told.values())
    assert [answer.values("Connection") for answer in told.values()] == [["close"]] * len(told)
    waits_s = {name: int(answer.values("Retry-After")[0]) for name, answer in told.items()}
    assert {name for name, wait_s in waits_s.items() if wait_s > 50} == {name for name in told if "blocked" in name}
    assert "received-status=429" in told["in line, blocked"].proxy_status
    assert (ended.status, ended.body, ended.reset) == (200, b"slow", None)
    assert (cut.status, cut.reset) == (200, 2)
    assert [(stream.status, stream.reset) for stream in refused] == [(503, None)] * 13
    assert all("retry-after" in dict(stream.fields) for stream in refused)
    assert [request.path for request in blocked.requests] == ["/line"]


@pytest.mark.parametrize("drain", ["600", "0"])
def test_a_second_signal_ends_it_at_once_and_so_does_no_time_for_draining(
    origin: Origin, confdir: Path, drain: str
) -> None:
    origin.mode = silent()
    with Paceproxy("--drain", drain, confdir=confdir) as proxy, RawClient(proxy.port) as client:
        client.get(origin.url("/silent"))
        origin.wait_for(lambda o: o.hits("/silent"))
        if drain != "0":
            # Both are there when it looks, though one comes after the other.
            proxy.process.send_signal(signal.SIGSTOP)
            proxy.process.send_signal(signal.SIGINT)
        proxy.process.send_signal(signal.SIGTERM)
        proxy.process.send_signal(signal.SIGCONT)
        assert client.answer().status == 503
        assert client.rest() == b""
        assert proxy.wait() == 0


def test_what_a_slow_client_has_not_taken_yet_is_not_cut(origin: Origin, confdir: Path) -> None:
    body = bytes(16 << 20)
    origin.script = {"/long": respond(200, body)}
    # Held back as a whole, it is written at once, and is then far more than the system takes.
    flags = ("--drain", "600", "--hold-body", "64m", "--hold-time-healthy", "60")
    with Paceproxy(*flags, confdir=confdir) as proxy, RawClient(proxy.port) as client:
        client.get(origin.url("/long"))
        proxy.wait_for_metric("paceproxy_requests_total", 1, timeout=30)
        terminate(proxy)
        with pytest.raises(subprocess.TimeoutExpired):
            proxy.process.wait(1.5)
        assert client.answer().body == body
        assert proxy.wait() == 0


def has_open(process: subprocess.Popen[bytes], path: Path) -> bool:
    for link in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            if link.readlink() == path:
                return True
    return False


def test_a_signal_while_it_starts_ends_it_without_a_word(tmp_path: Path, confdir: Path) -> None:
    """It is held up by another process that seems to open a store in the same folder."""
    command = [sys.executable, "-m", "proxy_addon", "--listen", "127.0.0.1:0", "--admin", "off"]
    flags = ["--confdir", str(confdir), "--store", f"sqlite:///{tmp_path}/pace.db"]
    folder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    with subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        until(lambda: has_open(process, tmp_path), "it opened its store", 30)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert process.stdout is not None
        assert process.stdout.read() == b""
    os.close(folder)
