"""What happens to a host's row: sections 2, 3 and 9 of the contract in literal times, and what must always
hold."""

import itertools
import math
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy_addon import ladder, operated, reading
from proxy_addon.changes import (
    Change,
    Checked,
    FloorSet,
    GivenBack,
    Limited,
    Operated,
    PausedByOperator,
    Resumed,
    Sent,
    Served,
    Stalled,
)
from proxy_addon.model import HostState
from proxy_addon.settings import Settings
from tests.support.examples import FIXED

SETTINGS = Settings()
"""LADDER = 0, 2, 5, 15, 30, 60; retry_after_cap 300; pause_after 10, pause 120, pause_max 900."""
NOW = 1_000_000.0
TOP = 5
LIMIT = HostState(in_flight_limit=6, limited_at=NOW - 100, version=4)
"""A row that keeps a limit, and nothing else."""


def row(
    rung: int = 0,
    *,
    slot: float = 0.0,
    blocked: float = 0.0,
    stalled: float = 0.0,
    counted: float = 0.0,
    in_a_row: int = 0,
    paused: float = 0.0,
    pauses: int = 0,
    quota: float = 0.0,
    floor: float = 0.0,
    version: int = 0,
) -> HostState:
    return HostState(
        rung=rung,
        next_slot_at=slot,
        blocked_until=blocked,
        stalled_at=stalled,
        counted_at=counted,
        stalls_in_a_row=in_a_row,
        paused_until=paused,
        pauses=pauses,
        quota_pace_s=quota,
        floor_s=floor,
        version=version,
    )


def step(state: HostState | None, change: Change, settings: Settings = SETTINGS) -> HostState | None:
    return ladder.step(state, change, settings=settings)


def stepped(state: HostState | None, change: Change, settings: Settings = SETTINGS) -> HostState:
    """The row after a change that leaves one."""
    after = step(state, change, settings)
    assert after is not None
    return after


def claim(state: HostState, *, now: float = NOW, limit: float = 30.0) -> HostState | None:
    return ladder.claim(state, now=now, limit_s=limit, settings=SETTINGS)


def claimed(state: HostState, *, now: float = NOW, limit: float = 30.0) -> HostState:
    after = claim(state, now=now, limit=limit)
    assert after is not None
    return after


def read(state: HostState | None, *, now: float = NOW, settings: Settings = SETTINGS) -> HostState | None:
    return reading.read(state, now=now, settings=settings)


# Section 2: pace and slot


@pytest.mark.parametrize(("rung", "pace"), [(0, 0.0), (1, 2.0), (2, 5.0), (3, 15.0), (4, 30.0), (5, 60.0)])
def test_the_pace_is_the_value_of_the_rung(rung: int, pace: float) -> None:
    assert ladder.pace_s(row(rung), SETTINGS) == pace


def test_the_pace_is_never_below_the_floor_or_the_pace_of_a_quota() -> None:
    assert ladder.pace_s(row(0, floor=3.0), SETTINGS) == 3.0
    assert ladder.pace_s(row(1, floor=3.0), SETTINGS) == 3.0
    assert ladder.pace_s(row(2, floor=3.0), SETTINGS) == 5.0
    assert ladder.pace_s(row(1, quota=3.0, floor=2.5), SETTINGS) == 3.0
    assert ladder.pace_s(row(1, quota=2.5, floor=3.0), SETTINGS) == 3.0


def test_a_rung_of_a_longer_ladder_of_former_days_is_the_top() -> None:
    assert ladder.pace_s(row(9), SETTINGS) == 60.0


@pytest.mark.parametrize(
    "state",
    [
        row(1, slot=NOW + 7),
        row(1, blocked=NOW + 7),
        row(1, paused=NOW + 7),
        row(1, slot=NOW + 7, blocked=NOW + 3, paused=NOW + 5),
    ],
)
def test_a_slot_is_free_when_neither_slot_nor_block_nor_pause_lies_ahead(state: HostState) -> None:
    assert ladder.slot_at(state) == NOW + 7
    assert claim(state, now=NOW + 6.999) is None
    assert claim(state, now=NOW + 7) is not None


def test_a_row_goes_when_neither_rung_nor_floor_nor_block_nor_pause_keeps_it() -> None:
    assert ladder.spent(row(0, slot=NOW + 7), now=NOW)
    assert not ladder.spent(row(1), now=NOW)
    assert not ladder.spent(row(0, floor=0.5), now=NOW)
    assert not ladder.spent(row(0, quota=0.5), now=NOW)
    assert not ladder.spent(row(0, blocked=NOW + 1), now=NOW)
    assert not ladder.spent(row(0, paused=NOW + 1), now=NOW)
    assert ladder.spent(row(0, blocked=NOW), now=NOW)
    assert ladder.spent(replace(row(0, blocked=NOW), in_flight_limit=4), now=NOW)
    assert not ladder.spent(LIMIT, now=NOW)


def test_a_check_lets_a_row_go_that_says_nothing_any_more_and_no_other() -> None:
    assert step(row(0, blocked=NOW - 1), Checked(NOW)) is None
    assert step(row(0, blocked=NOW + 1), Checked(NOW)) == row(0, blocked=NOW + 1)
    assert step(row(1, slot=NOW - 99), Checked(NOW)) == row(1, slot=NOW - 99)
    assert step(None, Checked(NOW)) is None


# The limit of attempts in flight


def test_a_row_that_only_keeps_a_limit_does_not_pace() -> None:
    assert not ladder.paces(None)
    assert not ladder.paces(LIMIT)
    for pacing in (row(1), row(floor=0.5), row(quota=0.5), row(blocked=NOW - 1), row(paused=NOW - 1)):
        assert ladder.paces(pacing)
        assert ladder.paces(replace(pacing, in_flight_limit=6, limited_at=NOW))


def test_a_limit_that_is_found_out_is_in_the_row() -> None:
    assert step(None, Limited(NOW, 6)) == HostState(in_flight_limit=6, limited_at=NOW)
    assert step(row(2, slot=NOW + 5, version=3), Limited(NOW, 6)) == replace(
        row(2, slot=NOW + 5, version=3), in_flight_limit=6, limited_at=NOW
    )
    assert step(LIMIT, Limited(NOW, 9)) == replace(LIMIT, in_flight_limit=9, limited_at=NOW)


def test_of_two_limits_the_one_found_out_last_is_right() -> None:
    assert step(LIMIT, Limited(NOW - 101, 2)) is LIMIT
    assert step(LIMIT, Limited(NOW - 99, 2)) == replace(LIMIT, in_flight_limit=2, limited_at=NOW - 99)


def test_a_limit_of_nothing_takes_away_what_nothing_else_keeps() -> None:
    assert step(LIMIT, Limited(NOW, 0)) is None
    assert step(None, Limited(NOW, 0)) is None
    assert step(replace(row(2), in_flight_limit=6, limited_at=NOW - 1), Limited(NOW, 0)) == row(2)


def test_a_host_that_is_well_again_keeps_its_limit_alone() -> None:
    slow = replace(
        row(1, slot=NOW + 1, stalled=NOW - 9, counted=NOW - 9, in_a_row=1), in_flight_limit=6, limited_at=NOW
    )

    assert step(slow, Served(NOW, sent_at=NOW - 1)) == HostState(in_flight_limit=6, limited_at=NOW)
    assert step(replace(LIMIT, blocked_until=NOW - 1), Checked(NOW)) == LIMIT


@pytest.mark.parametrize(
    "change",
    [
        Served(NOW, sent_at=NOW - 1),
        Stalled(NOW, sent_at=NOW - 1, climbs=False),
        GivenBack(NOW, sent_at=NOW - 1, wrote=NOW),
        GivenBack(NOW, sent_at=None, wrote=None),
        Sent(NOW),
        Checked(NOW),
    ],
)
def test_a_row_that_only_keeps_a_limit_is_not_written_by_what_says_nothing(change: Change) -> None:
    assert step(LIMIT, change) is LIMIT


def test_a_stall_climbs_with_a_limit_as_it_does_without() -> None:
    after = stepped(LIMIT, Stalled(NOW, sent_at=NOW - 1))

    assert (after.rung, after.next_slot_at, after.in_flight_limit, after.limited_at) == (1, NOW + 2, 6, NOW - 100)


def test_a_limit_is_forgiven_by_itself() -> None:
    found = HostState(in_flight_limit=6, limited_at=NOW - 1_800)

    assert read(found) is None
    assert read(replace(found, limited_at=NOW - 1_799)) == replace(found, limited_at=NOW - 1_799)
    assert read(replace(row(2, stalled=NOW - 5), in_flight_limit=6, limited_at=NOW - 1_800)) == row(2, stalled=NOW - 5)
    assert read(found, settings=Settings(forgive_after=0.0)) is found


def test_a_limit_outlives_the_rung_that_is_forgiven() -> None:
    state = replace(row(3, stalled=NOW - 1_800, counted=NOW - 1_800), in_flight_limit=6, limited_at=NOW - 5)

    assert read(state) == HostState(in_flight_limit=6, limited_at=NOW - 5)


def test_a_limit_from_the_future_is_of_now() -> None:
    assert read(replace(LIMIT, limited_at=NOW + 9)) == replace(LIMIT, limited_at=NOW)


def test_a_change_that_is_not_in_the_table_raises() -> None:
    with pytest.raises(AssertionError):
        step(row(1), object())  # type: ignore[arg-type]


# Section 2: stall


def test_the_first_stall_of_a_healthy_host_makes_a_row_on_rung_one() -> None:
    after = stepped(None, Stalled(at=NOW, sent_at=NOW - 30))

    assert after == row(1, slot=NOW + 2, stalled=NOW, counted=NOW, in_a_row=1)


def test_stalls_climb_rung_by_rung_to_the_top_and_stay_there() -> None:
    state: HostState | None = None
    seen = []
    at = NOW
    for _ in range(7):
        state = stepped(state, Stalled(at=at, sent_at=at))
        seen.append((state.rung, state.next_slot_at - at))
        at = state.next_slot_at

    assert seen == [(1, 2.0), (2, 5.0), (3, 15.0), (4, 30.0), (5, 60.0), (5, 60.0), (5, 60.0)]


def test_a_stall_takes_the_pace_of_the_rung_that_it_climbs_to() -> None:
    assert stepped(row(2, slot=NOW - 1), Stalled(at=NOW, sent_at=NOW)).next_slot_at == NOW + 15


def test_a_stall_never_brings_the_next_slot_forward() -> None:
    assert stepped(row(1, slot=NOW + 40), Stalled(at=NOW, sent_at=NOW)).next_slot_at == NOW + 40


def test_a_stall_that_does_not_climb_keeps_the_rung() -> None:
    after = stepped(row(2, slot=NOW - 1), Stalled(at=NOW, sent_at=NOW, climbs=False))

    assert (after.rung, after.next_slot_at, after.stalled_at) == (2, NOW + 5, NOW)


def test_a_stall_that_does_not_climb_leaves_a_healthy_host_healthy() -> None:
    assert step(None, Stalled(at=NOW, sent_at=NOW, climbs=False)) is None


def test_a_retry_after_blocks_the_host() -> None:
    after = stepped(None, Stalled(at=NOW, sent_at=NOW, retry_after_s=7.5))

    assert (after.rung, after.next_slot_at, after.blocked_until) == (1, NOW + 2, NOW + 7.5)


def test_a_retry_after_holds_for_a_stall_that_does_not_climb_too() -> None:
    after = stepped(None, Stalled(at=NOW, sent_at=NOW, climbs=False, retry_after_s=7.5))

    assert (after.rung, after.blocked_until) == (0, NOW + 7.5)


def test_a_long_retry_after_blocks_for_the_cap() -> None:
    assert stepped(None, Stalled(at=NOW, sent_at=NOW, retry_after_s=1e10)).blocked_until == NOW + 300


def test_a_retry_after_of_nothing_adds_nothing_and_the_ladder_still_rules() -> None:
    after = stepped(None, Stalled(at=NOW, sent_at=NOW, retry_after_s=0.0))

    assert (after.rung, after.next_slot_at) == (1, NOW + 2)
    assert after.blocked_until <= NOW


def test_a_shorter_retry_after_does_not_end_a_block() -> None:
    state = row(1, blocked=NOW + 100)

    assert stepped(state, Stalled(at=NOW, sent_at=NOW, retry_after_s=7)).blocked_until == NOW + 100


# Section 2: served


def test_a_page_steps_down_one_rung_and_brings_the_next_slot_forward() -> None:
    state = row(3, slot=NOW + 14, stalled=NOW - 60, counted=NOW - 60, in_a_row=4)

    after = stepped(state, Served(at=NOW, sent_at=NOW - 1))

    assert after == row(2, slot=NOW + 5, stalled=NOW - 60, counted=NOW - 60, in_a_row=0)


def test_a_page_never_puts_the_next_slot_off() -> None:
    assert stepped(row(5, slot=NOW + 3), Served(at=NOW, sent_at=NOW - 57)).next_slot_at == NOW + 3


def test_the_row_goes_with_the_page_that_reaches_the_bottom() -> None:
    assert step(row(1, slot=NOW + 2), Served(at=NOW, sent_at=NOW)) is None


def test_a_page_of_a_healthy_host_changes_nothing() -> None:
    assert step(None, Served(at=NOW, sent_at=NOW)) is None


def test_the_pace_of_a_quota_keeps_the_row_of_a_host_at_the_bottom() -> None:
    after = stepped(row(1, slot=NOW + 4, quota=3.0), Served(at=NOW, sent_at=NOW))

    assert (after.rung, after.next_slot_at, after.quota_pace_s) == (0, NOW + 2.91, 2.91)
    assert stepped(after, Served(at=NOW + 1, sent_at=NOW)).rung == 0


def test_a_page_shortens_the_pace_of_a_quota_until_it_is_too_short_to_be_kept() -> None:
    assert stepped(row(0, quota=0.02), Served(at=NOW, sent_at=NOW)).quota_pace_s == pytest.approx(0.0194)
    assert step(row(0, quota=0.019), Served(at=NOW, sent_at=NOW)) is None


def test_a_floor_keeps_the_row_of_a_host_at_the_bottom_and_no_page_shortens_it() -> None:
    after = stepped(row(1, slot=NOW + 4, floor=3.0), Served(at=NOW, sent_at=NOW))

    assert after == row(0, slot=NOW + 3, floor=3.0)
    assert stepped(after, Served(at=NOW + 1, sent_at=NOW)) == after
    assert stepped(row(0, slot=NOW, floor=0.01), Served(at=NOW, sent_at=NOW)) == row(0, slot=NOW, floor=0.01)


def test_a_block_ahead_keeps_the_row_of_a_host_at_the_bottom() -> None:
    after = stepped(row(1, slot=NOW + 2, blocked=NOW + 9), Served(at=NOW, sent_at=NOW - 3))

    assert (after.rung, after.blocked_until) == (0, NOW + 9)


def test_a_quota_used_up_blocks_without_a_climb() -> None:
    healthy = stepped(None, Served(at=NOW, sent_at=NOW, quota_s=12.0))
    paced = stepped(row(2, slot=NOW + 5), Served(at=NOW, sent_at=NOW, quota_s=1e10))

    assert (healthy.rung, healthy.blocked_until) == (0, NOW + 12)
    assert (paced.rung, paced.blocked_until) == (1, NOW + 300)


# Section 2: failure and abandoned


def test_a_slot_that_nothing_was_sent_in_is_free_at_once() -> None:
    state = row(2, slot=NOW + 4)

    after = stepped(state, GivenBack(at=NOW, sent_at=None, wrote=NOW + 4))

    assert after == row(2, slot=NOW)


def test_a_slot_that_something_was_sent_in_is_free_a_pace_after_the_sending() -> None:
    state = row(2, slot=NOW + 40)

    after = stepped(state, GivenBack(at=NOW, sent_at=NOW - 1, wrote=NOW + 40))

    assert after == row(2, slot=NOW + 4)


@pytest.mark.parametrize("sent_at", [None, NOW - 1])
def test_a_slot_is_given_back_only_while_it_is_still_this_grants(sent_at: float | None) -> None:
    state = row(2, slot=NOW + 4)

    assert step(state, GivenBack(at=NOW, sent_at=sent_at, wrote=NOW + 3)) == state
    assert step(state, GivenBack(at=NOW, sent_at=sent_at, wrote=None)) == state


def test_giving_back_moves_neither_rung_nor_stalls_nor_block() -> None:
    state = row(3, slot=NOW + 4, blocked=NOW + 9, stalled=NOW - 1, counted=NOW - 1, in_a_row=3, pauses=1)

    after = stepped(state, GivenBack(at=NOW, sent_at=None, wrote=NOW + 4))

    assert after == replace(state, next_slot_at=NOW)


def test_giving_back_never_puts_the_next_slot_off() -> None:
    state = row(2, slot=NOW + 4)

    assert stepped(state, GivenBack(at=NOW + 20, sent_at=NOW + 19, wrote=NOW + 4)).next_slot_at == NOW + 4
    assert stepped(state, GivenBack(at=NOW + 20, sent_at=None, wrote=NOW + 4)).next_slot_at == NOW + 4


def test_a_healthy_host_has_no_slot_to_give_back() -> None:
    assert step(None, GivenBack(at=NOW, sent_at=None, wrote=None)) is None
    assert step(None, GivenBack(at=NOW, sent_at=NOW, wrote=NOW)) is None


# Section 2: a block that ends on rung 0, forgiveness, clamping


def test_the_first_claim_after_a_block_that_ended_on_rung_zero_sets_rung_one() -> None:
    state = row(0, blocked=NOW - 1)

    after = claimed(state)

    assert (after.rung, after.next_slot_at) == (1, NOW + 2)
    assert claim(after, now=NOW + 1) is None
    assert step(after, Served(at=NOW, sent_at=NOW)) is None


def test_a_block_that_ended_on_a_higher_rung_changes_no_rung() -> None:
    assert claimed(row(2, blocked=NOW - 1)).rung == 2


def test_a_row_without_a_stall_for_half_an_hour_is_forgiven() -> None:
    state = row(4, slot=NOW + 29, stalled=NOW - 1_800, counted=NOW - 1_800, in_a_row=9, pauses=2)

    assert read(state) is None


def test_a_row_with_a_stall_within_half_an_hour_is_not_forgiven() -> None:
    state = row(4, slot=NOW + 29, stalled=NOW - 1_799, counted=NOW - 1_799, in_a_row=9, pauses=2)

    assert read(state) == state


def test_forgiveness_counts_from_the_stall_and_not_from_the_end_of_the_pause_that_it_began() -> None:
    state = row(4, stalled=NOW - 1_800, counted=NOW - 1_800, in_a_row=10, paused=NOW - 900, pauses=4)

    assert read(state) is None


def test_the_pace_of_a_quota_is_forgiven_as_well() -> None:
    assert read(row(4, slot=NOW + 1, stalled=NOW - 1_800, in_a_row=9, pauses=2, quota=3.0, version=7)) is None
    assert read(row(0, stalled=NOW - 1_800, quota=3.0)) is None
    assert read(row(0, stalled=NOW - 1_799, quota=3.0)) == row(0, stalled=NOW - 1_799, quota=3.0)


def test_a_floor_is_never_forgiven() -> None:
    old = row(4, slot=NOW + 1, stalled=NOW - 1_800, in_a_row=9, pauses=2, quota=3.0, floor=2.0, version=7)
    assert read(old) == row(0, slot=NOW + 1, floor=2.0, version=7)
    kept = row(0, floor=2.0)
    assert read(kept, now=NOW + 1e9) is kept


# After a block: the pace that was measured


def test_the_pace_that_was_measured_holds_from_the_end_of_the_block_on() -> None:
    blocked = row(0, slot=NOW - 5, blocked=NOW, stalled=NOW - 8)
    after = ladder.claim(blocked, now=NOW, limit_s=30.0, settings=SETTINGS, measured_s=1.5)

    assert after == row(0, slot=NOW + 1.5, stalled=NOW - 8, quota=1.5)


def test_it_takes_the_place_of_an_earlier_one_and_leaves_the_rung() -> None:
    blocked = row(1, slot=NOW - 5, blocked=NOW, stalled=NOW - 8, quota=3.0)
    after = ladder.claim(blocked, now=NOW, limit_s=30.0, settings=SETTINGS, measured_s=0.5)

    assert after == row(1, slot=NOW + 2, stalled=NOW - 8, quota=0.5)


def test_it_is_never_slower_than_the_top_of_the_ladder() -> None:
    blocked = row(0, slot=NOW - 5, blocked=NOW, stalled=NOW - 300)
    after = ladder.claim(blocked, now=NOW, limit_s=30.0, settings=SETTINGS, measured_s=100.0)

    assert after == row(0, slot=NOW + 60, stalled=NOW - 300, quota=60.0)


def test_it_means_nothing_where_there_was_no_block() -> None:
    assert ladder.claim(row(2), now=NOW, limit_s=30.0, settings=SETTINGS, measured_s=100.0) == row(2, slot=NOW + 5)


def test_nothing_is_forgiven_where_that_is_switched_off() -> None:
    state = row(4, stalled=NOW - 1_000_000)

    assert read(state, settings=Settings(forgive_after=0.0)) == state


def test_a_block_is_not_cut_short_by_forgiveness() -> None:
    """A quota used up on a host whose last stall is long ago."""
    state = row(1, stalled=NOW - 1_801, blocked=NOW + 200)

    after = read(state)

    assert after is not None
    assert after.blocked_until == NOW + 200


def test_a_host_without_a_row_stays_without_one() -> None:
    assert read(None) is None


@pytest.mark.parametrize(
    ("state", "clamped"),
    [
        (row(2, slot=NOW + 60, stalled=NOW), row(2, slot=NOW + 60, stalled=NOW)),
        (row(2, slot=NOW + 3_600, stalled=NOW), row(2, slot=NOW + 60, stalled=NOW)),
        (row(1, slot=NOW + 3_600, stalled=NOW, floor=90.0), row(1, slot=NOW + 90, stalled=NOW, floor=90.0)),
        (row(1, slot=NOW + 3_600, stalled=NOW, quota=90.0), row(1, slot=NOW + 90, stalled=NOW, quota=90.0)),
        (row(2, blocked=NOW + 300, stalled=NOW), row(2, blocked=NOW + 300, stalled=NOW)),
        (row(2, blocked=NOW + 3_600, stalled=NOW), row(2, blocked=NOW + 300, stalled=NOW)),
        (row(2, paused=NOW + 900, stalled=NOW), row(2, paused=NOW + 900, stalled=NOW)),
        (row(2, paused=NOW + 3_600, stalled=NOW), row(2, paused=NOW + 900, stalled=NOW)),
        (row(2, stalled=NOW + 3_600), row(2, stalled=NOW)),
        (row(2, stalled=NOW, counted=NOW + 3_600), row(2, stalled=NOW, counted=NOW)),
    ],
)
def test_a_time_further_ahead_than_it_can_be_is_clamped_on_reading(state: HostState, clamped: HostState) -> None:
    assert read(state) == clamped


def test_the_slot_of_a_probe_may_lie_further_ahead_than_the_longest_pace() -> None:
    probing = claimed(row(5, stalled=NOW - 121, paused=NOW - 1), limit=120.0)

    assert probing.next_slot_at == NOW + 130
    assert read(probing) == probing


# Section 3: claim and sending


def test_a_claim_sets_the_next_slot_one_pace_away_and_nothing_else() -> None:
    state = row(3, slot=NOW, stalled=NOW - 20, counted=NOW - 20, in_a_row=3, pauses=1, version=8)

    assert claim(state) == replace(state, next_slot_at=NOW + 15)


def test_a_claim_made_late_counts_from_now_and_makes_up_for_nothing() -> None:
    assert claimed(row(3, slot=NOW - 1_000, stalled=NOW - 1_000)).next_slot_at == NOW + 15


def test_a_claim_at_the_bottom_takes_the_pace_of_the_floor() -> None:
    assert claimed(row(0, floor=3.0)).next_slot_at == NOW + 3


def test_sending_moves_the_next_slot_to_at_least_a_pace_after_it() -> None:
    assert step(row(2, slot=NOW + 1), Sent(at=NOW)) == row(2, slot=NOW + 5)
    assert step(row(2, slot=NOW + 5), Sent(at=NOW)) == row(2, slot=NOW + 5)
    assert step(row(2, slot=NOW + 9), Sent(at=NOW)) == row(2, slot=NOW + 9)


def test_sending_to_a_healthy_host_makes_no_row() -> None:
    assert step(None, Sent(at=NOW)) is None


def test_without_the_store_every_pace_is_multiplied_by_the_number_of_processes() -> None:
    state = row(2, slot=NOW, stalled=NOW)

    taken = ladder.claim(state, now=NOW, limit_s=30.0, settings=SETTINGS, pace_factor=3.0)
    sent = ladder.step(state, Sent(at=NOW), settings=SETTINGS, pace_factor=3.0)
    stalled = ladder.step(state, Stalled(at=NOW, sent_at=NOW), settings=SETTINGS, pace_factor=3.0)
    back = ladder.step(
        row(2, slot=NOW + 40, stalled=NOW),
        GivenBack(at=NOW, sent_at=NOW, wrote=NOW + 40),
        settings=SETTINGS,
        pace_factor=3.0,
    )
    served = ladder.step(
        row(3, slot=NOW + 45, stalled=NOW), Served(at=NOW, sent_at=NOW), settings=SETTINGS, pace_factor=3.0
    )

    assert [after and after.next_slot_at for after in (taken, sent, stalled, back, served)] == [
        NOW + 15,
        NOW + 15,
        NOW + 45,
        NOW + 15,
        NOW + 15,
    ]


# Section 9: the pause


def test_a_stall_counts_towards_the_pause_only_if_it_was_sent_after_the_last_that_counted() -> None:
    first = stepped(None, Stalled(at=NOW, sent_at=NOW - 30))
    burst = stepped(first, Stalled(at=NOW + 1, sent_at=NOW - 29))
    at_once = stepped(burst, Stalled(at=NOW + 2, sent_at=NOW))
    later = stepped(at_once, Stalled(at=NOW + 9, sent_at=NOW + 3))

    assert [s.stalls_in_a_row for s in (first, burst, at_once, later)] == [1, 1, 1, 2]
    assert [s.counted_at for s in (first, burst, at_once, later)] == [NOW, NOW, NOW, NOW + 9]
    assert [s.rung for s in (first, burst, at_once, later)] == [1, 1, 1, 2]


def test_a_stall_that_may_not_count_climbs_all_the_same() -> None:
    after = stepped(row(1, in_a_row=1, counted=NOW - 9), Stalled(at=NOW, sent_at=NOW - 1, counts=False))

    assert (after.rung, after.stalls_in_a_row, after.counted_at, after.stalled_at) == (2, 1, NOW, NOW)


def test_the_errors_of_one_incident_climb_one_rung_but_hold_the_slot_back_all_the_same() -> None:
    first = stepped(None, Stalled(at=NOW, sent_at=NOW - 3))
    second = stepped(first, Stalled(at=NOW + 1, sent_at=NOW - 2, counts=False))
    third = stepped(second, Stalled(at=NOW + 4, sent_at=NOW))

    assert [s.rung for s in (first, second, third)] == [1, 1, 1]
    assert [s.next_slot_at for s in (first, second, third)] == [NOW + 2, NOW + 3, NOW + 6]
    assert [s.stalled_at for s in (first, second, third)] == [NOW, NOW + 1, NOW + 4]
    assert {s.counted_at for s in (first, second, third)} == {NOW}


def test_an_error_of_what_was_sent_after_the_climb_is_the_next_incident() -> None:
    first = stepped(None, Stalled(at=NOW, sent_at=NOW - 3))
    second = stepped(first, Stalled(at=NOW + 2.1, sent_at=NOW + 2))

    assert (second.rung, second.counted_at, second.stalls_in_a_row) == (2, NOW + 2.1, 2)


def test_every_time_out_climbs_though_it_is_counted_once() -> None:
    state: HostState | None = None
    for number in range(4):
        state = stepped(state, Stalled(at=NOW + number, sent_at=NOW - 30, lingers=True))

    assert state is not None
    assert (state.rung, state.stalls_in_a_row, state.counted_at) == (4, 1, NOW)


def test_a_time_out_that_may_not_count_leaves_the_incident_as_it_is() -> None:
    after = stepped(row(1, in_a_row=1, counted=NOW - 9), Stalled(at=NOW, sent_at=NOW - 1, counts=False, lingers=True))

    assert (after.rung, after.stalls_in_a_row, after.counted_at) == (2, 1, NOW - 9)


def test_every_stall_climbs_where_that_is_set() -> None:
    plain = Settings(climb="stall")
    first = stepped(None, Stalled(at=NOW, sent_at=NOW - 30), plain)
    burst = stepped(first, Stalled(at=NOW + 1, sent_at=NOW - 29), plain)
    last = stepped(burst, Stalled(at=NOW + 9, sent_at=NOW + 3, counts=False), plain)

    assert [s.rung for s in (first, burst, last)] == [1, 2, 3]
    assert [s.counted_at for s in (first, burst, last)] == [NOW, NOW, NOW]
    assert [s.stalls_in_a_row for s in (first, burst, last)] == [1, 1, 1]


def test_a_page_ends_the_row_of_stalls() -> None:
    assert stepped(row(5, in_a_row=9), Served(at=NOW, sent_at=NOW)).stalls_in_a_row == 0


def test_the_tenth_stall_in_a_row_pauses_the_host() -> None:
    ninth = stepped(row(5, in_a_row=8, counted=NOW - 60), Stalled(at=NOW, sent_at=NOW - 1))
    tenth = stepped(ninth, Stalled(at=NOW + 60, sent_at=NOW + 59))

    assert (ninth.stalls_in_a_row, ninth.paused_until) == (9, 0.0)
    assert (tenth.stalls_in_a_row, tenth.paused_until, tenth.pauses) == (10, NOW + 180, 1)
    assert claim(tenth, now=NOW + 179) is None


@pytest.mark.parametrize(
    ("pauses", "length"), [(0, 120), (1, 240), (2, 480), (3, 900), (4, 900), (1_100, 900), (10**9, 900)]
)
def test_each_pause_is_twice_as_long_as_the_last_up_to_the_longest(pauses: int, length: int) -> None:
    state = row(5, in_a_row=9, counted=NOW - 60, stalled=NOW - 60, pauses=pauses)

    after = stepped(state, Stalled(at=NOW, sent_at=NOW - 1))

    assert (after.paused_until, after.pauses) == (NOW + length, pauses + 1)


def test_no_host_is_paused_where_that_is_switched_off() -> None:
    state = row(5, in_a_row=1_000, counted=NOW - 60)

    assert stepped(state, Stalled(at=NOW, sent_at=NOW), Settings(pause_after=0)).paused_until == 0.0


PAUSED = row(5, slot=NOW + 40, stalled=NOW - 20, counted=NOW - 20, in_a_row=10, paused=NOW + 100, pauses=1)


def test_a_stall_sent_before_the_pause_began_changes_nothing_but_when_the_host_stalled() -> None:
    change = Stalled(at=NOW, sent_at=NOW - 21, retry_after_s=200)

    assert step(PAUSED, change) == replace(PAUSED, stalled_at=NOW)


def test_a_page_sent_before_the_pause_began_changes_nothing() -> None:
    assert step(PAUSED, Served(at=NOW, sent_at=NOW - 21)) == PAUSED


def test_an_attempt_sent_before_the_pause_changes_nothing_after_it_either() -> None:
    probing_at = NOW + 101

    assert step(PAUSED, Served(at=probing_at, sent_at=NOW - 21)) == PAUSED
    assert step(PAUSED, Stalled(at=probing_at, sent_at=NOW - 21)) == replace(PAUSED, stalled_at=probing_at)


def test_after_a_pause_the_host_is_probing_until_a_probe_is_served() -> None:
    assert not ladder.probing(PAUSED, now=NOW)
    assert ladder.probing(PAUSED, now=NOW + 100)
    assert ladder.probing(claimed(PAUSED, now=NOW + 100), now=NOW + 100)
    assert not ladder.probing(row(5), now=NOW)


@pytest.mark.parametrize(("rung", "limit", "busy"), [(5, 30.0, 60.0), (5, 120.0, 130.0), (1, 30.0, 40.0)])
def test_a_probe_has_the_host_to_itself_for_its_whole_time(rung: int, limit: float, busy: float) -> None:
    state = row(rung, stalled=NOW - 121, paused=NOW - 1, pauses=1)

    assert claimed(state, limit=limit) == replace(state, next_slot_at=NOW + busy)


def test_a_probe_that_is_served_brings_the_host_back_at_the_top_rung() -> None:
    state = row(3, slot=NOW + 140, stalled=NOW - 21, in_a_row=10, paused=NOW - 2, pauses=1)

    after = stepped(state, Served(at=NOW, sent_at=NOW - 1))

    assert after == row(TOP, slot=NOW + 60, stalled=NOW - 21, in_a_row=0, paused=0.0, pauses=1)


def test_a_probe_that_stalls_pauses_the_host_for_twice_as_long() -> None:
    state = row(5, slot=NOW + 40, stalled=NOW - 150, counted=NOW - 150, in_a_row=10, paused=NOW - 30, pauses=1)

    after = stepped(state, Stalled(at=NOW, sent_at=NOW - 29))

    assert (after.paused_until, after.pauses, after.rung, after.stalled_at) == (NOW + 240, 2, 5, NOW)


def test_a_probe_that_stalls_needs_no_more_of_the_time_that_its_claim_reserved() -> None:
    """The probe of a request that may not be sent again may wait for its whole window."""
    state = claimed(row(5, stalled=NOW - 121, paused=NOW - 1, pauses=1), limit=600.0)
    assert state.next_slot_at == NOW + 610

    after = stepped(state, Stalled(at=NOW + 2, sent_at=NOW + 1))

    assert (after.paused_until, after.next_slot_at) == (NOW + 242, NOW + 62)


def test_a_probe_given_back_leaves_the_host_probing() -> None:
    state = row(5, slot=NOW + 140, stalled=NOW - 150, in_a_row=10, paused=NOW - 2, pauses=1)

    unsent = stepped(state, GivenBack(at=NOW, sent_at=None, wrote=NOW + 140))
    failed = stepped(state, GivenBack(at=NOW, sent_at=NOW - 1, wrote=NOW + 140))

    assert unsent == replace(state, next_slot_at=NOW)
    assert failed == replace(state, next_slot_at=NOW + 59)
    assert ladder.probing(unsent, now=NOW)


def test_a_page_ends_the_pause_that_its_own_stall_began() -> None:
    """A request that may not be sent again, recorded as a stall at the time-out and served after all."""
    before = row(4, in_a_row=9, counted=NOW - 60, stalled=NOW - 60)
    paused = stepped(before, Stalled(at=NOW, sent_at=NOW - 30))
    assert (paused.rung, paused.paused_until) == (TOP, NOW + 120)

    after = stepped(paused, Served(at=NOW + 10, sent_at=NOW - 30, began_pause_until=NOW + 120))

    assert (after.rung, after.paused_until, after.stalls_in_a_row) == (4, 0.0, 0)
    assert after.next_slot_at == NOW + 40


def test_a_page_does_not_end_a_pause_that_another_stall_began() -> None:
    assert step(PAUSED, Served(at=NOW, sent_at=NOW - 30, began_pause_until=NOW + 99)) == PAUSED


def test_a_pause_keeps_its_row() -> None:
    assert not ladder.spent(PAUSED, now=NOW + 99)


# What must always hold


@dataclass(frozen=True)
class Action:
    """One thing that happens, `after` seconds after the last."""

    kind: str
    after: float = 0.0
    which: int = 0
    """Which of the attempts in flight, counted round."""
    argument: float | None = None


_AFTER = st.sampled_from([0.0, 0.001, 1.0, 2.0, 4.5, 15.0, 29.9, 60.0, 130.0, 400.0, 1_900.0])
_ACTIONS = st.lists(
    st.builds(
        Action,
        kind=st.sampled_from(
            ["claim"] * 6
            + ["served", "stall", "soft stall", "failure", "unsent"] * 2
            + ["resume", "operator's pause", "floor", "no floor"]
        ),
        after=_AFTER,
        which=st.integers(0, 5),
        argument=st.none() | st.sampled_from([0.0, 1.0, 7.5, 90.0, 1e10]),
    ),
    max_size=60,
)


@dataclass(slots=True)
class Flight:
    sent_at: float
    wrote: float


class Life:
    """A host's row through a sequence of actions, as one process writes it; `now` may be set back in
    between."""

    def __init__(self, floor: float = 0.0) -> None:
        self.now = NOW
        self.elapsed = 0.0
        self.state: HostState | None = row(0, floor=floor) if floor else None
        self.flights: list[Flight] = []
        self.sendings: list[tuple[float, float]] = []
        """When, by a clock that is never set, something was sent, and the least gap before it."""
        self.healthy_since_sending = True

    def act(self, action: Action) -> None:
        self.now += action.after
        self.elapsed += action.after
        self.state = read(self.state, now=self.now)
        self._note_health()
        if action.kind == "claim":
            self._claim(action)
        elif (decision := self._decision(action)) is not None:
            self.state = operated.step(self.state, decision, settings=SETTINGS)
        elif self.flights:
            flight = self.flights.pop(action.which % len(self.flights))
            self.state = step(self.state, self._change(action, flight))
        self._note_health()

    def _claim(self, action: Action) -> None:
        if not ladder.paces(self.state):
            self._send(Flight(self.now, 0.0), gap=0.0)
            return
        pace = ladder.pace_s(self.state, SETTINGS)
        taken = claim(self.state, now=self.now, limit=30.0)
        if taken is None:
            return
        self.state = taken
        if action.argument == 0.0:
            # The client left before the first byte: nothing is sent, and nothing shall be lost.
            back = GivenBack(at=self.now, sent_at=None, wrote=taken.next_slot_at)
            self.state = step(taken, back)
            return
        self._send(Flight(self.now, taken.next_slot_at), gap=0.0 if self.healthy_since_sending else pace)

    def _send(self, flight: Flight, *, gap: float) -> None:
        self.flights.append(flight)
        self.sendings.append((self.elapsed, gap))
        self.healthy_since_sending = not ladder.paces(self.state)

    def _note_health(self) -> None:
        self.healthy_since_sending = self.healthy_since_sending or not ladder.paces(self.state)

    def _decision(self, action: Action) -> Operated | None:
        seconds = min(action.argument or 0.5, 600.0)
        match action.kind:
            case "resume":
                return Resumed(self.now)
            case "operator's pause":
                return PausedByOperator(self.now, self.now + seconds)
            case "floor":
                return FloorSet(self.now, seconds)
            case "no floor":
                return FloorSet(self.now, 0.0)
            case _:
                return None

    def _change(self, action: Action, flight: Flight) -> Change:
        match action.kind:
            case "served":
                return Served(at=self.now, sent_at=flight.sent_at, quota_s=action.argument)
            case "stall":
                return Stalled(at=self.now, sent_at=flight.sent_at, retry_after_s=action.argument)
            case "soft stall":
                return Stalled(at=self.now, sent_at=flight.sent_at, climbs=False)
            case "failure":
                return GivenBack(at=self.now, sent_at=flight.sent_at, wrote=flight.wrote)
            case _:
                return Sent(at=self.now)


def life_of(actions: list[Action], floor: float = 0.0) -> Life:
    life = Life(floor)
    for action in actions:
        life.act(action)
    return life


@FIXED
@given(actions=_ACTIONS, floor=st.sampled_from([0.0, 3.0]))
def test_the_rung_stays_on_the_ladder_and_a_row_has_a_reason(actions: list[Action], floor: float) -> None:
    life = Life(floor)
    for action in actions:
        life.act(action)
        if life.state is not None:
            assert 0 <= life.state.rung <= TOP
            assert life.state.pauses >= 0
            assert all(
                math.isfinite(at) for at in (life.state.next_slot_at, life.state.blocked_until, life.state.paused_until)
            )


@FIXED
@given(actions=_ACTIONS, floor=st.sampled_from([0.0, 3.0]))
def test_two_sendings_are_never_nearer_than_the_pace(actions: list[Action], floor: float) -> None:
    life = life_of(actions, floor)

    for (earlier, _), (later, gap) in itertools.pairwise(life.sendings):
        assert later - earlier >= gap - 1e-6


@FIXED
@given(
    actions=_ACTIONS,
    set_back=st.lists(st.tuples(st.integers(0, 60), st.sampled_from([0.5, 10.0, 3_600.0, 900_000.0])), max_size=4),
)
def test_a_clock_set_back_is_harmless(actions: list[Action], set_back: list[tuple[int, float]]) -> None:
    life = Life()
    for index, action in enumerate(actions):
        for when, seconds in set_back:
            if when == index:
                life.now -= seconds
        life.act(action)
        state = read(life.state, now=life.now)
        assert state is None or 0 <= state.rung <= TOP
        assert state is None or ladder.slot_at(state) <= life.now + 900.0
    for (earlier, _), (later, gap) in itertools.pairwise(life.sendings):
        assert later - earlier >= gap - 1e-6


_HOSTS = st.builds(lambda actions, floor: life_of(actions, floor), _ACTIONS, st.sampled_from([0.0, 3.0]))
_SENT_BEFORE = st.sampled_from([0.0, 1.0, 30.0, 130.0])


@FIXED
@given(actions=_ACTIONS)
def test_only_an_operator_changes_a_floor_and_no_pace_is_below_it(actions: list[Action]) -> None:
    life, floor = Life(), 0.0
    for action in actions:
        life.act(action)
        if action.kind in ("floor", "no floor"):
            floor = min(action.argument or 0.5, 600.0) if action.kind == "floor" else 0.0
        assert (life.state.floor_s if life.state is not None else 0.0) == floor
        assert pace_of(life.state) >= floor


@FIXED
@given(actions=_ACTIONS)
def test_a_host_that_is_resumed_is_held_by_its_floor_alone(actions: list[Action]) -> None:
    life = life_of(actions)
    floor = life.state.floor_s if life.state is not None else 0.0

    after = operated.step(read(life.state, now=life.now), Resumed(life.now), settings=SETTINGS)

    assert after is not None
    assert ladder.paces(after) == (floor > 0)
    assert pace_of(after) == floor
    assert slot_of(after) <= life.now + floor


@FIXED
@given(actions=_ACTIONS, seconds=st.sampled_from([0.5, 60.0, 86_400.0]), later=_AFTER)
def test_nothing_is_sent_while_an_operator_has_paused_the_host(
    actions: list[Action], seconds: float, later: float
) -> None:
    life = life_of(actions)
    until = life.now + seconds
    paused = operated.step(read(life.state, now=life.now), PausedByOperator(life.now, until), settings=SETTINGS)

    now = life.now + later
    state = read(paused, now=now)

    if now < until:
        assert ladder.paces(state)
        assert claim(state, now=now) is None
    elif state is not None:
        assert state.operator_paused_until == 0


def slot_of(state: HostState | None) -> float:
    return -math.inf if state is None else ladder.slot_at(state)


def pace_of(state: HostState | None) -> float:
    return 0.0 if state is None else ladder.pace_s(state, SETTINGS)


@FIXED
@given(
    life=_HOSTS,
    sent_before=_SENT_BEFORE,
    retry_after=st.none() | st.floats(0, 1e10),
    climbs=st.booleans(),
    counts=st.booleans(),
    lingers=st.booleans(),
)
def test_a_stall_never_speeds_up(
    life: Life, sent_before: float, retry_after: float | None, climbs: bool, counts: bool, lingers: bool
) -> None:
    change = Stalled(life.now, life.now - sent_before, climbs, counts, lingers, retry_after)
    before = read(life.state, now=life.now)

    after = step(before, change)

    assert pace_of(after) >= pace_of(before)
    assert max(slot_of(after), life.now) >= slot_of(before)


@FIXED
@given(life=_HOSTS, sent_before=_SENT_BEFORE)
def test_a_page_never_slows_down_but_for_the_first_after_a_pause(life: Life, sent_before: float) -> None:
    before = read(life.state, now=life.now)
    served = Served(at=life.now, sent_at=life.now - sent_before)

    after = step(before, served)

    assert slot_of(after) <= slot_of(before)
    assert pace_of(after) <= pace_of(before) or (before is not None and before.paused_until > 0)


@FIXED
@given(life=_HOSTS, asked=st.tuples(st.floats(0, 1e10), st.floats(0, 1e10)).map(sorted), climbs=st.booleans())
def test_a_longer_retry_after_never_means_an_earlier_slot(life: Life, asked: list[float], climbs: bool) -> None:
    before = read(life.state, now=life.now)
    none, shorter, longer = (
        step(before, Stalled(at=life.now, sent_at=life.now, climbs=climbs, retry_after_s=s)) for s in (None, *asked)
    )

    assert slot_of(none) <= max(slot_of(shorter), life.now)
    assert slot_of(shorter) <= max(slot_of(longer), life.now)


@FIXED
@given(life=_HOSTS)
def test_a_slot_is_claimed_exactly_when_it_is_free(life: Life) -> None:
    state = read(life.state, now=life.now)
    if not ladder.paces(state):
        return

    taken = claim(state, now=life.now)

    assert (taken is not None) == (ladder.slot_at(state) <= life.now)
    if taken is not None:
        assert taken.next_slot_at >= life.now + ladder.pace_s(taken, SETTINGS)
