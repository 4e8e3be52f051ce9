"""The limit of attempts in flight on the real proxy: what the origin sees of a crowd, and who waits meanwhile."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from tests.support.behaviours import Gate, chain, respond
from tests.support.clients import RawClient
from tests.support.origin import Origin
from tests.support.proxy import Paceproxy
from tests.support.visit import Visit

FINE = respond(200, b"fine")


@pytest.fixture(scope="module")
def running(confdir: Path) -> Iterator[Paceproxy]:
    with Paceproxy("--in-flight", "2", "--window", "30", "--pause-after", "0", confdir=confdir) as proxy:
        yield proxy


@pytest.fixture
def proxy(running: Paceproxy) -> Iterator[Paceproxy]:
    yield running
    running.assert_idle()


@dataclass
class Busy:
    """A page that takes a moment, and how many of them were asked for at once."""

    now: int = 0
    most: int = 0
    reads_body: ClassVar[bool] = True

    async def act(self, visit: Visit) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.05)
        # Before it is sent: the next one may be here before we are told that this one is.
        self.now -= 1
        await FINE.act(visit)


def test_of_a_crowd_the_origin_sees_two_at_a_time(proxy: Paceproxy, origin: Origin) -> None:
    origin.mode = busy = Busy()
    waits = proxy.metric("paceproxy_in_flight_wait_seconds_count")
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(proxy.port)) for _ in range(10)]
        for number, client in enumerate(clients):
            client.get(origin.url(f"/{number}"))
        answers = [client.answer() for client in clients]

    assert [(answer.status, answer.body) for answer in answers] == [(200, b"fine")] * 10
    assert (busy.most, len(origin.requests)) == (2, 10)
    # Who waited is told so; who did not, gets the origin's answer untouched.
    waited = [answer for answer in answers if answer.proxy_status]
    assert len(waited) == 8
    assert all("attempts=1" in answer.proxy_status and "rung=0" in answer.proxy_status for answer in waited)
    assert proxy.metric("paceproxy_in_flight_limit", host=origin.host) == 2
    assert proxy.metric("paceproxy_in_flight_wait_seconds_count") == waits + 8
    assert not proxy.metrics().has("paceproxy_host_rung", host=origin.host)


def test_one_that_leaves_makes_room_and_one_that_waits_is_never_sent(proxy: Paceproxy, origin: Origin) -> None:
    gate = Gate()
    origin.mode = chain(gate, FINE)
    with ExitStack() as stack:
        names = ("a", "b", "c", "d")
        clients = {name: stack.enter_context(RawClient(proxy.port)) for name in names}
        for name in ("a", "b"):
            clients[name].get(origin.url(f"/{name}"))
        origin.wait_for(lambda o: len(o.requests) == 2)
        clients["c"].get(origin.url("/c"))
        proxy.wait_for_metric("paceproxy_waiting_requests", 1)
        clients["d"].get(origin.url("/d"))
        proxy.wait_for_metric("paceproxy_waiting_requests", 2)
        clients["c"].close()
        proxy.wait_for_metric("paceproxy_waiting_requests", 1)
        clients["a"].close()
        origin.wait_for(lambda o: o.hits("/d"))
        gate.opened = True
        assert [clients[name].answer().status for name in ("b", "d")] == [200, 200]

    assert [request.path for request in origin.requests] == ["/a", "/b", "/d"]


def test_who_goes_soon_keeps_its_connection_and_no_more_than_the_limit_do(proxy: Paceproxy, origin: Origin) -> None:
    origin.mode = FINE
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(proxy.port)) for _ in range(7)]
        for client in clients:
            client.get(origin.url("/first"))
            assert client.answer().status == 200
        assert len(origin.connections) == 7
        gate = Gate()
        origin.mode = chain(gate, FINE)
        for client in clients[:2]:
            client.get(origin.url("/second"))
        origin.wait_for(lambda o: o.hits("/second") == 2)
        for waiting, client in enumerate(clients[2:], start=1):
            client.get(origin.url("/second"))
            proxy.wait_for_metric("paceproxy_waiting_requests", waiting)
        # Of the five that wait, the two that are next.
        origin.wait_for(lambda o: sum(connection.closed_at is None for connection in o.connections) == 4)
        gate.opened = True
        assert [client.answer().status for client in clients] == [200] * 7

    assert len(origin.connections) == 10


def test_another_host_is_not_held_back(proxy: Paceproxy, origin: Origin) -> None:
    gate = Gate()
    with Origin() as other, ExitStack() as stack:
        other.mode = chain(gate, FINE)
        clients = [stack.enter_context(RawClient(proxy.port)) for _ in range(3)]
        for client in clients:
            client.get(other.url())
        proxy.wait_for_metric("paceproxy_waiting_requests", 1)
        with RawClient(proxy.port) as client:
            client.get(origin.url())
            answer = client.answer()
        gate.opened = True
        assert [client.answer().status for client in clients] == [200, 200, 200]

    assert (answer.status, answer.proxy_status) == (200, "")
