"""One client connection: which connection each attempt gets, HTTP/2 on either side, modes, timers, and the install."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h2.events
import pytest
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layer import NextLayer
from mitmproxy.proxy.layers import modes
from mitmproxy.proxy.layers.http import HttpLayer, HTTPMode

from proxy_addon.exchange import Again, Exchange, Release, Respond
from proxy_addon.installing import install
from proxy_addon.layer import PacedHttpLayer
from proxy_addon.model import ErrorName, Reply
from tests.support import behaviours
from tests.support.behaviours import Raw, chain, close, respond, silent
from tests.support.clients import RawClient, curl, requests_session
from tests.support.h2peers import H2Client, H2Origin, Stream
from tests.support.origin import Origin
from tests.support.ports import refusing_port
from tests.support.rig import Rig, ScriptedPacing
from tests.support.silence import full_backlog
from tests.support.waiting import until
from tests.support.wire import context

H2: dict[str, Any] = {"http2": True, "ssl_insecure": True}
FINE = respond(200, b"fine")


def again_once(fresh: bool) -> Callable[[Exchange, Reply], Release | Again | Respond]:
    return lambda exchange, reply: Again(fresh=fresh) if exchange.number == 1 else Release()


# What each client got.


def test_what_a_client_was_sent_is_noted(origin: Origin, confdir: Path) -> None:
    cut = chain(Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"), close())
    origin.script = {
        "/page": FINE,
        "/missing": respond(404, b"no"),
        "/chunked": behaviours.Respond(framing="chunked"),
        "/cut": cut,
    }
    with Rig(ScriptedPacing(max_attempts=2), confdir=confdir) as rig:
        curl(rig.url, origin.url("/page"))
        curl(rig.url, origin.url("/page"), "--head")
        for path in ("/missing", "/chunked", "/cut"):
            curl(rig.url, origin.url(path))
        with refusing_port() as port:
            curl(rig.url, f"http://127.0.0.1:{port}/refused")
        rig.wait_for("close", "/refused")
        got = [(exchange.flow.request.path, exchange.status, exchange.body_bytes) for exchange in rig.pacing.exchanges]
    assert got == [
        ("/page", 200, 4),
        ("/page", 200, 0),
        ("/missing", 404, 2),
        ("/chunked", 200, 2),
        ("/cut", 200, 4),
        ("/refused", 504, len("error: connection_refused")),
    ]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_our_own_error_is_noted_as_what_a_client_was_sent(origin: Origin, confdir: Path, method: str) -> None:
    with Rig(ScriptedPacing(raise_in="replied"), confdir=confdir, faults=True) as rig:
        with requests_session(rig.url) as session:
            response = session.request(method, origin.url("/x"))
        rig.wait_for("close", "/x")
        (exchange,) = rig.pacing.exchanges
    assert (response.status_code, exchange.status) == (500, 500)
    assert exchange.body_bytes == len(response.content)


# Connections.


def test_requests_of_one_client_share_a_connection(origin: Origin, confdir: Path) -> None:
    with Rig(confdir=confdir) as rig, requests_session(rig.url) as session:
        for number in range(5):
            assert session.get(origin.url(f"/{number}")).status_code == 200
    assert [request.connection for request in origin.requests] == [1, 1, 1, 1, 1]
    assert [reply.reused for call in rig.pacing.calls if (reply := call.reply)] == [False, True, True, True, True]


def test_a_fresh_attempt_gets_a_new_connection_and_the_old_one_is_closed(origin: Origin, confdir: Path) -> None:
    with Rig(confdir=confdir) as rig, requests_session(rig.url) as session:
        session.get(origin.url("/first"))
        rig.pacing.decide_reply = again_once(fresh=True)
        session.get(origin.url("/x"))
        assert [request.connection for request in origin.requests] == [1, 1, 2]
        origin.wait_for(lambda o: o.connections[0].closed_at is not None)
    assert [reply.reused for reply in rig.pacing.replies("/x")] == [True, False]


def test_a_waiting_request_holds_no_connection(origin: Origin, confdir: Path) -> None:
    with Rig(ScriptedPacing(decide_reply=again_once(fresh=False)), confdir=confdir) as rig:
        curl(rig.url, origin.url("/x"))
    assert [request.connection for request in origin.requests] == [1, 2]
    assert [reply.reused for reply in rig.pacing.replies("/x")] == [False, False]


@pytest.mark.parametrize(("method", "connections"), [("POST", [1, 2, 2]), ("PATCH", [1, 2, 2]), ("PUT", [1, 1, 1])])
def test_only_idempotent_methods_use_a_connection_that_was_idle_for_long(
    origin: Origin, confdir: Path, method: str, connections: list[int]
) -> None:
    with Rig(ScriptedPacing(idle_reuse_s=0.0), confdir=confdir) as rig, requests_session(rig.url) as session:
        session.get(origin.url("/first"))
        session.request(method, origin.url("/x"), data=b"hi")
        session.get(origin.url("/last"))
        assert [request.connection for request in origin.requests] == connections
        # The connection that was not good enough is not left open for ever.
        closed = len(set(connections)) - 1
        origin.wait_for(lambda o: sum(1 for one in o.connections if one.closed_at is not None) == closed)


def test_any_method_uses_a_connection_that_was_used_just_now(origin: Origin, confdir: Path) -> None:
    with Rig(ScriptedPacing(idle_reuse_s=60.0), confdir=confdir) as rig, requests_session(rig.url) as session:
        session.get(origin.url("/first"))
        session.post(origin.url("/x"), data=b"hi")
    assert [request.connection for request in origin.requests] == [1, 1]


def test_a_connection_that_the_origin_closed_is_not_used_again_nor_remembered(origin: Origin, confdir: Path) -> None:
    origin.script = lambda request: chain(FINE, close())
    with Rig(confdir=confdir) as rig, requests_session(rig.url) as session:
        for number in range(10):
            assert session.get(origin.url(f"/{number}")).content == b"fine"
            until(lambda: _none_connected(rig), "the end was noticed")
        (layer,) = rig.layers
        assert len(layer.origins) == 1
        assert len(layer.connections) == 2
    assert [reply.reused for call in rig.pacing.calls if (reply := call.reply)] == [False] * 10


def test_a_crawl_of_many_hosts_keeps_few_connections(confdir: Path) -> None:
    with Origin(address="0.0.0.0") as origin, Rig(confdir=confdir) as rig, RawClient(rig.port) as client:
        for _ in range(2):
            for number in range(1, 41):
                client.get(origin.url("/x", host=f"127.0.1.{number}"))
                assert client.answer().status == 200
        for number in range(30, 41):
            client.get(origin.url("/x", host=f"127.0.1.{number}"))
            assert client.answer().status == 200
        # Forty hosts one after the other, twice; the last of them are still connected.
        assert len(origin.connections) == 80
        origin.wait_for(lambda o: sum(1 for one in o.connections if one.closed_at is None) <= 17)
        (layer,) = rig.layers
        assert len(layer.origins) == 17
        assert len(layer.connections) == 18


def _none_connected(rig: Rig) -> bool:
    return not any(server.connected for layer in rig.layers for server in layer.origins)


def test_failed_dials_are_not_remembered(origin: Origin, confdir: Path) -> None:
    origin.stop_listening()
    with Rig(ScriptedPacing(hold=True, max_attempts=20), confdir=confdir) as rig, RawClient(rig.port) as client:
        client.get(origin.url("/x"))
        rig.release()
        rig.wait_for("replied", "/x", 10)
        origin.start_listening()
        assert client.answer().status in (200, 504)
        (layer,) = rig.layers
        assert len(layer.origins) <= 1
        assert len(layer.handler.transports) <= 2
    assert set(rig.pacing.errors("/x")) <= {ErrorName.CONNECTION_REFUSED, None}


def test_a_reused_connection_that_is_dead_is_told_as_reused(origin: Origin, confdir: Path) -> None:
    origin.script = {"/x": [close(), FINE]}
    with Rig(confdir=confdir) as rig, requests_session(rig.url) as session:
        session.get(origin.url("/first"))
        assert session.get(origin.url("/x")).content == b"fine"
    assert [(reply.error, reply.reused) for reply in rig.pacing.replies("/x")] == [
        (ErrorName.CONNECTION_TERMINATED, True),
        (None, False),
    ]


def test_pipelined_requests_are_answered_in_order(origin: Origin, confdir: Path) -> None:
    origin.script = lambda request: respond(200, request.path.encode())
    with Rig(confdir=confdir) as rig, RawClient(rig.port) as client:
        head = f"HTTP/1.1\r\nHost: {origin.host}\r\n\r\n"
        client.send("".join(f"GET {origin.url(f'/{number}')} {head}" for number in range(200)).encode())
        assert [client.answer().body for _ in range(200)] == [f"/{number}".encode() for number in range(200)]
    assert len(origin.connections) == 1


# HTTP/2.


def h2_origin(stalls: dict[str, list[int | None]]) -> H2Origin:
    """Statuses by path for successive requests (None: silence), then 200."""
    waiting = {path: list(statuses) for path, statuses in stalls.items()}
    lock = threading.Lock()

    def answer(stream: Stream) -> tuple[int, bytes] | None:
        with lock:
            left = waiting.get(stream.path, [])
            status = left.pop(0) if left else 200
        return None if status is None else (status, b"fine" if status == 200 else b"busy")

    return H2Origin(answer)


def test_http2_to_http2_is_sent_again_on_the_same_connection(confdir: Path) -> None:
    with h2_origin({"/x": [503, 503]}) as far, Rig(confdir=confdir, **H2) as rig:
        with H2Client(rig.port, "localhost", far.port, rig.ca) as client:
            answer = client.get("/x")
            assert (answer.status, answer.body) == (200, b"fine")
        assert (far.hits("/x"), far.connections) == (3, 1)
    assert [reply.status for reply in rig.pacing.replies("/x")] == [503, 503, 200]


def test_a_silent_stream_is_reset_and_its_neighbours_go_on(confdir: Path) -> None:
    pacing = ScriptedPacing(response_timeout_s=0.5)
    with h2_origin({"/silent": [None]}) as far, Rig(pacing, confdir=confdir, **H2) as rig:
        with H2Client(rig.port, "localhost", far.port, rig.ca) as client:
            silent_one, *others = [client.send(path) for path in ("/silent", "/a", "/b", "/c")]
            assert [client.answer(one).body for one in others] == [b"fine"] * 3
            assert client.answer(silent_one).body == b"fine"
        assert far.connections == 1
        assert [stream.reset for stream in far.streams if stream.path == "/silent"] == [True, False]
    assert pacing.errors("/silent") == [ErrorName.HTTP_RESPONSE_TIMEOUT, None]


def test_http2_bodies_and_trailers_pass(confdir: Path) -> None:
    with h2_origin({"/x": [503]}) as far, Rig(confdir=confdir, **H2) as rig:
        with H2Client(rig.port, "localhost", far.port, rig.ca) as client:
            assert client.answer(client.send("/x", method="PUT", body=b"hello")).body == b"fine"
        assert [stream.body for stream in far.streams] == [b"hello", b"hello"]


def test_a_stream_cut_short_is_reset_towards_an_http2_client(confdir: Path) -> None:
    with (
        H2Origin(lambda stream: (200, b"beginning", 2)) as far,
        Rig(confdir=confdir, **H2) as rig,
        H2Client(rig.port, "localhost", far.port, rig.ca) as client,
    ):
        answer = client.get("/x")
        assert (answer.status, answer.body, answer.reset) == (200, b"beginning", 2)
    assert rig.pacing.of("/x")[-2:] == ["cut", "close"]


def test_a_reset_before_the_head_is_tried_again(confdir: Path) -> None:
    answers = [(200, b"", 7), (200, b"fine")]

    class ResetsFirst(H2Origin):
        def _take(self, conn: Any, event: Any, streams: Any, number: int) -> None:
            if isinstance(event, h2.events.StreamEnded) and len(answers) == 2:
                answers.pop(0)
                conn.reset_stream(event.stream_id, 7)
                return
            super()._take(conn, event, streams, number)

    with ResetsFirst(lambda stream: (200, b"fine")) as far, Rig(confdir=confdir, **H2) as rig:
        with H2Client(rig.port, "localhost", far.port, rig.ca) as client:
            assert client.get("/x").body == b"fine"
        assert far.connections == 1
    assert rig.pacing.errors("/x") == [ErrorName.CONNECTION_TERMINATED, None]


def _silent_at_1(stream: Stream) -> tuple[int, bytes] | None:
    return None if stream.path == "/1" else (200, b"fine")


def test_a_request_that_waits_for_a_free_stream_and_is_given_up_is_not_sent(confdir: Path) -> None:
    """The origin takes one stream at a time, and never answers the first."""
    with H2Origin(_silent_at_1, max_streams=1) as far, Rig(confdir=confdir, **H2) as rig:
        with H2Client(rig.port, "localhost", far.port, rig.ca) as client:
            assert client.get("/0").body == b"fine"
            first = client.send("/1")
            rig.wait_for("sending", "/1")
            waiting = client.send("/2")
            rig.wait_for("sending", "/2")
            client.reset(waiting)
            rig.wait_for("close", "/2")
            client.reset(first)
            rig.wait_for("close", "/1")
            assert client.get("/3").body == b"fine"
        assert [stream.path for stream in far.streams] == ["/0", "/1", "/3"]


def test_streams_that_share_a_dial_leave_it_one_by_one(confdir: Path) -> None:
    with full_backlog() as port, Rig(ScriptedPacing(max_attempts=1), confdir=confdir, **H2) as rig:
        with H2Client(rig.port, "127.0.0.1", port, rig.ca) as client:
            rig.pacing.connect_timeout_s = 60
            leaves = client.send("/leaves")
            rig.wait_for("grant", "/leaves")
            rig.pacing.connect_timeout_s = 0.5
            stays = client.send("/stays")
            rig.wait_for("grant", "/stays")
            layer = rig.layers[-1]
            assert [len(waiting) for waiting in rig.call(lambda: list(layer.waiting_for_establishment.values()))] == [2]
            client.reset(leaves)
            assert client.answer(stays).body == b"error: connection_timeout"
            assert layer.origins == {}
        assert rig.pacing.of("/leaves")[-2:] == ["left", "close"]


def test_http2_clients_of_an_http1_origin_get_a_connection_each(secure_origin: Origin, confdir: Path) -> None:
    secure_origin.script = {f"/{number}": [respond(503), FINE] for number in range(12)}
    with Rig(confdir=confdir, **H2) as rig, H2Client(rig.port, "localhost", secure_origin.port, rig.ca) as client:
        streams = [client.send(f"/{number}", method="PUT", body=b"hello") for number in range(12)]
        assert [client.answer(one).body for one in streams] == [b"fine"] * 12
        layer = rig.layers[-1]
        assert len(layer.streams) == 0
    # HTTP/2 delimits bodies itself; here they are chunked.
    assert [request.body for request in secure_origin.requests] == [b"hello"] * 24
    assert len(secure_origin.connections) == 24


def test_many_silent_streams_to_an_http1_origin_time_out_side_by_side(secure_origin: Origin, confdir: Path) -> None:
    """Stock dials at most five connections per address and client at a time, for as long as those live."""
    secure_origin.script = {f"/{number}": [silent(), FINE] for number in range(9)}
    pacing = ScriptedPacing(response_timeout_s=0.5)
    with (
        Rig(pacing, confdir=confdir, **H2) as rig,
        H2Client(rig.port, "localhost", secure_origin.port, rig.ca) as client,
    ):
        streams = [client.send(f"/{number}") for number in range(9)]
        assert [client.answer(one).body for one in streams] == [b"fine"] * 9
    assert {error for number in range(9) for error in rig.pacing.errors(f"/{number}")} == {
        ErrorName.HTTP_RESPONSE_TIMEOUT,
        None,
    }


def test_an_answer_of_the_pacing_reaches_an_http2_client(confdir: Path) -> None:
    pacing = ScriptedPacing(max_attempts=1)
    with H2Origin(lambda stream: None) as far, Rig(pacing, confdir=confdir, **H2) as rig:
        pacing.response_timeout_s = 0.3
        with H2Client(rig.port, "localhost", far.port, rig.ca) as client:
            answer = client.get("/x")
            assert (answer.status, answer.body) == (504, b"error: http_response_timeout")


# Modes.


def test_https_is_paced_inside_its_tunnel(secure_origin: Origin, confdir: Path) -> None:
    secure_origin.script = {"/x": [respond(503), close(), FINE]}
    with Rig(confdir=confdir, ssl_insecure=True) as rig:
        url = secure_origin.url("/x", host="localhost")
        assert curl(rig.url, url, ca=rig.ca).answer.body == b"fine"
    assert rig.pacing.of("/x").count("accept") == 1
    assert [call.path for call in rig.pacing.calls if call.name == "accept"] == ["/x"]
    assert len({request.head for request in secure_origin.requests}) == 1


def test_connect_itself_dials_nothing(secure_origin: Origin, confdir: Path) -> None:
    with Rig(ScriptedPacing(hold=True), confdir=confdir, ssl_insecure=True) as rig, RawClient(rig.port) as client:
        assert client.connect(f"localhost:{secure_origin.port}").status == 200
        client.start_tls("localhost", rig.ca)
        client.send(b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n")
        rig.wait_for("hold", "/x")
        assert secure_origin.connections == []
        rig.release()
        assert client.answer().status == 200


def test_a_connect_to_nowhere_fails_at_its_first_request(confdir: Path) -> None:
    with Rig(ScriptedPacing(max_attempts=1), confdir=confdir) as rig, RawClient(rig.port) as client:
        assert client.connect("127.0.0.1:1").status == 200
        client.start_tls("127.0.0.1", rig.ca)
        client.send(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.answer().proxy_status == "paceproxy; error=connection_refused"


def test_a_reverse_proxy_is_paced(origin: Origin, confdir: Path) -> None:
    origin.script = {"/x": [respond(503), close(), FINE]}
    with Rig(confdir=confdir, mode=f"reverse:http://127.0.0.1:{origin.port}") as rig, RawClient(rig.port) as client:
        client.send(b"GET /x HTTP/1.1\r\nHost: me\r\n\r\n")
        assert client.answer().body == b"fine"
    assert origin.requests[0].values("Host") == [origin.host]


@pytest.mark.parametrize("secure_client", [False, True])
def test_a_reverse_proxy_of_a_secure_origin_is_paced(secure_origin: Origin, confdir: Path, secure_client: bool) -> None:
    secure_origin.script = {"/x": [respond(503), close(), FINE]}
    mode = f"reverse:https://localhost:{secure_origin.port}"
    with Rig(confdir=confdir, mode=mode, ssl_insecure=True) as rig, RawClient(rig.port) as client:
        if secure_client:
            client.start_tls("localhost", rig.ca)
        client.send(b"GET /x HTTP/1.1\r\nHost: me\r\n\r\n")
        assert client.answer().body == b"fine"
    assert secure_origin.hits("/x") == 3


def test_a_loop_is_not_dialled(origin: Origin, confdir: Path) -> None:
    asked: list[tuple[str, int]] = []

    def refuse(address: str, port: int, *, configured: bool) -> ErrorName | None:
        asked.append((address, port))
        return ErrorName.PROXY_LOOP_DETECTED

    with Rig(ScriptedPacing(max_attempts=1), confdir=confdir, refuse=refuse) as rig:
        curl(rig.url, origin.url("/x", host="127.0.0.1"))
    assert rig.pacing.errors("/x") == [ErrorName.PROXY_LOOP_DETECTED]
    assert asked == [("127.0.0.1", origin.port)]
    assert origin.connections == []


# Time.


def test_one_timer_at_a_time_serves_all_requests_of_a_connection(origin: Origin, confdir: Path) -> None:
    pacing = ScriptedPacing(connect_timeout_s=60, response_timeout_s=60)
    with Rig(pacing, confdir=confdir) as rig, requests_session(rig.url) as session:
        for number in range(50):
            session.get(origin.url(f"/{number}"))
        (layer,) = rig.layers
        assert rig.call(lambda: len(layer.handler.wakeup_timer)) == 1


# The install.


def _next_layer() -> NextLayer:
    made = context()
    modes.HttpProxy(made)
    return NextLayer(made)


def test_without_our_handler_the_connection_is_refused_and_not_served_unpaced() -> None:
    class Addons:
        def get(self, name: str) -> object:
            return type("Proxyserver", (), {"connections": {nextlayer.context.client.id: object()}})()

    nextlayer = _next_layer()
    nextlayer.layer = HttpLayer(nextlayer.context, HTTPMode.regular)
    master = type("Master", (), {"addons": Addons()})()
    with pytest.raises(TypeError, match="paced_connections"):
        install(nextlayer, master, ScriptedPacing())
    (command,) = nextlayer.layer.handle_event(events.Start())
    assert isinstance(command, commands.CloseConnection)
    assert command.connection is nextlayer.context.client


def test_the_layer_is_installed_whichever_addon_is_asked_first(origin: Origin, confdir: Path) -> None:
    """The rig adds ours after mitmproxy's; here it is the other way round."""
    with Rig(confdir=confdir) as rig:

        def reverse() -> None:
            chain = rig.master.addons.chain
            ours = next(addon for addon in chain if hasattr(addon, "pace_hold"))
            chain.remove(ours)
            chain.insert(0, ours)

        rig.call(reverse)
        assert curl(rig.url, origin.url("/x")).answer.status == 200
        rig.wait_for("close", "/x")
        assert [type(layer) for layer in rig.layers] == [PacedHttpLayer]


def test_the_hold_of_one_connection_does_not_hold_up_another(origin: Origin, confdir: Path) -> None:
    with Rig(ScriptedPacing(hold=True), confdir=confdir) as rig, RawClient(rig.port) as held:
        held.get(origin.url("/held"))
        rig.wait_for("hold", "/held")
        rig.pacing.hold = False
        assert curl(rig.url, origin.url("/other")).answer.status == 200
        rig.release()
        assert held.answer().status == 200


def test_raw_data_in_a_tunnel_is_refused(origin: Origin, confdir: Path) -> None:
    with Rig(confdir=confdir) as rig, RawClient(rig.port) as client:
        client.connect(f"127.0.0.1:{origin.port}")
        client.send(b"SSH-2.0-x\r\n\r\n")
        answer = client.answer()
        assert (answer.status, answer.proxy_status) == (400, "paceproxy; error=http_request_error")
    assert origin.connections == []
