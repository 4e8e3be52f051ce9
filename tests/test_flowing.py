"""A response's body on its way to the client: where it stops, and where it is cut short, nobody takes it for whole."""

from pathlib import Path
from typing import Any

import pytest

from proxy_addon.model import ErrorName
from tests.support.behaviours import (
    CloseWithoutNotice,
    Drip,
    Raw,
    chain,
    close,
    late,
    reset,
    respond,
    response_head,
    silent,
)
from tests.support.clients import RawClient
from tests.support.h2peers import H2Client, H2Origin, H2Reply, Stream
from tests.support.origin import Origin
from tests.support.rig import Rig, ScriptedPacing, elapsed
from tests.support.visit import Behaviour, Visit
from tests.support.waiting import until

H2: dict[str, Any] = {"http2": True, "ssl_insecure": True}
FINE = respond(200, b"fine")
SIZED = Raw(response_head(200, [("Content-Length", "1000")]) + b"abc")
CHUNKED = Raw(response_head(200, [("Transfer-Encoding", "chunked")]) + b"3\r\nabc\r\n")
ENDLESS = Raw(response_head(200) + b"abc")
"""Its end is the end of the connection."""
BODIES = [SIZED, CHUNKED, ENDLESS]
INCOMPLETE = [ErrorName.HTTP_RESPONSE_INCOMPLETE, None]


def stopping() -> ScriptedPacing:
    return ScriptedPacing(body_timeout_s=0.3)


def holding(body_timeout_s: float = 0.0) -> ScriptedPacing:
    return ScriptedPacing(hold_body_bytes=1000, hold_time_s=20, body_timeout_s=body_timeout_s)


def ask(rig: Rig, url: str, *, version: str = "1.1") -> RawClient:
    client = RawClient(rig.port)
    client.send(f"GET {url} HTTP/{version}\r\nHost: x\r\n\r\n".encode())
    return client


# A body that stops.


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("body", BODIES)
def test_a_body_that_stops_in_the_flow_is_cut_off(origin: Origin, confdir: Path, body: Behaviour, version: str) -> None:
    origin.script = {"/x": chain(body, silent())}
    with Rig(stopping(), confdir=confdir) as rig, ask(rig, origin.url("/x"), version=version) as client:
        with pytest.raises(ConnectionResetError):
            client.rest()
        origin.wait_for(lambda o: o.connections[0].closed_at is not None)
    assert rig.pacing.of("/x")[-4:] == ["replied", "first_byte", "cut", "close"]


@pytest.mark.parametrize("body", BODIES)
def test_a_body_that_stops_in_the_hold_is_asked_for_again(origin: Origin, confdir: Path, body: Behaviour) -> None:
    origin.script = {"/x": [chain(body, silent()), FINE]}
    with Rig(holding(body_timeout_s=0.3), confdir=confdir) as rig, ask(rig, origin.url("/x")) as client:
        assert client.answer().body == b"fine"
    assert rig.pacing.errors("/x") == INCOMPLETE
    assert rig.pacing.replies("/x")[0].details == "no more of the body came for 0.3 s"


def test_a_slow_body_that_comes_steadily_is_not_cut_off(origin: Origin, confdir: Path) -> None:
    origin.script = {"/held": Drip((b"x",) * 5, 0.5, length=5), "/flowing": Drip((b"x",) * 5, 0.5, length=5)}
    pacing = holding(body_timeout_s=1.5)
    with Rig(pacing, confdir=confdir) as rig, ask(rig, origin.url("/held")) as held:
        rig.wait_for("hold_s", "/held")
        pacing.hold_body_bytes = 0
        with ask(rig, origin.url("/flowing")) as flowing:
            assert [client.answer().body for client in (held, flowing)] == [b"xxxxx"] * 2


def test_an_event_stream_may_be_silent(origin: Origin, confdir: Path) -> None:
    head = response_head(200, [("Content-Type", "Text/Event-Stream; charset=utf-8"), ("Content-Length", "4")])
    origin.script = {"/x": chain(Raw(head + b"12"), late(1.0, Raw(b"34")))}
    with Rig(stopping(), confdir=confdir) as rig, ask(rig, origin.url("/x")) as client:
        assert client.answer().body == b"1234"


def test_with_0_a_body_may_stop_for_as_long_as_it_likes(origin: Origin, confdir: Path) -> None:
    origin.script = {"/x": chain(SIZED, late(0.6, Raw(b"d" * 997)))}
    with Rig(confdir=confdir) as rig, ask(rig, origin.url("/x")) as client:
        assert len(client.answer().body) == 1000


def test_the_time_does_not_run_while_the_client_takes_nothing(origin: Origin, confdir: Path) -> None:
    size = 16_000_000
    origin.script = {"/x": respond(200, b"x" * size)}
    with Rig(stopping(), confdir=confdir) as rig, elapsed() as since, ask(rig, origin.url("/x")) as client:
        rig.wait_for("first_byte", "/x")
        until(lambda: since() > 1.5, "five times the time was over")
        assert "cut" not in rig.pacing.of("/x")
        taken = 0
        while taken < size:
            data = client.receive(1 << 20)
            assert data, "the connection ended"
            taken += len(data)


def test_a_stream_that_stops_is_reset_and_its_neighbours_go_on(confdir: Path) -> None:
    def answer(stream: Stream) -> H2Reply:
        return H2Reply(body=b"abc", ends="never" if stream.path == "/stops" else "stream")

    with H2Origin(answer) as far, Rig(stopping(), confdir=confdir, **H2) as rig:
        with H2Client(rig.port, "localhost", far.port, rig.ca) as client:
            stopped = client.answer(client.send("/stops"))
            assert (stopped.status, stopped.body, stopped.reset) == (200, b"abc", 2)
            assert client.get("/goes").body == b"abc"
        assert far.connections == 1
        until(lambda: [s.reset for s in far.streams] == [True, False], "the origin's stream was reset")
    assert rig.pacing.of("/stops")[-2:] == ["cut", "close"]


# A body that is cut short.

ENDS = [close(), reset()]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("body", [SIZED, CHUNKED])
@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_a_body_cut_short_in_the_flow_ends_in_a_reset(
    origin: Origin, confdir: Path, body: Behaviour, end: Behaviour, version: str
) -> None:
    class EndsInTheFlow:
        reads_body = True

        async def act(self, visit: Visit) -> None:
            await body.act(visit)
            rig.wait_for("first_byte", "/x")
            await end.act(visit)

    origin.script = {"/x": EndsInTheFlow()}
    with Rig(confdir=confdir) as rig, ask(rig, origin.url("/x"), version=version) as client:
        with pytest.raises(ConnectionResetError):
            client.rest()
        rig.wait_for("close", "/x")
    assert rig.pacing.of("/x")[-4:] == ["replied", "first_byte", "cut", "close"]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("body", BODIES)
def test_a_body_cut_short_in_the_hold_is_asked_for_again(
    origin: Origin, confdir: Path, body: Behaviour, end: Behaviour
) -> None:
    origin.script = {"/x": [chain(body, late(0.05, end)), FINE]}
    with Rig(holding(), confdir=confdir) as rig, ask(rig, origin.url("/x")) as client:
        if body is ENDLESS and end is ENDS[0]:
            assert client.answer().body == b"abc"
            assert rig.pacing.errors("/x") == [None]
        else:
            assert client.answer().body == b"fine"
            assert rig.pacing.errors("/x") == INCOMPLETE


def test_over_tls_the_end_of_the_connection_is_the_end_of_a_body_only_with_a_close_notify(
    secure_origin: Origin, confdir: Path
) -> None:
    secure_origin.script = {"/torn": [chain(ENDLESS, CloseWithoutNotice()), FINE], "/ended": chain(ENDLESS, close())}
    with Rig(holding(), confdir=confdir, ssl_insecure=True) as rig:
        for path, body in (("/torn", b"fine"), ("/ended", b"abc")):
            with RawClient(rig.port) as client:
                client.connect(f"localhost:{secure_origin.port}")
                client.start_tls("localhost", rig.ca)
                client.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                assert client.answer().body == body
    assert rig.pacing.errors("/torn") == INCOMPLETE
    assert rig.pacing.errors("/ended") == [None]


def test_over_tls_a_body_without_its_close_notify_is_a_reset_in_the_flow(secure_origin: Origin, confdir: Path) -> None:
    secure_origin.script = {"/x": chain(ENDLESS, CloseWithoutNotice())}
    with Rig(confdir=confdir, ssl_insecure=True) as rig, RawClient(rig.port) as client:
        client.connect(f"localhost:{secure_origin.port}")
        client.start_tls("localhost", rig.ca)
        client.send(b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            client.rest()
    assert rig.pacing.of("/x")[-2:] == ["cut", "close"]


TOO_SHORT = (("content-length", "1000"),)


@pytest.mark.parametrize(
    "short",
    [
        H2Reply(body=b"abc", ends=2),
        H2Reply(body=b"abc", ends=0),
        H2Reply(body=b"abc", ends="connection"),
        H2Reply(body=b"abc", fields=TOO_SHORT),
    ],
    ids=["reset", "reset without an error", "closed", "shorter than it said"],
)
@pytest.mark.parametrize("held", [True, False])
def test_an_http2_body_cut_short_is_never_a_whole_one(confdir: Path, short: H2Reply, held: bool) -> None:
    answers = [short]

    def answer(stream: Stream) -> H2Reply:
        return answers.pop() if answers else H2Reply(body=b"fine")

    pacing = holding() if held else ScriptedPacing()
    with (
        H2Origin(answer) as far,
        Rig(pacing, confdir=confdir, **H2) as rig,
        H2Client(rig.port, "localhost", far.port, rig.ca) as client,
    ):
        found = client.get("/x")
    if held or short.fields:  # What is shorter than it said is known at once, with its head.
        assert (found.status, found.body) == (200, b"fine")
        assert len(pacing.errors("/x")) == 2
    else:
        assert (found.status, found.reset) == (200, 2)
        assert pacing.of("/x")[-2:] == ["cut", "close"]
