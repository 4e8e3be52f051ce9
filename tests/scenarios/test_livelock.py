"""Many waiters, one host, three processes on one store: they drain at one per pace, all together.

A waiter that booked a future slot, slept and booked again would push every other one back, and the line would
never drain. The ladder has one pace on all its rungs, so that what is measured is the line and not the way down.
Virtual time shows the exact rate for one process; here is the real thing, with the tolerance that the contract
grants between processes.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.behaviours import respond, silent
from tests.support.clients import RawClient
from tests.support.origin import Origin
from tests.support.proxy import Paceproxy

PROCESSES = 3
REQUESTS_EACH = 10
REQUESTS = 30
PACE_S = 0.15
TOLERANCE_S = 0.05
# More rungs than there are requests: each stalls once, and each success afterwards leads one rung down.
LADDER = ",".join(["0", *["0.15"] * 60])


@pytest.fixture
def proxies(tmp_path: Path, confdir: Path) -> Iterator[list[Paceproxy]]:
    with ExitStack() as stack:
        flags = ("--store", f"sqlite:///{tmp_path}/pace.db", "--ladder", LADDER, "--attempt-timeout", "1.5")
        # One after the other: the first makes the CA.
        yield [stack.enter_context(Paceproxy(*flags, confdir=confdir)) for _ in range(PROCESSES)]


def test_three_processes_drain_one_line_at_one_request_per_pace(origin: Origin, proxies: list[Paceproxy]) -> None:
    origin.mode = silent()
    with ExitStack() as stack:
        clients = []
        for number in range(REQUESTS):
            client = stack.enter_context(RawClient(proxies[number % PROCESSES].port, timeout=60))
            client.get(origin.url(f"/{number}"))
            clients.append(client)
        origin.wait_for(lambda o: len(o.requests) == REQUESTS)
        origin.mode = respond()
        assert [client.answer().status for client in clients] == [200] * REQUESTS
    # The first attempts met a silent host, all at once; the second ones are what had to be spaced.
    second = [request.at for request in origin.requests[REQUESTS:]]
    assert len(second) == REQUESTS
    gaps_s = [after - before for before, after in pairwise(second)]
    assert min(gaps_s) >= PACE_S - TOLERANCE_S
    # The gaps' sum never falls behind the pace, and the line does not stand still: at least one request goes
    # in any two paces.
    assert second[-1] - second[0] >= (REQUESTS - 1) * PACE_S - TOLERANCE_S
    assert second[-1] - second[0] <= (REQUESTS - 1) * PACE_S * 2
    for proxy in proxies:
        proxy.assert_idle()
        assert proxy.metric("paceproxy_requests_total", outcome="served") == REQUESTS_EACH
        assert proxy.metric("paceproxy_attempts_total", outcome="stall") == REQUESTS_EACH
