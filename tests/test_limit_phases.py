"""What a phase of a learned limit finds, by page times that are written out."""

import math

from proxy_addon.limit_phases import Ease, Eased
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
