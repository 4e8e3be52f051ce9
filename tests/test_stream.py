"""One request's way through the layer, on a real proxy with a scripted pacing and a scripted origin."""

import contextlib
from pathlib import Path

import pytest
from mitmproxy import http

from proxy_addon import answering
from proxy_addon.exchange import Again, Exchange, Release, Respond, Send
from proxy_addon.model import ErrorName, Reply
from tests.support.behaviours import (
    Close,
    Drip,
    Pause,
    Raw,
    close,
    garbage,
    late,
    partial_head,
    reset,
    respond,
    response_head,
    silent,
    truncated,
)
from tests.support.behaviours import (
    Respond as FullResponse,
)
from tests.support.clients import RawClient, curl, requests_session
from tests.support.origin import Origin
from tests.support.rig import Rig, ScriptedPacing
from tests.support.visit import Behaviour, Visit
from tests.support.waiting import until

FINE = respond(200, b"fine")


def test_a_stalled_request_is_sent_again_with_the_same_bytes_and_holds_no_connection_meanwhile(
    origin: Origin, confdir: Path
) -> None:
    origin.script = {"/x": [respond(503, b"busy"), respond(503, b"busy", chunked=True), FINE]}
    with Rig(confdir=confdir) as rig:
        answer = curl(rig.url, origin.url("/x")).answer
        assert (answer.status, answer.body) == (200, b"fine")
    assert rig.pacing.of("/x") == [
        *("accept", "prepare", "grant", "sending", "replied"),
        *("hold", "sending", "replied"),
        *("hold", "sending", "replied", "first_byte", "close"),
    ]
    assert [call.number for call in rig.pacing.calls if call.name in ("accept", "sending")] == [0, 1, 2, 3]
    assert len(origin.requests) == 3
    assert len({request.head for request in origin.requests}) == 1
    assert len(origin.connections) == 3


@pytest.mark.parametrize(
    ("stall", "error", "connections"),
    [
        (close(), ErrorName.CONNECTION_TERMINATED, 2),
        (reset(), ErrorName.CONNECTION_TERMINATED, 2),
        (garbage(), ErrorName.CONNECTION_TERMINATED, 2),
        (partial_head(), ErrorName.CONNECTION_TERMINATED, 2),
        (silent(), ErrorName.HTTP_RESPONSE_TIMEOUT, 2),
        (respond(503, b"busy", close=True), None, 2),
        (respond(503, b"busy", until_close=True), None, 2),
        (respond(429, b""), None, 2),
        (respond(503, b"x" * 60_000), None, 2),
        (respond(503, b"x" * 1_000_000), None, 2),
        (Drip((b"x",), 0.0, length=2, status=503), None, 2),
    ],
)
def test_every_kind_of_stall_is_tried_again(
    origin: Origin, confdir: Path, stall: Behaviour, error: ErrorName | None, connections: int
) -> None:
    origin.script = {"/x": [stall, FINE]}
    with Rig(ScriptedPacing(response_timeout_s=0.5), confdir=confdir) as rig:
        answer = curl(rig.url, origin.url("/x")).answer
        assert (answer.status, answer.body) == (200, b"fine")
    assert rig.pacing.errors("/x") == [error, None]
    assert len(origin.connections) == connections
    assert len({request.head for request in origin.requests}) == 1


def test_no_attempt_is_told_to_other_addons_but_the_last(origin: Origin, confdir: Path) -> None:
    seen: list[str] = []

    class Watcher:
        def requestheaders(self, flow: http.HTTPFlow) -> None:
            seen.append("requestheaders")

        def request(self, flow: http.HTTPFlow) -> None:
            seen.append("request")

        def responseheaders(self, flow: http.HTTPFlow) -> None:
            assert flow.response is not None
            seen.append(f"responseheaders {flow.response.status_code}")

        def response(self, flow: http.HTTPFlow) -> None:
            assert flow.response is not None
            seen.append(f"response {flow.response.status_code}")

        def error(self, flow: http.HTTPFlow) -> None:
            seen.append("error")

    origin.script = {"/x": [respond(503), reset(), FINE]}
    with Rig(confdir=confdir, addons=[Watcher()]) as rig:
        assert curl(rig.url, origin.url("/x")).answer.status == 200
    assert seen == ["requestheaders", "request", "responseheaders 200", "response 200"]


def test_a_body_is_sent_again_as_it_was(origin: Origin, confdir: Path) -> None:
    body = bytes(range(256)) * 2000
    origin.script = {"/x": [respond(503), close(), FINE], "/y": [respond(503), FINE]}
    with Rig(confdir=confdir) as rig, requests_session(rig.url) as session:
        assert session.put(origin.url("/x"), data=body).content == b"fine"
        assert session.put(origin.url("/y"), data=iter([body[:1000], body[1000:]])).content == b"fine"
    assert [request.body == body for request in origin.requests] == [True] * 5
    assert origin.requests[3].values("Transfer-Encoding") == ["chunked"]
    assert len({request.head for request in origin.requests[:3]}) == 1


def test_expect_100_continue_is_answered_before_the_hold(origin: Origin, confdir: Path) -> None:
    origin.script = {"/x": [respond(503), FINE]}
    with Rig(ScriptedPacing(hold=True), confdir=confdir) as rig, RawClient(rig.port) as client:
        client.send(
            f"PUT {origin.url('/x')} HTTP/1.1\r\nHost: {origin.host}\r\nContent-Length: 5\r\n"
            "Expect: 100-continue\r\n\r\n".encode()
        )
        assert client.answer().status == 100
        client.send(b"hello")
        rig.wait_for("hold", "/x")
        rig.release()
        assert client.answer().body == b"fine"
    assert [request.body for request in origin.requests] == [b"hello", b"hello"]
    assert origin.requests[0].values("Expect") == []


@pytest.mark.parametrize("method", ["HEAD", "GET"])
@pytest.mark.parametrize("status", [200, 204, 304])
def test_responses_without_a_body_are_complete_at_their_head(
    origin: Origin, confdir: Path, method: str, status: int
) -> None:
    head = f'HTTP/1.1 {status} X\r\nContent-Length: 0\r\nETag: "a"\r\n\r\n'.encode()
    if method == "HEAD" or status == 304:
        head = head.replace(b"Length: 0", b"Length: 4")
    origin.script = {"/x": [respond(503, b"busy"), Raw(head)]}
    with Rig(confdir=confdir) as rig, RawClient(rig.port) as client:
        for _ in range(2):
            client.send(f"{method} {origin.url('/x')} HTTP/1.1\r\nHost: {origin.host}\r\n\r\n".encode())
            answer = client.answer(method=method)
            assert (answer.status, answer.body) == (status, b"")
    # The retry and the next request share one.
    assert len(origin.connections) == 2
    assert rig.pacing.of("/x").count("first_byte") == 2


def test_a_chunked_304_ends_without_a_last_chunk(origin: Origin, confdir: Path) -> None:
    origin.script = {"/x": Raw(b"HTTP/1.1 304 X\r\nTransfer-Encoding: chunked\r\n\r\n")}
    with Rig(confdir=confdir) as rig, RawClient(rig.port) as client:
        for path in ("/x", "/y"):
            client.get(origin.url(path))
            answer = client.answer()
            assert answer.status == (304 if path == "/x" else 200)
            assert answer.head.startswith(b"HTTP/1.1 ")


def test_the_answer_of_the_pacing_goes_to_the_client_and_nothing_to_the_origin(origin: Origin, confdir: Path) -> None:
    pacing = ScriptedPacing(decide_grant=lambda exchange: Respond(http.Response.make(503, b"no", {"Retry-After": "7"})))
    with Rig(pacing, confdir=confdir) as rig, RawClient(rig.port) as client:
        for method in ("GET", "HEAD", "GET"):
            client.send(f"{method} {origin.url('/x')} HTTP/1.1\r\nHost: {origin.host}\r\n\r\n".encode())
            answer = client.answer(method=method)
            assert (answer.status, answer.values("Retry-After")) == (503, ["7"])
            assert answer.head.startswith(b"HTTP/1.1 "), "what came before did not end where it said"
            assert answer.body == (b"" if method == "HEAD" else b"no")
    assert origin.requests == []
    assert pacing.of("/x") == ["accept", "prepare", "grant", "close"] * 3


def test_an_answer_to_a_reply_replaces_it_and_leaves_the_connection_usable(origin: Origin, confdir: Path) -> None:
    def decide(exchange: Exchange, reply: Reply) -> Release | Again | Respond:
        return Respond(http.Response.make(504, b"ours")) if reply.status == 503 else Release()

    origin.script = {"/x": respond(503, b"theirs"), "/big": respond(503, b"x" * 1_000_000)}
    with Rig(ScriptedPacing(decide_reply=decide), confdir=confdir) as rig, RawClient(rig.port) as client:
        for path, status in (("/x", 504), ("/y", 200), ("/big", 504), ("/z", 200)):
            client.get(origin.url(path))
            assert client.answer().status == status
    assert [request.connection for request in origin.requests] == [1, 1, 1, 2]
    assert rig.pacing.exchanges[0].discarded_body == b"theirs"
    assert rig.pacing.of("/x") == ["accept", "prepare", "grant", "sending", "replied", "close"]


def test_the_beginning_of_a_discarded_body_is_kept(origin: Origin, confdir: Path) -> None:
    kept: list[tuple[bytes, bool]] = []

    def decide(exchange: Exchange, reply: Reply) -> Release | Again | Respond:
        return Again() if reply.status == 503 else Release()

    class Recorder(ScriptedPacing):
        async def wait(self, exchange: Exchange) -> None:
            kept.append((bytes(exchange.discarded_body), exchange.discarded_whole))
            await super().wait(exchange)

    origin.script = {
        "/x": [
            respond(503, b"short"),
            respond(503, b"0123456789", chunked=True),
            respond(503, b"0123456789a"),
            respond(503, b"", close=True),
            respond(503, b"y" * 100_000),
            FINE,
        ]
    }
    with Rig(Recorder(keep_reply_bytes=10, decide_reply=decide), confdir=confdir) as rig:
        assert curl(rig.url, origin.url("/x")).answer.body == b"fine"
    assert kept == [(b"short", True), (b"0123456789", True), (b"0123456789", False), (b"", True), (b"y" * 10, False)]


def test_a_silent_origin_is_overdue_once_and_then_timed_out(origin: Origin, confdir: Path) -> None:
    origin.script = {"/x": silent()}
    pacing = ScriptedPacing(response_timeout_s=0.4, overdue_after_s=0.1, max_attempts=1)
    with Rig(pacing, confdir=confdir) as rig:
        answer = curl(rig.url, origin.url("/x")).answer
        assert (answer.status, answer.proxy_status) == (504, "paceproxy; error=http_response_timeout")
    assert pacing.of("/x") == ["accept", "prepare", "grant", "sending", "overdue", "replied", "close"]
    assert pacing.replies("/x") == [Reply(error=ErrorName.HTTP_RESPONSE_TIMEOUT, details="no response within 0.4 s")]


def test_a_late_response_is_taken_after_it_was_overdue(origin: Origin, confdir: Path) -> None:
    origin.script = {"/x": late(0.3, FINE)}
    with Rig(ScriptedPacing(overdue_after_s=0.1), confdir=confdir) as rig:
        assert curl(rig.url, origin.url("/x")).answer.body == b"fine"
    assert rig.pacing.of("/x")[-5:] == ["sending", "overdue", "replied", "first_byte", "close"]


def test_the_time_for_the_response_does_not_run_while_the_request_is_still_being_sent(
    origin: Origin, confdir: Path
) -> None:
    """The origin reads nothing for longer than the time-out; 24 MB do not fit into the buffers on the way."""
    body = b"x" * 24_000_000

    class ReadLate:
        reads_body = False

        async def act(self, visit: Visit) -> None:

            await Pause(1.5).act(visit)
            await visit.read_body()
            await FullResponse(200, b"fine").act(visit)

    origin.script = {"/x": ReadLate()}
    with Rig(ScriptedPacing(response_timeout_s=0.7), confdir=confdir) as rig, requests_session(rig.url) as session:
        assert session.put(origin.url("/x"), data=body).content == b"fine"
    assert rig.pacing.errors("/x") == [None]
    assert origin.requests[0].body == body


def test_informational_responses_are_not_the_reply(origin: Origin, confdir: Path) -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
    origin.script = {"/x": Raw(early + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine")}
    with Rig(confdir=confdir) as rig, RawClient(rig.port) as client:
        for _ in range(2):
            client.get(origin.url("/x"))
            assert client.answer().body == b"fine"
    assert [reply.status for reply in rig.pacing.replies("/x")] == [200, 200]
    assert len(origin.connections) == 1


def test_an_invalid_response_is_a_reply_with_an_error(origin: Origin, confdir: Path) -> None:
    bad = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfine\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: four\r\n\r\nfine",
        b"HTTP/1.1 200 OK\r\nBad Name: x\r\nContent-Length: 4\r\n\r\nfine",
        b"HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 4\r\n\r\nfine",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 300_000 + b"\r\n\r\n",
    ]
    origin.script = {f"/{number}": Raw(data) for number, data in enumerate(bad)}
    with Rig(ScriptedPacing(max_attempts=1), confdir=confdir) as rig, RawClient(rig.port) as client:
        for number in range(len(bad)):
            client.get(origin.url(f"/{number}"))
            assert client.answer().status == 504
            assert rig.pacing.errors(f"/{number}") == [ErrorName.HTTP_PROTOCOL_ERROR]
    assert len(origin.connections) == len(bad)


def test_trailers_of_a_response_reach_the_client(origin: Origin, confdir: Path) -> None:
    origin.script = {"/x": respond(200, b"fine", chunked=True, trailers=[("X-Sum", "1")])}
    with Rig(confdir=confdir) as rig, RawClient(rig.port) as client:
        for _ in range(2):
            client.get(origin.url("/x"))
            wanted = b"4\r\nfine\r\n0\r\nX-Sum: 1\r\n\r\n"
            data = b""
            while not data.endswith(wanted):
                data += client.receive()
            assert data.startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_body_cut_short_is_told_and_the_client_sees_a_reset(origin: Origin, confdir: Path) -> None:
    origin.script = {"/x": Drip((b"abc",), 0.0, length=1000)}
    with Rig(confdir=confdir) as rig, RawClient(rig.port) as client:
        client.get(origin.url("/x"))
        with pytest.raises(ConnectionResetError):
            client.rest()
        rig.wait_for("close", "/x")
    assert rig.pacing.of("/x")[-4:] == ["replied", "first_byte", "cut", "close"]


def test_a_body_that_ends_with_the_connection_is_cut_short_by_a_reset(origin: Origin, confdir: Path) -> None:
    class HeadThenReset:
        reads_body = True

        async def act(self, visit: Visit) -> None:
            await visit.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc")
            rig.wait_for("first_byte", "/x")
            visit.reset()

    origin.script = {"/x": HeadThenReset(), "/y": respond(200, b"whole", until_close=True)}
    with Rig(confdir=confdir) as rig:
        with RawClient(rig.port) as client:
            client.get(origin.url("/x"))
            with pytest.raises(ConnectionResetError):
                client.rest()
        with RawClient(rig.port) as client:
            client.get(origin.url("/y"))
            assert client.answer().body == b"whole"
    assert rig.pacing.of("/x")[-2:] == ["cut", "close"]
    assert rig.pacing.of("/y")[-2:] == ["first_byte", "close"]


def test_a_response_set_by_another_addon_needs_no_attempt(origin: Origin, confdir: Path) -> None:
    class Answers:
        def request(self, flow: http.HTTPFlow) -> None:
            flow.response = http.Response.make(418, b"mine")

    with Rig(confdir=confdir, addons=[Answers()]) as rig:
        answer = curl(rig.url, origin.url("/x")).answer
        assert (answer.status, answer.body) == (418, b"mine")
    assert rig.pacing.of("/x") == ["accept", "close"]
    assert origin.requests == []


def test_an_upload_that_an_addon_answers_at_its_head_is_not_forwarded(origin: Origin, confdir: Path) -> None:
    class Refuses:
        def requestheaders(self, flow: http.HTTPFlow) -> None:
            flow.response = http.Response.make(407, b"who?")

    with Rig(confdir=confdir, addons=[Refuses()], stream_large_bodies="1k") as rig, RawClient(rig.port) as client:
        client.send(
            f"PUT {origin.url('/x')} HTTP/1.1\r\nHost: {origin.host}\r\nContent-Length: 100000\r\n\r\n".encode()
        )
        assert client.answer().body == b"who?"
        client.send(b"x" * 100_000)
        client.get(origin.url("/y"))
        assert client.answer().status == 407
    assert origin.requests == []
    assert rig.pacing.of("/x") == ["accept", "close"]


def test_a_killed_flow_is_not_sent(origin: Origin, confdir: Path) -> None:
    class Kills:
        def request(self, flow: http.HTTPFlow) -> None:
            flow.kill()

    with Rig(confdir=confdir, addons=[Kills()]) as rig, RawClient(rig.port) as client:
        client.get(origin.url("/x"))
        assert client.rest() == b""
    assert rig.pacing.of("/x") == ["accept", "close"]
    assert origin.requests == []


# Streamed uploads.


def test_a_large_upload_is_streamed_and_gets_one_attempt(origin: Origin, confdir: Path) -> None:
    body = b"x" * 3_000_000
    origin.script = {"/x": respond(503, b"busy"), "/y": FINE}
    with Rig(confdir=confdir, stream_large_bodies="100k") as rig, requests_session(rig.url) as session:
        assert session.put(origin.url("/x"), data=body).content == b"busy"
        assert session.put(origin.url("/y"), data=iter([body[:1000], body[1000:]])).content == b"fine"
    assert [exchange.held for exchange in rig.pacing.exchanges] == [False, False]
    assert [request.body == body for request in origin.requests] == [True, True]
    assert rig.pacing.of("/x") == ["accept", "prepare", "grant", "sending", "replied", "first_byte", "close"]


def test_a_held_upload_is_not_read_into_memory(origin: Origin, confdir: Path) -> None:
    pacing = ScriptedPacing(hold=True)
    with Rig(pacing, confdir=confdir, stream_large_bodies="100k") as rig, RawClient(rig.port, timeout=10) as client:
        size = 50_000_000
        client.send(
            f"PUT {origin.url('/x')} HTTP/1.1\r\nHost: {origin.host}\r\nContent-Length: {size}\r\n\r\n".encode()
        )
        rig.wait_for("hold", "/x")
        client._socket.settimeout(0.5)
        sent = _send_until_stuck(client, size)
        # The kernel's buffers on both sides took this much, and the proxy less than a megabyte of it.
        (stream,) = [s for layer in rig.layers for s in layer.streams.values()]
        queued = rig.call(lambda: sum(len(getattr(e, "data", b"")) for e in stream._paused_event_queue))
        assert queued < 1_000_000
        client._socket.settimeout(10)
        rig.release()
        while sent < size:
            sent += client._socket.send(b"x" * min(1_000_000, size - sent))
        assert client.answer().status == 200
    assert len(origin.requests[0].body) == size


def _send_until_stuck(client: RawClient, size: int) -> int:
    """How many bytes were taken before nobody took any more. All of them would be a failure."""
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < size:
            sent += client._socket.send(b"x" * 1_000_000)
    assert sent < size
    return sent


def test_an_upload_refused_by_the_pacing_gets_its_answer_and_the_connection_lives_on(
    origin: Origin, confdir: Path
) -> None:
    def decide(exchange: Exchange) -> Send | Respond:
        return Send(5, 5) if exchange.held else Respond(http.Response.make(503, b"no"))

    with Rig(ScriptedPacing(decide_grant=decide), confdir=confdir, stream_large_bodies="100k") as rig:
        with RawClient(rig.port) as client:
            client.send(
                f"PUT {origin.url('/x')} HTTP/1.1\r\nHost: {origin.host}\r\nContent-Length: 3000000\r\n\r\n".encode()
            )
            assert client.answer().body == b"no"
            client.send(b"x" * 3_000_000)
            client.get(origin.url("/y"))
            assert client.answer().status == 200
        assert [request.path for request in origin.requests] == ["/y"]


def test_an_upload_that_nobody_needs_is_not_read_for_ever(
    origin: Origin, confdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "LINGER_S", 0.2)
    pacing = ScriptedPacing(decide_grant=lambda exchange: Respond(http.Response.make(503, b"no")))
    with Rig(pacing, confdir=confdir, stream_large_bodies="1k") as rig, RawClient(rig.port) as client:
        client.send(f"PUT {origin.url('/x')} HTTP/1.1\r\nHost: {origin.host}\r\nContent-Length: 9999\r\n\r\n".encode())
        assert client.answer().body == b"no"
        assert client.rest() == b""
    assert pacing.of("/x")[-1] == "close"


@pytest.mark.parametrize("ends", [False, True])
def test_an_answer_that_comes_before_the_upload_is_complete_is_not_lost(
    origin: Origin, confdir: Path, ends: bool
) -> None:
    origin.script = {"/x": _Early(413, b"too large", ends)}
    with Rig(confdir=confdir, stream_large_bodies="100k") as rig, RawClient(rig.port) as client:
        client.send(
            f"PUT {origin.url('/x')} HTTP/1.1\r\nHost: {origin.host}\r\nContent-Length: 3000000\r\n\r\n".encode()
            + b"x" * 200_000
        )
        answer = client.answer()
        assert (answer.status, answer.body) == (413, b"too large")
        client.send(b"x" * 2_800_000)
        client.get(origin.url("/y"))
        assert client.answer().status == 200
    assert rig.pacing.of("/x") == ["accept", "prepare", "grant", "sending", "replied", "first_byte", "close"]


class _Early:
    """Answers at the head of the request, then reads the rest or ends the connection."""

    reads_body = False

    def __init__(self, status: int, body: bytes, ends: bool) -> None:
        self._status, self._body, self._ends = status, body, ends

    async def act(self, visit: Visit) -> None:

        await visit.send(response_head(self._status, [("Content-Length", str(len(self._body)))]) + self._body)
        if self._ends:
            visit.close()
        else:
            await visit.read_body()


def test_an_origin_that_reads_no_more_of_the_upload_is_heard_all_the_same(origin: Origin, confdir: Path) -> None:
    """It answers at length while nobody reads what it is sent: neither side may wait for the other."""
    body = b"y" * 4_000_000

    class AnswersOnly:
        reads_body = False

        async def act(self, visit: Visit) -> None:

            await visit.send(response_head(200, [("Content-Length", str(len(body)))]) + body)
            await visit.read_body()

    origin.script = {"/x": AnswersOnly()}
    size = 20_000_000
    with Rig(confdir=confdir, stream_large_bodies="100k") as rig, RawClient(rig.port) as client:
        client.send(
            f"PUT {origin.url('/x')} HTTP/1.1\r\nHost: {origin.host}\r\nContent-Length: {size}\r\n\r\n".encode()
        )
        client._socket.setblocking(False)
        sent = 0
        received = b""

        def pump() -> bool:
            nonlocal sent, received
            with contextlib.suppress(BlockingIOError):
                sent += client._socket.send(b"x" * min(65536, size - sent))
            with contextlib.suppress(BlockingIOError):
                received += client._socket.recv(65536)
            return received.endswith(b"y" * 1000) and len(received) > len(body) and sent == size

        until(lambda: any(pump() for _ in range(1000)), "both had gone through", 30)
        client._socket.setblocking(True)
    assert rig.pacing.of("/x")[-1] == "close"


def test_an_upload_whose_origin_goes_away_is_answered_by_the_pacing(origin: Origin, confdir: Path) -> None:
    origin.script = {"/x": Close(reads_body=False)}
    with Rig(confdir=confdir, stream_large_bodies="100k") as rig, RawClient(rig.port) as client:
        client.send(
            f"PUT {origin.url('/x')} HTTP/1.1\r\nHost: {origin.host}\r\nContent-Length: 3000000\r\n\r\n".encode()
            + b"x" * 200_000
        )
        answer = client.answer()
        assert (answer.status, answer.proxy_status) == (504, "paceproxy; error=connection_terminated")
    assert rig.pacing.errors("/x") == [ErrorName.CONNECTION_TERMINATED]


def test_the_response_time_of_an_upload_begins_at_its_end(origin: Origin, confdir: Path) -> None:
    origin.script = {"/x": silent()}
    pacing = ScriptedPacing(response_timeout_s=0.3)
    with Rig(pacing, confdir=confdir, stream_large_bodies="100k") as rig, RawClient(rig.port) as client:
        client.send(
            f"PUT {origin.url('/x')} HTTP/1.1\r\nHost: {origin.host}\r\nContent-Length: 300000\r\n\r\n".encode()
            + b"x" * 200_000
        )
        client._socket.settimeout(0.8)
        with pytest.raises(TimeoutError):
            client.receive()
        client._socket.settimeout(10)
        client.send(b"x" * 100_000)
        assert client.answer().proxy_status == "paceproxy; error=http_response_timeout"


def test_a_truncated_reply_that_is_discarded_does_not_count_as_whole(origin: Origin, confdir: Path) -> None:
    origin.script = {"/x": [truncated(b"abc", 1000), FINE]}

    def decide(exchange: Exchange, reply: Reply) -> Release | Again:
        return Again() if exchange.number == 1 else Release()

    with Rig(ScriptedPacing(decide_reply=decide), confdir=confdir) as rig:
        assert curl(rig.url, origin.url("/x")).answer.body == b"fine"
    (exchange,) = rig.pacing.exchanges
    assert (bytes(exchange.discarded_body), exchange.discarded_whole) == (b"abc", False)
