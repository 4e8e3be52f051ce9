"""A host that keeps failing is left alone for a while, and then probed: on the real proxy, with short pauses."""

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.behaviours import Raw, chain, close, late, respond, response_head, silent
from tests.support.clients import Answer, RawClient
from tests.support.origin import Origin
from tests.support.proxy import Paceproxy

PAUSE_S = 1.5
"""Long enough for a few clients to get into line."""
FLAGS = (
    *("--ladder", "0,0.1,0.2", "--pause-after", "3", "--pause", "1.5", "--pause-max", "2"),
    *("--attempt-timeout", "1.5", "--connect-timeout", "1"),
)
DOWN = respond(503, b"down")
AMBIGUOUS = response_head(200, [("Content-Length", "5"), ("Transfer-Encoding", "chunked")])


@pytest.fixture(scope="module")
def running(confdir: Path) -> Iterator[Paceproxy]:
    with Paceproxy(*FLAGS, confdir=confdir) as proxy:
        yield proxy


@pytest.fixture
def proxy(running: Paceproxy) -> Iterator[Paceproxy]:
    yield running
    running.assert_idle()


def wear_out(proxy: Paceproxy, origin: Origin) -> None:
    """Three requests that may not be sent again fail, and with the third the host is paused."""
    origin.mode = DOWN
    for _ in range(3):
        with RawClient(proxy.port) as client:
            client.send(f"POST {origin.url('/down')} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n".encode())
            answer = client.answer()
            assert (answer.status, answer.body) == (503, b"down")
    proxy.wait_for_metric("paceproxy_hosts_paused", 1)
    origin.mode = None


def wait_in_line(proxy: Paceproxy, origin: Origin, stack: ExitStack, path: str, place: int) -> RawClient:
    """A client whose request is the `place`-th to wait for the host."""
    client = stack.enter_context(RawClient(proxy.port))
    client.get(origin.url(path))
    proxy.wait_for_metric("paceproxy_host_waiting", place, host=origin.host)
    return client


def refused(proxy: Paceproxy, origin: Origin) -> Answer:
    """What a client gets that can wait for a moment only."""
    with RawClient(proxy.port) as hasty:
        hasty.get(origin.url("/hasty"), "Pace-Window: 0.1")
        return hasty.answer()


def after_the_stall(origin: Origin) -> list[tuple[str, float]]:
    """What the origin got after it was worn out, and how long after that."""
    last = [request for request in origin.requests if request.path == "/down"][-1]
    return [(request.path, request.at - last.at) for request in origin.requests if request.path != "/down"]


def test_a_host_that_stays_down_gets_one_probe_after_each_pause_and_is_served_once_it_is_well(
    proxy: Paceproxy, origin: Origin
) -> None:
    wear_out(proxy, origin)
    origin.script = {"/0": [DOWN, respond()]}
    with ExitStack() as stack:
        patient = [wait_in_line(proxy, origin, stack, f"/{n}", n + 1) for n in range(3)]

        hasty = refused(proxy, origin)
        assert hasty.status == 503
        assert hasty.values("Retry-After") in (["1"], ["2"])
        assert 'paceproxy;error=destination_unavailable;details="blocked or paused' in hasty.proxy_status
        assert hasty.body.startswith(b"paceproxy: The host is given a rest")

        assert [client.answer().status for client in patient] == [200, 200, 200]
    proxy.wait_for_metric("paceproxy_hosts_paused", 0)
    paths, times = zip(*after_the_stall(origin), strict=True)
    # The probe that fails goes back to the line, where the others are before it.
    assert paths == ("/0", "/1", "/2", "/0")
    assert times[0] >= PAUSE_S - 0.05
    assert times[1] - times[0] >= 2.0 - 0.05
    said = re.findall(rf"{origin.host} is left alone for (\d) s: it has (.*)", proxy.log)
    assert said == [
        ("1", "stalled 3 times in a row, last with http_status_5xx."),
        ("2", "stalled 4 times in a row, last with http_status_5xx."),
    ]


def test_a_probe_whose_client_leaves_is_followed_by_the_next_in_line(proxy: Paceproxy, origin: Origin) -> None:
    wear_out(proxy, origin)
    origin.script = {"/gone": silent()}
    with ExitStack() as stack:
        gone = wait_in_line(proxy, origin, stack, "/gone", 1)
        following = wait_in_line(proxy, origin, stack, "/next", 2)
        origin.wait_for(lambda o: o.hits("/gone"))
        assert proxy.metric("paceproxy_attempts_in_flight") == 1
        gone.reset()
        assert following.answer().status == 200
    assert [path for path, _ in after_the_stall(origin)] == ["/gone", "/next"]


def test_a_probe_that_fails_is_followed_by_the_next_in_line(proxy: Paceproxy, origin: Origin) -> None:
    wear_out(proxy, origin)
    origin.script = {"/bad": chain(Raw(AMBIGUOUS), close())}
    with ExitStack() as stack:
        bad = wait_in_line(proxy, origin, stack, "/bad", 1)
        following = wait_in_line(proxy, origin, stack, "/next", 2)
        answer = bad.answer()
        assert (answer.status, "error=http_protocol_error" in answer.proxy_status) == (502, True)
        assert following.answer().status == 200
    assert [path for path, _ in after_the_stall(origin)] == ["/bad", "/next"]


def test_a_probe_that_is_slow_has_the_host_to_itself(proxy: Paceproxy, origin: Origin) -> None:
    wear_out(proxy, origin)
    origin.script = {"/slow": late(1.0, respond(200, b"slow"))}
    with ExitStack() as stack:
        slow = wait_in_line(proxy, origin, stack, "/slow", 1)
        following = [wait_in_line(proxy, origin, stack, f"/{n}", 2 + n) for n in range(2)]
        assert slow.answer().body == b"slow"
        assert [client.answer().status for client in following] == [200, 200]
    probe, first, _ = after_the_stall(origin)
    assert probe[0] == "/slow"
    assert first[1] - probe[1] >= 1.0 - 0.05


def test_a_pause_outlives_the_proxy(origin: Origin, confdir: Path, tmp_path: Path) -> None:
    flags = (*FLAGS, "--pause", "240", "--pause-max", "300", "--store", f"sqlite:///{tmp_path}/hosts.sqlite3")
    with Paceproxy(*flags, confdir=confdir) as first:
        wear_out(first, origin)
        first.kill()
    with Paceproxy(*flags, confdir=confdir) as second, ExitStack() as stack:
        assert second.metric("paceproxy_hosts_paused") == 1
        patient = wait_in_line(second, origin, stack, "/patient", 1)
        answer = refused(second, origin)
        left_s = origin.requests[-1].at + 240 - time.monotonic()
        patient.reset()
        second.wait_for_metric("paceproxy_waiting_requests", 0)
    assert (answer.status, "error=destination_unavailable" in answer.proxy_status) == (503, True)
    assert int(answer.values("Retry-After")[0]) == pytest.approx(left_s, abs=1.5)  # it is rounded to whole seconds
    assert [request.path for request in origin.requests] == ["/down"] * 3
