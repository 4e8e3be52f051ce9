"""How much slower a host has become, from literal page times: all are logarithms of seconds, 0.693 is twice as long.

Expected values are worked out by hand, and wider than what the choice of the numbers in the module could move.
"""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy_addon.slowdown import Comparison, Drift, Estimate, Reference, Spread, middle
from tests.support.examples import FIXED

TWICE = 0.693
TEN_TIMES = 2.303
HUNDRED_TIMES = 4.605
DAY = 11.37
"""86,400 s."""
PAGE_TIMES = st.lists(st.floats(-7, 7), max_size=30)
"""From a millisecond to 18 minutes."""


def spread(deviation: float = 0.3) -> Spread:
    """Page times that are known to differ by so much."""
    known = Spread()
    known.variance = deviation**2
    return known


def learned(*xs: float) -> Spread:
    learning = Spread()
    for x in xs:
        learning.learn(x)
    return learning


def reference(center: float = 0.0, count: float = 64, *, deviation: float = 0.3) -> Reference:
    return Reference(spread(deviation), center, count)


def compared(*xs: float, stalls: int = 0, center: float = 0.0, deviation: float = 0.3) -> Comparison:
    comparison = Comparison(spread(deviation), center)
    for x in xs:
        comparison.add(x)
    for _ in range(stalls):
        comparison.add_stall(0.35)
    return comparison


def slowdown(*xs: float, ages: tuple[float, ...] = (), stalls: int = 0, center: float = 0.0) -> Estimate:
    return compared(*xs, stalls=stalls, center=center).estimate(ages)


def gauss(mean: float, deviation: float, count: int) -> list[float]:
    source = random.Random(4)
    return [source.gauss(mean, deviation) for _ in range(count)]


# --- Spread: how much page times differ ------------------------------------------------------------------------------


@pytest.mark.parametrize("deviation", [0.2, 0.5, 1.0])
def test_the_spread_is_that_of_the_page_times(deviation: float) -> None:
    assert math.sqrt(learned(*gauss(0.0, deviation, 500)).variance) == pytest.approx(deviation, rel=0.25)


def test_page_times_that_are_all_the_same_still_leave_some_spread() -> None:
    assert 0.001 < learned(*[0.5] * 500).variance < 0.03


def test_page_times_that_differ_beyond_all_measure_leave_a_spread_that_can_be_compared_with() -> None:
    assert 1.0 < learned(*[0.0, 10.0] * 500).variance < 4.0


def test_page_times_that_rise_slowly_do_not_differ() -> None:
    """Twenty times as long after 300 pages: each is compared with the one before only."""
    assert learned(*(0.01 * page for page in range(300))).variance == learned(*[0.0] * 300).variance


def test_one_page_in_fifty_that_takes_100_times_as_long_hardly_widens_the_spread() -> None:
    xs = gauss(0.0, 0.3, 500)
    heavy = [x + HUNDRED_TIMES if page % 50 == 25 else x for page, x in enumerate(xs)]
    assert math.sqrt(learned(*heavy).variance) < 1.4 * math.sqrt(learned(*xs).variance)


def test_an_outlier_widens_the_spread_by_the_same_however_far_out_it_is() -> None:
    assert learned(0.0, 0.0, 3.0).variance == learned(0.0, 0.0, 30.0).variance


def test_a_change_of_load_is_no_difference_between_pages() -> None:
    interrupted = learned(0.0, 0.0)
    interrupted.interrupt()
    interrupted.learn(TEN_TIMES)
    assert interrupted.variance == learned(0.0, 0.0).variance

    interrupted.learn(TEN_TIMES)
    assert interrupted.variance == learned(0.0, 0.0, 0.0).variance


def test_pages_that_begin_to_differ_more_are_noticed_however_long_they_did_not() -> None:
    xs = [*gauss(0.0, 0.2, 3_000), *gauss(0.0, 0.8, 300)]
    assert math.sqrt(learned(*xs).variance) > 0.6


def test_one_page_time_says_nothing_of_how_they_differ() -> None:
    assert learned(2.0).variance == Spread().variance


@FIXED
@given(PAGE_TIMES, st.floats(-5, 5))
def test_the_spread_is_the_same_for_a_host_that_is_slower_by_a_factor(xs: list[float], factor: float) -> None:
    assert learned(*(x + factor for x in xs)).variance == pytest.approx(learned(*xs).variance)


# --- Reference: the page time of a host that is not slowed down ------------------------------------------------------


@pytest.mark.parametrize(
    ("out_of", "quicker"),
    [(1, 0.0), (2, 0.564), (3, 0.846), (5, 1.163), (10, 1.539), (25, 1.965)],
)
def test_the_first_back_is_taken_for_the_quickest_of_those_sent_together(out_of: int, quicker: float) -> None:
    """How many standard deviations the least of so many normal values lies below their mean is in tables."""
    first = Reference.of_first(spread(0.3), [1.0], out_of)
    assert first.center == pytest.approx(1.0 + 0.3 * quicker, abs=0.02)


def test_the_first_two_of_five_are_taken_for_the_two_quickest() -> None:
    """The least of five lies 1.163 standard deviations below the mean, the next 0.495."""
    first = Reference.of_first(spread(0.5), [0.2, 0.6], 5)
    assert first.center == pytest.approx((0.2 + 0.5 * 1.163 + 0.6 + 0.5 * 0.495) / 2, abs=0.02)
    assert first.count == 2


def test_all_that_were_sent_together_make_their_mean() -> None:
    first = Reference.of_first(spread(), [0.1, 0.3, 0.8], 3)
    assert first.center == pytest.approx(0.4)
    assert first.count == 3


def test_a_reference_is_the_mean_of_what_it_has_learned() -> None:
    mean = reference(0.0, 1)
    mean.learn(0.2)
    assert mean.center == pytest.approx(0.1)
    mean.learn(0.4)
    assert mean.center == pytest.approx(0.2)


def test_a_reference_is_the_better_known_the_more_page_times_made_it() -> None:
    assert reference(count=1, deviation=0.3).variance == pytest.approx(0.09)
    assert reference(count=9, deviation=0.3).variance == pytest.approx(0.01)


def test_a_reference_is_worth_at_least_one_page_time() -> None:
    assert reference(count=0.0, deviation=0.3).variance == pytest.approx(0.09)


def test_however_many_made_it_a_reference_is_not_beyond_doubt() -> None:
    assert reference(count=1e9).variance > 0.0001


def test_a_reference_forgets_what_it_was_in_the_end() -> None:
    old = reference(0.0, 1_000_000)
    for _ in range(2_000):
        old.learn(0.3)
    assert old.center == pytest.approx(0.3, abs=0.01)


def test_an_outlier_moves_a_reference_no_more_than_a_slow_page_does() -> None:
    by_ten, by_hundred = reference(0.0, 4), reference(0.0, 4)
    by_ten.learn(TEN_TIMES)
    by_hundred.learn(HUNDRED_TIMES)
    assert by_ten.center == by_hundred.center
    assert 0.0 < by_hundred.center < 0.2

    by_hundredth = reference(0.0, 4)
    by_hundredth.learn(-HUNDRED_TIMES)
    assert by_hundredth.center == -by_hundred.center


def test_a_reference_that_is_well_known_does_not_follow_page_times_that_creep_up() -> None:
    known = reference(0.0, 64)
    for _ in range(30):
        known.learn(0.4)
    assert known.center < 0.12


# --- Comparison: the slowdown ----------------------------------------------------------------------------------------


def test_without_any_page_time_anything_may_be() -> None:
    nothing = slowdown()
    assert nothing.mean == pytest.approx(0.0, abs=1e-9)
    assert nothing.variance > 1.0


@pytest.mark.parametrize("times", [-TWICE, 0.0, 0.4, TWICE, TEN_TIMES])
def test_page_times_that_are_longer_by_a_factor_are_that_slowdown(times: float) -> None:
    found = slowdown(*[times + jitter for jitter in (-0.3, -0.1, 0.1, 0.3) * 3])
    assert found.mean == pytest.approx(times, abs=0.1)
    assert found.variance < 0.03


def test_the_slowdown_is_relative_to_the_center() -> None:
    found = slowdown(*[1.0 + TWICE] * 8, center=1.0)
    assert found.mean == pytest.approx(TWICE, abs=0.1)


def test_more_page_times_make_a_slowdown_surer() -> None:
    one, four, sixteen = (slowdown(*[0.1] * count).variance for count in (1, 4, 16))
    assert one > four > sixteen


def test_the_more_page_times_differ_the_less_each_of_them_says() -> None:
    narrow = compared(*[TWICE] * 4, deviation=0.2).estimate([])
    wide = compared(*[TWICE] * 4, deviation=1.0).estimate([])
    assert wide.variance > 4 * narrow.variance


def test_those_that_are_out_for_longer_than_pages_take_show_a_slowdown_before_any_is_back() -> None:
    found = slowdown(ages=(1.1, 1.1, 1.1, 1.1))
    assert found.mean > 1.1


def test_those_that_are_out_for_long_count_beside_those_that_are_back() -> None:
    back = (0.2, 0.3, 0.4)
    assert slowdown(*back, ages=(0.8, 0.8, 0.8, 0.8)).mean > slowdown(*back).mean + 0.1


def test_those_that_were_sent_just_now_say_nothing() -> None:
    alone = slowdown(0.1, 0.6)
    assert slowdown(0.1, 0.6, ages=(-TEN_TIMES,) * 20) == alone
    assert slowdown(0.1, 0.6, ages=(1.4, *(-TEN_TIMES,) * 20)) == slowdown(0.1, 0.6, ages=(1.4,))


def test_one_that_hangs_for_good_among_others_that_are_back_is_an_outlier() -> None:
    assert slowdown(*[0.0] * 8, ages=(DAY,)).mean < 0.1


def test_a_stall_speaks_for_a_slowdown_and_two_for_a_surer_one() -> None:
    one, two, five = (slowdown(stalls=count).mean for count in (1, 2, 5))
    assert 0.35 < one < two < five


def test_one_stall_does_not_outweigh_page_times_that_stay() -> None:
    assert slowdown(*[0.0] * 8, stalls=1).mean < 0.1


def test_stalls_count_as_attempts_that_are_back() -> None:
    assert compared(0.0, 0.1, stalls=3).count == 5


def test_two_pages_in_twenty_that_take_100_times_as_long_do_not_make_a_slowdown() -> None:
    found = slowdown(*[0.0] * 18, HUNDRED_TIMES, HUNDRED_TIMES)
    assert found.mean == pytest.approx(0.0, abs=0.05)


def test_pages_that_come_at_once_among_others_do_not_hide_a_slowdown() -> None:
    """Such as errors and redirects."""
    found = slowdown(*[TWICE] * 18, -HUNDRED_TIMES, -HUNDRED_TIMES)
    assert found.mean == pytest.approx(TWICE, abs=0.1)


@pytest.mark.parametrize("far", [HUNDRED_TIMES, DAY, 1e6])
def test_a_slowdown_beyond_all_measure_is_the_greatest_there_is(far: float) -> None:
    assert slowdown(*[far] * 8).mean == pytest.approx(3.0, abs=0.15)
    assert slowdown(*[-far] * 8).mean == pytest.approx(-3.0, abs=0.15)


def test_the_same_attempts_can_be_compared_with_another_center() -> None:
    xs = [TWICE] * 8
    before = compared(*xs)
    after = before.moved(TWICE)
    assert (after.center, after.count) == (TWICE, 8)
    assert after.estimate([]).mean == pytest.approx(0.0, abs=0.05)
    assert (before.center, before.count) == (0.0, 8)
    assert before.estimate([]).mean == pytest.approx(TWICE, abs=0.1)


def test_asking_for_the_slowdown_does_not_change_it() -> None:
    comparison = compared(0.1, 0.5)
    first = comparison.estimate([1.0, 0.5])
    assert comparison.estimate([1.0, 0.5]) == first
    assert comparison.count == 2


def near(estimate: Estimate) -> Estimate:
    """Compares equal up to rounding."""
    return Estimate(
        pytest.approx(estimate.mean, abs=1e-6),  # type: ignore[arg-type]
        pytest.approx(estimate.variance, abs=1e-6),  # type: ignore[arg-type]
    )


@FIXED
@given(PAGE_TIMES, st.randoms(use_true_random=False))
def test_the_order_in_which_pages_come_back_does_not_matter(xs: list[float], source: random.Random) -> None:
    other = xs.copy()
    source.shuffle(other)
    assert slowdown(*other) == near(slowdown(*xs))


@FIXED
@given(PAGE_TIMES, PAGE_TIMES, st.floats(-5, 5))
def test_all_times_longer_by_one_factor_are_no_other_slowdown(
    xs: list[float], ages: list[float], factor: float
) -> None:
    ages.sort(reverse=True)
    assert slowdown(*(x + factor for x in xs), ages=tuple(age + factor for age in ages), center=factor) == near(
        slowdown(*xs, ages=tuple(ages))
    )


@FIXED
@given(PAGE_TIMES)
def test_as_much_quicker_is_found_as_surely_as_as_much_slower(xs: list[float]) -> None:
    slower = slowdown(*xs)
    assert slowdown(*(-x for x in xs)) == near(Estimate(-slower.mean, slower.variance))


@FIXED
@given(PAGE_TIMES, st.floats(-7, 12))
def test_one_that_is_still_out_or_that_stalled_never_speaks_against_a_slowdown(xs: list[float], age: float) -> None:
    before = slowdown(*xs).mean
    assert slowdown(*xs, ages=(age,)).mean >= before - 1e-9
    assert slowdown(*xs, stalls=1).mean >= before - 1e-9


@FIXED
@given(
    st.lists(st.floats(-1e6, 1e6), max_size=20),
    st.lists(st.floats(-1e6, 1e6), max_size=20),
    st.floats(-1e6, 1e6),
    st.floats(0.1, 1.5),
)
def test_no_page_times_are_too_odd_to_be_compared(
    xs: list[float], ages: list[float], center: float, deviation: float
) -> None:
    comparison = compared(*xs, center=center, deviation=deviation)
    found = comparison.estimate(sorted(ages, reverse=True))
    assert -3.0 <= found.mean <= 3.0
    assert 0.0 <= found.variance <= 9.0


# --- Drift: page times that have moved to one side -------------------------------------------------------------------


def drifted(*xs: float, side: int = 1) -> Drift:
    """Against a reference of 0, with a step of 0.5 and a variance of 0.25: a page time x adds 2 x - 0.5."""
    drift = Drift(side)
    for x in xs:
        drift.add(x, reference(), step=0.5, variance=0.25)
    return drift


def test_page_times_that_stay_are_no_evidence() -> None:
    steady = drifted(*[0.1, -0.2, 0.0, 0.2] * 50)
    assert steady.evidence == 0.0
    assert list(steady.recent) == []


def test_page_times_that_have_moved_add_up() -> None:
    assert drifted(1.0).evidence == pytest.approx(1.5)
    assert drifted(1.0, 0.5, 0.75).evidence == pytest.approx(1.5 + 0.5 + 1.0)


def test_page_times_that_are_back_take_evidence_away_but_are_not_saved_up() -> None:
    assert drifted(1.0, 0.0).evidence == pytest.approx(1.5 - 0.5)
    assert drifted(-1.0, -1.0, -1.0, 1.0).evidence == pytest.approx(1.5)


def test_those_since_there_was_any_evidence_are_kept() -> None:
    assert list(drifted(0.0, 1.0, 0.0, 0.9).recent) == [1.0, 0.0, 0.9]
    assert list(drifted(1.0, 0.9, -3.0, -3.0, 0.8).recent) == [0.8]


def test_each_side_sees_only_what_moves_to_it() -> None:
    assert drifted(-1.0, -1.0, side=-1).evidence == pytest.approx(3.0)
    assert drifted(1.0, 1.0, side=-1).evidence == 0.0
    assert drifted(-1.0, -1.0).evidence == 0.0


def test_a_page_that_takes_100_times_as_long_is_no_more_evidence_than_one_that_takes_10_times() -> None:
    assert drifted(HUNDRED_TIMES).evidence == drifted(TEN_TIMES).evidence
    assert drifted(*[1.0] * 5, -HUNDRED_TIMES).evidence == drifted(*[1.0] * 5, -TEN_TIMES).evidence > 0


def test_a_stall_is_as_much_evidence_as_the_slowest_page() -> None:
    stalled = Drift(1)
    stalled.add_stall(-3.0, reference(0.0))
    assert stalled.evidence == drifted(HUNDRED_TIMES).evidence


def test_a_stall_tells_how_long_pages_take_where_it_took_longer_than_one() -> None:
    stalled = Drift(1)
    for at_least in (-3.0, 0.0, 2.0):
        stalled.add_stall(at_least, reference(0.0))
    assert list(stalled.recent) == [2.0]


@pytest.mark.parametrize(
    ("ages", "expected"),
    [
        ([], 3.0),
        ([-2.0], 3.0),  # Sent only now: no evidence that pages are back.
        ([1.25], 3.0 + 1.5),  # As a page of 1.0: slow pages are out for longer, by the variance.
        ([1.25, 0.75, -2.0], 3.0 + 1.5 + 0.5),
        ([3.0, 3.0, 3.0], 3.0 + 3.0),  # No more than what has come.
    ],
)
def test_those_that_are_out_count_as_if_they_came_now_where_they_are_slow(ages: list[float], expected: float) -> None:
    drift = drifted(1.0, 1.0)
    assert drift.evidence_with(ages, reference(), step=0.5, variance=0.25) == pytest.approx(expected)
    assert drift.evidence == pytest.approx(3.0)


def test_those_that_are_out_are_no_evidence_while_what_comes_is_none() -> None:
    assert drifted(0.0).evidence_with([3.0] * 20, reference(), step=0.5, variance=0.25) == 0.0


def test_however_long_there_is_evidence_memory_is_bounded() -> None:
    assert len(drifted(*[1.0] * 5_000).recent) < 1_000
    assert drifted(*[1.0] * 5_000, 0.9).recent[-1] == 0.9


@FIXED
@given(PAGE_TIMES)
def test_a_drift_to_one_side_is_the_mirror_of_one_to_the_other(xs: list[float]) -> None:
    up, down = drifted(*xs), drifted(*(-x for x in xs), side=-1)
    assert up.evidence == down.evidence >= 0.0
    assert list(up.recent) == [-x for x in down.recent]


# --- middle ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("xs", "expected"),
    [
        ([3.0], 3.0),
        ([1.0, 2.0], 1.5),
        ([1.0, 2.0, 6.0], 3.0),
        ([1.0, 2.0, 3.0, 40.0], 2.5),
        ([-90.0, 5.0, 90.0, 6.0, 7.0, -80.0, 80.0, 4.0], 5.5),
    ],
)
def test_the_middle_is_the_mean_of_the_middle_half(xs: list[float], expected: float) -> None:
    assert middle(xs) == expected


def test_one_in_four_that_is_far_out_moves_the_middle_to_the_next_of_the_others_at_most() -> None:
    assert middle([1.0, 1.1, 1.2, 1e9]) == pytest.approx(1.15)


@FIXED
@given(st.lists(st.floats(-100, 100), min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_the_middle_lies_within_and_whatever_the_order(xs: list[float], source: random.Random) -> None:
    other = xs.copy()
    source.shuffle(other)
    assert min(xs) - 1e-9 <= middle(xs) <= max(xs) + 1e-9
    assert middle(other) == middle(xs)
