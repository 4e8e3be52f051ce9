"""What an operator's decision makes of a host's row: resume it, pause it, give it a floor.

Pure arithmetic on values; times are handed in as Unix seconds. How the row goes on from there is in `ladder.py`, when a
pause of an operator ends in `reading.py`.
"""

from dataclasses import replace

from proxy_addon import ladder
from proxy_addon.changes import Change, FloorSet, Operated, PausedByOperator, Resumed
from proxy_addon.model import HostState
from proxy_addon.settings import Settings


def step(
    state: HostState | None, change: Change | Operated, *, settings: Settings, pace_factor: float = 1.0
) -> HostState | None:
    """The row after `change`, be it an operator's or any other; `state` is as `reading.read` returned it.

    An operator's leaves a row in any case: it says when that was.
    """
    match change:
        case Resumed():
            return _resumed(_decided(state, change), change, pace_factor)
        case PausedByOperator():
            return replace(_decided(state, change), operator_paused_until=change.until)
        case FloorSet():
            before = _decided(state, change)
            after = replace(before, floor_s=change.floor_s)
            slot = _next_slot_at(before, after, at=change.at, settings=settings, pace_factor=pace_factor)
            return ladder.kept(replace(after, next_slot_at=slot), now=change.at)
        case _:
            return ladder.step(state, change, settings=settings, pace_factor=pace_factor)


def _decided(state: HostState | None, change: Operated) -> HostState:
    state = state or ladder.HEALTHY
    return replace(state, operated_at=max(state.operated_at, change.at))


def untroubled(state: HostState) -> HostState:
    """What is left of a row when the host's trouble is forgotten: what an operator has set, and the limit of attempts
    in flight, which says how much the host bears, not how it is."""
    return HostState(
        next_slot_at=state.next_slot_at if state.floor_s else 0.0,
        in_flight_limit=state.in_flight_limit,
        limited_at=state.limited_at,
        floor_s=state.floor_s,
        operator_paused_until=state.operator_paused_until,
        operated_at=state.operated_at,
        version=state.version,
    )


def _resumed(state: HostState, change: Resumed, pace_factor: float) -> HostState:
    """As if the host had never been in trouble. A floor stays, an operator's pause does not."""
    rest = untroubled(state)
    return replace(
        rest,
        # Not sooner than the floor allows, whenever the last attempt was sent.
        next_slot_at=min(rest.next_slot_at, change.at + rest.floor_s * pace_factor),
        operator_paused_until=0.0,
        resumed_at=change.at,
    )


def _next_slot_at(before: HostState, after: HostState, *, at: float, settings: Settings, pace_factor: float) -> float:
    """The next slot of a host whose pace becomes another at `at`, so that the new pace holds from the last attempt on.

    1. there was no pace: nobody knows when the last attempt was sent; perhaps just now, by another process.
    2. it is slower: the slot moves by the difference.
    3. it is quicker: at most the new pace away; but what a probe has reserved is its own.
    """
    old_s, new_s = (ladder.pace_s(state, settings) * pace_factor for state in (before, after))
    if old_s == 0:
        return max(before.next_slot_at, at + new_s)
    if new_s > old_s:
        return before.next_slot_at + new_s - old_s
    if before.paused_until > 0:
        return before.next_slot_at
    return min(before.next_slot_at, at + new_s)
