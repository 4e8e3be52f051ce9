"""What an operator's decision makes of a row, in literal times. What must always hold is in `test_ladder.py`."""

from dataclasses import replace

import pytest

from proxy_addon import ladder, operated, reading
from proxy_addon.changes import Change, Checked, FloorSet, Operated, PausedByOperator, Resumed, Served, Stalled
from proxy_addon.model import HostState
from proxy_addon.settings import Settings

SETTINGS = Settings()
NOW = 1_000_000.0
DAY = 86_400.0
SICK = HostState(
    rung=4,
    next_slot_at=NOW + 20,
    blocked_until=NOW + 90,
    stalled_at=NOW - 10,
    counted_at=NOW - 10,
    stalls_in_a_row=3,
    paused_until=NOW - 5,
    pauses=2,
    quota_pace_s=1.5,
    version=7,
)


def step(state: HostState | None, change: Change | Operated, *, pace_factor: float = 1.0) -> HostState | None:
    return operated.step(state, change, settings=SETTINGS, pace_factor=pace_factor)


def read(state: HostState | None, now: float = NOW) -> HostState | None:
    return reading.read(state, now=now, settings=SETTINGS)


# --- resume


def test_a_resumed_host_has_no_trouble_left() -> None:
    assert step(SICK, Resumed(NOW)) == HostState(operated_at=NOW, resumed_at=NOW, version=7)
    assert step(None, Resumed(NOW)) == HostState(operated_at=NOW, resumed_at=NOW)


def test_a_resumed_host_keeps_its_limit_and_its_floor() -> None:
    state = replace(SICK, in_flight_limit=3, limited_at=NOW - 50, floor_s=5.0, operated_at=NOW - 60)
    assert step(state, Resumed(NOW)) == HostState(
        next_slot_at=NOW + 5,
        in_flight_limit=3,
        limited_at=NOW - 50,
        floor_s=5.0,
        operated_at=NOW,
        resumed_at=NOW,
        version=7,
    )


def test_the_floor_of_a_resumed_host_holds_from_its_last_attempt_on() -> None:
    state = HostState(rung=1, next_slot_at=NOW + 3, floor_s=5.0)
    after = step(state, Resumed(NOW))
    assert after is not None
    assert after.next_slot_at == NOW + 3
    after = step(replace(state, next_slot_at=NOW + 60), Resumed(NOW), pace_factor=2.0)
    assert after is not None
    assert after.next_slot_at == NOW + 10


def test_a_resume_ends_an_operators_pause() -> None:
    paused = step(None, PausedByOperator(NOW, NOW + 600))
    assert step(paused, Resumed(NOW + 1)) == HostState(operated_at=NOW + 1, resumed_at=NOW + 1)


def test_a_stall_of_an_attempt_that_was_sent_before_the_resume_changes_nothing() -> None:
    resumed = HostState(operated_at=NOW, resumed_at=NOW, version=8)
    assert step(resumed, Stalled(at=NOW + 30, sent_at=NOW - 0.1, lingers=True)) is resumed
    floored = replace(resumed, floor_s=2.0, next_slot_at=NOW + 1)
    assert step(floored, Stalled(at=NOW + 30, sent_at=NOW - 0.1, lingers=True)) is floored


def test_what_its_origin_asks_for_holds_all_the_same() -> None:
    resumed = HostState(operated_at=NOW, resumed_at=NOW)
    after = step(resumed, Stalled(at=NOW + 30, sent_at=NOW - 0.1, retry_after_s=1_000.0))
    assert after == replace(resumed, blocked_until=NOW + 330)


@pytest.mark.parametrize("sent_at", [NOW, NOW + 5])
def test_a_stall_of_an_attempt_that_was_sent_since_climbs(sent_at: float) -> None:
    after = step(HostState(operated_at=NOW, resumed_at=NOW), Stalled(at=NOW + 30, sent_at=sent_at))
    assert after is not None
    assert (after.rung, after.stalls_in_a_row, after.resumed_at) == (1, 1, NOW)


# --- pause


def test_a_pause_leaves_everything_else_as_it_is() -> None:
    assert step(SICK, PausedByOperator(NOW, NOW + 60)) == replace(SICK, operator_paused_until=NOW + 60, operated_at=NOW)


def test_the_last_pause_counts_also_where_it_is_shorter() -> None:
    long = step(None, PausedByOperator(NOW, NOW + 3_600))
    assert step(long, PausedByOperator(NOW + 5, NOW + 65)) == HostState(
        operator_paused_until=NOW + 65, operated_at=NOW + 5
    )


def test_at_its_end_the_host_goes_on_as_it_was() -> None:
    paused = step(HostState(rung=3, stalled_at=NOW), PausedByOperator(NOW, NOW + 60))
    assert read(paused, NOW + 59.9) is paused
    assert read(paused, NOW + 60) == HostState(rung=3, stalled_at=NOW, operated_at=NOW)
    assert read(step(None, PausedByOperator(NOW, NOW + 60)), NOW + 60) == HostState(operated_at=NOW)


def test_what_forgives_the_trouble_does_not_end_the_pause() -> None:
    paused = step(HostState(rung=3, stalled_at=NOW), PausedByOperator(NOW, NOW + 3_600))
    assert read(paused, NOW + 1_800) == HostState(operator_paused_until=NOW + 3_600, operated_at=NOW)


def test_a_block_that_ends_with_the_pause_is_still_taken_back_from_carefully() -> None:
    state = HostState(blocked_until=NOW + 10, operator_paused_until=NOW + 10, operated_at=NOW)
    after = read(state, NOW + 10)
    assert after == HostState(blocked_until=NOW + 10, operated_at=NOW)
    claimed = ladder.claim(after, now=NOW + 10, limit_s=30.0, settings=SETTINGS)
    assert claimed is not None
    assert claimed.rung == 1


def test_what_comes_of_attempts_during_the_pause_counts() -> None:
    paused = HostState(rung=2, next_slot_at=NOW, operator_paused_until=NOW + 60, operated_at=NOW)
    served = step(paused, Served(at=NOW + 1, sent_at=NOW - 1))
    stalled = step(paused, Stalled(at=NOW + 1, sent_at=NOW - 1))
    assert served is not None
    assert stalled is not None
    assert (served.rung, served.operator_paused_until) == (1, NOW + 60)
    assert (stalled.rung, stalled.operator_paused_until) == (3, NOW + 60)


def test_a_pause_holds_the_host_until_the_later_of_both_ends() -> None:
    assert ladder.held_until(HostState(paused_until=NOW + 9, operator_paused_until=NOW + 4)) == NOW + 9
    assert ladder.held_until(HostState(paused_until=NOW + 4, operator_paused_until=NOW + 9)) == NOW + 9


# --- floor


@pytest.mark.parametrize(
    ("before", "floor", "slot"),
    [
        (None, 5.0, NOW + 5),
        (HostState(blocked_until=NOW + 9), 5.0, NOW + 5),
        # The last attempt was sent 1 s ago: the slot moves with the pace.
        (HostState(rung=1, next_slot_at=NOW + 1), 5.0, NOW + 4),
        (HostState(rung=1, next_slot_at=NOW - 50), 5.0, NOW - 47),
        (HostState(rung=1, next_slot_at=NOW + 1), 2.0, NOW + 1),
        (HostState(next_slot_at=NOW + 50, floor_s=60.0), 5.0, NOW + 5),
        (HostState(next_slot_at=NOW + 3, floor_s=60.0), 5.0, NOW + 3),
        (HostState(rung=2, next_slot_at=NOW + 50, floor_s=60.0), 0.0, NOW + 5),
        # A probe's time is its own.
        (HostState(rung=5, next_slot_at=NOW + 40, paused_until=NOW - 1, floor_s=90.0), 0.0, NOW + 40),
    ],
)
def test_the_next_slot_is_the_new_pace_away(before: HostState | None, floor: float, slot: float) -> None:
    after = step(before, FloorSet(NOW, floor))
    assert after is not None
    assert (after.floor_s, after.next_slot_at) == (floor, slot)


def test_without_a_store_a_floor_is_as_many_times_as_long() -> None:
    after = step(None, FloorSet(NOW, 5.0), pace_factor=3.0)
    assert after is not None
    assert (after.floor_s, after.next_slot_at) == (5.0, NOW + 15)


def test_a_floor_that_is_taken_away_leaves_nothing_that_holds_back() -> None:
    floored = HostState(next_slot_at=NOW + 50, floor_s=60.0, operated_at=NOW - 10, version=3)
    assert step(floored, FloorSet(NOW, 0.0)) == HostState(operated_at=NOW, version=3)


# --- for how long it is remembered


def test_what_was_decided_is_remembered_for_a_day() -> None:
    decided = HostState(operated_at=NOW, resumed_at=NOW)
    assert not ladder.paces(decided)
    assert not ladder.spent(decided, now=NOW + 100)
    assert step(decided, Checked(NOW + 100)) is decided
    assert read(decided, NOW + DAY - 1) is decided
    assert read(decided, NOW + DAY) is None


def test_what_is_in_force_is_remembered_for_ever() -> None:
    floored = HostState(floor_s=5.0, operated_at=NOW, resumed_at=NOW - 1)
    assert read(floored, NOW + 10 * DAY) == HostState(floor_s=5.0, operated_at=NOW)


def test_a_clock_that_was_set_back_makes_no_pause_longer() -> None:
    state = HostState(operator_paused_until=NOW + 3_660, operated_at=NOW + 3_600, resumed_at=NOW + 3_600)
    assert read(state) == HostState(operator_paused_until=NOW + 60, operated_at=NOW, resumed_at=NOW)
    assert read(replace(state, operator_paused_until=NOW + 3_500)) == HostState(operated_at=NOW, resumed_at=NOW)
    sane = replace(state, operated_at=NOW - 5, resumed_at=NOW - 5)
    assert read(sane) is sane
