"""Literal outcomes and a literal log, and what the judge makes of them."""

from dataclasses import replace

from tests.crawls.judge import judge
from tests.crawls.records import Outcome
from tests.simulation.origins import Arrival
from tests.simulation.scenarios import SCENARIOS

SITE = replace(SCENARIOS["healthy"], pages=4, parallel=2, cost=2.0, jitter=0.0)


def outcome(number: int, t0: float, t1: float, status: int | None = 200, error: str | None = None) -> Outcome:
    return Outcome(f"http://127.0.0.1:80/p/{number}", t0, t1, status, error, 1)


def arrival(at: float, status: int | None = 200, *, host: str = "127.0.0.1", left: float | None = None) -> Arrival:
    return Arrival(host, "/p/0", at, busy=0, queued=0, in_flight=1, saturated=status != 200, status=status, left=left)


def test_a_crawl_that_got_everything() -> None:
    outcomes = [outcome(0, 1.0, 3.0), outcome(1, 1.0, 3.0), outcome(2, 3.0, 6.0), outcome(3, 3.0, 7.0)]
    verdict = judge(SITE, 3, outcomes, [arrival(1.0), arrival(1.25), arrival(3.0), arrival(3.5)])
    assert (verdict.asked, verdict.can, verdict.got, verdict.failed, verdict.has_all) == (4, 4, 4, 0, True)
    assert (verdict.makespan, verdict.oracle, verdict.ratio) == (6.0, 4.0, 1.5)
    assert (verdict.received, verdict.wasted, verdict.errored, verdict.saturated) == (4, 0, 0, 0)
    assert (verdict.least_gap, verdict.median_gap) == (0.25, 0.5)
    assert (verdict.streak, verdict.cut, verdict.errors) == (0, 0, ())
    assert (verdict.healthy_got, verdict.healthy_makespan, verdict.healthy_oracle) == (None, None, None)


def test_failures_are_counted_as_the_user_learnt_of_them() -> None:
    outcomes = [
        outcome(2, 0.0, 8.0, None, "TimeoutError"),
        outcome(3, 0.0, 9.0),
        outcome(1, 0.0, 7.0, 503),
        outcome(0, 0.0, 1.0),
    ]
    verdict = judge(SITE, 3, outcomes, [arrival(0.0), arrival(1.0, 503), arrival(2.0, 200, left=8.0), arrival(3.0)])
    assert (verdict.got, verdict.failed, verdict.streak, verdict.has_all) == (2, 2, 2, False)
    assert verdict.errors == ("1x TimeoutError", "1x 503")
    assert (verdict.received, verdict.wasted, verdict.errored, verdict.abandoned) == (4, 2, 1, 1)


def test_requests_beyond_the_pages_that_came_were_in_vain() -> None:
    outcomes = [outcome(number, 0.0, 4.0) for number in range(4)]
    verdict = judge(SITE, 3, outcomes, [arrival(float(number), 503 if number < 3 else 200) for number in range(7)])
    assert (verdict.received, verdict.wasted, verdict.errored, verdict.saturated) == (7, 3, 3, 3)


def test_a_crawl_that_was_stopped_took_until_the_cap() -> None:
    verdict = judge(replace(SITE, cap=120.0), 3, [outcome(0, 1.0, 3.0)], [arrival(1.0)])
    assert (verdict.cut, verdict.makespan, verdict.got, verdict.failed) == (3, 120.0, 1, 3)
    assert (verdict.least_gap, verdict.median_gap) == (None, None)


def test_a_crawl_without_any_outcome_is_judged_as_well() -> None:
    verdict = judge(SITE, 3, [], [])
    assert (verdict.got, verdict.cut, verdict.received, verdict.makespan) == (0, 4, 0, 120.0)


def test_gaps_are_those_of_each_host_alone() -> None:
    arrivals = [arrival(0.0), arrival(0.5, host="127.0.0.2"), arrival(1.0), arrival(4.5, host="127.0.0.2")]
    verdict = judge(SITE, 3, [outcome(number, 0.0, 4.0) for number in range(4)], arrivals)
    assert (verdict.least_gap, verdict.median_gap) == (1.0, 4.0)


def test_where_one_host_of_several_is_sick_the_others_are_judged_by_themselves() -> None:
    fleet = replace(SCENARIOS["mixed-fleet"], pages=1, hosts=3, sick=2, parallel=2, cost=2.0, jitter=0.0)
    outcomes = [
        Outcome("http://127.0.1.1:80/p/0", 1.0, 3.0, 200, None, 1),
        Outcome("http://127.0.1.2:80/p/0", 1.0, 57.0, None, "TimeoutError", 1),
        Outcome("http://127.0.1.3:80/p/0", 3.0, 6.0, 200, None, 1),
    ]
    verdict = judge(fleet, 3, outcomes, [])
    assert (verdict.asked, verdict.got, verdict.makespan, verdict.oracle) == (3, 2, 56.0, 92.0)
    assert (verdict.healthy_got, verdict.healthy_makespan, verdict.healthy_oracle) == (2, 5.0, 2.0)
