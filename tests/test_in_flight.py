"""The limits of attempts in flight, from their own calls alone, with literal times."""

from proxy_addon.in_flight import FixedLimit, make_limit
from proxy_addon.in_flight_limit import Limit
from proxy_addon.learned_limit import LearnedLimit
from proxy_addon.model import Outcome
from proxy_addon.request import Grant


def grant(limit: Limit, *, now: float, waiting: int = 0) -> Grant:
    """Another attempt is granted, and sent."""
    granted = Grant(granted=now, rung=0, limit_s=30.0, overdue_s=None)
    limit.granted(granted, now=now, waiting=waiting)
    granted.sent = now
    limit.sent(granted, now=now)
    return granted


def end(limit: Limit, attempt: Grant, *, now: float, outcome: Outcome = Outcome.SERVED) -> None:
    limit.ended(attempt, now=now, outcome=outcome, error=None, given_up=False, waiting=1)


def test_the_setting_says_which_limit_there_is() -> None:
    assert make_limit("off") is None
    assert isinstance(make_limit("learn"), LearnedLimit)
    fixed = make_limit(7)
    assert isinstance(fixed, FixedLimit)
    assert fixed.limit == 7


def test_a_fixed_limit_has_room_for_as_many_as_it_says() -> None:
    limit = FixedLimit(2)
    assert limit.room(now=0.0, waiting=0)
    first = grant(limit, now=0.0)
    assert limit.room(now=0.0, waiting=0)
    grant(limit, now=0.0)
    assert not limit.room(now=1_000.0, waiting=0)
    end(limit, first, now=1.0)
    assert limit.room(now=1.0, waiting=0)


def test_a_fixed_limit_is_the_same_whatever_happens() -> None:
    limit = FixedLimit(2)
    for outcome in Outcome:
        attempt = grant(limit, now=0.0)
        limit.overdue(attempt, now=1.0)
        end(limit, attempt, now=2.0, outcome=outcome)
    limit.remember(1, now=3.0)

    assert (limit.limit, limit.remembered, limit.hard) == (2, 0, True)
