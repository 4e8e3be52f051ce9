"""An upload that makes no progress ends, by whoever's fault it is."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy_addon.exchange import Exchange, Release, Respond
from proxy_addon.model import ErrorName, Reply
from tests.support.clients import RawClient
from tests.support.origin import Origin
from tests.support.ports import mute_port
from tests.support.rig import Rig, ScriptedPacing, last_resort


def give_up(exchange: Exchange, reply: Reply) -> Release | Respond:
    return Release() if reply.error is None else Respond(last_resort(reply))


@pytest.fixture
def pacing() -> ScriptedPacing:
    return ScriptedPacing(body_timeout_s=0.3, decide_reply=give_up)


@pytest.fixture
def rig(pacing: ScriptedPacing, confdir: Path) -> Iterator[Rig]:
    with Rig(pacing, confdir=confdir, stream_large_bodies="1000") as rig:
        yield rig


def head(url: str, length: int) -> bytes:
    return f"PUT {url} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode()


@pytest.mark.parametrize("length", [500, 5000], ids=["held", "streamed"])
def test_a_client_that_sends_no_more_is_told_so(rig: Rig, pacing: ScriptedPacing, origin: Origin, length: int) -> None:
    with RawClient(rig.port) as client:
        client.send(head(origin.url("/page"), length) + b"x" * (length // 2))
        assert client.answer().status == last_resort(Reply(error=ErrorName.HTTP_REQUEST_ERROR)).status_code
    assert pacing.errors("/page") == [ErrorName.HTTP_REQUEST_ERROR]
    assert [reply.charged for reply in pacing.replies("/page")] == [False]


@pytest.mark.parametrize("streamed", [True, False])
def test_an_origin_that_takes_no_more_has_stalled(pacing: ScriptedPacing, confdir: Path, streamed: bool) -> None:
    """Held as a whole, all of it is handed to the connection at once, and then nothing moves."""
    length = 50_000_000
    limit = "1000" if streamed else None

    def send(client: RawClient, url: str) -> None:
        with contextlib.suppress(OSError):  # It is closed before all is sent.
            client.send(head(url, length) + b"x" * length)

    with (
        mute_port() as port,
        Rig(pacing, confdir=confdir, stream_large_bodies=limit) as rig,
        RawClient(rig.port) as client,
    ):
        sender = threading.Thread(target=send, args=(client, f"http://127.0.0.1:{port}/page"), daemon=True)
        sender.start()
        assert client.answer().status == last_resort(Reply(error=ErrorName.HTTP_REQUEST_TIMEOUT)).status_code
    assert pacing.errors("/page") == [ErrorName.HTTP_REQUEST_TIMEOUT]
    assert pacing.replies("/page")[0].details == "the host took no more of the request for 0.3 s"
    assert pacing.exchanges[0].held is not streamed


# Expect: 100-continue.


def expecting(url: str, length: int) -> bytes:
    return head(url, length)[:-2] + b"Expect: 100-continue\r\n\r\n"


def test_a_streamed_upload_is_asked_for_when_its_attempt_begins(
    rig: Rig, pacing: ScriptedPacing, origin: Origin
) -> None:
    pacing.hold = True
    with RawClient(rig.port, timeout=0.3) as client:
        client.send(expecting(origin.url("/page"), 5000))
        rig.wait_for("hold", "/page")
        with pytest.raises(TimeoutError):
            client.receive()
        rig.release()
        client._socket.settimeout(10)
        assert client.answer().status == 100
        client.send(b"x" * 5000)
        assert client.answer().status == 200
    assert [(request.body, request.values("Expect")) for request in origin.requests] == [(b"x" * 5000, [])]


def test_a_client_that_does_not_wait_for_its_100_is_served_all_the_same(
    rig: Rig, pacing: ScriptedPacing, origin: Origin
) -> None:
    pacing.hold = True
    with RawClient(rig.port) as client:
        client.send(expecting(origin.url("/page"), 5000) + b"x" * 5000)
        rig.wait_for("hold", "/page")
        rig.release()
        assert [client.answer().status for _ in range(2)] == [100, 200]
    assert [request.body for request in origin.requests] == [b"x" * 5000]


@pytest.mark.parametrize("sends", [True, False])
def test_an_upload_that_is_refused_is_not_asked_for_and_its_connection_ends(
    rig: Rig, pacing: ScriptedPacing, origin: Origin, sends: bool
) -> None:
    pacing.decide_grant = lambda exchange: Respond(last_resort(Reply(error=ErrorName.DESTINATION_UNAVAILABLE)))
    with RawClient(rig.port) as client:
        client.send(expecting(origin.url("/page"), 5000))
        answer = client.answer()
        assert (answer.status, answer.values("Connection")) == (504, ["close"])
        if sends:
            client.send(b"x" * 5000)
            assert client.rest() == b""
    assert origin.requests == []


def test_an_http_1_0_client_gets_no_100(rig: Rig, origin: Origin) -> None:
    with RawClient(rig.port) as client:
        client.send(expecting(origin.url("/page"), 5000).replace(b"HTTP/1.1", b"HTTP/1.0") + b"x" * 5000)
        assert client.answer().status == 200
