"""What is told of a crawl, in words."""

from datetime import UTC, datetime
from typing import Any

from proxy_addon.crawl_summary import Tally, progress
from proxy_addon.model import AttemptEnded, ErrorName, HostState, HostView, Outcome, RequestEnded, Snapshot
from tests.support import requests_ended

NOW = 1_800_000_000.0


def ended(host: str = "a.example", outcome: Outcome = Outcome.SERVED, **further: Any) -> RequestEnded:
    return requests_ended.ended(host=host, outcome=outcome, **{"waited_s": 0.0, "stalls": 0, **further})


def view(host: str, *, pace_s: float = 0.0, waiting: int = 0, paused_until: float = 0.0, floor_s: float = 0.0,
         **state: float) -> HostView:  # fmt: skip
    return HostView(
        host=host,
        state=HostState(**state),  # type: ignore[arg-type]
        pace_s=pace_s,
        waiting=waiting,
        in_flight=0,
        last_stall=None,
        floor_s=floor_s,
        paused_until=paused_until,
    )


def snapshot(*hosts: HostView) -> Snapshot:
    return Snapshot(hosts=hosts, waiting=sum(host.waiting for host in hosts), in_flight=0, store_up=True, at=NOW)


def clock(at: float) -> str:
    return datetime.fromtimestamp(at, tz=UTC).astimezone().strftime("%H:%M:%S")


def test_requests_are_told_by_how_they_ended() -> None:
    tally = Tally()
    tally.observe(AttemptEnded("a.example", Outcome.STALL, ErrorName.RATE_LIMITED, 1.0))
    for outcome in (Outcome.SERVED, Outcome.SERVED, Outcome.STALL, Outcome.FAILURE, Outcome.UNSENT, Outcome.ABANDONED):
        tally.observe(ended(outcome=outcome))
    assert tally.lines(snapshot(), forgive_after_s=1800.0) == [
        "6 requests: 2 served, 1 not served in time, 1 failed, 1 never sent, 1 given up by the command"
    ]


def test_only_what_was_served_after_a_stall_would_have_failed() -> None:
    tally = Tally()
    for event in (ended(stalls=0), ended(stalls=2), ended(stalls=2, outcome=Outcome.STALL)):
        tally.observe(event)
    assert tally.saved == 1
    assert "1 of them would have failed without it" in tally.lines(snapshot(), forgive_after_s=1800.0)


def test_waits_are_told_by_host_worst_first_and_the_rest_in_one() -> None:
    tally = Tally()
    for number in range(1, 8):
        tally.observe(ended(f"{number}.example", waited_s=10.0 * number))
        tally.observe(ended(f"{number}.example", waited_s=10.0 * number))
    tally.observe(ended("quick.example", waited_s=0.5))
    assert tally.lines(snapshot(), forgive_after_s=1800.0)[-1] == (
        "waited 9 min 20 s, all requests together: 7.example 2 min 20 s, 6.example 2 min, 5.example 1 min 40 s,"
        " 4.example 1 min 20 s, 3.example 1 min, 2 more hosts 1 min"
    )


def test_hosts_that_are_still_slow_are_told_with_until_when() -> None:
    tally = Tally()
    tally.observe(ended())
    hosts = [
        view("healthy.example"),
        view("climbed.example", pace_s=5.0, rung=2, stalled_at=NOW - 60.0),
        view("blocked.example", blocked_until=NOW + 90.0),
        view("paused.example", pace_s=60.0, rung=5, paused_until=NOW + 120.0, blocked_until=NOW + 5.0),
        view("floor.example", pace_s=3.0, floor_s=3.0),
        view("was-paused.example", paused_until=NOW - 1.0),
    ]
    assert tally.lines(snapshot(*hosts), forgive_after_s=1800.0)[1:] == [
        f"still slow: paused.example, rung 5, a request every 60 s, paused until {clock(NOW + 120)}".replace(
            "60 s", "1 min"
        ),
        f"still slow: blocked.example, blocked until {clock(NOW + 90)}",
        f"still slow: climbed.example, rung 2, a request every 5 s, until {clock(NOW + 1740)} if it serves nothing"
        " before",
        "still slow: floor.example, rung 0, a request every 3 s, until an operator takes the floor away",
    ]


def test_of_many_slow_hosts_the_worst_are_named() -> None:
    tally = Tally()
    tally.observe(ended())
    hosts = [view(f"{number}.example", pace_s=float(number), rung=1) for number in range(1, 8)]
    lines = tally.lines(snapshot(*hosts), forgive_after_s=0.0)
    assert lines[1] == "still slow: 7.example, rung 1, a request every 7 s"
    assert lines[-1] == "still slow: 2 more hosts"
    assert len(lines) == 7


def test_a_crawl_that_never_came_is_told() -> None:
    assert Tally().lines(snapshot(), forgive_after_s=1800.0) == ["no request came through the proxy"]


def test_the_progress_tells_the_worst_host_first() -> None:
    hosts = [
        view("slow.example", pace_s=2.0, rung=1, waiting=3, next_slot_at=NOW + 1.3),
        view("idle.example", pace_s=2.0, rung=1, next_slot_at=NOW + 1.3),
        view("paused.example", pace_s=60.0, rung=5, waiting=2, paused_until=NOW + 100.0),
        view("blocked.example", waiting=1, blocked_until=NOW + 30.0),
        view("room.example", waiting=4),
    ]
    assert progress(snapshot(*hosts)).split(" | ") == [
        "paceproxy: 4 slow hosts, 10 waiting",
        "paused.example paused for 1 min 40 s, 2 waiting",
        "blocked.example blocked for 30 s, 1 waiting",
        "slow.example rung 1 (2 s), 3 waiting, next slot in 1.3 s",
        "idle.example rung 1 (2 s), 0 waiting",
    ]


def test_where_nothing_is_slow_there_is_no_progress_to_tell() -> None:
    assert progress(snapshot(view("room.example", waiting=4))) == ""
