"""Quotas on the wire: what origins say of them, and what the next requests to them then meet.

All hosts share one proxy, so that each test costs only its own waits.
"""

import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import pytest

from tests.support.behaviours import Fields, respond
from tests.support.clients import Answer, RawClient
from tests.support.origin import Origin
from tests.support.proxy import Paceproxy
from tests.support.waiting import until

EARLY_S = 0.02
"""By how much an attempt may be early (clocks are read at several places)."""


FLAGS = ("--ladder", "0,0.1,0.2", "--retry-after-cap", "240")
IN_A_SECOND = "in a second"
"""Stands for the moment."""
UNHELD = "Pace-Window: 0"
"""Of a request that is told at once when it would be worth asking again."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('store')}/pace.db"


@pytest.fixture(scope="module")
def proxy(confdir: Path, store: str) -> Iterator[Paceproxy]:
    with Paceproxy("--store", store, *FLAGS, confdir=confdir) as running:
        yield running


def ask(proxy: Paceproxy, url: str, *lines: str) -> Answer:
    with RawClient(proxy.port) as client:
        client.get(url, *lines)
        return client.answer()


def after_the_first_s(origin: Origin) -> list[float]:
    """When the origin got each request, in seconds from the first."""
    return [request.at - origin.requests[0].at for request in origin.requests]


def in_a_second() -> str:
    """Unix milliseconds."""
    return str(int((time.time() + 1) * 1_000))


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        pytest.param(429, [("RateLimit", '"default";r=0;t=1')], id="RateLimit on a 429"),
        pytest.param(503, [("RateLimit", "limit=9, remaining=0, reset=1")], id="RateLimit's older form on a 503"),
        pytest.param(429, [("X-RateLimit-Reset", IN_A_SECOND)], id="the reset alone, in milliseconds"),
        pytest.param(429, [("Retry-After", "0.2, 1")], id="two Retry-After joined on the way"),
    ],
)
def test_a_stall_is_retried_when_its_quota_is_there_again(
    proxy: Paceproxy, origin: Origin, status: int, fields: Fields
) -> None:
    told = time.monotonic()
    sent = [(name, in_a_second() if value == IN_A_SECOND else value) for name, value in fields]
    origin.script = {"/page": [respond(status, fields=sent), respond()]}

    answer = ask(proxy, origin.url("/page"))

    assert (answer.status, answer.body) == (200, b"ok")
    assert "attempts=2" in answer.proxy_status
    first, second = origin.requests
    # A moment is what it is, however long the first request took to get there.
    since = told if ("X-RateLimit-Reset", IN_A_SECOND) in fields else first.at
    assert second.at >= since + 1 - EARLY_S


def test_a_page_that_used_up_the_quota_is_untouched_and_delays_the_next(proxy: Paceproxy, origin: Origin) -> None:
    last = respond(fields=[("X-Rate-Limit-Remaining", "0"), ("X-Rate-Limit-Reset", "1")])
    origin.script = {"/last": last, "/next": respond()}

    first = ask(proxy, origin.url("/last"))
    second = ask(proxy, origin.url("/next"))

    assert first.status == second.status == 200
    assert first.proxy_status == ""
    assert "attempts=1" in second.proxy_status
    assert after_the_first_s(origin)[1] >= 1 - EARLY_S
    blocked = f"INFO proxy_addon.host_log: {origin.host} is blocked for "
    until(lambda: blocked in proxy.log, "the log said so")
    assert f"{origin.host} is slow" not in proxy.log


def test_many_who_wait_for_a_quota_do_not_storm_the_host(proxy: Paceproxy, origin: Origin) -> None:
    origin.script = {"/last": respond(fields=[("RateLimit", '"default";r=0;t=1')])}
    ask(proxy, origin.url("/last"))
    clients = [RawClient(proxy.port) for _ in range(7)]
    try:
        for client in clients:
            client.get(origin.url("/next"))
        assert [client.answer().status for client in clients] == [200] * 7
    finally:
        for client in clients:
            client.close()

    times = after_the_first_s(origin)
    assert min(times[1:]) >= 1 - EARLY_S
    assert len(times) == 8


def test_who_cannot_wait_for_a_quota_is_told_at_once(proxy: Paceproxy, origin: Origin) -> None:
    origin.script = {"/last": respond(fields=[("RateLimit", '"burst";r=0'), ("RateLimit-Policy", '"burst";q=9;w=200')])}
    ask(proxy, origin.url("/last"))

    answer = ask(proxy, origin.url("/next"), "Prefer: wait=1")

    assert answer.status == 503
    assert "destination_unavailable" in answer.proxy_status
    assert 0 < int(answer.values("Retry-After")[0]) <= 200
    assert len(origin.requests) == 1


def test_a_quota_longer_than_the_cap_is_capped_and_counted(proxy: Paceproxy, origin: Origin) -> None:
    until_when = formatdate(time.time() + 3_600, usegmt=True)
    limited = respond(403, b"no more", [("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", until_when)])
    origin.script = {"/api": limited}
    before = proxy.metric("paceproxy_retry_after_capped_total")

    refused = ask(proxy, origin.url("/api"))
    unheld = ask(proxy, origin.url("/page"), UNHELD)

    assert (refused.status, refused.body, unheld.status) == (403, b"no more", 503)
    assert proxy.metric("paceproxy_retry_after_capped_total") == before + 1
    assert 0 < int(unheld.values("Retry-After")[0]) <= 240


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param([("X-RateLimit-Remaining", "4"), ("X-RateLimit-Reset", "600")], id="something left"),
        pytest.param([("RateLimit", '"default";r=0;t=600,')], id="no valid list"),
        pytest.param([("X-RateLimit-Reset", "10m0s"), ("Retry-After", "9" * 5_000)], id="garbage"),
    ],
)
def test_what_says_nothing_of_a_wait_leaves_the_ladder(proxy: Paceproxy, origin: Origin, fields: Fields) -> None:
    origin.script = {"/page": [respond(429, fields=fields), respond()]}
    before = proxy.metric("paceproxy_retry_after_capped_total")

    assert ask(proxy, origin.url("/page")).status == 200
    assert after_the_first_s(origin)[1] >= 0.1 - EARLY_S
    # Each of the times is beyond the cap.
    assert proxy.metric("paceproxy_retry_after_capped_total") == before
    assert f"{origin.host} is blocked" not in proxy.log


def test_a_proxy_status_of_the_origin_that_is_no_list_does_not_hide_ours(proxy: Paceproxy, origin: Origin) -> None:
    garbage = respond(fields=[("Proxy-Status", "cdn; hit, "), ("Proxy-Status", "cdn; received-status=200")])
    origin.script = {"/page": [respond(503), garbage]}

    answer = ask(proxy, origin.url("/page"))

    cdn, ours = answer.values("Proxy-Status")
    assert cdn == "cdn; received-status=200"
    assert ours.startswith("paceproxy;attempts=2;")


def test_a_quota_holds_for_a_process_that_starts_while_it_lasts(
    proxy: Paceproxy, origin: Origin, confdir: Path, store: str
) -> None:
    origin.script = {"/last": respond(fields=[("RateLimit", '"default";r=0;t=200')])}
    ask(proxy, origin.url("/last"))
    until(lambda: f"{origin.host} is blocked" in proxy.log, "the block was written")

    with Paceproxy("--store", store, *FLAGS, confdir=confdir) as other:
        answer = ask(other, origin.url("/next"), UNHELD)

    assert answer.status == 503
    assert 0 < int(answer.values("Retry-After")[0]) <= 200
    assert len(origin.requests) == 1
