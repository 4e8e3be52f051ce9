"""How a request ends before its time: clients that leave in every phase, and our own code failing in every place."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mitmproxy import http

from proxy_addon import connections, http1, layer, origins, stream
from proxy_addon.border import Border
from proxy_addon.exchange import Exchange
from proxy_addon.model import ErrorName
from tests.support.behaviours import Drip, WebSocketEcho, respond, silent
from tests.support.clients import Answer, RawClient, curl
from tests.support.h2peers import H2Client, H2Origin
from tests.support.origin import Origin
from tests.support.rig import Rig, ScriptedPacing
from tests.support.silence import full_backlog
from tests.support.waiting import until

LEAVING: list[Callable[[RawClient], None]] = [RawClient.close, RawClient.half_close, RawClient.reset]


@pytest.mark.parametrize("leave", LEAVING)
def test_a_client_that_leaves_while_held_is_told_at_once_and_nothing_is_sent(
    origin: Origin, confdir: Path, leave: Callable[[RawClient], None]
) -> None:
    with Rig(ScriptedPacing(hold=True), confdir=confdir) as rig, RawClient(rig.port) as client:
        client.get(origin.url("/x"))
        rig.wait_for("hold", "/x")
        leave(client)
        rig.wait_for("close", "/x")
        assert rig.pacing.of("/x") == ["accept", "prepare", "grant", "hold", "left", "close"]
        assert rig.pacing.exchanges[0].client_left
    assert origin.requests == []


def test_a_client_that_leaves_before_its_body_is_complete(origin: Origin, confdir: Path) -> None:
    with Rig(confdir=confdir) as rig, RawClient(rig.port) as client:
        client.send(f"PUT {origin.url('/x')} HTTP/1.1\r\nHost: {origin.host}\r\nContent-Length: 5\r\n\r\nhel".encode())
        rig.wait_for("accept", "/x")
        client.close()
        rig.wait_for("close", "/x")
        assert rig.pacing.of("/x") == ["accept", "left", "close"]
    assert origin.requests == []


def test_a_client_that_leaves_while_its_request_waits_for_another_addon(origin: Origin, confdir: Path) -> None:
    flows: list[http.HTTPFlow] = []

    class Intercepts:
        def request(self, flow: http.HTTPFlow) -> None:
            flows.append(flow)
            flow.intercept()

    with Rig(confdir=confdir, addons=[Intercepts()]) as rig, RawClient(rig.port) as client:
        client.get(origin.url("/x"))
        until(lambda: flows, "the addon had the request")
        client.close()
        rig.wait_for("left", "/x")
        rig.call(flows[0].resume)
        rig.wait_for("close", "/x")
        assert rig.pacing.of("/x") == ["accept", "left", "close"]
    assert origin.requests == []


@pytest.mark.parametrize("leave", LEAVING)
def test_a_client_that_leaves_while_its_origin_is_being_dialled(
    confdir: Path, leave: Callable[[RawClient], None]
) -> None:
    with full_backlog() as port, Rig(confdir=confdir) as rig, RawClient(rig.port) as client:
        client.get(f"http://127.0.0.1:{port}/x")
        rig.wait_for("grant", "/x")
        until(lambda: any(active.waiting_for_establishment for active in rig.layers), "the dial was under way")
        leave(client)
        rig.wait_for("close", "/x")
        assert rig.pacing.of("/x") == ["accept", "prepare", "grant", "left", "close"]


@pytest.mark.parametrize("leave", LEAVING)
def test_a_client_that_leaves_while_waiting_ends_its_attempt(
    origin: Origin, confdir: Path, leave: Callable[[RawClient], None]
) -> None:
    origin.script = {"/x": silent()}
    with Rig(confdir=confdir) as rig, RawClient(rig.port) as client:
        client.get(origin.url("/x"))
        origin.wait_for(lambda o: o.hits("/x") == 1)
        leave(client)
        rig.wait_for("close", "/x")
        assert rig.pacing.of("/x") == ["accept", "prepare", "grant", "sending", "left", "close"]
        origin.wait_for(lambda o: o.connections[0].closed_at is not None)


def test_a_client_that_leaves_while_a_reply_is_discarded(origin: Origin, confdir: Path) -> None:
    origin.script = {"/x": Drip((b"a", b"b", b"c"), 30.0, length=3, status=503)}
    with Rig(confdir=confdir) as rig, RawClient(rig.port) as client:
        client.get(origin.url("/x"))
        rig.wait_for("replied", "/x")
        client.close()
        rig.wait_for("close", "/x")
        assert rig.pacing.of("/x") == ["accept", "prepare", "grant", "sending", "replied", "left", "close"]


def test_a_client_that_leaves_in_the_flow_ends_its_response(origin: Origin, confdir: Path) -> None:
    origin.script = {"/x": Drip((b"a", b"b"), 30.0, length=2)}
    with Rig(confdir=confdir) as rig, RawClient(rig.port) as client:
        client.get(origin.url("/x"))
        rig.wait_for("first_byte", "/x")
        client.close()
        rig.wait_for("close", "/x")
        assert rig.pacing.of("/x")[-3:] == ["first_byte", "left", "close"]


def test_a_client_that_leaves_in_a_streamed_upload(origin: Origin, confdir: Path) -> None:
    with Rig(confdir=confdir, stream_large_bodies="1k") as rig, RawClient(rig.port) as client:
        client.send(f"PUT {origin.url('/x')} HTTP/1.1\r\nHost: {origin.host}\r\nContent-Length: 9999\r\n\r\nx".encode())
        origin.wait_for(lambda o: o.hits("/x") == 1)
        client.close()
        rig.wait_for("close", "/x")
        assert rig.pacing.of("/x") == ["accept", "prepare", "grant", "sending", "left", "close"]


def test_a_client_that_leaves_a_tunnel(secure_origin: Origin, confdir: Path) -> None:
    with Rig(ScriptedPacing(hold=True), confdir=confdir, ssl_insecure=True) as rig, RawClient(rig.port) as client:
        client.connect(f"localhost:{secure_origin.port}")
        client.start_tls("localhost", rig.ca)
        client.send(b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n")
        rig.wait_for("hold", "/x")
        client.reset()
        rig.wait_for("close", "/x")
    assert secure_origin.requests == []
    assert rig.pacing.of("/x") == ["accept", "prepare", "grant", "hold", "left", "close"]


def test_one_stream_of_http2_leaves_and_its_neighbours_go_on(confdir: Path) -> None:
    with H2Origin(lambda one: (200, b"fine")) as far, Rig(ScriptedPacing(hold=True), confdir=confdir, **H2) as rig:
        with H2Client(rig.port, "localhost", far.port, rig.ca) as client:
            gone, stays = client.send("/gone"), client.send("/stays")
            rig.wait_for("hold", "/gone")
            rig.wait_for("hold", "/stays")
            client.reset(gone)
            rig.wait_for("close", "/gone")
            rig.release()
            assert client.answer(stays).body == b"fine"
        assert rig.pacing.of("/gone") == ["accept", "prepare", "grant", "hold", "left", "close"]
        assert far.hits("/gone") == 0


def test_an_addon_that_takes_its_time_makes_no_second_request_of_a_tunnel(secure_origin: Origin, confdir: Path) -> None:
    class Slow:
        async def requestheaders(self, flow: http.HTTPFlow) -> None:
            await asyncio.sleep(0)

    with Rig(confdir=confdir, ssl_insecure=True, addons=[Slow()]) as rig:
        answer = curl(rig.url, secure_origin.url("/x", host="localhost"), ca=rig.ca).answer
        assert answer.status == 200
    assert [call.path for call in rig.pacing.calls if call.name == "accept"] == ["/x"]


H2: dict[str, Any] = {"http2": True, "ssl_insecure": True}


def test_a_websocket_is_closed_once_at_its_end(origin: Origin, confdir: Path) -> None:
    origin.script = {"/ws": [respond(503), WebSocketEcho()]}
    with Rig(confdir=confdir) as rig, RawClient(rig.port) as client:
        client.send(
            f"GET {origin.url('/ws')} HTTP/1.1\r\nHost: {origin.host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        answer = client.answer()
        assert (answer.status, answer.values("Upgrade"), answer.body) == (101, ["websocket"], b"")
        for _ in range(2):
            client.send(b"\x81\x82\0\0\0\0hi")
            assert client.receive() == b"\x81\x07echo:hi"
        assert "close" not in rig.pacing.of("/ws")
        client.send(b"\x88\x82\0\0\0\0\x03\xe8")
        assert client.rest() == b"\x88\x02\x03\xe8"
    assert rig.pacing.of("/ws")[-4:] == ["sending", "replied", "first_byte", "close"]
    assert [request.values("Connection") for request in origin.requests] == [["Upgrade"], ["Upgrade"]]


def test_a_websocket_ends_when_its_client_vanishes(origin: Origin, confdir: Path) -> None:
    origin.script = {"/ws": WebSocketEcho()}
    with Rig(confdir=confdir) as rig, RawClient(rig.port) as client:
        client.send(
            f"GET {origin.url('/ws')} HTTP/1.1\r\nHost: {origin.host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        assert client.answer().status == 101
        client.reset()
        rig.wait_for("close", "/ws")
        origin.wait_for(lambda o: o.connections[0].closed_at is not None)


# Our own faults.

INTERNAL = "paceproxy; error=proxy_internal_error"


def _is_internal_error(answer: Answer) -> bool:
    return (
        answer.status == 500
        and answer.proxy_status == INTERNAL
        and answer.values("Connection") == ["close"]
        and len(answer.values("Date")) == 1
        and answer.body.startswith(b"Paceproxy failed")
    )


@pytest.mark.parametrize(
    ("method", "attempts"), [("accept", 0), ("prepare", 0), ("grant", 0), ("hold", 0), ("sending", 0), ("replied", 1)]
)
@pytest.mark.parametrize("upload", [False, True])
def test_an_exception_in_the_pacing_before_the_head_is_a_500(
    origin: Origin, confdir: Path, method: str, attempts: int, upload: bool
) -> None:
    pacing = ScriptedPacing(raise_in=method, hold=method == "hold")
    with Rig(pacing, confdir=confdir, faults=True, stream_large_bodies="1k") as rig:
        with RawClient(rig.port) as client:
            if upload:
                client.send(
                    f"PUT {origin.url('/x')} HTTP/1.1\r\nHost: {origin.host}\r\nContent-Length: 2000\r\n\r\n".encode()
                    + b"x" * 2000
                )
            else:
                client.get(origin.url("/x"))
            assert _is_internal_error(client.answer())
            assert client.rest() == b""
        rig.wait_for("close", "/x")
        assert pacing.of("/x").count("close") == 1
        assert sum("on purpose" in problem for problem in rig.problems) == 1
    assert sum(1 for request in origin.requests if request.whole) == attempts


def test_an_exception_while_the_response_begins_is_a_500(origin: Origin, confdir: Path) -> None:
    with Rig(ScriptedPacing(raise_in="first_byte"), confdir=confdir, faults=True) as rig:
        with RawClient(rig.port) as client:
            client.get(origin.url("/x"))
            assert _is_internal_error(client.answer())
            assert client.rest() == b""
        rig.wait_for("close", "/x")
        assert rig.pacing.of("/x")[-2:] == ["first_byte", "close"]


def test_an_exception_when_the_response_is_overdue_is_a_500(origin: Origin, confdir: Path) -> None:
    origin.script = {"/x": silent()}
    with Rig(ScriptedPacing(raise_in="overdue", overdue_after_s=0.1), confdir=confdir, faults=True) as rig:
        with RawClient(rig.port) as client:
            client.get(origin.url("/x"))
            assert _is_internal_error(client.answer())
        origin.wait_for(lambda o: o.connections[0].closed_at is not None)


@pytest.mark.parametrize("method", ["left", "close"])
def test_an_exception_at_the_end_leaves_nothing_behind(origin: Origin, confdir: Path, method: str) -> None:
    pacing = ScriptedPacing(raise_in=method, hold=method == "left")
    with Rig(pacing, confdir=confdir, faults=True) as rig:
        with RawClient(rig.port) as client:
            client.get(origin.url("/x"))
            if method == "close":
                assert client.answer().status == 200
            else:
                rig.wait_for("hold", "/x")
        rig.wait_for("close", "/x")
        rig.release()
        assert pacing.of("/x").count("close") == 1


def test_an_exception_on_a_cut_ends_the_connection(origin: Origin, confdir: Path) -> None:
    origin.script = {"/x": Drip((b"abc",), 0.0, length=1000)}
    with Rig(ScriptedPacing(raise_in="cut"), confdir=confdir, faults=True) as rig, RawClient(rig.port) as client:
        client.get(origin.url("/x"))
        with pytest.raises(ConnectionResetError):
            client.rest()
        rig.wait_for("close", "/x")


@pytest.mark.parametrize("where", ["grant", "replied"])
def test_no_answer_is_a_500(origin: Origin, confdir: Path, where: str) -> None:
    pacing = ScriptedPacing()
    if where == "grant":
        pacing.decide_grant = lambda exchange: None
    else:
        pacing.decide_reply = lambda exchange, reply: None
    with Rig(pacing, confdir=confdir, faults=True) as rig, RawClient(rig.port) as client:
        client.get(origin.url("/x"))
        assert _is_internal_error(client.answer())
    assert len(origin.requests) == (0 if where == "grant" else 1)


def test_an_exception_in_the_hook_itself_is_a_500(origin: Origin, confdir: Path) -> None:
    class Broken(ScriptedPacing):
        async def wait(self, exchange: Exchange) -> None:
            raise RuntimeError("on purpose")

    with Rig(Broken(hold=True), confdir=confdir, faults=True) as rig, RawClient(rig.port) as client:
        client.get(origin.url("/x"))
        assert _is_internal_error(client.answer())
    assert origin.requests == []


def _fail(*_: object, **__: object) -> Any:
    raise RuntimeError("on purpose")


FAULTS: list[tuple[object, str]] = [
    (Border, "_crosses"),
    (stream.PacedHttpStream, "_connect"),
    (stream.PacedHttpStream, "_begin"),
    (stream.PacedHttpStream, "request_sent"),
    (stream.PacedHttpStream, "_fault"),
    (stream.PacedHttpStream, "start_response_stream"),
    (layer.PacedHttpLayer, "start_attempt"),
    (layer.PacedHttpLayer, "find_origin"),
    (layer.PacedHttpLayer, "get_connection"),
    (layer.PacedHttpLayer, "register_connection"),
    (connections, "make_origin"),
    (origins.OriginClient, "_handle_event"),
    (http1, "without_hop_by_hop"),
    (http1.PacedHttp1Client, "_read_head"),
]


@pytest.mark.parametrize(("owner", "name"), FAULTS)
def test_an_exception_anywhere_in_the_layer_is_a_500_and_leaves_nothing_behind(
    origin: Origin, confdir: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    with Rig(confdir=confdir, faults=True) as rig:
        with RawClient(rig.port) as client, monkeypatch.context() as patch:
            patch.setattr(owner, name, _fail)
            client.get(origin.url("/x"))
            assert _is_internal_error(client.answer())
            assert client.rest() == b""
        rig.wait_for("close", "/x")
        with RawClient(rig.port) as client:
            client.get(origin.url("/y"))
            assert client.answer().status == 200
        assert sum("on purpose" in problem for problem in rig.problems) >= 1


def test_an_exception_while_dialling_is_the_fault_of_nobody_else(
    origin: Origin, confdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(address: str, port: int, *, configured: bool) -> ErrorName | None:
        raise RuntimeError("on purpose")

    pacing = ScriptedPacing(max_attempts=1)
    with Rig(pacing, confdir=confdir, faults=True, refuse=refuse) as rig, RawClient(rig.port) as client:
        client.get(origin.url("/x"))
        assert client.answer().proxy_status == INTERNAL
    (reply,) = pacing.replies("/x")
    assert (reply.error, reply.charged) == (ErrorName.PROXY_INTERNAL_ERROR, False)


def test_one_failing_stream_of_http2_gets_a_500_and_its_neighbours_go_on(confdir: Path) -> None:
    class FailsOnce(ScriptedPacing):
        def prepare(self, exchange: Exchange) -> None:
            super().prepare(exchange)
            if exchange.flow.request.path == "/bad":
                raise RuntimeError("on purpose")

    with H2Origin(lambda one: (200, b"fine")) as far, Rig(FailsOnce(), confdir=confdir, faults=True, **H2) as rig:
        with H2Client(rig.port, "localhost", far.port, rig.ca) as client:
            good, bad = client.send("/good"), client.send("/bad")
            assert client.answer(bad).status == 500
            assert client.answer(good).body == b"fine"
            assert client.get("/again").body == b"fine"
        assert far.hits("/bad") == 0


def test_the_departure_of_a_held_client_is_noticed_within_a_moment(origin: Origin, confdir: Path) -> None:
    """Not by a time-out: it has none to wait for."""
    with Rig(ScriptedPacing(hold=True), confdir=confdir) as rig:
        clients = [RawClient(rig.port) for _ in range(20)]
        for number, client in enumerate(clients):
            client.get(origin.url(f"/{number}"))
        until(lambda: len(rig.pacing.held) == 20, "all were held")
        started = time.monotonic()
        for client in clients:
            client.close()
        until(lambda: not rig.pacing.held, "all were let go", 5)
        assert time.monotonic() - started < 5
