"""The transition table of a host: what a claim, a sending and an outcome make of its row.

Pure arithmetic on values: no I/O, no clock, no randomness; times are handed in as Unix seconds. A host without a row
that paces is healthy, be it that there is none (None) or that it only keeps a limit (`in_flight.py`). What is not here:
whose turn it is (`line.py`), who wins a race (`store/`), what a reply means (`retry.py`).
"""

from dataclasses import replace
from typing import TypeGuard, assert_never

from proxy_addon.changes import Change, Checked, GivenBack, Limited, Sent, Served, Stalled
from proxy_addon.model import HostState
from proxy_addon.settings import Settings

HEALTHY = HostState()

_FASTER = 0.97
"""What a page does to a floor: 23 of them halve it. What is too slow is mended within a minute or two, and what is too
fast is told so once in some 20 pages, and measured again."""
_LEAST_FLOOR_S = 0.02
"""A floor below that is none: gaps are kept to within as much."""


def paces(state: HostState | None) -> TypeGuard[HostState]:
    """Whether the row holds requests back: the host is not healthy. Else there is none, or it only keeps a limit."""
    return state is not None and (
        state.rung > 0 or state.floor_s > 0 or state.blocked_until > 0 or state.paused_until > 0
    )


def pace_s(state: HostState, settings: Settings) -> float:
    """Seconds between two attempts to a host in this state."""
    return max(settings.ladder[min(state.rung, len(settings.ladder) - 1)], state.floor_s)


def slot_at(state: HostState) -> float:
    """When the host may be sent its next attempt; its slot is free from then on."""
    return max(state.next_slot_at, state.blocked_until, state.paused_until)


def held_until(state: HostState) -> float:
    """Until when nothing at all is sent to the host, whoever asks: its block or its pause, whichever is longer."""
    return max(state.blocked_until, state.paused_until)


def probing(state: HostState, *, now: float) -> bool:
    """Whether a pause is over and no probe has been served yet."""
    return 0 < state.paused_until <= now


def read(state: HostState | None, *, now: float, settings: Settings, pace_factor: float = 1.0) -> HostState | None:
    """A row as it counts at `now`: what a clock set back has made impossible is clamped, what is old is forgiven.

    Returns the very same object where neither applies; else what it returns must be written, since a clamp that is
    not written moves along with `now` for ever. A block that has ended on rung 0 is left to the caller: with somebody
    waiting it still matters (`claim`), else `spent` says that the row can go.
    """
    if state is None:
        return None
    state = _clamped(state, now=now, settings=settings, pace_factor=pace_factor)
    if settings.forgive_after and state.in_flight_limit and state.limited_at + settings.forgive_after <= now:
        state = replace(state, in_flight_limit=0, limited_at=0.0)
        if not paces(state):
            return None
    # A row that never stalled was begun by a used-up quota.
    trouble_at = state.stalled_at or state.blocked_until
    is_troubled = state.rung > 0 or state.pauses > 0 or state.floor_s > 0
    if settings.forgive_after and is_troubled and trouble_at + settings.forgive_after <= now:
        state = replace(
            state,
            rung=0,
            stalled_at=0.0,
            counted_at=0.0,
            stalls_in_a_row=0,
            paused_until=0.0,
            pauses=0,
            floor_s=0.0,
        )
        return _kept(state, now=now)
    return state


def spent(state: HostState, *, now: float) -> bool:
    """Whether the row says nothing more, but for its limit: it may stop pacing when nobody waits for the host."""
    return _is_over(state, now=now) and (paces(state) or not state.in_flight_limit)


def claim(
    state: HostState,
    *,
    now: float,
    limit_s: float,
    settings: Settings,
    pace_factor: float = 1.0,
    measured_s: float | None = None,
) -> HostState | None:
    """The row after one attempt has taken the slot; None where the slot is not free. It must be a row that paces.

    1. not free: None.
    2. the host is probing: nothing else is sent until the probe has had its time (`connect_timeout` + `limit_s`).
    3. a block has ended, and it is known how many pages come between two of them: that is the pace from now on.
    4. a block has ended on rung 0: the host is taken back carefully, from rung 1.
    5. else the next slot is one pace away.

    `limit_s`: how long the attempt may wait for its response head. `pace_factor`: see `Rows.pace_factor`.
    `measured_s`: see `PageRate.measured_s`.
    """
    if slot_at(state) > now:
        return None
    if probing(state, now=now):
        busy_s = max(pace_s(state, settings) * pace_factor, settings.connect_timeout + limit_s)
        return replace(state, next_slot_at=now + busy_s)
    if state.blocked_until > 0 and measured_s is not None:
        state = replace(state, floor_s=min(measured_s, settings.ladder[-1]), blocked_until=0.0)
    elif state.rung == 0 and state.blocked_until > 0:
        state = replace(state, rung=1, stalled_at=max(state.stalled_at, state.blocked_until), blocked_until=0.0)
    return replace(state, next_slot_at=now + pace_s(state, settings) * pace_factor)


def step(state: HostState | None, change: Change, *, settings: Settings, pace_factor: float = 1.0) -> HostState | None:
    """The row after `change`, None where none is left. Never raises; `state` is as `read` returned it, and is what is
    returned where nothing changes."""
    after = _step(state, change, settings, pace_factor)
    return state if after == state else after


def _step(state: HostState | None, change: Change, settings: Settings, pace_factor: float) -> HostState | None:
    match change:
        case Sent():
            if not paces(state):
                return state
            slot = change.at + pace_s(state, settings) * pace_factor
            return replace(state, next_slot_at=max(state.next_slot_at, slot))
        case Served():
            return _served(state, change, settings, pace_factor)
        case Stalled():
            return _stalled(state or HEALTHY, change, settings, pace_factor)
        case GivenBack():
            return _given_back(state, change, settings, pace_factor)
        case Limited():
            return _limited(state or HEALTHY, change)
        case Checked():
            return None if state is None else _kept(state, now=change.at)
        case _:
            assert_never(change)


def _served(state: HostState | None, change: Served, settings: Settings, pace_factor: float) -> HostState | None:
    """Cases, in order:

    1. sent before a pause that somebody else's stall began: it says nothing about the host now.
    2. it ends the pause that its own earlier stall began, or it is the probe's page.
    3. the ordinary step down.
    """
    state = state or HEALTHY
    ends_own_pause = change.began_pause_until is not None and change.began_pause_until == state.paused_until
    if state.paused_until > change.sent_at and not ends_own_pause:
        return _kept(state, now=change.at)
    if ends_own_pause:
        state = replace(state, paused_until=0.0, pauses=max(0, state.pauses - 1), rung=max(0, state.rung - 1))
    elif state.paused_until > 0:
        state = replace(state, paused_until=0.0, rung=len(settings.ladder) - 1)
    else:
        state = replace(state, rung=max(0, state.rung - 1))
    state = replace(state, floor_s=state.floor_s * _FASTER if state.floor_s >= _LEAST_FLOOR_S else 0.0)
    state = replace(
        state,
        next_slot_at=min(state.next_slot_at, change.at + pace_s(state, settings) * pace_factor),
        stalls_in_a_row=0,
    )
    if change.quota_s:
        blocked_until = change.at + min(change.quota_s, settings.retry_after_cap)
        state = replace(state, blocked_until=max(state.blocked_until, blocked_until))
    return _kept(state, now=change.at)


def _stalled(state: HostState, change: Stalled, settings: Settings, pace_factor: float) -> HostState | None:
    """Cases, in order:

    1. sent before the pause began: it changes nothing but `stalled_at`.
    2. the probe stalled: paused again.
    3. the ordinary climb, and perhaps the stall that begins a pause. There is none for a stall that does not climb,
       nor, with one climb for each incident, for an error of an attempt sent before the last incident began. Each
       time-out climbs: its request may be in the host for long, and many of those are what knocks it over.
    """
    stalled_at = max(state.stalled_at, change.at)
    if state.paused_until > change.sent_at:
        return replace(state, stalled_at=stalled_at)
    was_probe = state.paused_until > 0
    begins = change.climbs and change.sent_at > state.counted_at
    counts = begins and change.counts
    once = settings.climb == "incident" and not change.lingers
    climbs = begins if once else change.climbs
    rung = min(state.rung + 1, len(settings.ladder) - 1) if climbs else state.rung
    state = replace(
        state,
        rung=rung,
        stalled_at=stalled_at,
        counted_at=change.at if counts or (once and begins) else state.counted_at,
        stalls_in_a_row=state.stalls_in_a_row + 1 if counts else state.stalls_in_a_row,
    )
    slot = change.at + pace_s(state, settings) * pace_factor
    # What a probe's claim reserved was for its own time, which may be a whole window, and that is over.
    state = replace(state, next_slot_at=slot if was_probe else max(state.next_slot_at, slot))
    if change.retry_after_s:
        blocked_until = change.at + min(change.retry_after_s, settings.retry_after_cap)
        state = replace(state, blocked_until=max(state.blocked_until, blocked_until))
    if was_probe or (counts and 0 < settings.pause_after <= state.stalls_in_a_row):
        length_s = min(settings.pause * 2.0 ** min(state.pauses, 64), settings.pause_max)
        state = replace(state, paused_until=change.at + length_s, pauses=state.pauses + 1)
    return _kept(state, now=change.at)


def _given_back(state: HostState | None, change: GivenBack, settings: Settings, pace_factor: float) -> HostState | None:
    if state is None or change.wrote is None or state.next_slot_at != change.wrote:
        return state
    if change.sent_at is None:
        return replace(state, next_slot_at=min(state.next_slot_at, change.at))
    slot = change.sent_at + pace_s(state, settings) * pace_factor
    return replace(state, next_slot_at=min(state.next_slot_at, slot))


def _limited(state: HostState, change: Limited) -> HostState | None:
    if change.at < state.limited_at:
        return state
    limited_at = change.at if change.limit else 0.0
    state = replace(state, in_flight_limit=change.limit, limited_at=limited_at)
    return state if change.limit or paces(state) else None


def _kept(state: HostState, *, now: float) -> HostState | None:
    """The state; its limit alone where it says no more than that the host is healthy; None where there is none."""
    if not _is_over(state, now=now):
        return state
    if not state.in_flight_limit:
        return None
    return HostState(in_flight_limit=state.in_flight_limit, limited_at=state.limited_at, version=state.version)


def _is_over(state: HostState, *, now: float) -> bool:
    return state.rung == 0 and state.floor_s == 0 and held_until(state) <= now


def _clamped(state: HostState, *, now: float, settings: Settings, pace_factor: float) -> HostState:
    """No time further ahead than its greatest legal value."""
    longest_s = max(settings.ladder[-1], state.floor_s) * pace_factor
    if state.paused_until:
        longest_s = max(longest_s, settings.connect_timeout + max(settings.attempt_timeout, settings.window))
    latest_slot, latest_block = now + longest_s, now + settings.retry_after_cap
    latest_pause = now + settings.pause_max
    if (
        state.next_slot_at <= latest_slot
        and state.blocked_until <= latest_block
        and state.paused_until <= latest_pause
        and state.stalled_at <= now
        and state.counted_at <= now
        and state.limited_at <= now
    ):
        return state
    return replace(
        state,
        next_slot_at=min(state.next_slot_at, latest_slot),
        blocked_until=min(state.blocked_until, latest_block),
        paused_until=min(state.paused_until, latest_pause),
        stalled_at=min(state.stalled_at, now),
        counted_at=min(state.counted_at, now),
        limited_at=min(state.limited_at, now),
    )
