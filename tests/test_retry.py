"""What a reply means: sections 1, 4, 5 and 6 of the contract, row by row."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy_addon import retry
from proxy_addon.model import ErrorName, Outcome, Reply
from proxy_addon.retry import Classified
from proxy_addon.settings import Settings
from tests.support.examples import FIXED

STALLS = frozenset(
    {
        "http_response_timeout",
        "connection_timeout",
        "5xx",
        "429",
        "connection_terminated",
        "http_response_incomplete",
        "dns_timeout",
    }
)
"""The setting `stalls` as it is by default."""

SERVED = Classified(Outcome.SERVED)

NEW_YEAR = 1_767_225_600.0
"""Thu, 01 Jan 2026 00:00:00 GMT"""


def classify_status(status: int, *, keyed: bool = False, stalls: frozenset[str] = STALLS) -> Classified:
    return retry.classify(Reply(status=status), keyed=keyed, stalls=stalls)


def classify_error(error: ErrorName, *, charged: bool = True, stalls: frozenset[str] = STALLS) -> Classified:
    return retry.classify(Reply(error=error, charged=charged), keyed=False, stalls=stalls)


def a_stall(error: ErrorName) -> Classified:
    return Classified(Outcome.STALL, error, climbs=True)


# Section 1: outcomes


def test_the_setting_has_the_stalls_of_the_contract_by_default() -> None:
    assert frozenset(Settings().stalls) == STALLS


@pytest.mark.parametrize(
    "status",
    [101, 200, 204, 206, 299, 301, 302, 304, 400, 401, 403, 404, 407, 408, 409, 410, 425, 428, 431, 451],
)
def test_any_other_final_status_is_served(status: int) -> None:
    assert classify_status(status) == SERVED


@pytest.mark.parametrize("status", [500, 502, 503, 504, 506, 507, 509, 510, 520, 522, 529, 530, 598, 599])
def test_a_status_that_speaks_of_load_is_a_stall(status: int) -> None:
    assert classify_status(status) == a_stall(ErrorName.HTTP_STATUS_5XX)


@pytest.mark.parametrize("status", [501, 505, 508, 511])
def test_a_status_that_speaks_of_the_request_is_served(status: int) -> None:
    assert classify_status(status) == SERVED


@pytest.mark.parametrize("status", [600, 999])
def test_a_status_outside_of_http_is_served(status: int) -> None:
    assert classify_status(status) == SERVED


def test_a_429_is_a_stall_of_its_own_kind() -> None:
    assert classify_status(429) == a_stall(ErrorName.RATE_LIMITED)


def test_a_409_to_a_keyed_request_is_a_stall_that_does_not_climb() -> None:
    assert classify_status(409, keyed=True) == Classified(Outcome.STALL, ErrorName.IN_PROGRESS, climbs=False)


@pytest.mark.parametrize("status", [200, 400, 404, 410])
def test_any_other_status_means_the_same_to_a_keyed_request(status: int) -> None:
    assert classify_status(status, keyed=True) == SERVED


@pytest.mark.parametrize(
    "error",
    [
        ErrorName.HTTP_RESPONSE_TIMEOUT,
        ErrorName.CONNECTION_TIMEOUT,
        ErrorName.CONNECTION_TERMINATED,
        ErrorName.HTTP_RESPONSE_INCOMPLETE,
        ErrorName.HTTP_REQUEST_TIMEOUT,
    ],
)
def test_silence_and_broken_connections_are_stalls(error: ErrorName) -> None:
    assert classify_error(error) == a_stall(error)


def test_a_lookup_that_failed_for_the_moment_is_a_stall_that_does_not_climb() -> None:
    assert classify_error(ErrorName.DNS_TIMEOUT) == Classified(Outcome.STALL, ErrorName.DNS_TIMEOUT, climbs=False)


@pytest.mark.parametrize(
    "error",
    [
        ErrorName.CONNECTION_REFUSED,
        ErrorName.DNS_ERROR,
        ErrorName.TLS_CERTIFICATE_ERROR,
        ErrorName.TLS_ALERT_RECEIVED,
        ErrorName.TLS_PROTOCOL_ERROR,
        ErrorName.HTTP_PROTOCOL_ERROR,
        ErrorName.PROXY_LOOP_DETECTED,
        ErrorName.DESTINATION_IP_PROHIBITED,
        ErrorName.DESTINATION_IP_UNROUTABLE,
        ErrorName.PROXY_INTERNAL_ERROR,
    ],
)
def test_what_waiting_does_not_mend_is_a_failure(error: ErrorName) -> None:
    assert classify_error(error) == Classified(Outcome.FAILURE, error, climbs=False)


@pytest.mark.parametrize(
    "error", [ErrorName.PROXY_INTERNAL_RESPONSE, ErrorName.CONNECTION_REFUSED, ErrorName.CONNECTION_TIMEOUT]
)
def test_the_fault_of_a_parent_proxy_is_a_failure(error: ErrorName) -> None:
    assert classify_error(error, charged=False) == Classified(Outcome.FAILURE, error, climbs=False)


def test_a_refused_connection_is_a_stall_where_the_setting_names_it() -> None:
    stalls = STALLS | {"connection_refused"}

    assert classify_error(ErrorName.CONNECTION_REFUSED, stalls=stalls) == a_stall(ErrorName.CONNECTION_REFUSED)


@pytest.mark.parametrize("status", [403, 404, 401, 420, 501, 508])
def test_a_further_status_is_a_stall_where_the_setting_names_it(status: int) -> None:
    stalls = STALLS | {str(status)}

    assert classify_status(status, stalls=stalls) == a_stall(ErrorName.HTTP_STATUS)
    assert classify_status(status, stalls=STALLS) == SERVED


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_status_taken_out_of_the_setting_is_served(status: int) -> None:
    assert classify_status(status, stalls=STALLS - {"429", "5xx"}) == SERVED


def test_the_two_rows_of_status_are_taken_out_one_by_one() -> None:
    assert classify_status(429, stalls=STALLS - {"5xx"}) == a_stall(ErrorName.RATE_LIMITED)
    assert classify_status(503, stalls=STALLS - {"429"}) == a_stall(ErrorName.HTTP_STATUS_5XX)


@pytest.mark.parametrize(
    "error",
    [
        ErrorName.HTTP_RESPONSE_TIMEOUT,
        ErrorName.CONNECTION_TIMEOUT,
        ErrorName.CONNECTION_TERMINATED,
        ErrorName.HTTP_RESPONSE_INCOMPLETE,
        ErrorName.DNS_TIMEOUT,
    ],
)
def test_an_error_taken_out_of_the_setting_is_a_failure(error: ErrorName) -> None:
    stalls = STALLS - {error.value}

    assert classify_error(error, stalls=stalls) == Classified(Outcome.FAILURE, error, climbs=False)


@FIXED
@given(
    status=st.none() | st.integers(100, 999),
    error=st.sampled_from(ErrorName),
    keyed=st.booleans(),
    charged=st.booleans(),
    stalls=st.frozensets(st.sampled_from(sorted(STALLS))),
)
def test_every_reply_has_an_outcome_and_only_a_stall_climbs(
    status: int | None, error: ErrorName, keyed: bool, charged: bool, stalls: frozenset[str]
) -> None:
    reply = Reply(status=status, error=None if status else error, charged=charged)

    classified = retry.classify(reply, keyed=keyed, stalls=stalls)

    assert classified.outcome in {Outcome.SERVED, Outcome.STALL, Outcome.FAILURE}
    assert (classified.error is None) == (classified.outcome is Outcome.SERVED)
    assert classified.outcome is Outcome.STALL or not classified.climbs


# Section 4: may it be sent again


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "error",
    [ErrorName.HTTP_RESPONSE_TIMEOUT, ErrorName.HTTP_STATUS_5XX, ErrorName.CONNECTION_TERMINATED, None],
)
def test_an_idempotent_method_is_sent_again_after_any_stall(method: str, error: ErrorName | None) -> None:
    assert retry.may_send_again(method, keyed=False, held=True, error=error)


@pytest.mark.parametrize("method", ["POST", "PATCH", "CONNECT", "LOCK", "PROPFIND", "BREW", ""])
@pytest.mark.parametrize(
    "error",
    [
        ErrorName.HTTP_RESPONSE_TIMEOUT,
        ErrorName.HTTP_STATUS_5XX,
        ErrorName.RATE_LIMITED,
        ErrorName.CONNECTION_TERMINATED,
        ErrorName.HTTP_RESPONSE_INCOMPLETE,
        ErrorName.HTTP_REQUEST_TIMEOUT,
        None,
    ],
)
def test_any_other_method_is_not_sent_again_once_it_may_have_arrived(method: str, error: ErrorName | None) -> None:
    assert not retry.may_send_again(method, keyed=False, held=True, error=error)


@pytest.mark.parametrize("method", ["POST", "PATCH"])
@pytest.mark.parametrize("error", [ErrorName.CONNECTION_TIMEOUT, ErrorName.DNS_TIMEOUT])
def test_any_method_is_sent_again_when_nothing_can_have_arrived(method: str, error: ErrorName) -> None:
    assert retry.may_send_again(method, keyed=False, held=True, error=error)


@pytest.mark.parametrize("error", [ErrorName.HTTP_STATUS_5XX, ErrorName.IN_PROGRESS, None])
def test_a_key_makes_any_method_fit_to_be_sent_again(error: ErrorName | None) -> None:
    assert retry.may_send_again("POST", keyed=True, held=True, error=error)


@pytest.mark.parametrize("method", ["GET", "PUT", "POST"])
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("error", [ErrorName.CONNECTION_TIMEOUT, ErrorName.HTTP_STATUS_5XX, None])
def test_a_body_that_is_not_held_is_never_sent_again(method: str, keyed: bool, error: ErrorName | None) -> None:
    assert not retry.may_send_again(method, keyed=keyed, held=False, error=error)


# Section 4: a page's own fault


@pytest.mark.parametrize(
    ("status", "stalls", "due"),
    [
        (500, 3, False),
        (500, 4, True),
        (500, 5, True),
        (503, 4, False),
        (503, 5, False),
        (503, 6, True),
        (None, 5, False),
        (None, 6, True),
        (429, 6, False),
        (429, 1_000, False),
    ],
)
def test_a_page_at_fault_is_answered_at_its_fourth_500_or_sixth_stall_but_never_for_429(
    status: int | None, stalls: int, due: bool
) -> None:
    assert retry.fault_reply_due(stalls=stalls, status=status, settings=Settings()) is due


@pytest.mark.parametrize("status", [500, 503, None])
def test_a_page_is_never_answered_early_where_that_is_switched_off(status: int | None) -> None:
    assert not retry.fault_reply_due(stalls=1_000, status=status, settings=Settings(page_fault_after=0))


# Section 5: Retry-After


def asked_s(*values: str, date: str | None = None, now: float = NEW_YEAR) -> float | None:
    fields = [("Server", "x"), *(("Retry-After", value) for value in values)]
    if date is not None:
        fields.append(("Date", date))
    return retry.retry_after_s(fields, now=now)


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
        "Thu, 01 Jan 2026 00:00:05",
        "thu, 01 jan 2026 00:00:05 gmt",
        " Thu, 01 Jan 2026 00:00:05 GMT ",
    ],
)
def test_retry_after_is_a_date_in_any_of_the_three_forms_and_gmt_without_a_zone(value: str) -> None:
    assert asked_s(value) == 5.0


@pytest.mark.parametrize(
    "date", ["Thu, 01 Jan 2026 00:00:00 GMT", "Thursday, 01-Jan-26 00:00:00 GMT", "Thu Jan  1 00:00:00 2026"]
)
def test_a_date_is_relative_to_the_replys_own_date(date: str) -> None:
    an_hour_fast = NEW_YEAR + 3_600

    assert asked_s("Thu, 01 Jan 2026 00:01:30 GMT", date=date, now=an_hour_fast) == 90.0


def test_the_replys_date_may_stand_before_or_after_the_retry_after() -> None:
    until = ("retry-after", "Thu, 01 Jan 2026 00:01:30 GMT")
    date = ("DATE", "Thu, 01 Jan 2026 00:01:00 GMT")

    assert retry.retry_after_s([until, date], now=NEW_YEAR) == 30.0
    assert retry.retry_after_s([date, until], now=NEW_YEAR) == 30.0
    assert retry.retry_after_s(iter([date, until]), now=NEW_YEAR) == 30.0


@pytest.mark.parametrize("date", ["", "yesterday", "Thu, 99 Jan 2026 00:00:00 GMT"])
def test_a_broken_date_field_is_as_good_as_none(date: str) -> None:
    assert asked_s("Thu, 01 Jan 2026 00:01:30 GMT", date=date) == 90.0


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
        "nan",
        "NaN",
        "inf",
        "-inf",
        "Infinity",
        "1e999",
        "1e3",
        "1m0s",
        "60s",
        "soon",
        "0x10",
        "1_000",
        "1,5",
        "5, 10",
        "\u0663\u0660",
        "\uff13\uff10",
        "\u00b2",
        "Thu, 32 Jan 2026 00:00:05 GMT",
        "Thu, 01 Foo 2026 00:00:05 GMT",
        "Thu, 01 Jan 2026 25:00:05 GMT",
        "Thu, 01 Jan 99999 00:00:05 GMT",
        "Thu, \u0660\u0661 Jan 2026 00:00:05 GMT",
        "2026-01-01T00:00:05Z",
        "2026-01-01 00:00:05",
        "00:00:05",
        "::",
        "\x00:\x00",
    ],
)
def test_a_retry_after_that_makes_no_sense_is_ignored(value: str) -> None:
    assert asked_s(value) is None


def test_of_two_fields_the_longer_valid_one_counts() -> None:
    assert asked_s("5", "10") == 10.0
    assert asked_s("10", "5") == 10.0
    assert asked_s("soon", "5") == 5.0
    assert asked_s("5", "inf") == 5.0
    assert asked_s("5", "Thu, 01 Jan 2026 00:00:20 GMT") == 20.0
    assert asked_s("30", "Thu, 01 Jan 2026 00:00:20 GMT") == 30.0
    assert asked_s("Thu, 01 Jan 2026 00:00:20 GMT", "Thu, 01 Jan 2026 00:00:40 GMT") == 40.0


def test_a_reply_without_the_field_asks_for_nothing() -> None:
    assert asked_s() is None
    assert asked_s(date="Thu, 01 Jan 2026 00:00:00 GMT") is None
    assert retry.retry_after_s([], now=NEW_YEAR) is None


@FIXED
@given(
    value=st.one_of(
        st.text(max_size=60),
        st.text(alphabet="0123456789.-+eE:, GMTJanFebThu", max_size=40),
        st.from_regex(
            r"[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4,6} \d{2}:\d{2}:\d{2}( GMT| [+-]\d{4})?", fullmatch=True
        ),
    ),
    date=st.none() | st.text(alphabet="0123456789:, GMTJanFebThu", max_size=40),
)
def test_no_field_value_raises_or_asks_for_less_than_nothing(value: str, date: str | None) -> None:
    seconds = asked_s(value, date=date)

    assert seconds is None or 0.0 <= seconds < 1e12


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3.0, "1"), (0.0, "1"), (0.2, "1"), (1.0, "1"), (1.01, "2"), (59.5, "60"), (300.0, "300")],
)
def test_a_retry_after_of_our_own_is_whole_seconds_rounded_up(seconds: float, text: str) -> None:
    assert retry.retry_after_text(seconds) == text


# Section 6: how long the client wants to wait


def window_s(*fields: tuple[str, str], window: float = 600.0) -> float:
    return retry.window_s(fields, settings=Settings(window=window))


def test_the_window_is_the_setting_where_the_request_does_not_say() -> None:
    assert window_s(("Accept", "*/*")) == 600.0
    assert window_s(window=60.0) == 60.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("45", 45.0),
        ("0", 0.0),
        ("0.05", 0.05),
        (" 45 ", 45.0),
        ("600", 600.0),
        ("601", 600.0),
        ("9" * 400, 600.0),
    ],
)
def test_a_request_may_ask_for_less_but_never_for_more(value: str, seconds: float) -> None:
    assert window_s(("Pace-Window", value)) == seconds


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("wait=10", 10.0),
        ("wait=0", 0.0),
        ("wait=3600", 600.0),
        ("respond-async, wait=10", 10.0),
        ("wait=10, respond-async", 10.0),
        ("respond-async,wait=10", 10.0),
        ("Wait=10", 10.0),
        ("WAIT=10", 10.0),
        ("wait = 10", 10.0),
        ("wait\t=\t10", 10.0),
        ('wait="10"', 10.0),
        ('wait="1\\0"', 10.0),
        ("wait=10; strict", 10.0),
        ("wait=10;foo=bar, wait=20", 10.0),
        ('x="a, wait=3; \\", wait=4", wait=10', 10.0),
        (", ,wait=10", 10.0),
        ("return=minimal; wait=3, wait=10", 10.0),
    ],
)
def test_prefer_wait_is_read_by_the_syntax_of_rfc_7240(value: str, seconds: float) -> None:
    assert window_s(("Prefer", value)) == seconds


@pytest.mark.parametrize(
    "value",
    [
        "",
        ",",
        "wait",
        "wait=",
        'wait=""',
        "wait=-1",
        "wait=+1",
        "wait=1.5",
        "wait=soon",
        "wait=nan",
        "wait=1e3",
        "wait=\u0664\u0665",
        "wait=\u00b2",
        "await=10",
        "wait-more=10",
        "return=minimal; wait=10",
        'x="wait=10"',
        'wait="10',
        "respond-async",
    ],
)
def test_an_invalid_wait_is_ignored(value: str) -> None:
    assert window_s(("Prefer", value)) == 600.0


def test_of_several_waits_only_the_first_is_looked_at() -> None:
    assert window_s(("Prefer", "wait=10, wait=20")) == 10.0
    assert window_s(("Prefer", "wait=20"), ("Prefer", "wait=10")) == 20.0
    assert window_s(("Prefer", "respond-async"), ("prefer", "wait=10")) == 10.0
    assert window_s(("Prefer", "wait=soon"), ("Prefer", "wait=10")) == 600.0


def test_pace_window_counts_before_prefer() -> None:
    assert window_s(("Prefer", "wait=10"), ("Pace-Window", "45")) == 45.0
    assert window_s(("pace-window", "45"), ("PREFER", "wait=10")) == 45.0


@pytest.mark.parametrize("value", ["", "-1", "+1", "soon", "nan", "inf", "1e3", "\u0664\u0665", "1, 2", "1m"])
def test_an_invalid_pace_window_is_ignored(value: str) -> None:
    assert window_s(("Pace-Window", value)) == 600.0
    assert window_s(("Pace-Window", value), ("Prefer", "wait=10")) == 10.0


@FIXED
@given(
    fields=st.lists(
        st.tuples(
            st.sampled_from(["Prefer", "Pace-Window"]),
            st.one_of(st.text(max_size=40), st.text(alphabet='wait=,;" \\0123456789.-', max_size=60)),
        ),
        max_size=4,
    )
)
def test_the_window_is_always_between_nothing_and_the_setting(fields: list[tuple[str, str]]) -> None:
    assert 0.0 <= window_s(*fields) <= 600.0
