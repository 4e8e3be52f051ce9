"""The transition table of a host: what a claim, a sending and an outcome make of its row.

Pure arithmetic on values: no I/O, no clock, no randomness; times are handed in as Unix seconds. A host without a row
that paces is healthy, be it that there is none (None) or that it only keeps a limit (`in_flight.py`). What is not here:
how a row ages (`reading.py`), what an operator makes of it (`operated.py`), whose turn it is (`line.py`), who wins a
race (`store/`), what a reply means (`retry.py`).
"""

from dataclasses import replace
from typing import TypeGuard, assert_never

from proxy_addon.changes import Change, Checked, GivenBack, Limited, Sent, Served, Stalled
from proxy_addon.model import HostState
from proxy_addon.settings import Settings

HEALTHY = HostState()

_FASTER = 0.97
"""What a page does to the pace of a quota: 23 of them halve it. What is too slow is mended within a minute or two, and
what is too fast is told so once in some 20 pages, and measured again."""
_LEAST_QUOTA_PACE_S = 0.02
"""One below that is none: gaps are kept to within as much."""


def paces(state: HostState | None) -> TypeGuard[HostState]:
    """Whether the row holds requests back: the host is not healthy. Else there is none, or it only keeps a limit."""
    return state is not None and (
        state.rung > 0
        or state.floor_s > 0
        or state.quota_pace_s > 0
        or state.blocked_until > 0
        or state.paused_until > 0
        or state.operator_paused_until > 0
    )


def pace_s(state: HostState, settings: Settings) -> float:
    """Seconds between two attempts to a host in this state."""
    return max(settings.ladder[min(state.rung, len(settings.ladder) - 1)], state.floor_s, state.quota_pace_s)


def slot_at(state: HostState) -> float:
    """When the host may be sent its next attempt; its slot is free from then on."""
    return max(state.next_slot_at, held_until(state))


def held_until(state: HostState) -> float:
    """Until when nothing at all is sent to the host, whoever asks: its block or a pause, whichever is longest."""
    return max(state.blocked_until, state.paused_until, state.operator_paused_until)


def probing(state: HostState, *, now: float) -> bool:
    """Whether a pause is over and no probe has been served yet."""
    return 0 < state.paused_until <= now


def spent(state: HostState, *, now: float) -> bool:
    """Whether the row holds nothing back any more: it may stop pacing when nobody waits for the host."""
    return _is_over(state, now=now) and (paces(state) or not keeps(state))


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
        state = replace(state, quota_pace_s=min(measured_s, settings.ladder[-1]), blocked_until=0.0)
    elif state.rung == 0 and state.blocked_until > 0:
        state = replace(state, rung=1, stalled_at=max(state.stalled_at, state.blocked_until), blocked_until=0.0)
    return replace(state, next_slot_at=now + pace_s(state, settings) * pace_factor)


def step(state: HostState | None, change: Change, *, settings: Settings, pace_factor: float = 1.0) -> HostState | None:
    """The row after `change`, None where none is left. Never raises; `state` is as `reading.read` returned it, and is
    what is returned where nothing changes."""
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
            return None if state is None else kept(state, now=change.at)
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
        return kept(state, now=change.at)
    if ends_own_pause:
        state = replace(state, paused_until=0.0, pauses=max(0, state.pauses - 1), rung=max(0, state.rung - 1))
    elif state.paused_until > 0:
        state = replace(state, paused_until=0.0, rung=len(settings.ladder) - 1)
    else:
        state = replace(state, rung=max(0, state.rung - 1))
    quota_pace_s = state.quota_pace_s * _FASTER if state.quota_pace_s >= _LEAST_QUOTA_PACE_S else 0.0
    state = replace(state, quota_pace_s=quota_pace_s, stalls_in_a_row=0)
    slot = change.at + pace_s(state, settings) * pace_factor
    state = replace(state, next_slot_at=min(state.next_slot_at, slot))
    return kept(_blocked(state, change.quota_s, at=change.at, settings=settings), now=change.at)


def _stalled(state: HostState, change: Stalled, settings: Settings, pace_factor: float) -> HostState | None:
    """Cases, in order:

    1. sent before the pause began: it changes nothing but `stalled_at`.
    2. sent before an operator resumed the host: it says nothing of how the host is since. What it asks for holds.
    3. the probe stalled: paused again.
    4. the ordinary climb, and perhaps the stall that begins a pause. There is none for a stall that does not climb,
       nor, with one climb for each incident, for an error of an attempt sent before the last incident began. Each
       time-out climbs: its request may be in the host for long, and many of those are what knocks it over.
    """
    stalled_at = max(state.stalled_at, change.at)
    if state.paused_until > change.sent_at:
        return replace(state, stalled_at=stalled_at)
    if change.sent_at < state.resumed_at:
        return kept(_blocked(state, change.retry_after_s, at=change.at, settings=settings), now=change.at)
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
    state = _blocked(state, change.retry_after_s, at=change.at, settings=settings)
    if was_probe or (counts and 0 < settings.pause_after <= state.stalls_in_a_row):
        length_s = min(settings.pause * 2.0 ** min(state.pauses, 64), settings.pause_max)
        state = replace(state, paused_until=change.at + length_s, pauses=state.pauses + 1)
    return kept(state, now=change.at)


def _blocked(state: HostState, asked_s: float | None, *, at: float, settings: Settings) -> HostState:
    """The state, with the block that the origin asked for at `at`; `asked_s` None or 0: it did not."""
    if not asked_s:
        return state
    return replace(state, blocked_until=max(state.blocked_until, at + min(asked_s, settings.retry_after_cap)))


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
    return state if paces(state) or keeps(state) else None


def kept(state: HostState, *, now: float) -> HostState | None:
    """The state; where it holds nothing back, only what else it keeps; None where that is nothing."""
    if not _is_over(state, now=now):
        return state
    if not keeps(state):
        return None
    return HostState(
        in_flight_limit=state.in_flight_limit,
        limited_at=state.limited_at,
        operated_at=state.operated_at,
        resumed_at=state.resumed_at,
        version=state.version,
    )


def keeps(state: HostState) -> bool:
    """Whether the row is worth keeping though it holds nothing back: for a limit, or as an operator's word."""
    return state.in_flight_limit > 0 or state.operated_at > 0 or state.resumed_at > 0


def _is_over(state: HostState, *, now: float) -> bool:
    return state.rung == 0 and max(state.floor_s, state.quota_pace_s) == 0 and held_until(state) <= now
