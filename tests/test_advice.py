"""Which clients are told that they are too impatient, when, and in which words."""

import pytest

from proxy_addon import advice
from proxy_addon.advice import Advice
from proxy_addon.model import AttemptEnded, Outcome, RequestEnded
from proxy_addon.settings import Settings
from tests.support.requests_ended import ended

NOW = 1_800_000_000.0
TEXT = (
    "The client at 192.0.2.7 has given up waiting 3 times, the last time after 10.0 s, for shop.example. "
    "An answer may take 642 s (the window of 600 s and a last attempt): set the client's time-out to more "
    "(Scrapy: DOWNLOAD_TIMEOUT; curl: --max-time; requests, httpx, Playwright: timeout), "
    "or have it ask for less with Pace-Window. This is said once for each address."
)


def left(
    at: float,
    *,
    after_s: float = 10.0,
    client: str = "192.0.2.7",
    host: str = "shop.example",
    window_s: float = 600.0,
    gave_up: bool = True,
) -> RequestEnded:
    """A client that left at `at`, in seconds since the beginning, `after_s` after it had asked."""
    return ended(
        host=host,
        client=client,
        outcome=Outcome.ABANDONED,
        attempts=0,
        waited_s=after_s,
        rung=0,
        accepted_at=NOW + at - after_s,
        sent_at=None,
        first_byte_at=None,
        done_at=NOW + at,
        duration_s=after_s,
        window_s=window_s,
        gave_up=gave_up,
    )


@pytest.fixture
def listener() -> Advice:
    return Advice(Settings())


def test_the_third_time_is_told_and_no_time_after_that(listener: Advice, caplog: pytest.LogCaptureFixture) -> None:
    listener.observe(left(10))
    listener.observe(left(20.1))
    assert caplog.messages == []
    listener.observe(left(30.2))
    assert caplog.messages == [TEXT]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    for more in range(20):
        listener.observe(left(41 + 11 * more))
    assert caplog.messages == [TEXT]


def test_a_burst_is_one_time(listener: Advice, caplog: pytest.LogCaptureFixture) -> None:
    for request in range(50):
        listener.observe(left(10 + request / 1000))
    for request in range(50):
        listener.observe(left(30 + request / 1000))
    assert caplog.messages == []
    listener.observe(left(50))
    assert len(caplog.messages) == 1


def test_each_address_is_counted_and_told_of_by_itself(listener: Advice, caplog: pytest.LogCaptureFixture) -> None:
    for at in (10, 21, 32):
        listener.observe(left(at, client="192.0.2.7"))
        listener.observe(left(at, client="2001:db8::7"))
    assert [message.split(" has ")[0] for message in caplog.messages] == [
        "The client at 192.0.2.7",
        "The client at 2001:db8::7",
    ]


def test_a_client_that_asked_for_less_is_told_of_its_own_window(
    listener: Advice, caplog: pytest.LogCaptureFixture
) -> None:
    for at in (10, 21, 32):
        listener.observe(left(at, window_s=45.0))
    assert "An answer may take 87 s (the window of 45 s and a last attempt)" in caplog.text


def test_the_settings_decide_how_long_an_answer_may_take(caplog: pytest.LogCaptureFixture) -> None:
    listener = Advice(Settings(connect_timeout=1.0, attempt_timeout=2.5, hold_time=0.1))
    for at in (10, 21, 32):
        listener.observe(left(at, window_s=20.0))
    assert "An answer may take 24 s (the window of 20 s and a last attempt)" in caplog.text


def test_who_did_not_give_up_is_never_told(listener: Advice, caplog: pytest.LogCaptureFixture) -> None:
    for at in (10, 21, 32, 43):
        listener.observe(left(at, gave_up=False))
        listener.observe(AttemptEnded("shop.example", Outcome.ABANDONED, None, 10.0))
    assert caplog.messages == []


def test_what_a_client_makes_up_gets_into_no_other_line(listener: Advice, caplog: pytest.LogCaptureFixture) -> None:
    for at in (10, 21, 32):
        listener.observe(left(at, client="fe80::1%\x1b[2J", host="evil\x1b[31m.example"))
    assert "fe80::1%\\x1b[2J has given up" in caplog.text
    assert "for evil\\x1b[31m.example." in caplog.text


def test_the_addresses_longest_unheard_of_are_forgotten(
    listener: Advice, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advice, "REMEMBERED", 2)
    for at in (10, 21):
        listener.observe(left(at, client="a"))
        listener.observe(left(at, client="b"))
    listener.observe(left(32, client="a"))
    listener.observe(left(32, client="c"))
    listener.observe(left(32, client="b"))
    assert [message.split(" has ")[0] for message in caplog.messages] == ["The client at a"]
