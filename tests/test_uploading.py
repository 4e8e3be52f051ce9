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


def test_an_origin_that_takes_no_more_has_stalled(rig: Rig, pacing: ScriptedPacing) -> None:
    length = 50_000_000

    def send(client: RawClient, url: str) -> None:
        with contextlib.suppress(OSError):  # It is closed before all is sent.
            client.send(head(url, length) + b"x" * length)

    with mute_port() as port, RawClient(rig.port) as client:
        sender = threading.Thread(target=send, args=(client, f"http://127.0.0.1:{port}/page"), daemon=True)
        sender.start()
        assert client.answer().status == last_resort(Reply(error=ErrorName.HTTP_REQUEST_TIMEOUT)).status_code
    assert pacing.errors("/page") == [ErrorName.HTTP_REQUEST_TIMEOUT]
