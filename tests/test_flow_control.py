"""Nobody may send more than goes on, and nobody else is stopped by that. Also: HTTP/2's goodbyes and trailers."""

from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import h2.events
import pytest
from mitmproxy import http

from proxy_addon.exchange import Respond
from proxy_addon.model import ErrorName
from tests.support.behaviours import respond
from tests.support.bulk import BulkClient, BulkOrigin
from tests.support.clients import RawClient
from tests.support.h2peers import H2Client, H2Origin, H2Reply, Stream
from tests.support.origin import Origin
from tests.support.rig import Rig, ScriptedPacing
from tests.support.waiting import until, until_still

H2: dict[str, Any] = {"http2": True, "ssl_insecure": True}
FINE = respond(200, b"fine")
MIB = 1 << 20


@pytest.fixture
def bulk() -> Iterator[BulkOrigin]:
    with BulkOrigin(h2=True) as origin:
        yield origin


def send_upload(client: H2Client, path: str, size: int) -> int:
    """Open a stream and send that much of a body that is not complete."""
    stream = client.send(path, method="PUT", body=None, ends=False)
    for _ in range(size // 10_000):
        client._h2.send_data(stream, b"x" * 10_000)
    client._flush()
    return stream


def test_a_held_upload_gets_no_window_and_its_neighbours_go_on(secure_origin: Origin, confdir: Path) -> None:
    pacing = ScriptedPacing(hold=True)
    with (
        Rig(pacing, confdir=confdir, stream_large_bodies="1k", **H2) as rig,
        H2Client(rig.port, "localhost", secure_origin.port, rig.ca) as client,
    ):
        pacing.hold = False
        assert client.get("/first").status == 200
        assert client._h2.remote_settings.initial_window_size == MIB
        pacing.hold = True
        held = send_upload(client, "/held", 1_000_000)
        rig.wait_for("hold", "/held")
        pacing.hold = False
        assert client.get("/neighbour").status == 200
        # More than half of a window that is given back would be told at once.
        assert client._h2.local_flow_control_window(held) == MIB - 1_000_000
        rig.release()
        while client._h2.local_flow_control_window(held) < 500_000:
            client.read()
        client._h2.send_data(held, b"end", end_stream=True)
        client._flush()
        assert client.answer(held).status == 200
    assert [len(r.body) for r in secure_origin.requests if r.path == "/held"] == [1_000_003]
    assert [r.path for r in secure_origin.requests] == ["/first", "/neighbour", "/held"]


def test_a_client_that_reads_none_of_our_answers_is_not_read_either(confdir: Path) -> None:
    requests, body = 400, b"n" * 100_000
    pacing = ScriptedPacing(decide_grant=lambda exchange: Respond(http.Response.make(503, body)))
    with Rig(pacing, confdir=confdir) as rig, RawClient(rig.port) as client:
        # Each fills a read of its own, so that few of them can wait in our buffer.
        head = b"GET http://site.invalid/x HTTP/1.1\r\nHost: site.invalid\r\nX: %s\r\n\r\n" % (b"x" * 60_000)
        sending = Thread(target=lambda: client.send(head * requests))
        sending.start()
        until_still(lambda: len(pacing.exchanges), "nothing more was answered")
        assert len(pacing.exchanges) < requests // 2
        for _ in range(requests):
            assert client.answer().body == body
        sending.join()
    assert len(pacing.exchanges) == requests


def test_a_client_that_takes_nothing_of_a_stream_stops_its_http2_origin(bulk: BulkOrigin, confdir: Path) -> None:
    with Rig(confdir=confdir, **H2) as rig, BulkClient(rig.port, bulk, rig.ca) as client:
        peer = client._h2
        assert peer is not None
        peer.acknowledges = False
        stream = client.ask(8 * MIB)
        window = peer.conn.remote_flow_control_window(stream)
        taken = 0

        def took(size: int) -> None:
            nonlocal taken
            taken += size

        while taken < window:
            assert peer.receive(took)
        layer = rig.layers[-1]
        until_still(lambda: bulk.sent_bytes, "the origin could send no more")
        assert rig.call(lambda: layer.queued_for_client(stream)) < 2 * MIB
        assert bulk.sent_bytes < 4 * MIB
        peer.conn.increment_flow_control_window(8 * MIB, stream)
        peer.conn.increment_flow_control_window(8 * MIB)
        peer.flush()
        peer.wait_for_end(stream, took)
        assert taken == 8 * MIB


def test_a_client_that_takes_nothing_of_a_stream_stops_its_http1_origin_and_no_other(
    secure_origin: Origin, confdir: Path
) -> None:
    size = 24 * MIB
    secure_origin.script = {"/large": respond(200, b"x" * size)}
    with (
        Rig(confdir=confdir, **H2) as rig,
        H2Client(rig.port, "localhost", secure_origin.port, rig.ca, acknowledges=False) as client,
    ):
        client._h2.increment_flow_control_window(MIB)
        stream = client.send("/large")
        while len(client.answers[stream].body) < 65535:
            client.read()
        layer = rig.layers[-1]
        until(lambda: rig.call(lambda: bool(layer.handler._held_back)), "the origin was not read from any more")
        until_still(lambda: rig.call(lambda: layer.queued_for_client(stream)), "the origin was read from on and on")
        assert rig.call(lambda: layer.queued_for_client(stream)) < MIB
        assert client.get("/neighbour").status == 200
        client._h2.increment_flow_control_window(size, stream)
        client._h2.increment_flow_control_window(size)
        client._flush()
        assert len(client.answer(stream).body) == size


def test_an_http2_origin_that_gives_no_window_has_stalled(bulk: BulkOrigin, confdir: Path) -> None:
    """Its client is not to blame: what it sent waits in the proxy, though the socket has taken all that it may."""
    bulk.gives_window = False
    pacing = ScriptedPacing(body_timeout_s=0.5, max_attempts=1)
    with (
        Rig(pacing, confdir=confdir, stream_large_bodies="1k", **H2) as rig,
        H2Client(rig.port, "localhost", bulk.port, rig.ca) as client,
    ):
        stream = send_upload(client, "/x", 60_000)
        origin_window = 65_535
        while client._h2.local_flow_control_window(stream) < MIB - 60_000:
            client.read()  # The proxy's settings.
        for _ in range(origin_window // 10_000):
            client._h2.send_data(stream, b"x" * 10_000)
        client._flush()
        assert client.answer(stream).status == 504
    assert pacing.errors("/x") == [ErrorName.HTTP_REQUEST_TIMEOUT]


# Goodbyes.


def test_an_origin_that_says_goodbye_answers_what_it_has_taken(confdir: Path) -> None:
    with H2Origin(lambda stream: H2Reply(body=b"whole", ends="goaway")) as far, Rig(confdir=confdir, **H2) as rig:
        with H2Client(rig.port, "localhost", far.port, rig.ca) as client:
            for path in ("/1", "/2", "/3"):
                found = client.get(path)
                assert (found.status, found.body, found.reset) == (200, b"whole", None)
        assert far.connections == 3
    assert [reply.status for call in rig.pacing.calls if (reply := call.reply)] == [200, 200, 200]


def test_what_an_origin_takes_no_more_is_tried_again_elsewhere(confdir: Path) -> None:
    """What it has taken goes on meanwhile, until its client leaves."""

    def answer(stream: Stream) -> H2Reply | None:
        return None if stream.connection == 1 else H2Reply(body=b"fine")

    class SaysGoodbye(H2Origin):
        def _take(self, conn: Any, event: Any, streams: Any, number: int) -> None:
            super()._take(conn, event, streams, number)
            if isinstance(event, h2.events.RequestReceived) and number == 1 and streams[event.stream_id].path == "/bye":
                self._say_goodbye(conn, 1)

    with SaysGoodbye(answer) as far, Rig(confdir=confdir, **H2) as rig:
        with H2Client(rig.port, "localhost", far.port, rig.ca) as client:
            first, late = client.send("/first"), client.send("/bye")
            assert client.answer(late).body == b"fine"
            client.reset(first)
            rig.wait_for("close", "/first")
        assert far.connections == 2
    assert rig.pacing.errors("/bye") == [ErrorName.CONNECTION_TERMINATED, None]
    assert rig.pacing.errors("/first") == []


# Trailers, what comes before a response, and what does not come after its head.


def test_a_response_that_ends_before_its_body_is_a_stall(confdir: Path) -> None:
    cut = H2Reply(fields=(("content-length", "4"),), ends="head")
    replies = iter([cut, H2Reply(body=b"fine", fields=cut.fields), cut])
    with (
        H2Origin(lambda stream: next(replies)) as far,
        Rig(confdir=confdir, **H2) as rig,
        H2Client(rig.port, "localhost", far.port, rig.ca) as client,
    ):
        assert client.get("/x").body == b"fine"
        assert client.answer(client.send("/head", method="HEAD")).status == 200
    assert rig.pacing.errors("/x") == [ErrorName.HTTP_RESPONSE_INCOMPLETE, None]
    assert rig.pacing.errors("/head") == [None]


def test_http2_trailers_and_hints_pass_or_do_no_harm(confdir: Path) -> None:
    reply = H2Reply(body=b"fine", hints=(100, 103, 103), trailers=(("x-sum", "1"),))
    with H2Origin(lambda stream: reply) as far, Rig(ScriptedPacing(hold_body_bytes=1000), confdir=confdir, **H2) as rig:
        with H2Client(rig.port, "localhost", far.port, rig.ca) as client:
            stream = client.send("/x", method="PUT", body=b"hello", trailers=(("x-sent", "2"),))
            found = client.answer(stream)
            assert (found.status, found.body, found.trailers) == (200, b"fine", [("x-sum", "1")])
        assert [(one.body, one.trailers) for one in far.streams] == [(b"hello", [("x-sent", "2")])]


def test_trailers_of_http1_reach_an_http2_client_in_small_letters(secure_origin: Origin, confdir: Path) -> None:
    secure_origin.script = {"/x": respond(200, b"fine", chunked=True, trailers=[("X-Sum", "1")])}
    with (
        Rig(confdir=confdir, **H2) as rig,
        H2Client(rig.port, "localhost", secure_origin.port, rig.ca) as client,
    ):
        found = client.get("/x")
        assert (found.status, found.body, found.trailers) == (200, b"fine", [("x-sum", "1")])
        assert client.get("/y").status == 200
