"""Many requests to one host, which is sick, slow, or well again: one pace for all of them, no burst, no deadlock."""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from tests.scenarios.spacing import Entry, too_soon
from tests.support.behaviours import Gate, chain, late, respond
from tests.support.clients import Answer, RawClient
from tests.support.origin import Origin
from tests.support.proxy import Paceproxy
from tests.support.visit import Behaviour, Request
from tests.support.waiting import until

LADDER = (0, 0.1, 0.2, 0.4)
TOLERANCE_S = 0.02
FINE = respond(200, b"fine")


@pytest.fixture
def proxy(shared_proxy: Paceproxy) -> Paceproxy:
    return shared_proxy


@contextmanager
def crowd(proxy: Paceproxy, urls: Sequence[str], *lines: str) -> Iterator[list[RawClient]]:
    """A client for each URL, all of which have sent their requests."""
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(proxy.port)) for _ in urls]
        for client, url in zip(clients, urls, strict=True):
            client.get(url, *lines)
        yield clients


def log(origin: Origin, stalled: Sequence[Request]) -> list[Entry]:
    """The origin's log for the judge of spacing."""
    entries = []
    for request in origin.requests:
        assert request.done_at is not None
        entries.append(Entry(request.at, request.done_at, stalled=request in stalled))
    return entries


def make_sick(proxy: Paceproxy, origin: Origin, times: int, status: int = 503) -> None:
    """Have so many attempts stall at one moment."""
    gate = Gate()
    origin.mode = chain(gate, respond(status))
    with crowd(proxy, [origin.url(f"/sick/{number}") for number in range(times)], "Pace-Window: 0") as clients:
        origin.wait_for(lambda o: len(o.requests) == times)
        gate.opened = True
        assert [client.answer().status for client in clients] == [status] * times
    proxy.wait_for_metric("paceproxy_host_rung", times, host=origin.host)
    origin.mode = None


@pytest.mark.parametrize("status", [429, 503])
def test_a_crowd_at_a_sick_host_is_one_line_and_all_are_served_without_a_burst(
    proxy: Paceproxy, origin: Origin, status: int
) -> None:
    stalled: list[Request] = []
    gate = Gate()

    def script(request: Request) -> Behaviour:
        # All of the crowd, and a few of their second attempts.
        if len(origin.requests) <= 53:
            stalled.append(request)
            return chain(gate, respond(status, b"not now"))
        return late(0.02, FINE)

    origin.script = script
    with crowd(proxy, [origin.url(f"/{number}") for number in range(50)]) as clients:
        origin.wait_for(lambda o: len(o.requests) == 50)
        gate.opened = True
        answers = [client.answer() for client in clients]
    assert [(answer.status, answer.body) for answer in answers] == [(200, b"fine")] * 50
    assert too_soon(log(origin, stalled), LADDER, tolerance_s=TOLERANCE_S) == []
    # No burst: never more on their way than have been served since the last stall, and one.
    pages = [request for request in origin.requests if request not in stalled]
    assert len(pages) == 50
    for page in pages:
        served = sum(1 for other in pages if other.done_at is not None and other.done_at <= page.at)
        on_their_way = sum(1 for other in pages if other.at <= page.at) - served
        assert on_their_way <= served + 1


def test_each_slot_is_for_exactly_one(proxy: Paceproxy, origin: Origin) -> None:
    make_sick(proxy, origin, 3)
    gate = Gate()
    origin.mode = chain(gate, FINE)
    with crowd(proxy, [origin.url(f"/{number}") for number in range(10)]) as clients:
        # On the top rung, and nobody is served: one goes in each pace.
        origin.wait_for(lambda o: len(o.requests) == 6)
        gate.opened = True
        assert [client.answer().status for client in clients] == [200] * 10
    slots = [request.at for request in origin.requests[3:6]]
    assert [after - before >= 0.4 - TOLERANCE_S for before, after in pairwise(slots)] == [True, True]


def test_fast_refusals_drive_the_ladder_and_a_request_has_one_line_in_the_access_log(
    proxy: Paceproxy, origin: Origin
) -> None:
    origin.script = {"/page": [respond(503), respond(503), FINE]}
    before = proxy.metric("paceproxy_requests_total")
    with crowd(proxy, [origin.url("/page")]) as (client,):
        answer = client.answer()
    assert (answer.status, answer.body) == (200, b"fine")
    assert re.fullmatch(r"paceproxy;attempts=3;waited=\d+\.\d+;rung=2", answer.proxy_status)
    gaps_s = [after.at - before.at for before, after in pairwise(origin.requests)]
    assert len(gaps_s) == 2
    assert gaps_s[0] >= 0.1 - TOLERANCE_S
    assert gaps_s[1] >= 0.2 - TOLERANCE_S
    assert proxy.metric("paceproxy_requests_total") == before + 1


def test_a_slow_host_that_answers_is_left_as_it_is(proxy: Paceproxy, origin: Origin) -> None:
    origin.mode = late(0.3, FINE)
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(proxy.port)) for _ in range(8)]
        for round_ in range(2):
            for number, client in enumerate(clients):
                client.get(origin.url(f"/{round_}/{number}"))
            answers = [client.answer() for client in clients]
            assert [(answer.status, answer.proxy_status) for answer in answers] == [(200, "")] * 8
            assert not proxy.metrics().has("paceproxy_host_rung", host=origin.host)
    # One attempt for each request, and as many at once as there are clients.
    assert sorted(request.path for request in origin.requests) == [f"/{r}/{n}" for r in range(2) for n in range(8)]


def test_a_sick_host_does_not_hold_up_a_healthy_one(proxy: Paceproxy, origin: Origin) -> None:
    with (
        Origin({"/": [respond(503, fields=[("Retry-After", "1")]), FINE]}) as sick,
        RawClient(proxy.port) as waiting,
        RawClient(proxy.port) as client,
    ):
        waiting.get(sick.url("/"))
        proxy.wait_for_metric("paceproxy_host_waiting", 1, host=sick.host)
        for number in range(50):
            client.get(origin.url(f"/{number}"))
            answer = client.answer()
            assert (answer.status, answer.proxy_status) == (200, "")
        assert waiting.answer().status == 200


def test_a_page_that_always_fails_costs_the_others_next_to_nothing(proxy: Paceproxy, origin: Origin) -> None:
    origin.script = {"/20": respond(500, b"broken")}
    answers: dict[str, Answer] = {}
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(proxy.port)) for _ in range(4)]
        for start in range(0, 60, 4):
            for number, client in enumerate(clients, start):
                client.get(origin.url(f"/{number}"))
            answers |= {f"/{number}": client.answer() for number, client in enumerate(clients, start)}
    bad = answers.pop("/20")
    assert (bad.status, bad.body, origin.hits("/20")) == (500, b"broken", 4)
    assert {answer.status for answer in answers.values()} == {200}
    assert {origin.hits(path) for path in answers} == {1}
    # Its first stall slows the host for one page; who came just then has waited.
    assert sum(1 for answer in answers.values() if answer.proxy_status) <= 3


@pytest.fixture(scope="module")
def patient_proxy(confdir: Path) -> Iterator[Paceproxy]:
    """One whose ladder ends in a minute, and which leaves a host alone for a minute after three stalls."""
    flags = (
        "--ladder",
        "0,0.1,0.1,60",
        "--climb",
        "stall",
        "--in-flight",
        "off",
        "--pause-after",
        "3",
        "--pause",
        "60",
    )
    with Paceproxy(*flags, confdir=confdir) as running:
        yield running
        running.assert_idle()


def test_the_windows_of_a_crowd_that_close_together_do_not_storm_the_host(
    patient_proxy: Paceproxy, origin: Origin
) -> None:
    make_sick(patient_proxy, origin, 3)
    origin.mode = respond(503, b"still sick")
    with crowd(patient_proxy, [origin.url(f"/{number}") for number in range(300)], "Pace-Window: 1") as clients:
        answers = [client.answer() for client in clients]
    assert [answer.status for answer in answers] == [503] * 300
    # One went late, to see whether the host is well.
    assert sum(1 for answer in answers if answer.body == b"still sick") == 1
    assert len(origin.requests) == 3 + 1
    ours = [answer for answer in answers if answer.body != b"still sick"]
    assert all(answer.values("Retry-After") and answer.proxy_status for answer in ours)


def test_a_host_that_refuses_for_ever_is_left_alone_with_a_reason_and_others_are_not(
    patient_proxy: Paceproxy, origin: Origin
) -> None:
    with Origin(default=respond(429, b"never")) as refusing, RawClient(patient_proxy.port) as client:
        client.get(refusing.url("/first"), "Pace-Window: 20")
        answer = client.answer()
        assert (answer.status, answer.body) == (429, b"never")
        assert "attempts=3" in answer.proxy_status
        assert patient_proxy.metric("paceproxy_hosts_paused") == 1
        left_alone = f"{refusing.host} is left alone for 60 s: it has stalled 3 times in a row"
        until(lambda: left_alone in patient_proxy.log and "rate_limited" in patient_proxy.log, "the log said so")
        client.get(refusing.url("/second"), "Pace-Window: 20")
        refused = client.answer()
        assert refused.status == 503
        assert "error=destination_unavailable" in refused.proxy_status
        for number in range(20):
            client.get(origin.url(f"/{number}"))
            answer = client.answer()
            assert (answer.status, answer.proxy_status) == (200, "")
        assert len(refusing.requests) == 3
