"""Clients that leave at every phase of a request: nothing is left of it, and the others go on.

In each phase they leave in three ways at once: by FIN, by a half-close, by RST. An HTTP/2 client takes back one stream.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from tests.support.behaviours import Raw, Silent, chain, respond, response_head, silent
from tests.support.clients import RawClient, curl
from tests.support.h2_client import H2Client
from tests.support.origin import Origin
from tests.support.ports import connections_to, mute_port
from tests.support.proxy import Paceproxy
from tests.support.silence import full_backlog
from tests.support.visit import Visit
from tests.support.waiting import until

COMMAND = Path(__file__).parents[1] / "support" / "stuck_names_command.py"
WAYS: tuple[Callable[[RawClient], None], ...] = (RawClient.close, RawClient.half_close, RawClient.reset)
PHASES = ["line", "held_upload", "lookup", "connect", "tls", "upload", "head", "hold", "drain", "flow"]
GET = ("GET", ())
UPLOAD = ("PUT", ("Content-Length: 16777216",))
BEGUN = b"x" * 1_500_000
"""Of an upload: more than `hold_request`, so it is streamed."""
BODY = response_head(200, [("Content-Length", "1000000")])
SICK = response_head(503, [("Content-Length", "1000"), ("Retry-After", "30")])
HTTP2 = [phase for phase in PHASES if "upload" not in phase]


@pytest.fixture(scope="module")
def running(confdir: Path) -> Iterator[Paceproxy]:
    flags = (
        *("--ladder", "0,0.1,0.2", "--ssl-insecure", "--http2"),
        *("--hold-time", "60", "--hold-time-healthy", "60", "--connect-timeout", "60"),
    )
    with Paceproxy(*flags, "--in-flight", "off", command=(sys.executable, str(COMMAND)), confdir=confdir) as proxy:
        yield proxy


@pytest.fixture
def proxy(running: Paceproxy) -> Iterator[Paceproxy]:
    yield running
    running.assert_idle()


@dataclass(frozen=True, slots=True)
class Said:
    """These bytes; then, once they are sent, the test is told, and nothing more comes."""

    data: bytes
    count: threading.Semaphore
    reads_body: ClassVar[bool] = True

    async def act(self, visit: Visit) -> None:
        await visit.send(self.data)
        self.count.release()
        await visit.until_gone()
        visit.close()


@dataclass(frozen=True, slots=True)
class Together:
    """Nothing, until so many requests are there: then all go on."""

    barrier: asyncio.Barrier
    reads_body: ClassVar[bool] = True

    async def act(self, visit: Visit) -> None:
        await self.barrier.wait()


@dataclass(frozen=True, slots=True)
class Scene:
    """Where requests get stuck in one phase."""

    port: int
    """Of the origin; 0 where there is none."""
    reached: Callable[[int], None]
    """Returns once so many requests are in the phase."""
    request: tuple[str, tuple[str, ...]] = GET
    body: bytes = b""
    host: str = "localhost"
    unsent: Callable[[], bool] = lambda: True
    """That no request has reached the origin; always true where that does not matter."""
    well: bool = False
    """The origin serves other requests meanwhile, and the host is not paced."""


class Stage:
    """Sets the scenes, for `size` requests each; `stack` ends them."""

    def __init__(self, proxy: Paceproxy, stack: ExitStack, size: int, *, secure: bool) -> None:
        self._size = size
        self._proxy = proxy
        self._stack = stack
        self._secure = secure

    def line(self) -> Scene:
        origin = self._origin(respond())
        self._block(origin)
        return Scene(origin.port, self._metric("paceproxy_waiting_requests"), unsent=lambda: origin.hits("/x") == 0)

    def held_upload(self) -> Scene:
        origin = self._origin(respond())
        # Nobody reads from such a client, so it is noticed when its turn has come.
        self._block(origin, "2")
        return Scene(origin.port, self._metric("paceproxy_waiting_requests"), UPLOAD, BEGUN)

    def lookup(self) -> Scene:
        return Scene(0, self._metric("paceproxy_attempts_in_flight"), host=f"stuck{time.monotonic_ns()}.invalid")

    def connect(self) -> Scene:
        port = self._stack.enter_context(full_backlog())
        before = connections_to(port)
        return Scene(port, lambda n: until(lambda: connections_to(port) == before + n, f"{n} were connecting"))

    def tls(self) -> Scene:
        port = self._stack.enter_context(mute_port())
        return Scene(port, lambda n: until(lambda: connections_to(port) == n, f"{n} were connected"))

    def upload(self) -> Scene:
        origin = self._origin(Silent(reads_body=False))
        return self._at(origin, lambda n: origin.wait_for(lambda o: o.hits("/x") == n), UPLOAD, BEGUN)

    def head(self) -> Scene:
        origin = self._origin(silent())
        return self._at(origin, lambda n: origin.wait_for(lambda o: o.hits("/x") == n))

    def hold(self) -> Scene:
        return self._in_body(BODY + b"begun")

    def drain(self) -> Scene:
        # After its first 503 the host would get no second request.
        together = Together(asyncio.Barrier(self._size))
        origin = self._origin(chain(together, Raw(SICK + b"begun"), silent()))
        before = self._proxy.metric("paceproxy_attempts_total", error="http_status_5xx")

        def reached(n: int) -> None:
            self._proxy.wait_for_metric("paceproxy_attempts_total", before + n, error="http_status_5xx")

        return Scene(origin.port, reached)

    def flow(self) -> Scene:
        return self._in_body(BODY + b"x" * 300_000)

    def _in_body(self, data: bytes) -> Scene:
        count = threading.Semaphore(0)
        origin = self._origin(Said(data, count))

        def reached(n: int) -> None:
            for _ in range(n):
                assert count.acquire(timeout=10)
            self._proxy.metrics()  # What it was sent before is read before it answers this.

        return self._at(origin, reached)

    def _at(
        self,
        origin: Origin,
        reached: Callable[[int], None],
        request: tuple[str, tuple[str, ...]] = GET,
        body: bytes = b"",
    ) -> Scene:
        return Scene(origin.port, reached, request, body, well=True)

    def _origin(self, behaviour: object) -> Origin:
        return self._stack.enter_context(Origin({"/x": behaviour}, tls=self._secure))  # type: ignore[dict-item]

    def _block(self, origin: Origin, retry_after: str = "30") -> None:
        origin.script = {"/sick": respond(503, fields=[("Retry-After", retry_after)])}
        url = origin.url("/sick", host="localhost")
        answer = curl(self._proxy.url, url, "-H", "Pace-Window: 0", ca=self._proxy.ca).answer
        assert answer.status == 503

    def _metric(self, name: str) -> Callable[[int], None]:
        return lambda n: self._proxy.wait_for_metric(name, n)


def abandoned(proxy: Paceproxy) -> float:
    return proxy.metric("paceproxy_requests_total", outcome="abandoned")


def ask(proxy: Paceproxy, scene: Scene, client: RawClient, *, tunnel: bool) -> None:
    method, lines = scene.request
    authority = f"{scene.host}:{scene.port or 443}"
    if tunnel:
        assert client.connect(authority).status == 200
        client.start_tls(scene.host, proxy.ca)
    target = "/x" if tunnel else f"http://{authority}/x"
    more = "".join(f"{line}\r\n" for line in lines)
    client.send(f"{method} {target} HTTP/1.1\r\nHost: {authority}\r\n{more}\r\n".encode())
    if scene.body:
        client.send(scene.body)


@pytest.mark.parametrize(
    ("phase", "tunnel"),
    [
        *((phase, False) for phase in PHASES if phase != "tls"),
        *((phase, True) for phase in ("line", "held_upload", "tls", "head", "flow")),
    ],
)
def test_nothing_is_left_of_a_client_that_leaves(proxy: Paceproxy, phase: str, tunnel: bool) -> None:
    before = abandoned(proxy)
    with ExitStack() as stack:
        scene = getattr(Stage(proxy, stack, len(WAYS), secure=tunnel), phase)()
        others = connections_to(scene.port)
        clients = [stack.enter_context(RawClient(proxy.port)) for _ in WAYS]
        for client in clients:
            ask(proxy, scene, client, tunnel=tunnel)
        scene.reached(len(WAYS))

        for client, leave in zip(clients, WAYS, strict=True):
            leave(client)

        proxy.wait_for_metric("paceproxy_requests_total", before + 3, outcome="abandoned")
        proxy.assert_idle()
        until(lambda: connections_to(scene.port) <= others, "no connection to the origin was left")
        assert scene.unsent()


@pytest.mark.parametrize("phase", HTTP2)
def test_one_stream_that_is_taken_back_leaves_its_neighbours_alone(proxy: Paceproxy, phase: str) -> None:
    before = abandoned(proxy)
    with ExitStack() as stack:
        scene = getattr(Stage(proxy, stack, 2, secure=True), phase)()
        others = connections_to(scene.port)
        with H2Client(proxy.port, f"{scene.host}:{scene.port or 443}", proxy.ca) as client:
            gone, stays = client.request("/x"), client.request("/x")
            scene.reached(1 if phase in ("connect", "tls") else 2)  # They share a dial.

            client.reset(gone)

            proxy.wait_for_metric("paceproxy_requests_total", before + 1, outcome="abandoned")
            left = proxy.metric("paceproxy_waiting_requests") + proxy.metric("paceproxy_attempts_in_flight")
            assert left == (0 if phase in ("drain", "flow") else 1)
            if scene.well:
                assert [stream.status for stream in client.wait(client.request("/fine"))] == [200]
            assert not client.streams[stays].ended

            client.reset(stays)

            proxy.wait_for_metric("paceproxy_requests_total", before + 2, outcome="abandoned")
            proxy.assert_idle()
            # But for the one that is kept alive.
            until(lambda: connections_to(scene.port) <= others + scene.well, "no connection to the origin was left")
        until(lambda: connections_to(scene.port) <= others, "no connection to the origin was left")


def test_a_client_that_comes_back_again_and_again_gets_no_attempt_and_takes_nobodys_slot(
    proxy: Paceproxy, origin: Origin
) -> None:
    # Long enough for all that comes and goes meanwhile, also on a machine that has much else to do.
    origin.script = {"/sick": respond(503, fields=[("Retry-After", "3")])}
    before = abandoned(proxy)
    with RawClient(proxy.port) as sick, RawClient(proxy.port) as patient:
        sick.get(origin.url("/sick"), "Pace-Window: 0")
        assert sick.answer().status == 503
        patient.get(origin.url("/patient"))
        proxy.wait_for_metric("paceproxy_host_waiting", 1, host=origin.host)
        for time in range(1, 6):
            with RawClient(proxy.port) as hasty:
                hasty.get(origin.url("/hasty"))
                proxy.wait_for_metric("paceproxy_host_waiting", 2, host=origin.host)
            proxy.wait_for_metric("paceproxy_requests_total", before + time, outcome="abandoned")
        assert patient.answer().status == 200
    proxy.assert_idle()
    assert [request.path for request in origin.requests] == ["/sick", "/patient"]
    assert proxy.log.count("The client at 127.0.0.1 has given up waiting 3 times, ") == 1
