"""The learned limit alone: on small hosts with literal times, and from its own calls in any order.

What it must come to is said as a user would: how quick the crawl is, and how much the host has to bear. The numbers
leave room for tuning. Sites as they are, with the engine and the ladder, are in `tests/simulation/`.
"""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy_addon.in_flight import FixedLimit
from proxy_addon.in_flight_limit import Limit
from proxy_addon.learned_limit import LearnedLimit
from proxy_addon.model import ErrorName, Outcome
from proxy_addon.request import Grant
from tests.support.examples import FIXED
from tests.support.small_host import Crawl, about_a_second


def crawl(*, slots: int = 40, power: float = math.inf, pages: int = 0, remembered: int = 0) -> Crawl:
    """A host that makes `power` pages a second at most, each in about a second, and has made so many."""
    limit = LearnedLimit()
    if remembered:
        limit.remember(remembered, now=0.0)
    crawling = Crawl(limit, slots, power)
    crawling.serve(pages)
    return crawling


def begun(limit: Limit, *, now: float = 0.0, sent: bool = True, waiting: int = 0) -> Grant:
    granted = Grant(granted=now, rung=0, limit_s=30.0, overdue_s=None)
    limit.granted(granted, now=now, waiting=waiting)
    if sent:
        limit.sent(granted, now=now)
    return granted


def end(
    limit: Limit,
    grant: Grant,
    *,
    now: float,
    outcome: Outcome = Outcome.SERVED,
    error: ErrorName | None = None,
    given_up: bool = False,
    waiting: int = 0,
) -> None:
    limit.ended(grant, now=now, outcome=outcome, error=error, given_up=given_up, waiting=waiting)


def free(limit: Limit, *, now: float) -> int:
    """For how many there is room, when nobody else waits."""
    grants = []
    while limit.room(now=now, waiting=1):
        grants.append(begun(limit, now=now, sent=False))
    for grant in grants:
        end(limit, grant, now=now, outcome=Outcome.ABANDONED)
    return len(grants)


# --- where it begins -------------------------------------------------------------------------------------------------


def test_a_host_that_nobody_knows_gets_two_at_a_time() -> None:
    limit = LearnedLimit()
    assert limit.limit == 2
    assert free(limit, now=0.0) == 2


def test_who_runs_hundreds_at_once_begins_with_a_share_of_them() -> None:
    limit = LearnedLimit()
    limit.room(now=0.0, waiting=20)
    assert limit.limit == 2
    limit.room(now=0.0, waiting=200)
    assert 4 <= limit.limit <= 20


def test_how_many_are_in_line_raises_nothing_once_a_page_has_come() -> None:
    limit = LearnedLimit()
    end(limit, begun(limit), now=1.0)
    before = limit.limit
    limit.room(now=1.0, waiting=10_000)
    assert limit.limit == before


def test_nothing_is_worth_remembering_before_a_host_has_shown_what_it_bears() -> None:
    assert LearnedLimit().remembered == 0
    assert crawl(pages=500).limit.remembered == 0


# --- hosts that keep up ----------------------------------------------------------------------------------------------


def test_while_page_times_stay_it_grows_to_all_that_is_asked_for() -> None:
    healthy = crawl(slots=40, pages=200)
    assert healthy.limits == sorted(healthy.limits)
    assert healthy.limit.limit >= 40
    assert healthy.in_flight == 40


@pytest.mark.parametrize("slots", [1, 2, 5, 20, 50, 200])
def test_a_short_crawl_of_a_healthy_host_takes_at_most_four_page_times_longer(slots: int) -> None:
    free = Crawl(FixedLimit(slots), slots)
    free.serve(10 * slots)
    limited = crawl(slots=slots, pages=10 * slots)
    assert limited.now - free.now <= 4 * 1.0


def test_it_is_not_raised_when_nobody_waits() -> None:
    assert crawl(slots=1, pages=300).limit.limit == 2
    assert crawl(slots=2, pages=300).limit.limit == 2


@pytest.mark.parametrize("slots", [6, 20])
def test_it_is_not_raised_far_beyond_what_is_asked_for(slots: int) -> None:
    assert max(crawl(slots=slots, pages=1_000).limits) <= 2 * slots


def test_one_page_in_fifty_that_takes_100_times_as_long_does_not_hold_it_down() -> None:
    heavy = Crawl(LearnedLimit(), 40, cost=lambda number: about_a_second(number) * (100 if number % 50 == 25 else 1))
    heavy.serve(1_000)
    assert heavy.in_flight == 40
    assert heavy.limits[-500:].count(heavy.limits[-1]) == 500


def test_the_slow_pages_that_a_crawl_ends_with_are_no_slow_host() -> None:
    ending = Crawl(LearnedLimit(), 40, cost=lambda number: about_a_second(number) * (20 if number % 20 == 10 else 1))
    ending.serve(400)
    ending.finish()
    ending.slots = 40
    ending.serve(1)
    assert ending.in_flight >= 39


def test_pages_that_differ_by_a_factor_of_ten_at_random_do_not_hold_it_down() -> None:
    wide = Crawl(LearnedLimit(), 20, cost=lambda number: 10 ** ((number * 0.618) % 1.0 - 0.5))
    wide.serve(600)
    assert wide.in_flight == 20


def test_a_host_that_answers_within_20_ms_is_not_overloaded_whatever_its_page_times_do() -> None:
    host = crawl(slots=8, power=1)
    host.times = 0.0015  # Twelve milliseconds with all eight in flight: it is we who are busy.
    host.serve(400)
    assert host.limits[-1] >= 8


def test_a_slow_host_is_a_healthy_one_where_its_page_times_stay() -> None:
    slow = crawl(slots=20)
    slow.times = 25.0
    slow.serve(200)
    assert slow.in_flight == 20


# --- hosts that do not -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("slots", "power"), [(5, 2), (20, 2), (20, 5), (40, 8), (200, 8), (200, 50)])
def test_a_host_of_limited_power_works_at_full_power_and_bears_little_more(slots: int, power: int) -> None:
    small = crawl(slots=slots, power=power, pages=40 * power + 2 * slots)
    small.serve(60 * power)
    last = sorted(small.limits[-50 * power :])

    assert small.rate(50 * power) >= 0.8 * power
    assert last[len(last) // 2] <= 2 * power


def test_a_host_that_makes_one_page_at_a_time_has_few_to_make_at_once() -> None:
    single = crawl(slots=20, power=1, pages=300)
    assert sorted(single.limits[-200:])[100] <= 3


def test_it_is_taken_back_before_the_host_has_become_many_times_slower() -> None:
    small = crawl(slots=50, power=8, pages=400)
    assert max(small.limits) <= 4 * 8


def test_a_trial_that_failed_comes_again_but_more_rarely() -> None:
    small = Crawl(LearnedLimit(), slots=40, power=8, cost=lambda number: 1.0)
    small.serve(8_000)
    trials = [at for at, (was, now) in enumerate(itertools.pairwise(small.limits)) if now > was]
    at_first = sum(at < 1_000 for at in trials)
    later = sum(at >= 2_000 for at in trials) / 6
    assert 0.5 < later < 0.6 * at_first


def test_what_a_host_bears_is_worth_remembering() -> None:
    assert 5 <= crawl(slots=40, power=8, pages=500).limit.remembered <= 16


# --- hosts that change -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [math.inf, 8.0])
def test_a_host_that_becomes_five_times_slower_whatever_the_load_gets_its_limit_back(power: float) -> None:
    changing = crawl(slots=40, power=power, pages=500)
    before = min(40, changing.limit.limit)
    changing.times = 5.0
    changing.serve(500)
    assert min(40, changing.limit.limit) >= 0.7 * before
    assert sorted(changing.limits[-300:])[150] >= 0.7 * before


def test_a_host_that_is_slow_with_one_at_a_time_is_asked_for_more_again() -> None:
    crawling = Crawl(LearnedLimit(), slots=40, power=1.0, cost=lambda number: 0.95 + 0.1 * about_a_second(number))
    crawling.serve(300)
    crawling.times = 6.0
    crawling.serve(10)
    assert crawling.limit.limit == 1
    crawling.power = math.inf
    crawling.serve(150)
    assert crawling.limit.limit == 40


def test_a_host_that_loses_half_its_power_gets_about_half() -> None:
    changing = crawl(slots=40, power=16, pages=800)
    changing.power = 8
    changing.serve(1_500)
    assert 5 <= sorted(changing.limits[-300:])[150] <= 13
    assert changing.rate(300) >= 0.8 * 8


def test_a_healthy_host_that_comes_to_its_limit_is_asked_for_less() -> None:
    changing = crawl(slots=40, pages=500)
    changing.power = 8
    changing.serve(800)
    assert 5 <= sorted(changing.limits[-300:])[150] <= 16
    assert changing.rate(300) >= 0.8 * 8


def test_a_host_that_gets_quicker_is_asked_for_more() -> None:
    changing = crawl(slots=40, power=4, pages=500)
    assert changing.limit.limit <= 8
    changing.power = math.inf
    changing.serve(3_000)
    assert changing.in_flight >= 16


@pytest.mark.parametrize("times", [0.1, 0.5])
def test_a_host_that_gets_quicker_is_asked_for_more_soon_however_often_that_was_too_much(times: float) -> None:
    crawling = crawl(slots=40, power=5.0, pages=1500)
    assert crawling.limit.limit < 10
    crawling.power, crawling.times = math.inf, times
    crawling.serve(300)
    assert crawling.limit.limit >= 20


def test_a_host_that_is_well_again_after_a_slow_time_gets_its_limit_back() -> None:
    changing = crawl(slots=20, pages=300)
    changing.power = 4
    changing.serve(200)
    changing.power = math.inf
    changing.serve(3_000)
    assert changing.in_flight == 20


# --- what is remembered ----------------------------------------------------------------------------------------------


def test_what_was_remembered_holds_from_the_first_page_after_a_restart() -> None:
    limit = LearnedLimit()
    limit.remember(7, now=0.0)
    assert (limit.limit, limit.remembered) == (7, 7)
    assert free(limit, now=0.0) == 7
    limit.room(now=0.0, waiting=10_000)
    assert limit.limit == 7


def test_after_a_restart_a_host_works_at_full_power_at_once_and_is_not_overrun_again() -> None:
    first = crawl(slots=40, power=8, pages=800)
    second = crawl(slots=40, power=8, pages=160, remembered=first.limit.remembered)
    assert max(second.limits) <= 2.5 * first.limit.remembered
    assert second.rate(150) >= 0.8 * 8


def test_what_another_process_found_out_holds_here_where_it_is_less() -> None:
    limit = crawl(slots=40, pages=300).limit
    assert limit.limit >= 40
    limit.remember(6, now=100.0)
    assert (limit.limit, limit.remembered) == (6, 6)


def test_what_another_process_found_out_raises_nothing_that_was_found_out_here() -> None:
    limit = crawl(slots=40, power=8, pages=500).limit
    before = limit.limit
    limit.remember(100, now=100.0)
    assert limit.limit == before
    assert limit.remembered == 100


def test_what_is_forgiven_is_forgotten_and_the_host_goes_on_as_it_is() -> None:
    limit = crawl(slots=40, power=8, pages=500).limit
    before = limit.limit
    limit.remember(0, now=100.0)
    assert (limit.limit, limit.remembered) == (before, 0)


def test_a_host_that_got_nothing_for_a_minute_goes_on_as_it_was() -> None:
    healthy = crawl(slots=40)
    healthy.now = 10_000.0
    healthy.serve(300)
    healthy.finish()
    end(healthy.limit, begun(healthy.limit, now=healthy.now + 60), now=healthy.now + 61)
    assert healthy.limit.limit >= 40


def test_a_host_that_got_nothing_for_an_hour_is_met_afresh() -> None:
    healthy = crawl(slots=40, pages=300)
    healthy.finish()
    begun(healthy.limit, now=healthy.now + 3_600)
    assert healthy.limit.limit == 2


def test_a_small_host_that_got_nothing_for_an_hour_is_met_at_what_is_remembered() -> None:
    small = crawl(slots=40, power=8, pages=500)
    small.finish()
    remembered = small.limit.remembered
    assert remembered > 2
    begun(small.limit, now=small.now + 3_600)
    assert small.limit.limit == small.limit.remembered == remembered


def test_one_that_is_still_out_keeps_a_host_from_being_met_afresh() -> None:
    healthy = crawl(slots=40, pages=300)
    begun(healthy.limit, now=healthy.now + 3_600)
    assert healthy.limit.limit >= 40


# --- attempts that bring no page -------------------------------------------------------------------------------------


@pytest.mark.parametrize("overdue", [False, True])
def test_a_trial_in_which_all_stall_or_are_overdue_is_taken_back(overdue: bool) -> None:
    limit = LearnedLimit()
    limit.room(now=0.0, waiting=200)
    before = limit.limit
    first = [begun(limit) for _ in range(before)]
    end(limit, first[0], now=1.0, waiting=200)
    assert limit.limit > before, "a trial"
    tried = []
    while limit.room(now=1.0, waiting=200):
        tried.append(begun(limit, now=1.0, waiting=200))
    for grant in tried:
        if overdue:
            limit.overdue(grant, now=31.0)
        else:
            end(limit, grant, now=1.2, outcome=Outcome.STALL, error=ErrorName.HTTP_STATUS_5XX, waiting=200)
    assert limit.limit <= before


def test_a_doubt_that_only_overdue_attempts_could_settle_ends_with_them() -> None:
    limit = LearnedLimit()
    limit.room(now=0.0, waiting=200)
    before = limit.limit
    first = [begun(limit) for _ in range(before)]
    end(limit, first.pop(), now=1.0, waiting=200)
    tried = []
    while limit.room(now=1.0, waiting=200):
        tried.append(begun(limit, now=1.0, waiting=200))
    for grant in (*first, *tried[2:]):
        end(limit, grant, now=1.1, outcome=Outcome.FAILURE, waiting=200)
    for grant in tried[:2]:
        limit.overdue(grant, now=31.0)
        grant.overdue = True
    assert limit.limit == before, "in doubt"
    for grant in tried[:2]:
        end(limit, grant, now=40.0, waiting=200)
    assert limit.limit > before


def test_an_attempt_that_is_overdue_is_a_stall_once_and_its_end_says_nothing() -> None:
    """Equal to one that stalled at that moment, whatever it comes to."""

    def after(outcome: Outcome, *, overdue: bool) -> tuple[int, list[int]]:
        crawling = crawl(slots=20, pages=7)
        odd = begun(crawling.limit, now=crawling.now)
        if overdue:
            crawling.limit.overdue(odd, now=crawling.now + 30)
            odd.overdue = True
        end(crawling.limit, odd, now=crawling.now + 30, outcome=outcome, waiting=5)
        now = crawling.limit.limit
        crawling.serve(300)
        return now, crawling.limits

    stalled = after(Outcome.STALL, overdue=False)
    for outcome in Outcome:
        assert after(outcome, overdue=True) == stalled


@pytest.mark.parametrize("outcome", [Outcome.FAILURE, Outcome.ABANDONED])
def test_attempts_that_failed_were_given_up_or_abandoned_say_nothing(outcome: Outcome) -> None:
    """Nor one that is dialled again, which ends as abandoned."""
    crawling = crawl(slots=40, power=8, pages=500)
    before, now = crawling.limit.limit, crawling.now
    for number in range(200):
        grant = begun(crawling.limit, now=now + number, waiting=30)
        end(crawling.limit, grant, now=now + number + 0.01, outcome=outcome, given_up=number % 2 == 0, waiting=30)
    assert crawling.limit.limit == before


@pytest.mark.parametrize("outcome", list(Outcome))
def test_attempts_that_were_never_sent_say_nothing_and_leave_their_room(outcome: Outcome) -> None:
    crawling = crawl(slots=40, power=8, pages=500)
    before, now = crawling.limit.limit, crawling.now
    room = free(crawling.limit, now=now)
    for number in range(200):
        grant = begun(crawling.limit, now=now + number, sent=False, waiting=30)
        end(crawling.limit, grant, now=now + number + 20, outcome=outcome, waiting=30)
    assert crawling.limit.limit == before
    assert free(crawling.limit, now=now + 200) == room


def test_late_attempts_are_in_flight_beyond_the_limit_and_count() -> None:
    limit = LearnedLimit()
    late = [begun(limit) for _ in range(4)]
    for ended in range(3):
        assert not limit.room(now=0.0, waiting=1), ended
        end(limit, late[ended], now=1.0, outcome=Outcome.ABANDONED)
    assert limit.room(now=1.0, waiting=1)


def test_pages_that_come_at_once_are_no_page_times_of_nothing() -> None:
    instant = Crawl(LearnedLimit(), slots=20, cost=lambda number: 0.0)
    instant.serve(300)
    assert instant.in_flight == 20


# --- whatever happens ------------------------------------------------------------------------------------------------

_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["granted", "granted", "sent", "ended", "ended", "overdue", "remember"]),
        st.integers(0, 40),
        st.sampled_from([0.0, 0.001, 0.5, 1.0, 1.0, 4.0, 100.0, 400.0]),
        st.sampled_from([Outcome.SERVED] * 6 + list(Outcome)),
        st.integers(0, 300),
    ),
    max_size=120,
)


@FIXED
@given(_STEPS)
def test_in_any_order_of_calls_there_is_room_as_long_as_fewer_are_in_flight_than_it_says(
    steps: list[tuple[str, int, float, Outcome, int]],
) -> None:
    limit, out, now = LearnedLimit(), list[Grant](), 0.0
    for name, number, passed_s, outcome, waiting in steps:
        now += passed_s
        chosen = out[number % len(out)] if out else None
        match name:
            case "granted":
                out.append(begun(limit, now=now, sent=False, waiting=waiting))
            case "remember":
                limit.remember(number, now=now)
            case "sent" if chosen is not None and chosen.sent is None:
                chosen.sent = now
                limit.sent(chosen, now=now)
            case "overdue" if chosen is not None and chosen.sent is not None and not chosen.overdue:
                limit.overdue(chosen, now=now)
                chosen.overdue = True
            case "ended" if chosen is not None:
                out.remove(chosen)
                end(limit, chosen, now=now, outcome=outcome, given_up=number % 2 == 0, waiting=waiting)
        room = limit.room(now=now, waiting=waiting)
        assert limit.limit >= 1
        assert room == (len(out) < limit.limit)
        assert limit.remembered >= 0


@FIXED
@given(
    st.integers(1, 60),
    st.one_of(st.floats(1, 100), st.just(math.inf)),
    st.lists(st.floats(0.001, 100), min_size=1, max_size=50),
)
def test_no_crawl_comes_to_a_halt_or_leaves_anything_in_flight(slots: int, power: float, costs: list[float]) -> None:
    crawling = Crawl(LearnedLimit(), slots, power, cost=lambda number: costs[number % len(costs)])
    crawling.serve(150)
    crawling.finish()
    assert min(crawling.limits) >= 1
    assert free(crawling.limit, now=crawling.now) == crawling.limit.limit
