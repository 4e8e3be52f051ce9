"""HTTP/1 in every form that is out there, from clients and from origins, through the layer."""

import contextlib
from pathlib import Path

import pytest

from proxy_addon.model import ErrorName
from tests.support.behaviours import Raw, WebSocketEcho, chain, close, respond, response_head, silent
from tests.support.clients import RawClient
from tests.support.origin import Origin
from tests.support.rig import Rig, ScriptedPacing
from tests.support.visit import Visit

FINE = respond(200, b"fine")
PROTOCOL = ErrorName.HTTP_PROTOCOL_ERROR


def head(origin: Origin, path: str, *lines: str, method: str = "GET", version: str = "1.1") -> bytes:
    more = "".join(f"{line}\r\n" for line in lines)
    return f"{method} {origin.url(path)} HTTP/{version}\r\nHost: {origin.host}\r\n{more}\r\n".encode()


# HTTP/1.0.


def test_an_http_1_0_client_gets_a_chunked_body_without_chunks(origin: Origin, confdir: Path) -> None:
    origin.script = {"/x": respond(200, b"fine", chunked=True, trailers=[("X-Sum", "1")])}
    for hold_body_bytes in (0, 1000):
        pacing = ScriptedPacing(hold_body_bytes=hold_body_bytes)
        with Rig(pacing, confdir=confdir) as rig, RawClient(rig.port) as client:
            client.send(head(origin, "/x", "Connection: keep-alive", version="1.0"))
            said = client.rest()
        assert said == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nfine"


@pytest.mark.parametrize("option", ["keep-alive", "Keep-Alive"])
def test_an_http_1_0_client_keeps_its_connection_where_it_asks_for_that(
    origin: Origin, confdir: Path, option: str
) -> None:
    with Rig(confdir=confdir) as rig, RawClient(rig.port) as client:
        for _ in range(2):
            client.send(head(origin, "/x", f"Connection: {option}", version="1.0"))
            answer = client.answer()
            assert (answer.body, answer.values("Connection")) == (b"ok", ["keep-alive"])
        client.send(head(origin, "/x", version="1.0"))
        answer = client.answer()
        assert (answer.body, answer.values("Connection")) == (b"ok", [])
        assert client.rest() == b""
    # The origin was asked in HTTP/1.0, and told the same.
    assert [request.values("Connection") for request in origin.requests] == [[option], [option], []]


def test_an_http_1_0_request_must_not_be_chunked(origin: Origin, confdir: Path) -> None:
    with Rig(confdir=confdir) as rig, RawClient(rig.port) as client:
        client.send(head(origin, "/x", "Transfer-Encoding: chunked", method="PUT", version="1.0") + b"0\r\n\r\n")
        assert client.answer().status == 400
    assert origin.requests == []


@pytest.mark.parametrize(
    ("said", "connections"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\nfine", 2),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nfine", 2),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\nConnection: Keep-Alive\r\n\r\nfine", 1),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: CLOSE\r\n\r\nfine", 2),
    ],
)
def test_an_origins_connection_is_used_again_only_where_it_says_so(
    origin: Origin, confdir: Path, said: bytes, connections: int
) -> None:
    ends = [] if connections == 1 else [close()]
    origin.script = {"/x": chain(Raw(said), *ends)}
    with Rig(confdir=confdir) as rig:
        with RawClient(rig.port) as client:
            client.send(head(origin, "/x"))
            assert client.answer().body == b"fine"
            if connections == 1:
                client.send(head(origin, "/x"))
                assert client.answer().body == b"fine"
        if connections == 2:
            with RawClient(rig.port) as client:
                client.send(head(origin, "/x"))
                assert client.answer().body == b"fine"
    assert len(origin.connections) == connections
    assert {reply.error for reply in rig.pacing.replies("/x")} == {None}


# Requests that two readers might read in two ways.


UNCLEAR: list[tuple[str, ...]] = [
    ("Content-Length: 4", "Transfer-Encoding: chunked"),
    ("Content-Length: 4", "Content-Length: 5"),
    ("Content-Length: 4, 4",),
    ("Content-Length: -4",),
    ("Content-Length: +4",),
    ("Content-Length: 4 4",),
    ("Content-Length: " + "9" * 5000,),
    ("Transfer-Encoding: chunked, chunked",),
    ("Transfer-Encoding: xchunked",),
    ("Transfer-Encoding: gzip",),
    ("Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
    ("Transfer-Encoding : chunked",),
    ("X: a", " b"),
    ("X: a", "\tb"),
]


def test_a_request_that_is_not_clear_is_refused(origin: Origin, confdir: Path) -> None:
    with Rig(confdir=confdir) as rig:
        for lines in UNCLEAR:
            with RawClient(rig.port) as client:
                client.send(head(origin, "/x", *lines, method="PUT") + b"4\r\nevil\r\n0\r\n\r\n")
                assert client.answer().status == 400, lines
                with contextlib.suppress(ConnectionResetError):  # There is something that it has not read.
                    assert client.rest() == b""
    assert origin.requests == []


def test_a_request_whose_first_field_begins_with_a_space_is_refused(origin: Origin, confdir: Path) -> None:
    with Rig(confdir=confdir) as rig, RawClient(rig.port) as client:
        client.send(f"GET {origin.url('/x')} HTTP/1.1\r\n Host: {origin.host}\r\n\r\n".encode())
        assert client.answer().status == 400
    assert origin.requests == []


def test_chunks_with_extensions_and_bare_line_feeds_in_the_head_are_read(origin: Origin, confdir: Path) -> None:
    sent = head(origin, "/x", "Transfer-Encoding: chunked", method="PUT").replace(b"\r\n", b"\n")
    with Rig(confdir=confdir) as rig, RawClient(rig.port) as client:
        client.send(sent + b"4;name=value\r\nfine\r\n0;last\r\nX-Sum: 1\r\n\r\n")
        assert client.answer().status == 200
    assert [request.body for request in origin.requests] == [b"fine"]
    assert origin.requests[0].head.count(b"\r\n") == origin.requests[0].head.count(b"\n")


# Responses.


RESPONSES: list[tuple[bytes, int | ErrorName]] = [
    (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfine\r\n0\r\n\r\n", PROTOCOL),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 3\r\n\r\nfine", PROTOCOL),
    (b"HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\nfine", PROTOCOL),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n4\r\nfine\r\n0\r\n\r\n", PROTOCOL),
    (b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 4\r\n\r\nfine", PROTOCOL),
    (b"HTTP/1.1 200 OK\r\n X: a\r\nContent-Length: 4\r\n\r\nfine", PROTOCOL),
    (b"HTTP/9.9 200 OK\r\nContent-Length: 4\r\n\r\nfine", PROTOCOL),
    (b"HTTP/1.1 099 No\r\nContent-Length: 4\r\n\r\nfine", ErrorName.CONNECTION_TERMINATED),
    (b"HTTP/1.1 999 Denied\r\nContent-Length: 4\r\n\r\nfine", 999),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 4, 4\r\n\r\nfine", 200),
    (b"HTTP/1.1 200 OK\nContent-Length: 4\n\nfine", 200),
    (b"HTTP/1.1 205 Reset\r\nContent-Length: 0\r\n\r\n", 205),
]


def test_a_response_is_passed_on_or_it_is_an_error_but_never_both(origin: Origin, confdir: Path) -> None:
    origin.script = {f"/{number}": Raw(said) for number, (said, _) in enumerate(RESPONSES)}
    with Rig(ScriptedPacing(max_attempts=1), confdir=confdir) as rig:
        for number, (said, status) in enumerate(RESPONSES):
            with RawClient(rig.port) as client:
                client.send(head(origin, f"/{number}"))
                answer = client.answer()
                client.send(head(origin, "/next"))
                assert client.answer().body == b"ok", said
            errors = rig.pacing.errors(f"/{number}")
            if isinstance(status, int):
                assert (answer.status, answer.body, errors) == (status, b"" if status == 205 else b"fine", [None])
            else:
                assert (answer.status, errors) == (504, [status]), said


def test_what_an_origin_says_after_its_response_is_nobodys_response(origin: Origin, confdir: Path) -> None:
    evil = response_head(200, [("Content-Length", "4")]) + b"evil"
    origin.script = {"/x": Raw(response_head(200, [("Content-Length", "4")]) + b"fine" + evil)}
    with Rig(confdir=confdir) as rig, RawClient(rig.port) as client:
        for path, body in (("/x", b"fine"), ("/y", b"ok"), ("/x", b"fine"), ("/z", b"ok")):
            client.send(head(origin, path))
            assert client.answer().body == body
    assert len(origin.connections) == 3


BODILESS = [
    ("HEAD", 200, ("Content-Length", "1000000")),
    ("HEAD", 200, ("Transfer-Encoding", "chunked")),
    ("GET", 304, ("Content-Length", "1000000")),
    ("GET", 204, ("Content-Length", "1000000")),
    ("GET", 204, ("Transfer-Encoding", "chunked")),
]


@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_what_has_no_body_is_complete_at_its_head(origin: Origin, confdir: Path, version: str) -> None:
    pacing = ScriptedPacing(hold_body_bytes=1000, hold_time_s=60, body_timeout_s=60)
    with Rig(pacing, confdir=confdir) as rig:
        for method, status, line in BODILESS:
            origin.script = {"/x": Raw(response_head(status, [line]))}
            with RawClient(rig.port) as client:
                client.send(head(origin, "/x", method=method, version=version))
                answer = client.answer(method=method)
                assert answer.status == status
                assert answer.values("Content-Length") == [value for name, value in [line] if name == "Content-Length"]
                if version == "1.1":
                    client.send(head(origin, "/y"))
                    assert client.answer().body == b"ok"


@pytest.mark.parametrize("hold_body_bytes", [0, 1000])
def test_a_body_is_passed_on_as_it_came_whatever_its_coding_is_said_to_be(
    origin: Origin, confdir: Path, hold_body_bytes: int
) -> None:
    body = bytes(range(256))
    with Rig(ScriptedPacing(hold_body_bytes=hold_body_bytes), confdir=confdir) as rig, RawClient(rig.port) as client:
        for coding in ("gzip", "gzip, gzip", "identity", "made-up", "br"):
            origin.script = {"/x": respond(200, body, [("Content-Encoding", coding)])}
            client.send(head(origin, "/x"))
            answer = client.answer()
            assert (answer.body, answer.values("Content-Encoding")) == (body, [coding])


def test_an_upgrade_that_was_not_asked_for_never_reaches_the_client(origin: Origin, confdir: Path) -> None:
    with Rig(ScriptedPacing(max_attempts=1), confdir=confdir) as rig:
        for upgrade in ("websocket", "h2c", "something/1"):
            origin.script = {"/x": Raw(response_head(101, [("Upgrade", upgrade), ("Connection", "Upgrade")]) + b"raw")}
            for asked in ("", "something/1", upgrade):
                asks = (f"Upgrade: {asked}", "Connection: Upgrade") if asked else ()
                with RawClient(rig.port) as client:
                    client.send(head(origin, "/x", *asks))
                    assert client.answer().status == 504
    assert rig.pacing.errors("/x") == [PROTOCOL] * 9
    assert [request.values("Upgrade") for request in origin.requests] == [[]] * 9


def test_a_request_to_speak_something_else_is_answered_in_http(origin: Origin, confdir: Path) -> None:
    with Rig(confdir=confdir) as rig, RawClient(rig.port) as client:
        client.send(head(origin, "/x", "Upgrade: something/1", "Connection: Upgrade"))
        assert client.answer().body == b"ok"


def test_a_websocket_is_answered_in_another_protocol_by_nobody(origin: Origin, confdir: Path) -> None:
    asks = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: x")
    origin.script = {"/x": Raw(response_head(101, [("Upgrade", "h2c")])), "/ws": WebSocketEcho()}
    with Rig(ScriptedPacing(max_attempts=1), confdir=confdir) as rig:
        for path, status in (("/x", 504), ("/ws", 101)):
            with RawClient(rig.port) as client:
                client.send(head(origin, path, *asks))
                assert client.answer().status == status


# Pipelined requests.


def test_each_pipelined_request_is_paced_on_its_own(origin: Origin, confdir: Path) -> None:
    origin.script = {"/2": [respond(503), respond(503), respond(200, b"2")], "/1": respond(200, b"1")}
    with Rig(confdir=confdir) as rig, RawClient(rig.port) as client:
        put = head(origin, "/3", "Content-Length: 4", method="PUT") + b"body"
        client.send(head(origin, "/1") + head(origin, "/2") + put + head(origin, "/4"))
        assert [client.answer().body for _ in range(4)] == [b"1", b"2", b"ok", b"ok"]
    assert [request.path for request in origin.requests] == ["/1", "/2", "/2", "/2", "/3", "/4"]
    assert [request.body for request in origin.requests] == [b"", b"", b"", b"", b"body", b""]
    order = [call.path for call in rig.pacing.calls if call.name in ("accept", "close")]
    assert order == ["/1", "/1", "/2", "/2", "/3", "/3", "/4", "/4"]


def test_nothing_is_sent_for_what_a_client_that_has_left_sent_ahead(origin: Origin, confdir: Path) -> None:
    origin.script = {"/1": silent()}
    with Rig(confdir=confdir) as rig, RawClient(rig.port) as client:
        client.send(head(origin, "/1") + head(origin, "/2") + head(origin, "/3"))
        origin.wait_for(lambda o: o.hits("/1") == 1)
        client.close()
        rig.wait_for("close", "/1")
    assert [call.path for call in rig.pacing.calls if call.name == "accept"] == ["/1"]
    assert len(origin.requests) == 1


def test_an_answer_before_the_end_of_an_upload_does_not_become_that_of_the_next_request(
    origin: Origin, confdir: Path
) -> None:
    class AnswersAtOnce:
        reads_body = False

        async def act(self, visit: Visit) -> None:
            await visit.send(response_head(413, [("Content-Length", "5")]) + b"large")
            await visit.read_body()

    origin.script = {"/x": AnswersAtOnce()}
    with Rig(confdir=confdir, stream_large_bodies="1k") as rig, RawClient(rig.port) as client:
        client.send(head(origin, "/x", "Content-Length: 5000", method="PUT") + b"x" * 2000)
        assert client.answer().body == b"large"
        client.send(b"x" * 3000 + head(origin, "/y") + head(origin, "/z"))
        assert [client.answer().body for _ in range(2)] == [b"ok", b"ok"]
    assert [request.path for request in origin.requests] == ["/x", "/y", "/z"]


# The end of a client that does nothing.


def test_a_client_that_is_idle_for_too_long_in_a_body_does_not_take_it_for_whole(origin: Origin, confdir: Path) -> None:
    origin.script = {"/x": chain(Raw(response_head(200) + b"half"), silent())}
    with Rig(confdir=confdir) as rig, RawClient(rig.port) as client:
        client.send(head(origin, "/x"))
        rig.wait_for("first_byte", "/x")
        handler = rig.layers[0].handler
        rig.call(lambda: rig.master.event_loop.create_task(handler.on_timeout()))
        with pytest.raises(ConnectionResetError):
            client.rest()
        rig.wait_for("close", "/x")
