"""A host's row as it counts at a moment: what time alone makes of it.

Pure arithmetic on values; times are handed in as Unix seconds. What an event makes of a row is in `ladder.py`.
"""

from dataclasses import replace

from proxy_addon import ladder
from proxy_addon.model import HostState
from proxy_addon.settings import Settings

DECISION_KEPT_S = 86_400.0
"""How long a row says that an operator has decided something, though nothing of that is in force any more: a process
that could not reach the store meanwhile, or an attempt sent before, shall not undo it. Outages are shorter."""


def read(state: HostState | None, *, now: float, settings: Settings, pace_factor: float = 1.0) -> HostState | None:
    """A row as it counts at `now`: what a clock set back has made impossible is clamped, what is old is forgiven.

    Returns the very same object where neither applies; else what it returns must be written, since a clamp that is
    not written moves along with `now` for ever. A block that has ended on rung 0 is left to the caller: with somebody
    waiting it still matters (`ladder.claim`), else `ladder.spent` says that the row can go.
    """
    if state is None:
        return None
    state = _clamped(state, now=now, settings=settings, pace_factor=pace_factor)
    if settings.forgive_after and state.in_flight_limit and state.limited_at + settings.forgive_after <= now:
        state = replace(state, in_flight_limit=0, limited_at=0.0)
    state = _operated(state, now=now)
    if not ladder.paces(state):
        bare = ladder.kept(state, now=now)
        return state if bare == state else bare
    # A row that never stalled was begun by a used-up quota.
    trouble_at = state.stalled_at or state.blocked_until
    is_troubled = state.rung > 0 or state.pauses > 0 or state.quota_pace_s > 0
    if settings.forgive_after and is_troubled and trouble_at + settings.forgive_after <= now:
        state = replace(
            state,
            rung=0,
            stalled_at=0.0,
            counted_at=0.0,
            stalls_in_a_row=0,
            paused_until=0.0,
            pauses=0,
            quota_pace_s=0.0,
        )
        return ladder.kept(state, now=now)
    return state


def _operated(state: HostState, *, now: float) -> HostState:
    """What an operator has decided, as it counts at `now`. Its pause just ends: whatever else there was goes on."""
    if 0 < state.operator_paused_until <= now:
        state = replace(state, operator_paused_until=0.0)
    if 0 < state.resumed_at <= now - DECISION_KEPT_S:
        state = replace(state, resumed_at=0.0)
    in_force = state.floor_s > 0 or state.operator_paused_until > 0
    if 0 < state.operated_at <= now - DECISION_KEPT_S and not in_force:
        state = replace(state, operated_at=0.0)
    return state


def _clamped(state: HostState, *, now: float, settings: Settings, pace_factor: float) -> HostState:
    """No time further ahead than its greatest legal value."""
    longest_s = max(settings.ladder[-1], state.floor_s, state.quota_pace_s) * pace_factor
    if state.paused_until:
        longest_s = max(longest_s, settings.connect_timeout + max(settings.attempt_timeout, settings.window))
    latest_slot, latest_block = now + longest_s, now + settings.retry_after_cap
    latest_pause = now + settings.pause_max
    # What was left of it when an operator last decided anything.
    latest_operator_pause = now + max(0.0, state.operator_paused_until - state.operated_at)
    if (
        state.next_slot_at <= latest_slot
        and state.blocked_until <= latest_block
        and state.paused_until <= latest_pause
        and state.stalled_at <= now
        and state.counted_at <= now
        and state.limited_at <= now
        and state.operated_at <= now
        and state.resumed_at <= now
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
        operator_paused_until=min(state.operator_paused_until, latest_operator_pause),
        operated_at=min(state.operated_at, now),
        resumed_at=min(state.resumed_at, now),
    )
