"""The responses that the proxy makes itself: section 8 of the contract, RFC 9209 and RFC 9110."""

import re
import string
from decimal import Decimal

import pytest
from http_sf import Token, parse
from hypothesis import given
from hypothesis import strategies as st
from mitmproxy import http

from proxy_addon.answers import Course, annotate, credentials_wanted, error_response, kept_reply, proxy_status
from proxy_addon.model import ErrorName, Reply
from tests.support.examples import FIXED

STRAIGHT = Course(attempts=1, waited_s=0.0, rung=0)
"""At once, and answered."""
WINDING = Course(attempts=3, waited_s=12.4, rung=2)
NOW = 784_111_777.0
"""Sun, 06 Nov 1994 08:49:37 GMT: the example of RFC 9110 §5.6.7."""
PRINTABLE = string.ascii_letters + string.digits + string.punctuation + " "


def members(text: str) -> list[object]:
    """A `Proxy-Status` field, parsed as RFC 9209 §2 says."""
    found = parse(text.encode(), tltype="list")
    assert isinstance(found, list)
    return [*found]


def of(response: http.Response) -> object:
    return members(response.headers["Proxy-Status"])


# --- our member of Proxy-Status


def test_what_a_request_went_through_is_said_in_numbers() -> None:
    assert members(proxy_status(WINDING)) == [
        (Token("paceproxy"), {"attempts": 3, "waited": Decimal("12.4"), "rung": 2})
    ]


def test_an_error_is_a_token_and_its_details_a_string() -> None:
    assert members(proxy_status(STRAIGHT, error=ErrorName.DNS_ERROR, details="no such name")) == [
        (Token("paceproxy"), {"error": Token("dns_error"), "details": "no such name"})
    ]


def test_an_error_after_retries_says_both() -> None:
    text = proxy_status(WINDING, error=ErrorName.HTTP_RESPONSE_TIMEOUT, details="late", received_status=503)
    assert members(text) == [
        (
            Token("paceproxy"),
            {
                "error": Token("http_response_timeout"),
                "details": "late",
                "received-status": 503,
                "attempts": 3,
                "waited": Decimal("12.4"),
                "rung": 2,
            },
        )
    ]


def test_waits_are_told_to_the_millisecond() -> None:
    assert proxy_status(Course(attempts=2, waited_s=0.123456, rung=1)) == "paceproxy;attempts=2;waited=0.123;rung=1"


@pytest.mark.parametrize(
    ("course", "untouched"),
    [
        (Course(attempts=0, waited_s=0.0, rung=0), True),
        (Course(attempts=1, waited_s=0.0, rung=0), True),
        (Course(attempts=1, waited_s=0.0004, rung=0), True),
        (Course(attempts=1, waited_s=0.001, rung=0), False),
        (Course(attempts=1, waited_s=2.0, rung=1), False),
        (Course(attempts=2, waited_s=0.0, rung=0), False),
    ],
)
def test_a_request_that_neither_waited_nor_was_retried_is_untouched(course: Course, untouched: bool) -> None:
    assert course.untouched is untouched


@pytest.mark.parametrize(
    ("details", "said"),
    [
        ('"', '"'),
        ("\\", "\\"),
        ('a "quoted\\" text', 'a "quoted\\" text'),
        ("line\r\nSet-Cookie: a=b", "line??Set-Cookie: a=b"),
        ("tab\tnul\0del\x7f", "tab?nul?del?"),
        ("übel", "?bel"),
        ("\udcff\U0001f600", "??"),
    ],
)
def test_details_are_printable_ascii_whatever_an_origin_said(details: str, said: str) -> None:
    text = proxy_status(STRAIGHT, error=ErrorName.HTTP_PROTOCOL_ERROR, details=details)
    assert members(text) == [(Token("paceproxy"), {"error": Token("http_protocol_error"), "details": said})]


@FIXED
@given(details=st.text(min_size=1, max_size=200))
def test_any_details_make_a_valid_field_and_a_valid_text(details: str) -> None:
    response = error_response(ErrorName.HTTP_PROTOCOL_ERROR, WINDING, now=NOW, details=details)
    said = {
        "error": Token("http_protocol_error"),
        "details": "".join(c if c in PRINTABLE else "?" for c in details),
        "attempts": 3,
        "waited": Decimal("12.4"),
        "rung": 2,
    }
    assert of(response) == [(Token("paceproxy"), said)]
    assert response.raw_content is not None
    assert response.raw_content.decode("ascii").count("\n") == 1


def test_details_are_cut_where_an_origin_sends_a_flood() -> None:
    # aiohttp and others refuse a field of more than 8 KB.
    response = error_response(ErrorName.CONNECTION_TERMINATED, STRAIGHT, now=NOW, details="x" * 60_000)
    details = "x" * 197 + "..."
    assert response.headers["Proxy-Status"] == f'paceproxy;error=connection_terminated;details="{details}"'
    assert response.raw_content is not None
    assert response.raw_content.endswith(f"({details})\n".encode())


# --- the origin's response


def test_a_response_that_took_nothing_is_not_touched() -> None:
    response = http.Response.make(200, b"page", {"Proxy-Status": "cdn; fwd=miss"})
    before = response.headers.fields
    annotate(response, STRAIGHT)
    assert response.headers.fields == before


def test_what_it_took_comes_after_what_a_cdn_said() -> None:
    response = http.Response.make(200, b"page", {"Proxy-Status": "cdn; received-status=200"})
    annotate(response, WINDING)
    assert members(", ".join(response.headers.get_all("Proxy-Status"))) == [
        (Token("cdn"), {"received-status": 200}),
        (Token("paceproxy"), {"attempts": 3, "waited": Decimal("12.4"), "rung": 2}),
    ]


@pytest.mark.parametrize(
    ("theirs", "kept"),
    [
        (["cdn; received-status=200", 'parent;details="x"'], 'cdn; received-status=200, parent;details="x"'),
        (['parent;details="a', 'b"'], 'parent;details="a, b"'),
        (["not a list;"], ""),
        (["Bad Gateway: 17", "parent;error=dns_timeout"], "parent;error=dns_timeout"),
        (["cdn, "], ""),
        ([""], ""),
        (["", "cdn"], "cdn"),
        (["\udcff"], ""),
        (["b\u00fccher"], ""),
    ],
)
def test_what_others_said_that_is_no_list_cannot_make_ours_unreadable(theirs: list[str], kept: str) -> None:
    response = http.Response.make(200, b"page")
    response.headers.set_all("PROXY-STATUS", theirs)
    annotate(response, WINDING)
    lines = response.headers.get_all("Proxy-Status")
    assert ", ".join(lines[:-1]) == kept
    assert members(", ".join(lines)) == [
        *(members(kept) if kept else []),
        (Token("paceproxy"), {"attempts": 3, "waited": Decimal("12.4"), "rung": 2}),
    ]


def test_what_others_said_stays_as_it_was_where_it_took_nothing() -> None:
    response = http.Response.make(200, b"page", {"Proxy-Status": "not a list;"})
    annotate(response, STRAIGHT)
    assert response.headers.get_all("Proxy-Status") == ["not a list;"]


# --- our own errors


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ErrorName.DNS_ERROR, 502),
        (ErrorName.DNS_TIMEOUT, 504),
        (ErrorName.CONNECTION_REFUSED, 502),
        (ErrorName.CONNECTION_TIMEOUT, 504),
        (ErrorName.CONNECTION_TERMINATED, 502),
        (ErrorName.HTTP_RESPONSE_TIMEOUT, 504),
        (ErrorName.HTTP_RESPONSE_INCOMPLETE, 502),
        (ErrorName.HTTP_PROTOCOL_ERROR, 502),
        (ErrorName.HTTP_REQUEST_ERROR, 400),
        (ErrorName.TLS_CERTIFICATE_ERROR, 502),
        (ErrorName.TLS_ALERT_RECEIVED, 502),
        (ErrorName.TLS_PROTOCOL_ERROR, 502),
        (ErrorName.DESTINATION_UNAVAILABLE, 503),
        (ErrorName.DESTINATION_IP_PROHIBITED, 403),
        (ErrorName.DESTINATION_IP_UNROUTABLE, 502),
        (ErrorName.PROXY_LOOP_DETECTED, 508),
        (ErrorName.PROXY_INTERNAL_ERROR, 500),
        (ErrorName.PROXY_INTERNAL_RESPONSE, 502),
    ],
)
def test_an_error_has_the_status_that_the_rfc_recommends(error: ErrorName, status: int) -> None:
    response = error_response(error, STRAIGHT, now=NOW)
    assert response.status_code == status
    assert of(response) == [(Token("paceproxy"), {"error": Token(error.value)})]


@pytest.mark.parametrize("error", ErrorName)
def test_every_error_has_an_answer_in_words(error: ErrorName) -> None:
    response = error_response(error, STRAIGHT, now=NOW)
    assert response.raw_content is not None
    assert re.fullmatch(r"paceproxy: The(re)? [ -~]+[.?]\n", response.raw_content.decode("ascii"))
    assert 400 <= response.status_code <= 599


def test_the_whole_of_an_error_response() -> None:
    response = error_response(
        ErrorName.CONNECTION_TIMEOUT, WINDING, now=NOW, details="no connection in time", retry_after_s=60.0
    )
    text = (
        b"paceproxy: The host did not take a connection while this request could wait. Try again later. "
        b"(no connection in time)\n"
    )
    assert (response.status_code, response.reason, response.http_version) == (504, "Gateway Time-out", "HTTP/1.1")
    assert response.headers.fields == (
        (b"Date", b"Sun, 06 Nov 1994 08:49:37 GMT"),
        (b"Content-Type", b"text/plain; charset=utf-8"),
        (b"X-Content-Type-Options", b"nosniff"),
        (b"Cache-Control", b"no-store"),
        (
            b"Proxy-Status",
            b'paceproxy;error=connection_timeout;details="no connection in time";attempts=3;waited=12.4;rung=2',
        ),
        (b"Retry-After", b"60"),
        (b"content-length", str(len(text)).encode()),
    )
    assert response.raw_content == text


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.0, "1"), (-5.0, "1"), (0.2, "1"), (1.0, "1"), (1.001, "2"), (59.5, "60"), (300.0, "300")],
)
def test_retry_after_is_in_whole_seconds_rounded_up_and_never_zero(seconds: float, said: str) -> None:
    response = error_response(ErrorName.DESTINATION_UNAVAILABLE, STRAIGHT, now=NOW, retry_after_s=seconds)
    assert response.headers.get_all("Retry-After") == [said]


def test_nobody_is_asked_to_come_again_where_waiting_does_not_help() -> None:
    assert "Retry-After" not in error_response(ErrorName.DNS_ERROR, STRAIGHT, now=NOW).headers


def test_another_status_can_be_asked_for() -> None:
    assert error_response(ErrorName.PROXY_INTERNAL_RESPONSE, STRAIGHT, now=NOW, status=503).status_code == 503


# --- the origin's last reply, which had been put aside


UNAVAILABLE = Reply(
    status=503,
    fields=(
        ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("Retry-After", "Sun, 06 Nov 1994 08:50:37 GMT"),
        ("X-CaSe", "1"),
        ("Set-Cookie", "a=1"),
        ("Set-Cookie", "b=2"),
        ("Content-Encoding", "gzip"),
        ("Latin", "\udce4"),
    ),
)


def kept(
    reply: Reply, body: bytes = b"", *, whole: bool = True, is_head: bool = False, course: Course = STRAIGHT
) -> http.Response:
    return kept_reply(reply, body, whole=whole, is_head=is_head, course=course, now=NOW)


def with_fields(*fields: tuple[str, str]) -> Reply:
    return Reply(status=503, fields=fields)


def test_a_kept_reply_comes_as_it_was() -> None:
    response = kept(UNAVAILABLE, b"\x1f\x8bno gzip at all")
    assert (response.status_code, response.raw_content) == (503, b"\x1f\x8bno gzip at all")
    assert response.headers.fields == (
        (b"date", b"Sun, 06 Nov 1994 08:49:37 GMT"),
        (b"Retry-After", b"Sun, 06 Nov 1994 08:50:37 GMT"),
        (b"X-CaSe", b"1"),
        (b"Set-Cookie", b"a=1"),
        (b"Set-Cookie", b"b=2"),
        (b"Content-Encoding", b"gzip"),
        (b"Latin", b"\xe4"),
        (b"Content-Length", b"16"),
    )


def test_a_kept_reply_says_what_it_took_after_what_a_cdn_said() -> None:
    response = kept(with_fields(("Proxy-Status", "cdn; received-status=503")), course=WINDING)
    assert members(", ".join(response.headers.get_all("Proxy-Status"))) == [
        (Token("cdn"), {"received-status": 503}),
        (Token("paceproxy"), {"attempts": 3, "waited": Decimal("12.4"), "rung": 2}),
    ]


@pytest.mark.parametrize(
    "fields",
    [
        (("Transfer-Encoding", "chunked"), ("Trailer", "X-Sum")),
        (("content-LENGTH", "9999"),),
        (("Connection", "close"),),
        (("Keep-Alive", "timeout=5"), ("Connection", "keep-alive"), ("Proxy-Connection", "keep-alive")),
        (("Connection", "X-Hop, x-other"), ("Connection", "third"), ("x-hop", "1"), ("X-Other", "2"), ("Third", "3")),
        (("Upgrade", "h2c"), ("Connection", "Upgrade")),
    ],
)
def test_framing_and_hop_by_hop_fields_of_a_kept_reply_go(fields: tuple[tuple[str, str], ...]) -> None:
    response = kept(with_fields(*fields, ("X-Kept", "1")), b"body")
    assert response.headers.fields == ((b"X-Kept", b"1"), (b"Content-Length", b"4"))


def test_a_kept_reply_to_head_keeps_the_length_of_the_body_that_it_does_not_have() -> None:
    reply = with_fields(("Content-Length", "5000"), ("Connection", "close"), ("X-Kept", "1"))
    response = kept(reply, whole=False, is_head=True)
    assert response.headers.fields == ((b"Content-Length", b"5000"), (b"X-Kept", b"1"))
    assert response.raw_content == b""


def test_a_reply_too_long_to_be_kept_is_ours_with_its_status_and_when_to_ask_again() -> None:
    reply = Reply(
        status=429,
        fields=(
            ("Content-Length", "9999999"),
            ("retry-after", "17.5"),
            ("Retry-After", "Sun, 06 Nov 1994 08:50:37 GMT"),
            ("Set-Cookie", "a=1"),
            ("RateLimit", '"default";r=0;t=17'),
            ("x-ratelimit-limit", "60"),
        ),
    )
    response = kept(reply, b"only the beginning", whole=False, course=WINDING)
    text = b"paceproxy: The host answered with status 429 and a text too long to be kept.\n"
    assert response.status_code == 429
    assert response.headers.fields == (
        (b"Date", b"Sun, 06 Nov 1994 08:49:37 GMT"),
        (b"Content-Type", b"text/plain; charset=utf-8"),
        (b"X-Content-Type-Options", b"nosniff"),
        (b"Cache-Control", b"no-store"),
        (b"Proxy-Status", b"paceproxy;received-status=429;attempts=3;waited=12.4;rung=2"),
        (b"retry-after", b"17.5"),
        (b"Retry-After", b"Sun, 06 Nov 1994 08:50:37 GMT"),
        (b"RateLimit", b'"default";r=0;t=17'),
        (b"x-ratelimit-limit", b"60"),
        (b"content-length", b"77"),
    )
    assert response.raw_content == text


def test_a_status_that_no_rfc_knows_is_kept() -> None:
    assert (kept(Reply(status=599)).status_code, kept(Reply(status=599), whole=False).status_code) == (599, 599)


# --- who must say who they are


@pytest.mark.parametrize(
    ("is_proxy", "status", "field", "text"),
    [
        (
            True,
            407,
            "Proxy-Authenticate",
            b"paceproxy: This proxy is only for users with a password. "
            b"Give both in the proxy's URL, as http://USER:PASSWORD@HOST:PORT.\n",
        ),
        (
            False,
            401,
            "WWW-Authenticate",
            b"paceproxy: This proxy is only for users with a password. Give both with the request.\n",
        ),
    ],
)
def test_who_gives_no_password_is_told_how_to(is_proxy: bool, status: int, field: str, text: bytes) -> None:
    response = credentials_wanted(is_proxy=is_proxy, now=NOW)
    assert (response.status_code, response.raw_content) == (status, text)
    assert list(response.headers.items(multi=True)) == [
        ("Date", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("Content-Type", "text/plain; charset=utf-8"),
        ("X-Content-Type-Options", "nosniff"),
        ("Cache-Control", "no-store"),
        (field, 'Basic realm="Paceproxy", charset="UTF-8"'),
        ("Proxy-Status", 'paceproxy;error=proxy_internal_response;details="no valid password"'),
        ("content-length", str(len(text))),
    ]
