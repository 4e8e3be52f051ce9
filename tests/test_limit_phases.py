"""What a phase of a learned limit finds, by page times that are written out."""

import math

import pytest

from proxy_addon.limit_phases import Ease, Eased, Found, Seen, Trial, Watch
from proxy_addon.slowdown import Comparison, Reference, Spread


def eased(limit: int, page_times_s: list[float]) -> list[Eased]:
    """What is found after each page, where pages took 4 s on an idle host and 10 s with six in flight."""
    spread = Spread()
    spread.variance = 0.2**2
    ease = Ease(spread, Comparison(spread, math.log(10.0)), 4, 6, limit, give_back=6, hoped_for=math.log(2.5))
    found = []
    for page_time_s in page_times_s:
        ease.comparison.add(math.log(page_time_s))
        found.append(ease.judge(Reference(spread, math.log(4.0), 20), []))
    return found


def test_a_lower_limit_that_more_than_halves_page_times_brings_relief() -> None:
    assert eased(2, [4.5, 4.5]) == [Eased.NOTHING_YET, Eased.RELIEF]


def test_a_lower_limit_under_which_a_page_takes_much_longer_than_before_brings_none() -> None:
    assert eased(2, [16.0]) == [Eased.NO_RELIEF]


def test_with_a_single_one_in_flight_one_page_that_takes_longer_than_before_says_nothing() -> None:
    # It was made beside those that were in flight still.
    assert eased(1, [14.0, 14.0]) == [Eased.NOTHING_YET, Eased.NO_RELIEF]


# --- a trial of four, where two pages of one second are all that is known of two at a time ---------------------------


def tried(page_time_s: float, pages: int) -> list[Found]:
    """What is found after each of so many pages that all take so long, while as much as the limit allows is out."""
    spread = Spread()
    trial, found = Trial(2, 4, Comparison(spread, 0.0)), []
    for _ in range(pages):
        trial.comparison.add(math.log(page_time_s))
        found.append(trial.judge(Reference(spread, 0.0, 2), [0.0] * 3))
    return found


@pytest.mark.parametrize(("page_time_s", "pages"), [(1.0, 3), (1.2, 6), (1.3, 8)])
def test_the_longer_a_trial_takes_the_less_certainty_it_needs(page_time_s: float, pages: int) -> None:
    assert tried(page_time_s, pages) == [Found.NOTHING] * (pages - 1) + [Found.BEARS_IT]


def test_a_trial_whose_pages_take_nearly_twice_as_long_is_never_taken_for_one_that_is_borne() -> None:
    assert tried(1.8, 12) == [Found.DOUBT] * 11 + [Found.UNDECIDED]


# --- a watch of three in flight, where a page takes a second ---------------------------------------------------------


def watched() -> Watch:
    spread = Spread()
    spread.variance = 0.2**2
    return Watch(spread, Reference(spread, 0.0, 64), skip=0, left=100)


def seen(page_times_s: list[float], ages_s: list[float]) -> list[Seen]:
    """What is seen with each page, while the same others are out all the time."""
    watch = watched()
    ages = [math.log(age_s) for age_s in ages_s]
    return [watch.look(math.log(page_time_s), ages, distrust=0.0) for page_time_s in page_times_s]


def test_five_slow_pages_are_an_alarm_and_three_where_two_others_are_out_for_as_long() -> None:
    assert seen([3.0] * 5, []) == [Seen.STEADY] * 4 + [Seen.SLOWER]
    assert seen([3.0] * 3, [3.0]) == [Seen.STEADY] * 3
    assert seen([3.0] * 3, [3.0, 3.0]) == [Seen.STEADY] * 2 + [Seen.SLOWER]


def test_a_few_that_are_out_for_long_are_no_alarm_while_other_pages_come_as_ever() -> None:
    assert seen([1.0] * 50, [100.0] * 4) == [Seen.STEADY] * 50


@pytest.mark.parametrize(("stalls", "ages_s", "slower"), [(4, [], False), (5, [], True), (3, [20.0, 20.0], True)])
def test_stalls_alone_are_an_alarm_and_fewer_where_the_others_are_silent(
    stalls: int, ages_s: list[float], slower: bool
) -> None:
    watch = watched()
    for _ in range(stalls):
        watch.add_stall(math.log(30.0))
    assert watch.is_slower([math.log(age_s) for age_s in ages_s], distrust=0.0) is slower
    assert watch.recent == pytest.approx([math.log(30.0)] * min(stalls, 4))
