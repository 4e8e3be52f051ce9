"""What becomes of bodies on the real proxy: whole or visibly not, as they came, and when they came."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.behaviours import Raw, chain, respond, response_head, silent, truncated
from tests.support.clients import RawClient, curl
from tests.support.h2peers import H2Client
from tests.support.origin import Origin
from tests.support.proxy import Paceproxy
from tests.support.visit import Visit

EVENT_STREAM = ("Content-Type", "Text/Event-Stream; charset=utf-8")
EVENTS = [b"data: one\n\n", b"data: two\n\n", b"data: three\n\n"]


@pytest.fixture(scope="module")
def proxy(confdir: Path) -> Iterator[Paceproxy]:
    """With holds longer than any test waits: what is not released at once is not seen."""
    flags = ("--ladder", "0,0.1,0.2", "--http2", "--ssl-insecure", "--body-timeout", "0.5")
    with Paceproxy(*flags, "--hold-time", "60", "--hold-time-healthy", "60", confdir=confdir) as running:
        yield running


@pytest.fixture(params=[False, True], ids=["HTTP", "HTTPS"])
def any_origin(request: pytest.FixtureRequest) -> Iterator[Origin]:
    with Origin(tls=request.param) as running:
        yield running


class Events:
    """Server-Sent Events, each only when the client has the one before it."""

    reads_body = True

    def __init__(self, *, chunked: bool) -> None:
        self.chunked = chunked
        self.taken = [threading.Semaphore(0) for _ in EVENTS]

    async def act(self, visit: Visit) -> None:
        framing = [("Transfer-Encoding", "chunked")] if self.chunked else []
        await visit.send(response_head(200, [EVENT_STREAM, *framing]))
        for event, taken in zip(EVENTS, self.taken, strict=True):
            await visit.send(b"%x\r\n%s\r\n" % (len(event), event) if self.chunked else event)
            assert await asyncio.get_running_loop().run_in_executor(None, taken.acquire, True, 10)
        if self.chunked:
            await visit.send(b"0\r\n\r\n")
        else:
            visit.close()


@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "until the end"])
def test_events_arrive_one_by_one(proxy: Paceproxy, origin: Origin, chunked: bool) -> None:
    origin.script = {"/events": (events := Events(chunked=chunked))}
    with RawClient(proxy.port) as client:
        client.get(origin.url("/events"))
        came = b""
        for event, taken in zip(EVENTS, events.taken, strict=True):
            while event not in came:
                came += client.receive()
            taken.release()


def test_events_arrive_one_by_one_over_http2(proxy: Paceproxy, secure_origin: Origin) -> None:
    secure_origin.script = {"/events": (events := Events(chunked=True))}
    with H2Client(proxy.port, "localhost", secure_origin.port, proxy.ca) as client:
        stream = client.send("/events")
        for event, taken in zip(EVENTS, events.taken, strict=True):
            while event not in client.answers[stream].body:
                client.read()
            taken.release()
        assert client.answer(stream).body == b"".join(EVENTS)


def test_a_body_that_breaks_off_or_stops_in_the_hold_is_asked_for_again(proxy: Paceproxy, any_origin: Origin) -> None:
    stopped = chain(Raw(response_head(200, [("Content-Length", "9")]) + b"half"), silent())
    any_origin.script = {"/page": [truncated(), stopped, respond(200, b"whole")]}
    answer = curl(proxy.url, any_origin.url("/page"), ca=proxy.ca).answer
    assert (answer.status, answer.body) == (200, b"whole")
    assert "attempts=3" in answer.proxy_status


def test_a_body_that_stops_in_the_flow_is_cut_off_and_is_one_stall(proxy: Paceproxy, origin: Origin) -> None:
    # More than is held back.
    beginning = response_head(200, [("Content-Length", "1000000")]) + b"x" * 300_000
    origin.script = {"/page": chain(Raw(beginning), silent())}
    with RawClient(proxy.port) as client:
        client.get(origin.url("/page"))
        with pytest.raises(ConnectionResetError):
            client.rest()
    assert origin.hits("/page") == 1
    assert proxy.metric("paceproxy_host_rung", host=origin.host) == 1


def test_a_body_is_passed_on_as_it_came_and_not_decoded(proxy: Paceproxy, any_origin: Origin) -> None:
    codings = ("gzip", "gzip, gzip", "made-up")
    any_origin.script = {
        f"/{number}": respond(200, b"plain", [("Content-Encoding", coding)]) for number, coding in enumerate(codings)
    }
    for number, coding in enumerate(codings):
        answer = curl(proxy.url, any_origin.url(f"/{number}"), ca=proxy.ca).answer
        assert (answer.status, answer.body, answer.values("Content-Encoding")) == (200, b"plain", [coding])


@pytest.mark.parametrize(
    "said",
    [
        response_head(200, [("Content-Length", "4"), ("Transfer-Encoding", "chunked")]) + b"4\r\nfine\r\n0\r\n\r\n",
        response_head(200, [("Content-Length", "4"), ("Content-Length", "5")]) + b"fine",
        response_head(101, [("Upgrade", "h2c"), ("Connection", "Upgrade")]),
        b"HTTP/9.9 200 OK\r\nContent-Length: 4\r\n\r\nfine",
    ],
    ids=["two framings", "two lengths", "an upgrade", "another version"],
)
def test_what_breaks_the_protocol_is_refused_at_once(proxy: Paceproxy, origin: Origin, said: bytes) -> None:
    origin.script = {"/page": Raw(said)}
    answer = curl(proxy.url, origin.url("/page")).answer
    assert answer.status == 502
    assert "error=http_protocol_error" in answer.proxy_status
    assert origin.hits("/page") == 1
    assert not proxy.metrics().has("paceproxy_host_rung", host=origin.host)


def test_hints_are_skipped_and_an_http_1_0_client_understands_the_answer(proxy: Paceproxy, origin: Origin) -> None:
    hints = b"".join(response_head(status) for status in (100, 102, 103))
    origin.script = {"/page": chain(Raw(hints), respond(200, b"fine", chunked=True, trailers=[("X-Sum", "1")]))}
    with RawClient(proxy.port) as client:
        client.send(f"GET {origin.url('/page')} HTTP/1.0\r\n\r\n".encode())
        assert client.rest() == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nfine"


def test_an_upload_is_asked_for_when_its_slot_comes(proxy: Paceproxy, origin: Origin) -> None:
    origin.script = {"/sick": respond(503)}
    size = 2_000_000
    assert curl(proxy.url, origin.url("/sick"), "-X", "POST").answer.status == 503
    with RawClient(proxy.port) as client:
        client.send(
            f"PUT {origin.url('/file')} HTTP/1.1\r\nHost: {origin.host}\r\n"
            f"Expect: 100-continue\r\nContent-Length: {size}\r\n\r\n".encode()
        )
        assert client.answer().status == 100
        client.send(b"x" * size)
        assert client.answer().status == 200
    (sick, file) = origin.requests
    assert file.at - sick.at > 0.08
    assert len(file.body) == size
