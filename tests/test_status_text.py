"""The status in words, as it stands on a terminal."""

import io
import time

import pytest
from rich.console import Console

from proxy_addon.admin_client import HostShown, LastStallShown, StatusShown
from proxy_addon.status_text import host_line, plain_console, status_view

AT = 1_800_000_000.0
SLOW = HostShown(
    host="shop.example",
    rung=3,
    pace_s=15.0,
    floor_s=0.0,
    waiting=41,
    next_slot_at=AT + 4.2,
    blocked_until=None,
    paused_until=None,
    last_stall=LastStallShown(error="http_response_timeout", at=AT - 20),
)
IDLE = StatusShown(at=AT, hosts=[], healthy_hosts=1, waiting=0, in_flight=2, store_up=True)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def shown(status: StatusShown, *, now: float = AT) -> list[str]:
    file = io.StringIO()
    plain_console(Console(file=file)).print(status_view(status, now=now))
    return [line.rstrip() for line in file.getvalue().splitlines() if line.strip()]


def test_where_nothing_is_slow_one_line_says_so() -> None:
    assert shown(IDLE) == [
        "No host is slow; 1 healthy host asked in the last 10 minutes. 0 requests waiting, 2 attempts in flight."
    ]


def test_a_slow_host_has_a_line_with_all_that_matters() -> None:
    paused = SLOW.model_copy(
        update={"host": "down.example:8080", "paused_until": AT + 90, "next_slot_at": AT + 90, "floor_s": 2.0}
    )
    titles, _, *lines = shown(IDLE.model_copy(update={"hosts": [paused, SLOW]}))
    assert titles.split() == ["host", "rung,", "pace", "waiting", "next", "slot", "last", "stall", "held", "until"]
    assert [" ".join(line.split()) for line in lines] == [
        "down.example:8080 rung 3, every 15 s (floor 2 s) 41 in 1 min 30 s no answer in time, 20 s ago "
        "paused until 08:01:30",
        "shop.example rung 3, every 15 s 41 in 4.2 s no answer in time, 20 s ago",
        "2 hosts are slow or held; 1 healthy host asked in the last 10 minutes. "
        "0 requests waiting, 2 attempts in flight.",
    ]


def test_a_store_that_is_down_is_told() -> None:
    assert shown(IDLE.model_copy(update={"store_up": False}))[-1].startswith("The store does not answer")


def test_a_host_of_hostile_name_and_error_is_text() -> None:
    hostile = SLOW.model_copy(update={"host": "[red]\x1b[2J‮x", "last_stall": LastStallShown(error="[bold]\x07", at=AT)})
    text = "\n".join(shown(IDLE.model_copy(update={"hosts": [hostile]})))
    assert "[red]?[2J?x" in text
    assert "[bold]?" in text


@pytest.mark.parametrize(
    ("update", "line"),
    [
        ({}, "shop.example: rung 3, every 15 s, 41 waiting, next slot in 4.2 s"),
        ({"waiting": 0, "rung": 0, "pace_s": 0.0}, "shop.example: rung 0, no pace, 0 waiting"),
        (
            {"blocked_until": AT + 60, "waiting": 1, "next_slot_at": AT - 1},
            "shop.example: rung 3, every 15 s, blocked by the site until 08:01:00, 1 waiting, next slot now",
        ),
        ({"paused_until": AT - 1, "waiting": 0}, "shop.example: rung 3, every 15 s, 0 waiting"),
    ],
)
def test_a_host_in_a_line(update: dict[str, object], line: str) -> None:
    assert host_line(SLOW.model_copy(update=update), now=AT) == line
