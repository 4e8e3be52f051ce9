"""Origins that say when to come back: the wait is theirs where they make sense, and the ladder's where they do not.

Every request stalls once, each at an origin of its own, and all of them at the same time.
"""

from contextlib import ExitStack

import pytest

from tests.support.behaviours import respond
from tests.support.clients import Answer, RawClient
from tests.support.origin import Origin
from tests.support.proxy import Paceproxy
from tests.support.waiting import until

PACE_S = 0.1
CAP_S = 1.2
TOLERANCE_S = 0.02
FINE = respond(200, b"fine")
LONG_AGO = ("Date", "Sun, 06 Nov 1994 08:49:37 GMT")

type Fields = tuple[tuple[str, str], ...]

HEEDED: dict[str, tuple[int, Fields, float]] = {
    "seconds of a 429": (429, (("Retry-After", "1"),), 1.0),
    "seconds of a 503": (503, (("Retry-After", "1"),), 1.0),
    "a fraction": (429, (("Retry-After", "0.503"),), 0.503),
    "a date": (503, (LONG_AGO, ("Retry-After", "Sun, 06 Nov 1994 08:49:38 GMT")), 1.0),
    "an asctime date": (503, (LONG_AGO, ("Retry-After", "Sun Nov  6 08:49:38 1994")), 1.0),
    "an RFC 850 date": (503, (LONG_AGO, ("Retry-After", "Sunday, 06-Nov-94 08:49:38 GMT")), 1.0),
    "two of them, the longer one": (429, (("Retry-After", "1"), ("Retry-After", "0.3")), 1.0),
    "two of them in one line": (429, (("Retry-After", "0.3, 1"),), 1.0),
    "nonsense and sense": (429, (("Retry-After", "soon"), ("Retry-After", "1")), 1.0),
    "far too long, of a 503": (503, (("Retry-After", "9999999999"),), CAP_S),
    "too long for a float, of a 503": (503, (("Retry-After", "9" * 400),), CAP_S),
    "the end of the calendar, of a 503": (503, (("Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT"),), CAP_S),
}
"""What is asked for, and how long it is waited for."""

IGNORED = (
    *("1m0s", "soon", "", "-1", "nan", "inf", "-inf", "1e999", "1e3", "0x10", "1_000"),
    *("3600; 7200", "+60", "60s", "\N{ARABIC-INDIC DIGIT SIX}\N{ARABIC-INDIC DIGIT ZERO}".encode().decode("latin-1")),
    *("Sun, 99 Nov 2099 08:49:37 GMT", "Sun, 06 Nov 99999 08:49:37 GMT", "tomorrow 08:49:37", "0", "0.0"),
    *("Sun, 06 Nov 1994 08:49:37 GMT",),
)
"""The ladder rules."""


@pytest.fixture
def proxy(shared_proxy: Paceproxy) -> Paceproxy:
    return shared_proxy


@pytest.fixture(scope="module")
def asked(running_proxy: Paceproxy) -> dict[str, tuple[Origin, Answer]]:
    """The origin that asked and the answer that the client got in the end, by the names and values above."""
    asks = {name: respond(status, b"later", fields) for name, (status, fields, _) in HEEDED.items()}
    asks |= {value: respond(429, b"later", [("Retry-After", value)]) for value in IGNORED}
    with ExitStack() as stack:
        origins = {name: stack.enter_context(Origin({"/": [ask, FINE]})) for name, ask in asks.items()}
        clients = {name: stack.enter_context(RawClient(running_proxy.port)) for name in asks}
        for name, client in clients.items():
            client.get(origins[name].url())
        return {name: (origins[name], client.answer()) for name, client in clients.items()}


def gap_s(origin: Origin) -> float:
    first, second = origin.requests
    assert first.done_at is not None
    return second.at - first.done_at


@pytest.mark.parametrize("name", HEEDED)
def test_a_wait_that_makes_sense_is_waited_for(asked: dict[str, tuple[Origin, Answer]], name: str) -> None:
    origin, answer = asked[name]
    assert (answer.status, answer.body) == (200, b"fine")
    assert "attempts=2" in answer.proxy_status
    assert gap_s(origin) >= HEEDED[name][2] - TOLERANCE_S


@pytest.mark.parametrize("value", IGNORED)
def test_a_wait_that_makes_no_sense_or_is_over_leaves_the_ladder(
    asked: dict[str, tuple[Origin, Answer]], value: str
) -> None:
    origin, answer = asked[value]
    # Taken for something longer than the window, it would have been answered with the 429.
    assert (answer.status, answer.body) == (200, b"fine")
    assert gap_s(origin) >= PACE_S - TOLERANCE_S


def test_what_asks_for_more_than_the_cap_is_counted(proxy: Paceproxy, asked: dict[str, tuple[Origin, Answer]]) -> None:
    assert asked
    assert proxy.metric("paceproxy_retry_after_capped_total") >= 3


def test_the_other_requests_to_the_host_wait_too(proxy: Paceproxy, origin: Origin) -> None:
    origin.script = {"/first": [respond(429, b"later", [("Retry-After", "1")]), FINE]}
    with RawClient(proxy.port) as first, RawClient(proxy.port) as second:
        first.get(origin.url("/first"))
        origin.wait_for(lambda o: o.requests and o.requests[0].done_at)
        until(lambda: proxy.metric("paceproxy_host_rung", host=origin.host) == 1, "the host was on a rung")
        second.get(origin.url("/second"))
        assert [client.answer().status for client in (first, second)] == [200, 200]
    asked_at = origin.requests[0].done_at
    assert asked_at is not None
    assert all(request.at >= asked_at + 1 - TOLERANCE_S for request in origin.requests[1:])
    assert origin.hits("/first") == 2


def test_a_429_that_asks_for_more_than_the_window_is_given_at_once_and_the_host_stays_blocked(
    proxy: Paceproxy, origin: Origin
) -> None:
    origin.script = {"/page": respond(429, b"come back in an hour", [("Retry-After", "3600"), ("X-Limit", "a")])}
    with RawClient(proxy.port) as client:
        client.get(origin.url("/page"), "Prefer: wait=25")
        answer = client.answer()
        assert (answer.status, answer.body) == (429, b"come back in an hour")
        assert (answer.values("Retry-After"), answer.values("X-Limit")) == (["3600"], ["a"])
        # Nobody waits for what cannot come in time ...
        client.get(origin.url("/other"), "Prefer: wait=1")
        refused = client.answer()
        assert refused.status == 503
        assert "error=destination_unavailable" in refused.proxy_status
        assert refused.values("Retry-After")
        assert origin.hits("/other") == 0
        # ... and who can wait does, up to the cap.
        client.get(origin.url("/other"))
        assert client.answer().status == 200
    assert origin.requests[0].values("Prefer") == ["wait=25"]
    blocked, other = origin.requests
    assert blocked.done_at is not None
    assert other.at - blocked.done_at >= CAP_S - TOLERANCE_S


def test_an_api_that_refuses_does_not_starve_the_pages(proxy: Paceproxy, origin: Origin) -> None:
    origin.script = lambda request: respond(429, b"no") if request.path == "/api" else FINE
    with RawClient(proxy.port) as api, ExitStack() as stack:
        api.get(origin.url("/api"), "Pace-Window: 2")
        origin.wait_for(lambda o: o.hits("/api"))
        pages = [stack.enter_context(RawClient(proxy.port)) for _ in range(10)]
        for number, page in enumerate(pages):
            page.get(origin.url(f"/{number}"))
        assert [page.answer().status for page in pages] == [200] * 10
        answer = api.answer()
        assert (answer.status, answer.body) == (429, b"no")
    # It was tried again and again, and not only after all the pages.
    paths = [request.path for request in origin.requests]
    assert paths.count("/api") > 2
    assert paths.index("/9") > 1
