"""When an origin wants to be asked again, in all the ways in which origins say it."""

import math
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy_addon import rate_limits
from proxy_addon.model import Reply
from tests.support.examples import FIXED

NEW_YEAR = 1_767_225_600.0
"""Thu, 01 Jan 2026 00:00:00 GMT"""
DATE = ("Date", "Thu, 01 Jan 2026 00:00:00 GMT")

type Field = tuple[str, str]


def stalled_s(*fields: Field, status: int = 429, now: float = NEW_YEAR) -> float | None:
    """What a stall with these fields asks for."""
    return rate_limits.asked_s(Reply(status, (("Server", "x"), *fields)), now=now)


def served_s(*fields: Field, status: int = 200, now: float = NEW_YEAR) -> float | None:
    """For how long a page with these fields says that the quota is used up."""
    return rate_limits.quota_s(Reply(status, (("Server", "x"), *fields)), now=now)


def asked_s(*values: str, date: str | None = None, now: float = NEW_YEAR) -> float | None:
    """What these `Retry-After` ask for."""
    dates = [] if date is None else [("Date", date)]
    return stalled_s(*(("Retry-After", value) for value in values), *dates, now=now)


# Retry-After


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7.0), ("0.503", 0.503), ("120", 120.0), ("  7\t", 7.0), ("007", 7.0), ("0", 0.0), ("0.0", 0.0)],
)
def test_retry_after_is_seconds_also_decimal(value: str, seconds: float) -> None:
    assert asked_s(value) == seconds


@pytest.mark.parametrize("value", ["9999999999", "9" * 400, "1" + "0" * 308 + ".5"])
def test_a_very_long_retry_after_stays_finite_and_very_long(value: str) -> None:
    seconds = asked_s(value)

    assert seconds is not None
    assert math.isfinite(seconds)
    assert seconds >= 9_999_999_999


@pytest.mark.parametrize(
    "value",
    [
        "Thu, 01 Jan 2026 00:00:05 GMT",
        "Thursday, 01-Jan-26 00:00:05 GMT",
        "Thu Jan  1 00:00:05 2026",
        "Thu Jan 1 00:00:05 2026",
        "Thu Jan 01 00:00:05 2026",
        "Thu, 01 Jan 2026 00:00:05",
        "Thursday, 01-Jan-26 00:00:05",
        "Thu, 1 Jan 2026 00:00:05 GMT",
        "Thu,  01 Jan 2026  00:00:05  GMT",
        "Thu,01 Jan 2026 00:00:05 GMT",
        "Thu 01 Jan 2026 00:00:05 GMT",
        "01 Jan 2026 00:00:05 GMT",
        "Mon, 01 Jan 2026 00:00:05 GMT",
        "Thu, 01-Jan-2026 00:00:05 GMT",
        "thu, 01 jan 2026 00:00:05 gmt",
        " Thu, 01 Jan 2026 00:00:05 GMT ",
        "Thu, 01 Jan 2026 00:00:05 UTC",
        "Thu, 01 Jan 2026 00:00:05 Z",
        "Thu, 01 Jan 2026 00:00:05 +0000",
        "Thu, 01 Jan 2026 02:00:05 +0200",
        "Wed, 31 Dec 2025 19:00:05 -0500",
        "Wed, 31 Dec 2025 19:00:05 EST",
        "Thu Jan  1 00:00:05 2026 GMT",
    ],
)
def test_retry_after_is_a_date_in_any_of_the_three_forms_and_gmt_without_a_zone(value: str) -> None:
    assert asked_s(value) == 5.0


def test_a_leap_second_is_as_good_as_the_second_before() -> None:
    assert asked_s("Thu, 01 Jan 2026 00:00:60 GMT") == 59.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        # In 2026, 76 is at most 50 years ahead, 77 is not.
        ("Wednesday, 01-Jan-76 00:00:00 GMT", 1_577_836_800.0),
        ("Saturday, 01-Jan-77 00:00:00 GMT", 0.0),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 0.0),
        ("Friday, 01-Jan-27 00:00:00 GMT", 31_536_000.0),
    ],
)
def test_a_year_of_two_digits_is_at_most_fifty_years_ahead(value: str, seconds: float) -> None:
    assert asked_s(value) == seconds


def test_a_date_as_late_as_there_is_one_is_a_very_long_wait() -> None:
    assert asked_s("Fri, 31 Dec 9999 23:59:59 GMT") == 1e10
    assert asked_s("Fri, 31 Dec 9999 23:59:59 -1200") == 1e10


@pytest.mark.parametrize(
    "date", ["Thu, 01 Jan 2026 00:00:00 GMT", "Thursday, 01-Jan-26 00:00:00 GMT", "Thu Jan  1 00:00:00 2026"]
)
def test_a_date_is_relative_to_the_replys_own_date(date: str) -> None:
    an_hour_fast = NEW_YEAR + 3_600

    assert asked_s("Thu, 01 Jan 2026 00:01:30 GMT", date=date, now=an_hour_fast) == 90.0


def test_a_date_is_relative_to_the_replys_own_date_however_far_off_that_is() -> None:
    assert asked_s("Thu, 01 Jan 1970 00:01:30 GMT", date="Thu, 01 Jan 1970 00:00:00 GMT") == 90.0
    assert asked_s("Fri, 31 Dec 9999 23:59:59 GMT", date="Fri, 31 Dec 9999 23:59:50 GMT") == 9.0


def test_the_replys_date_may_stand_before_or_after_the_retry_after() -> None:
    until = ("retry-after", "Thu, 01 Jan 2026 00:01:30 GMT")
    date = ("DATE", "Thu, 01 Jan 2026 00:01:00 GMT")

    assert stalled_s(until, date) == 30.0
    assert stalled_s(date, until) == 30.0


@pytest.mark.parametrize("date", ["", "yesterday", "Thu, 99 Jan 2026 00:00:00 GMT", "7", "x" * 5_000])
def test_a_broken_date_field_is_as_good_as_none(date: str) -> None:
    assert asked_s("Thu, 01 Jan 2026 00:01:30 GMT", date=date) == 90.0


def test_of_two_dates_of_the_reply_the_earlier_counts() -> None:
    until = ("Retry-After", "Thu, 01 Jan 2026 00:01:30 GMT")
    earlier, later = "Thu, 01 Jan 2026 00:00:10 GMT", "Thu, 01 Jan 2026 00:01:00 GMT"

    assert stalled_s(until, ("Date", earlier), ("Date", later)) == 80.0
    assert stalled_s(until, ("Date", later), ("Date", earlier)) == 80.0
    assert stalled_s(until, ("Date", f"{later}, {earlier}")) == 80.0
    assert stalled_s(until, ("Date", "soon"), ("Date", later)) == 30.0


def test_seconds_do_not_depend_on_the_replys_date() -> None:
    assert asked_s("7", date="Thu, 01 Jan 1998 00:00:00 GMT") == 7.0


@pytest.mark.parametrize(
    "value", ["Wed, 31 Dec 2025 23:59:59 GMT", "Sun Nov  6 08:49:37 1994", "Thu, 01 Jan 2026 00:00:00 GMT"]
)
def test_a_date_in_the_past_adds_nothing(value: str) -> None:
    assert asked_s(value) == 0.0


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "-1",
        "+5",
        "7.",
        ".5",
        "1.2.3",
        '"7"',
        "nan",
        "NaN",
        "inf",
        "-inf",
        "Infinity",
        "1e999",
        "1e3",
        "1m0s",
        "60s",
        "60 s",
        "60;a=b",
        "soon",
        "0x10",
        "1_000",
        "1 000",
        "\xa07",
        "\x1f7",
        "7\n",
        "\u0663\u0660",
        "\uff13\uff10",
        "\u00b2",
        "Thu, 32 Jan 2026 00:00:05 GMT",
        "Mon, 30 Feb 2026 00:00:05 GMT",
        "Thu, 01 Foo 2026 00:00:05 GMT",
        "Thu, 01 Jan 2026 25:00:05 GMT",
        "Thu, 01 Jan 2026 00:60:05 GMT",
        "Thu, 01 Jan 2026 00:00:61 GMT",
        "Thu, 01 Jan 2026 0:0:5 GMT",
        "Thu, 01 Jan 2026 00:05 GMT",
        "Thu, 01 Jan 2026 GMT",
        "Thu, 01 Jan 2026 00:00:05 CEST",
        "Thu, 01 Jan 2026 00:00:05 Europe/Berlin",
        "Thu, 01 Jan 2026 00:00:05 GMT GMT",
        "Thu, 01 Jan 2026 00:00:05 +2",
        "Thu, 01 Jan 2026 00:00:05 +9999",
        "Thu, 01 Jan 2026 00:00:05 +02:00",
        "Thu, -1 Jan 2026 00:00:05 GMT",
        "Thu, 01 Jan 0000 00:00:05 GMT",
        "Thu, 01 Jan 99999 00:00:05 GMT",
        "Thu, 01 Jan 202 00:00:05 GMT",
        "Thu, \u0660\u0661 Jan 2026 00:00:05 GMT",
        "Thu, 01 \u017fan 2026 00:00:05 GMT",
        "2026-01-01T00:00:05Z",
        "2026-01-01 00:00:05",
        "00:00:05",
        "::",
        "\x00:\x00",
        "7" * 5_000,
    ],
)
def test_a_retry_after_that_makes_no_sense_is_ignored(value: str) -> None:
    assert asked_s(value) is None


@pytest.mark.parametrize("joined", [False, True])
def test_of_two_fields_the_longer_valid_one_counts(joined: bool) -> None:
    def asked(*values: str) -> float | None:
        return asked_s(", ".join(values)) if joined else asked_s(*values)

    assert asked("5", "10") == 10.0
    assert asked("10", "5") == 10.0
    assert asked("soon", "5") == 5.0
    assert asked("5", "inf") == 5.0
    assert asked("", "5") == 5.0
    assert asked("5", "Thu, 01 Jan 2026 00:00:20 GMT") == 20.0
    assert asked("Thu, 01 Jan 2026 00:00:20 GMT", "5") == 20.0
    assert asked("30", "Thu, 01 Jan 2026 00:00:20 GMT") == 30.0
    assert asked("Thu, 01 Jan 2026 00:00:20 GMT", "Thu, 01 Jan 2026 00:00:40 GMT") == 40.0
    assert asked("Thursday, 01-Jan-26 00:00:20 GMT", "Thu Jan  1 00:00:40 2026") == 40.0
    assert asked("-1", "inf") is None


def test_two_fields_may_be_joined_without_a_space() -> None:
    assert asked_s("5,10") == 10.0


def test_a_reply_without_the_field_asks_for_nothing() -> None:
    assert asked_s() is None
    assert stalled_s(DATE) is None
    assert rate_limits.asked_s(Reply(429), now=NEW_YEAR) is None


def test_a_page_is_not_asked_for_its_retry_after() -> None:
    assert served_s(("Retry-After", "7")) is None
    assert served_s(("Retry-After", "7"), ("RateLimit", '"default";r=0;t=30')) == 30.0


# RateLimit and RateLimit-Policy


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ('"default";r=0;t=30', 30.0),
        ('"default"; r=0; t=30', 30.0),
        ('"default";t=30;r=0', 30.0),
        ('"default";r=0;t=30;pk=:cGFydGl0aW9u:;x=?1', 30.0),
        ("default;r=0;t=30", 30.0),
        ('"default";r=0;t=0', 0.0),
        ('"default";r=0;t=2.5', 2.5),
        ('"default";r=0.0;t=3', 3.0),
        ('"default";r=0;t=999999999999999', 1e10),
        ('"default";r=50;t=30', None),
        ('"minute";r=0;t=30, "day";r=0;t=3000', 3000.0),
        ('"day";r=0;t=3000 , "minute";r=0;t=30', 3000.0),
        ('"minute";r=0;t=30, "day";r=500;t=3000', 30.0),
        ('"minute";r=7;t=30, "day";r=500;t=3000', None),
        ("limit=10, remaining=0, reset=30", 30.0),
        ("limit=10,remaining=0,reset=30", 30.0),
        ("reset=30, remaining=0", 30.0),
        ("limit=10, remaining=0, reset=30;x=1, other=?0", 30.0),
        ("limit=10, remaining=3, reset=30", None),
        ("limit=10, remaining=0", None),
        ('"default";r=0', None),
        ('"default";r=0;t=-1', None),
        ('"default";r=0;t="30"', None),
        ('"default";r=0;t', None),
        ('"default";r=0;t=?1', None),
    ],
)
def test_a_quota_of_nothing_ends_when_the_rate_limit_says(value: str, seconds: float | None) -> None:
    assert served_s(("RateLimit", value)) == seconds
    assert stalled_s(("ratelimit", value), status=429) == seconds
    assert stalled_s(("RATELIMIT", value), status=503) == seconds


@pytest.mark.parametrize(
    "value",
    [
        "",
        "0",
        "soon",
        '"default"',
        '"default";r=0;t=30,',
        '"default";r=0;t=30;',
        ',"default";r=0;t=30',
        '"default";r=0;t=30 "other"',
        '"default;r=0;t=30',
        "'default';r=0;t=30",
        '"default";R=0;T=30',
        '"default";r=00000000000000000;t=30',
        '"default";r=0;t=1e3',
        '"default";r=0;t=+30',
        '"default";r=0;t=30s',
        '"d\u00e9fault";r=0;t=30',
        '"default";r=?0;t=30',
        '"default";r=-1;t=30',
        '"default";r="0";t=30',
        "limit=10, remaining=0, reset=30,",
        "limit=10; remaining=0; reset=30",
        "limit = 10, remaining = 0, reset = 30",
        "Limit=10, Remaining=0, Reset=30",
        "limit=10, remaining=?0, reset=30",
        "limit=10, remaining=-1, reset=30",
        "limit=10, remaining=(0), reset=30",
        '"default";r=0;t=30, limit=10',
        "\udcff",
        '"\udcff";r=0;t=30',
        '"default";r=0;t=30' + " " * 5_000,
    ],
)
def test_a_rate_limit_that_says_nothing_valid_is_ignored(value: str) -> None:
    assert served_s(("RateLimit", value)) is None
    assert stalled_s(("RateLimit", value), status=503) is None


def test_the_lines_of_a_rate_limit_are_one_list() -> None:
    assert served_s(("RateLimit", '"minute";r=0;t=30'), ("RateLimit", '"day";r=0;t=3000')) == 3000.0
    assert served_s(("RateLimit", "limit=10, remaining=0"), ("RateLimit", "reset=30")) == 30.0
    assert served_s(("RateLimit", '"minute";r=0;t=30'), ("RateLimit", "garbage;")) is None


def test_a_quota_without_a_time_ends_with_the_window_of_its_policy() -> None:
    policy = ("RateLimit-Policy", '"burst";q=100;w=60, "daily";q=1000;w=86400')

    assert served_s(("RateLimit", '"burst";r=0'), policy) == 60.0
    assert served_s(("RateLimit", "burst;r=0"), policy) == 60.0
    assert served_s(("RateLimit", '"burst";r=0, "daily";r=5'), policy) == 60.0
    assert served_s(("RateLimit", '"burst";r=0;t=7'), policy) == 7.0
    assert served_s(("RateLimit", '"hourly";r=0'), policy) is None
    assert served_s(("RateLimit", '"burst";r=5'), policy) is None
    assert stalled_s(("RateLimit", '"burst"'), policy) is None
    assert served_s(policy) is None
    assert stalled_s(policy) is None


@pytest.mark.parametrize("policy", ["", '"burst";q=100', '"burst";w=-60', '"burst";w="60"', '"burst";w=60,', "soon"])
def test_a_policy_that_says_no_window_adds_nothing(policy: str) -> None:
    assert served_s(("RateLimit", '"burst";r=0'), ("RateLimit-Policy", policy)) is None
    assert served_s(("RateLimit", '"burst";r=0;t=7'), ("RateLimit-Policy", policy)) == 7.0


# A field for each value

PREFIXES = pytest.mark.parametrize("prefix", ["RateLimit", "X-RateLimit", "X-Rate-Limit", "x-ratelimit"])


@PREFIXES
def test_a_quota_of_nothing_ends_at_its_reset(prefix: str) -> None:
    fields = (f"{prefix}-Limit", "100"), (f"{prefix}-Remaining", "0"), (f"{prefix}-Reset", "30")

    assert served_s(*fields) == 30.0
    assert stalled_s(*fields, status=429) == 30.0
    assert stalled_s(*fields, status=503) == 30.0


@PREFIXES
def test_a_quota_that_has_something_left_is_not_what_stopped_us(prefix: str) -> None:
    fields = (f"{prefix}-Remaining", "1"), (f"{prefix}-Reset", "30")

    assert served_s(*fields) is None
    assert stalled_s(*fields, status=429) is None
    assert stalled_s(*fields, status=503) is None


@PREFIXES
def test_a_reset_alone_speaks_only_on_a_429(prefix: str) -> None:
    reset = (f"{prefix}-Reset", "30")

    assert stalled_s(reset, status=429) == 30.0
    assert stalled_s(reset, status=503) is None
    assert stalled_s(reset, status=403) is None
    assert served_s(reset) is None


def test_a_rate_limit_without_a_remaining_quota_speaks_only_on_a_429() -> None:
    assert stalled_s(("RateLimit", '"default";t=30')) == 30.0
    assert stalled_s(("RateLimit", "limit=10, reset=30")) == 30.0
    assert stalled_s(("RateLimit", '"default";t=30'), status=503) is None
    assert served_s(("RateLimit", '"default";t=30')) is None


def test_a_remaining_quota_alone_says_nothing() -> None:
    assert served_s(("X-RateLimit-Remaining", "0")) is None
    assert stalled_s(("X-RateLimit-Remaining", "0")) is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("30", 30.0),
        ("1.25", 1.25),
        ("0", 0.0),
        ("999999999", 999_999_999.0),
        ("1767225630", 30.0),
        ("1767225630.25", 30.25),
        ("1767225630250", 30.25),
        ("1767225630250000", 30.25),
        ("1767225630250000000", 30.25),
        ("1767225599", 0.0),
        ("1000000000", 0.0),
        ("100000000000", 0.0),
        ("99999999999999", 1e10),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("99999999999", 1e10),
        ("Thu, 01 Jan 2026 00:00:30 GMT", 30.0),
        ("Thursday, 01-Jan-26 00:00:30 GMT", 30.0),
        ("2026-01-01T00:00:30Z", 30.0),
        ("2026-01-01T00:00:30", 30.0),
        ("2026-01-01T00:00:30.2500000Z", 30.25),
        ("2026-01-01T02:00:30.25+02:00", 30.25),
        ("9999-12-31T23:59:59-12:00", 1e10),
        ("1" + "0" * 20, None),
        ("9" * 400, None),
        ("-1", None),
        ("+30", None),
        ("30s", None),
        ("1m30s", None),
        ("1e3", None),
        ("nan", None),
        ("inf", None),
        ("", None),
        ("soon", None),
        ("\u0663\u0660", None),
        ("2026-13-01T00:00:30Z", None),
        ("2026-01-01T00:00:30+99:00", None),
        ("\u0662026-01-01T00:00:30Z", None),
        ("T", None),
    ],
)
def test_a_reset_is_a_wait_or_a_moment_told_apart_by_its_size(value: str, seconds: float | None) -> None:
    assert served_s(("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", value)) == (
        seconds if seconds is None else pytest.approx(seconds, abs=1e-3)
    )


@pytest.mark.parametrize(
    "reset", ["1767225630", "1767225630000", "Thu, 01 Jan 2026 00:00:30 GMT", "2026-01-01T00:00:30Z"]
)
def test_a_moment_is_relative_to_the_replys_own_date(reset: str) -> None:
    fields = ("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", reset)
    an_hour_slow = NEW_YEAR - 3_600

    assert served_s(*fields, DATE, now=an_hour_slow) == 30.0
    assert served_s(*fields, now=an_hour_slow) == 3_630.0


def test_a_wait_does_not_depend_on_the_replys_date() -> None:
    fields = ("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", "30")

    assert served_s(*fields, DATE, now=NEW_YEAR - 3_600) == 30.0


@pytest.mark.parametrize("value", ["1.5", " 1.500 "])
def test_reset_after_is_seconds_and_counts_before_reset(value: str) -> None:
    remaining, after = ("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset-After", value)

    assert served_s(remaining, after) == 1.5
    assert served_s(remaining, ("X-RateLimit-Reset", "1767225630"), after) == 1.5
    assert stalled_s(after) == 1.5
    assert stalled_s(after, status=503) is None


def test_a_reset_after_that_makes_no_sense_leaves_the_reset() -> None:
    remaining, reset = ("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", "30")

    assert served_s(remaining, reset, ("X-RateLimit-Reset-After", "soon")) == 30.0


@pytest.mark.parametrize("remaining", ["", "-1", "none", "0x0", "+0", "nan", "\u0660", "0;w=60"])
def test_a_remaining_quota_that_makes_no_sense_is_as_good_as_none(remaining: str) -> None:
    fields = ("X-RateLimit-Remaining", remaining), ("X-RateLimit-Reset", "30")

    assert stalled_s(*fields, status=429) == 30.0
    assert stalled_s(*fields, status=503) is None
    assert served_s(*fields) is None


@pytest.mark.parametrize(("remaining", "seconds"), [("0.0", 30.0), ("00", 30.0), ("0.5", None)])
def test_a_remaining_quota_may_be_a_decimal(remaining: str, seconds: float | None) -> None:
    assert served_s(("X-RateLimit-Remaining", remaining), ("X-RateLimit-Reset", "30")) == seconds


def test_two_gateways_are_told_apart_by_their_order() -> None:
    lines = (
        ("X-RateLimit-Remaining", "0"),
        ("X-RateLimit-Reset", "5"),
        ("X-RateLimit-Remaining", "70"),
        ("X-RateLimit-Reset", "3600"),
    )

    assert served_s(*lines) == 5.0
    assert served_s(("X-RateLimit-Remaining", "70, 0"), ("X-RateLimit-Reset", "3600, 5")) == 5.0
    assert served_s(("X-RateLimit-Remaining", "0, 0"), ("X-RateLimit-Reset", "3600, 5")) == 3_600.0
    assert served_s(("X-RateLimit-Remaining", "70, 7"), ("X-RateLimit-Reset", "3600, 5")) is None


def test_where_gateways_cannot_be_told_apart_the_worse_counts() -> None:
    assert served_s(("X-RateLimit-Remaining", "70, 0"), ("X-RateLimit-Reset", "5")) == 5.0
    assert served_s(("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", "5, 9")) == 9.0


# Several dialects at once


def test_retry_after_counts_before_every_quota() -> None:
    quotas = ("RateLimit", '"default";r=0;t=30'), ("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", "60")

    assert stalled_s(("Retry-After", "7"), *quotas) == 7.0
    assert stalled_s(*quotas, ("Retry-After", "0")) == 0.0
    assert stalled_s(*quotas, ("Retry-After", "Wed, 31 Dec 2025 23:59:59 GMT")) == 0.0
    assert stalled_s(*quotas, ("Retry-After", "soon")) == 60.0


def test_of_quotas_in_several_dialects_the_longest_that_is_used_up_counts() -> None:
    listed, separate = ("RateLimit", '"default";r=0;t=30'), ("X-RateLimit-Reset", "60")

    assert served_s(listed, ("X-RateLimit-Remaining", "0"), separate) == 60.0
    assert served_s(listed, ("X-RateLimit-Remaining", "9"), separate) == 30.0
    assert served_s(("RateLimit", "garbage;"), ("X-RateLimit-Remaining", "0"), separate) == 60.0
    assert served_s(("RateLimit-Remaining", "0"), ("X-RateLimit-Remaining", "9"), separate) is None


def test_on_a_429_a_quota_with_something_left_in_any_dialect_leaves_the_ladder() -> None:
    assert stalled_s(("RateLimit", '"default";r=9;t=30'), ("X-RateLimit-Reset", "60")) is None
    assert stalled_s(("RateLimit", "garbage;"), ("X-RateLimit-Reset", "60")) == 60.0
    assert stalled_s(("X-RateLimit-Reset", "60"), ("X-Rate-Limit-Reset", "90")) == 90.0


# Whatever origins send

_DATES = st.from_regex(
    r"([A-Z][a-z]{2}, )?\d{1,2}[ -][A-Z][a-z]{2}[ -]\d{2,5} \d{2}:\d{2}:\d{2}( GMT| [+-]\d{4}| [A-Z]{1,4})?",
    fullmatch=True,
)
_NUMBERS = st.from_regex(r"[+-]?[0-9]{0,25}(\.[0-9]{0,5})?(e[0-9]{1,4})?", fullmatch=True)
_STRUCTURED = st.from_regex(r'(("?[a-z]{1,3}"?)(;[rtw]=-?[0-9.]{0,17}){0,3}(, |,)?){0,3}', fullmatch=True)
_VALUES = st.one_of(st.text(max_size=40), _DATES, _NUMBERS, _STRUCTURED, st.text('0123456789.;=rt",()?: ', max_size=40))
_NAMES = st.sampled_from(
    (
        *("Retry-After", "Date", "RateLimit", "RateLimit-Policy"),
        *(f"{p}-{w}" for p in ("RateLimit", "X-RateLimit") for w in ("Remaining", "Reset", "Reset-After")),
    )
)


@FIXED
@given(
    fields=st.lists(st.tuples(_NAMES, _VALUES), max_size=8),
    status=st.sampled_from([200, 429, 503]),
    now=st.floats(0, 4e9),
)
def test_no_fields_raise_or_ask_for_less_than_nothing(fields: list[Field], status: int, now: float) -> None:
    for seconds in (stalled_s(*fields, status=status, now=now), served_s(*fields, status=status, now=now)):
        assert seconds is None or 0.0 <= seconds <= 1e10


@FIXED
@given(
    asked_ms=st.tuples(st.integers(0, 10**12 - 1), st.integers(0, 10**12 - 1)),
    name=st.sampled_from(["Retry-After", "X-RateLimit-Reset", "X-RateLimit-Reset-After"]),
    others=st.lists(st.tuples(_NAMES, _VALUES), max_size=3),
)
def test_a_longer_wait_asked_for_is_never_a_shorter_one(
    asked_ms: tuple[int, int], name: str, others: list[Field]
) -> None:
    shorter, longer = (stalled_s((name, f"{asked // 1000}.{asked % 1000:03}"), *others) for asked in sorted(asked_ms))

    assert shorter is None or (longer is not None and shorter <= longer)


@FIXED
@given(
    until=st.tuples(st.integers(0, 4_000_000_000), st.integers(0, 4_000_000_000)),
    date=st.none() | st.integers(0, 4_000_000_000),
    now=st.integers(0, 4_000_000_000),
)
def test_a_later_date_asked_for_is_never_a_shorter_wait(until: tuple[int, int], date: int | None, now: int) -> None:
    sent_at = now if date is None else date
    fields = [] if date is None else [("Date", formatdate(date, usegmt=True))]
    waits = [stalled_s(("Retry-After", formatdate(at, usegmt=True)), *fields, now=now) for at in sorted(until)]

    assert waits == [max(0, at - sent_at) for at in sorted(until)]
