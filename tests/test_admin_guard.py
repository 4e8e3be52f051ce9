"""Who may change something: the guard's cases, one by one."""

from dataclasses import replace
from http import HTTPStatus

import pytest

from proxy_addon.admin.guard import ChangeAsked, Guard

TOKEN = "0123456789abcdef"
LOCAL = Guard(loopback=True)
WITH_TOKEN = Guard(loopback=False, token=TOKEN)
RIGHT = ChangeAsked(host="127.0.0.1:9464", content_type="application/json", change="change")


def status(guard: Guard, asked: ChangeAsked) -> int | None:
    refusal = guard.refusal(asked)
    return None if refusal is None else int(refusal.status)


def test_on_loopback_our_own_field_and_json_are_enough() -> None:
    assert LOCAL.refusal(RIGHT) is None


def test_where_others_can_connect_and_there_is_no_token_nothing_can_be_changed() -> None:
    refusal = Guard(loopback=False).refusal(replace(RIGHT, authorization=f"Bearer {TOKEN}"))
    assert refusal is not None
    assert refusal.status is HTTPStatus.FORBIDDEN
    assert "start paceproxy with --admin-token-file FILE, or with a loopback --admin address" in refusal.text


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        (None, 415),
        ("", 415),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("application/json, text/plain", 415),
        ("text/plain; application/json", 415),
        ("Application/JSON ; charset=utf-8", None),
    ],
)
def test_a_change_is_json(content_type: str | None, expected: int | None) -> None:
    assert status(LOCAL, replace(RIGHT, content_type=content_type)) == expected


@pytest.mark.parametrize("change", [None, "", "1", "Change", "change,change"])
def test_a_change_has_our_own_field(change: str | None) -> None:
    assert status(LOCAL, replace(RIGHT, change=change)) == 403


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("http://127.0.0.1:9464", None),
        ("HTTP://127.0.0.1:9464", None),
        ("https://127.0.0.1:9464", None),
        ("http://127.0.0.1:9465", 403),
        ("http://127.0.0.1", 403),
        ("http://localhost:9464", 403),
        ("http://evil.example", 403),
        ("http://127.0.0.1:9464.evil.example", 403),
        ("ftp://127.0.0.1:9464", 403),
        ("null", 403),
        ("", 403),
        ("http://127.0.0.1:9464,http://127.0.0.1:9464", 403),
    ],
)
def test_an_origin_is_the_address_that_is_asked(origin: str, expected: int | None) -> None:
    assert status(LOCAL, replace(RIGHT, origin=origin)) == expected


def test_an_origin_without_a_host_field_is_another() -> None:
    assert status(LOCAL, replace(RIGHT, host=None, origin="http://None")) == 403


@pytest.mark.parametrize(
    ("site", "expected"),
    [("same-origin", None), ("none", None), ("same-site", 403), ("cross-site", 403), ("", 403)],
)
def test_no_other_site_asks(site: str, expected: int | None) -> None:
    assert status(LOCAL, replace(RIGHT, fetch_site=site)) == expected


@pytest.mark.parametrize(
    ("authorization", "expected"),
    [
        (f"Bearer {TOKEN}", None),
        (f"bearer  {TOKEN} ", None),
        (None, 401),
        ("", 401),
        (TOKEN, 401),
        (f"Basic {TOKEN}", 401),
        ("Bearer", 401),
        ("Bearer 0123456789abcdeF", 401),
        (f"Bearer {TOKEN}{TOKEN}", 401),
        ("Bearer \xe4\xff", 401),
    ],
)
@pytest.mark.parametrize("loopback", [True, False])
def test_a_token_that_there_is_must_be_had(authorization: str | None, expected: int | None, loopback: bool) -> None:
    assert status(replace(WITH_TOKEN, loopback=loopback), replace(RIGHT, authorization=authorization)) == expected


def test_what_a_web_page_can_send_is_refused_before_the_token_is_looked_at() -> None:
    assert status(WITH_TOKEN, replace(RIGHT, change=None)) == 403


def test_no_token_is_printed() -> None:
    assert TOKEN not in repr(WITH_TOKEN)
    assert TOKEN not in repr(replace(RIGHT, authorization=f"Bearer {TOKEN}"))
