"""The simulated site, request by request: its gates, its pool, its log."""

import math
from dataclasses import replace

import pytest

from proxy_addon.clock import sleep
from tests.simulation.crawl import from_zero
from tests.simulation.origins import Arrival, Asked, Fields, Site
from tests.simulation.site_model import FOREVER, Scenario, page_cost, ready_at

PLAIN = Scenario(name="test", about="", pages=50, scale=0.25, cost=2.0, jitter=0.0)
POOL = replace(PLAIN, cost=1.95, workers=1, cores=1.0, heat_up=0.0)

type Came = tuple[float, int, Fields]
"""When, on the clock; status; fields."""


class Asking:
    """Requests to a site at set moments, and what came of them."""

    def __init__(self, scenario: Scenario, *, seed: int = 3) -> None:
        self.clock = from_zero()
        self.site = Site(scenario, seed, self.clock)
        self.came: dict[int, Came] = {}

    def ask(self, *requests: tuple[float, str] | tuple[float, str, float], host: str = "127.0.0.1") -> list[Arrival]:
        """At these moments, for these paths; leaving at the third. Returns the site's log, a day later."""

        async def scenario() -> None:
            for number, (at, path, *leaves) in enumerate(requests):
                self.clock.call_at(at, lambda number=number, path=path, leaves=leaves: begin(number, path, leaves))  # type: ignore[misc]
            await sleep(self.clock, 86_400.0)

        def begin(number: int, path: str, leaves: list[float]) -> None:
            asked = self.site.hosts[host].ask(path, lambda status, fields: come(number, status, fields))
            if leaves:
                self.clock.call_at(leaves[0], lambda: leave(asked))

        def come(number: int, status: int, fields: Fields) -> None:
            self.came[number] = (round(self.clock.monotonic(), 6), status, fields)

        def leave(asked: Asked) -> None:
            asked.leave()

        self.clock.play(scenario())
        return self.site.log

    def statuses(self) -> list[int]:
        return [status for _, (_, status, _) in sorted(self.came.items())]


def test_a_page_takes_its_cost() -> None:
    asking = Asking(PLAIN)
    asking.ask((0.0, "/p/0"), (1.0, "/p/1"))
    assert asking.came == {0: (2.0, 200, ()), 1: (3.0, 200, ())}


def test_time_begins_with_the_first_request() -> None:
    asking = Asking(replace(PLAIN, dead_to=10.0))
    log = asking.ask((100.0, "/p/0"), (109.0, "/p/0"), (110.0, "/p/0"))
    assert asking.came == {0: (100.05, 503, ()), 1: (109.05, 503, ()), 2: (112.0, 200, ())}
    assert [(arrival.at, arrival.saturated) for arrival in log] == [(0.0, True), (9.0, True), (10.0, False)]


def test_a_silent_host_never_says_a_word() -> None:
    asking = Asking(replace(PLAIN, dead_to=FOREVER, dead_how="silent"))
    [left, stays] = asking.ask((0.0, "/p/0", 56.0), (1.0, "/p/1"))
    assert asking.came == {}
    assert (left.left, left.finish, left.status, left.abandoned) == (56.0, 56.0, None, True)
    assert (stays.left, stays.finish, stays.status, stays.abandoned) == (None, None, None, False)


def test_without_a_token_a_request_is_told_when_to_come_back_in_seconds_and_as_a_date_in_turn() -> None:
    asking = Asking(replace(PLAIN, rate=1.0, burst=1.0))
    asking.ask((0.0, "/p/0"), (0.1, "/p/1"), (0.2, "/p/2"), (0.3, "/p/3"))
    date = (("Date", "Mon, 12 Jan 1970 13:46:40 GMT"), ("Retry-After", "Mon, 12 Jan 1970 13:46:48 GMT"))
    assert asking.came == {
        0: (2.0, 200, ()),
        1: (0.15, 429, (("Retry-After", "4"),)),
        2: (0.25, 429, date),
        3: (0.35, 429, (("Retry-After", "4"),)),
    }


def test_tokens_come_back_up_to_the_burst() -> None:
    asking = Asking(replace(PLAIN, rate=0.5, burst=2.0))
    log = asking.ask(*((at, "/p/0") for at in (0.0, 0.1, 0.2, 1.9, 2.1, 60.0, 60.1, 60.2)))
    assert asking.statuses() == [200, 200, 429, 429, 200, 200, 200, 429]
    assert [arrival.saturated for arrival in log] == [False, False, True, True, False, False, False, True]


def test_a_flaky_host_decides_by_page_and_by_how_often_it_was_asked_for() -> None:
    asking = Asking(replace(PLAIN, flaky=0.5))
    asking.ask(*((float(at), "/p/0") for at in range(8)))
    again = Asking(replace(PLAIN, flaky=0.5))
    again.ask(*((at / 100, "/p/0") for at in range(8)))
    assert asking.statuses() == again.statuses() == [200, 200, 200, 503, 200, 503, 200, 200]


def test_a_bad_page_takes_its_time_and_is_a_500() -> None:
    asking = Asking(replace(PLAIN, poison=1.0))
    asking.ask((0.0, "/p/0"))
    assert asking.came == {0: (2.0, 500, ())}


def test_a_client_that_leaves_frees_no_worker() -> None:
    asking = Asking(POOL)
    [left, next_one] = asking.ask((0.0, "/p/0", 0.5), (1.0, "/p/1"))
    assert asking.came == {1: (4.0, 200, ())}
    assert (left.abandoned, left.left, left.finish, left.status) == (True, 0.5, 2.0, 200)
    assert (next_one.busy, next_one.saturated, next_one.start) == (1, True, 2.0)


@pytest.mark.parametrize(
    ("full", "came"),
    [("503", (1.05, 503, ())), ("429", (1.05, 429, (("Retry-After", "4"),))), ("silent", (4.0, 200, ()))],
)
def test_a_full_pool_answers_at_once_or_lets_wait(full: str, came: Came) -> None:
    asking = Asking(replace(POOL, full=full))
    asking.ask((0.0, "/p/0"), (1.0, "/p/1"))
    assert asking.came == {0: (2.0, 200, ()), 1: came}


def test_beyond_the_backlog_a_request_never_gets_a_word() -> None:
    asking = Asking(replace(POOL, backlog=1))
    log = asking.ask((0.0, "/p/0"), (0.1, "/p/1"), (0.2, "/p/2", 50.0))
    assert asking.came == {0: (2.0, 200, ()), 1: (4.0, 200, ())}
    assert (log[2].queued, log[2].finish, log[2].status) == (1, 50.0, None)


def test_the_pages_of_a_pool_are_ready_at_the_end_of_a_step() -> None:
    asking = Asking(replace(POOL, cost=0.42, step=0.1))
    asking.ask((0.0, "/p/0"), (2.03, "/p/1"))
    assert asking.came == {0: (0.5, 200, ()), 1: (2.5, 200, ())}


def test_a_thrashing_pool_takes_longer_than_one_that_shares_its_cores() -> None:
    five = [(0.0, f"/p/{number}") for number in range(5)]
    sharing, thrashing = (replace(POOL, workers=6, cores=2.0, heat_up=heat_up) for heat_up in (0.0, 0.026))
    ends = []
    for scenario in (sharing, thrashing):
        asking = Asking(scenario)
        asking.ask(*five)
        ends.append(asking.came[4][0])
    assert ends == [4.9, 6.1]


def test_more_cores_that_come_meanwhile_make_pages_sooner() -> None:
    """Two pages of 1.95 s on one core, which are 3 after a second: 1 to 2 cores until 0.5 s, then enough for both."""
    asking = Asking(replace(POOL, workers=3, cores=1.0, cores_end=3.0, cores_fall=1.0))
    asking.ask((0.0, "/p/0"), (0.0, "/p/1"))
    assert [came[0] for came in asking.came.values()] == [2.1, 2.1]


def test_of_several_hosts_only_the_sick_one_is_dead() -> None:
    fleet = replace(PLAIN, hosts=3, sick=2, dead_to=FOREVER)
    statuses = []
    for host in ("127.0.1.1", "127.0.1.2", "127.0.1.3"):
        asking = Asking(fleet)
        asking.ask((0.0, "/p/0"), host=host)
        statuses += asking.statuses()
    assert statuses == [200, 503, 200]


def test_those_in_flight_are_those_whose_clients_are_there() -> None:
    asking = Asking(PLAIN)
    log = asking.ask((0.0, "/p/0", 0.5), (0.1, "/p/1"), (0.6, "/p/2"), (2.2, "/p/3"))
    assert [arrival.in_flight for arrival in log] == [1, 2, 2, 2]
    assert [arrival.busy for arrival in log] == [0, 1, 2, 1]
    assert asking.site.most_in_flight == 2


def test_the_slow_pages_are_as_many_as_the_share_says() -> None:
    heavy = replace(PLAIN, slow_share=0.04, slow_times=100.0)
    costs = sorted(page_cost(heavy, 1, f"/p/{number}") for number in range(50))
    assert costs == [2.0] * 48 + [200.0] * 2


def test_lognormal_pages_have_their_cost_in_the_middle() -> None:
    spread = replace(PLAIN, spread=1.0)
    costs = sorted(page_cost(spread, 1, f"/p/{number}") for number in range(1001))
    assert math.isclose(costs[500], 2.0, rel_tol=0.1)
    assert math.isclose(costs[841], 2.0 * math.e, rel_tol=0.15)


def test_a_lull_slows_down_what_is_being_made() -> None:
    """Well until 20 s, a lull until 40 s, well until 60 s."""
    host = replace(PLAIN, lull_times=5.0, lull_least=20.0, lull_most=20.0)
    starts = (0.0, 17.0, 19.0, 25.0, 39.0, 40.0)
    assert [ready_at(host, 3, start, 2.0) for start in starts] == [2.0, 19.0, 25.0, 35.0, 41.8, 42.0]
    assert ready_at(host, 3, 19.0, 6.0) == 41.0
