"""What a reply means: sections 1 and 4 of the contract, row by row."""

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


@pytest.mark.parametrize("method", ["POST", "PATCH", "CONNECT", "LOCK", "PROPFIND", "BREW", "put", "get", "Delete", ""])
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
