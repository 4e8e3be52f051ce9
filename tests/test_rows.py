"""The rows as one process knows them: its mirror, its races with others, and a store that comes and goes.

All in virtual time, on the memory store. What the engine makes of it is in `tests/test_engine_store.py`.
"""

import asyncio
import dataclasses
import functools
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace

import pytest

from proxy_addon.model import Event, HostState, StoreFailed, StoreRecovered
from proxy_addon.rows import Decide, Rows, Written, greater
from proxy_addon.store import StoreError
from proxy_addon.store.memory import MemoryStore
from tests.support.clock import FakeClock
from tests.support.stores import TroubledStore

NOW = 1_000_000.0
DISK_ERROR = "disk I/O error, as the test wants it"


class Process:
    """One process's rows, and what they told it."""

    def __init__(self, store: MemoryStore, clock: FakeClock) -> None:
        self.store = TroubledStore(store)
        self.events: list[Event] = []
        self.changed: list[str] = []
        self.rows = Rows(self.store, clock, emit=self.events.append, on_change=self.changed.append)

    async def stall(self, host: str = "a") -> Written:
        """One rung up."""
        return await self.rows.change(host, climb)

    async def recover(self, host: str = "a") -> Written:
        """Delete the row."""
        return await self.rows.change(host, lambda row, now: None)

    def rungs(self) -> dict[str, int]:
        return {host: row.rung for host, row in self.rows.items()}

    def rung(self, host: str = "a") -> int | None:
        row = self.rows.get(host)
        return None if row is None else row.rung


class Fleet:
    """Processes that share one store."""

    def __init__(self, clock: FakeClock, *, shared: bool) -> None:
        self.clock = clock
        self.contents = MemoryStore(shared=shared)
        self.processes: list[Process] = []

    async def start(self) -> Process:
        beside = self.contents.beside() if self.contents.shared else self.contents
        process = Process(beside, self.clock)
        self.processes.append(process)
        await process.rows.start()
        return process

    async def stored(self, host: str = "a") -> HostState | None:
        return await self.contents.get(host)


def climb(row: HostState | None, now: float) -> HostState:
    row = row or HostState()
    return replace(row, rung=row.rung + 1, stalled_at=now)


def claim_until(slot: float) -> Decide:
    """Take the slot as far as `slot`, if it is free."""
    return lambda row, now: replace(row, next_slot_at=slot) if row is not None and row.next_slot_at <= now else row


type Scenario = Callable[[Fleet], Coroutine[None, None, None]]


def virtual(*, shared: bool = True) -> Callable[[Scenario], Callable[[], None]]:
    """A test whose coroutine runs in virtual time; at its end nothing may be left behind."""

    def decorate(scenario: Scenario) -> Callable[[], None]:
        @functools.wraps(scenario)
        def test() -> None:
            clock = FakeClock(now=NOW)

            async def run() -> None:
                fleet = Fleet(clock, shared=shared)
                await scenario(fleet)
                for process in fleet.processes:
                    process.store.trouble = None
                    await process.rows.stop()
                assert clock.pending == 0
                assert asyncio.all_tasks() == {asyncio.current_task()}

            clock.run(run())

        del test.__wrapped__  # or pytest takes `fleet` for a fixture
        return test

    return decorate


# --- one process


@virtual(shared=False)
async def test_a_host_that_nobody_wrote_about_has_no_row(fleet: Fleet) -> None:
    one = await fleet.start()
    assert (one.rows.get("a"), len(one.rows), one.rows.items()) == (None, 0, [])
    assert (one.rows.up, one.rows.pace_factor) == (True, 1.0)
    assert one.store.swaps == 0


@virtual(shared=False)
async def test_what_was_written_is_in_the_mirror_and_in_the_store(fleet: Fleet) -> None:
    one = await fleet.start()
    written = await one.stall()
    row = HostState(rung=1, stalled_at=NOW, version=1)
    assert written == Written(row, won=True)
    assert one.rows.get("a") == row
    assert await fleet.stored() == row
    assert (len(one.rows), one.rows.items()) == (1, [("a", row)])
    assert await one.recover() == Written(None, won=True)
    assert (one.rows.get("a"), await fleet.stored(), len(one.rows)) == (None, None, 0)


@virtual(shared=False)
async def test_a_decision_to_change_nothing_is_not_written(fleet: Fleet) -> None:
    one = await fleet.start()
    assert await one.rows.change("a", lambda row, now: row) == Written(None, won=True)
    written = await one.stall()
    again = await one.rows.change("a", lambda row, now: row, once=True)
    assert again.row is written.row
    assert again.won
    assert one.store.swaps == 1


@virtual(shared=False)
async def test_own_writes_are_told_to_nobody(fleet: Fleet) -> None:
    one = await fleet.start()
    await one.stall()
    await one.recover()
    await fleet.clock.advance(60)
    assert (one.changed, one.events) == ([], [])


@virtual(shared=False)
async def test_a_store_of_its_own_is_never_looked_at_again(fleet: Fleet) -> None:
    await fleet.start()
    assert fleet.clock.pending == 0


@virtual()
async def test_the_copy_of_all_rows_is_a_copy(fleet: Fleet) -> None:
    one = await fleet.start()
    await one.stall()
    items = one.rows.items()
    await one.recover()
    assert [host for host, _ in items] == ["a"]


# --- several


@virtual()
async def test_a_process_begins_with_what_the_others_have_written(fleet: Fleet) -> None:
    one = await fleet.start()
    await one.stall("a")
    await one.stall("b")
    await one.recover("b")
    other = await fleet.start()
    assert other.rows.items() == [("a", HostState(rung=1, stalled_at=NOW, version=1))]


@virtual()
async def test_what_another_writes_is_seen_within_a_tenth_of_a_second_and_told_once(fleet: Fleet) -> None:
    one, other = await fleet.start(), await fleet.start()
    await one.stall("a")
    await one.stall("b")
    assert other.rungs() == {}
    await fleet.clock.advance(0.1)
    assert (other.rung("a"), other.rung("b")) == (1, 1)
    assert sorted(other.changed) == ["a", "b"]
    await one.recover("a")
    await fleet.clock.advance(0.1)
    assert (other.rung("a"), other.rung("b")) == (None, 1)
    assert sorted(other.changed) == ["a", "a", "b"]
    await fleet.clock.advance(60)
    assert len(other.changed) == 3
    assert one.changed == []


@virtual()
async def test_a_race_that_is_lost_is_decided_anew_until_it_is_won(fleet: Fleet) -> None:
    one, other = await fleet.start(), await fleet.start()
    await one.stall()
    await one.stall()
    seen: list[int | None] = []

    def decide(row: HostState | None, now: float) -> HostState | None:
        seen.append(None if row is None else row.rung)
        return climb(row, now)

    written = await other.rows.change("a", decide)
    assert seen == [None, 2]
    assert written == Written(HostState(rung=3, stalled_at=NOW, version=3), won=True)
    assert await fleet.stored() == written.row
    assert other.store.swaps == 2


@virtual()
async def test_no_stall_is_lost_however_many_write_at_the_same_moment(fleet: Fleet) -> None:
    processes = [await fleet.start() for _ in range(5)]
    await asyncio.gather(*(process.stall() for process in processes))
    row = await fleet.stored()
    assert row is not None
    assert row.rung == 5


@virtual()
async def test_the_time_of_a_decision_is_that_of_its_own_try(fleet: Fleet) -> None:
    one, other = await fleet.start(), await fleet.start()
    other.store.held_back["swap"] = released = asyncio.Event()
    await one.stall()
    changing = asyncio.ensure_future(other.stall())
    await fleet.clock.advance(3)
    released.set()
    written = await changing
    assert written.row == HostState(rung=2, stalled_at=NOW + 3, version=2)


@virtual()
async def test_of_two_claims_one_is_won_and_the_other_learns_of_it(fleet: Fleet) -> None:
    one, other = await fleet.start(), await fleet.start()
    await one.stall()
    await fleet.clock.advance(0.1)
    claims = await asyncio.gather(
        *(process.rows.change("a", claim_until(NOW + 60), once=True) for process in (one, other))
    )
    assert sorted(claim.won for claim in claims) == [False, True]
    assert {claim.row for claim in claims} == {await fleet.stored()}
    assert one.rows.get("a") == other.rows.get("a")
    assert (one.store.swaps, other.store.swaps) == (2, 1)


@virtual()
async def test_a_claim_on_a_row_that_has_gone_is_lost(fleet: Fleet) -> None:
    one, other = await fleet.start(), await fleet.start()
    await one.stall()
    await fleet.clock.advance(0.1)
    await one.recover()
    assert await other.rows.change("a", claim_until(NOW + 60), once=True) == Written(None, won=False)
    assert other.rows.get("a") is None


@virtual()
async def test_a_stale_version_does_not_delete_a_later_row(fleet: Fleet) -> None:
    one, other = await fleet.start(), await fleet.start()
    await one.stall()
    await fleet.clock.advance(0.1)
    await one.recover()
    await one.stall()
    assert await other.rows.change("a", lambda row, now: None, once=True) == Written(
        HostState(rung=1, stalled_at=NOW + 0.1, version=3), won=False
    )


# --- a store that fails


@virtual(shared=False)
async def test_a_store_that_cannot_be_opened_is_fatal(fleet: Fleet) -> None:
    process = Process(fleet.contents, fleet.clock)
    process.store.trouble = "refuses"
    with pytest.raises(StoreError, match=DISK_ERROR):
        await process.rows.start()
    await process.rows.stop()
    assert process.events == []


@virtual(shared=False)
async def test_a_store_that_hangs_at_the_start_is_fatal_too(fleet: Fleet) -> None:
    process = Process(fleet.contents, fleet.clock)
    process.store.trouble = "hangs"
    starting = asyncio.create_task(process.rows.start())
    await fleet.clock.advance(14.9)
    assert not starting.done()
    await fleet.clock.advance(0.2)
    with pytest.raises(StoreError, match="gives no answer within 15 s"):
        await starting


@virtual()
async def test_who_waits_for_a_store_that_hangs_can_be_cancelled(fleet: Fleet) -> None:
    process = await fleet.start()
    process.store.trouble = "hangs"
    waiting = asyncio.create_task(process.stall())
    await fleet.clock.settle()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert process.rows.up


@virtual()
async def test_without_the_store_the_mirror_goes_on(fleet: Fleet) -> None:
    one = await fleet.start()
    await one.stall()
    one.store.trouble = "refuses"
    assert await one.stall() == Written(HostState(rung=2, stalled_at=NOW, version=1), won=True)
    assert (one.rows.up, one.rung()) == (False, 2)
    assert await one.rows.change("a", claim_until(NOW + 60), once=True) == Written(
        HostState(rung=2, stalled_at=NOW, next_slot_at=NOW + 60, version=1), won=True
    )
    await one.stall("b")
    assert (one.rung("b"), one.store.swaps) == (1, 2)
    assert one.events == [StoreFailed(DISK_ERROR, first=True)]


@virtual(shared=False)
async def test_a_claim_that_meets_the_failure_is_lost(fleet: Fleet) -> None:
    one = await fleet.start()
    await one.stall()
    one.store.trouble = "loses answers"
    claim = await one.rows.change("a", claim_until(NOW + 60), once=True)
    # It may have been written, or not: nothing may be sent.
    assert claim == Written(HostState(rung=1, stalled_at=NOW, version=1), won=False)
    assert not one.rows.up


@virtual()
async def test_the_pace_is_multiplied_by_the_processes_last_seen(fleet: Fleet) -> None:
    one, other, third = [await fleet.start() for _ in range(3)]
    # Each learns at its next heartbeat of those that came after it.
    await fleet.clock.advance(2)
    assert one.rows.pace_factor == 1.0
    one.store.trouble = other.store.trouble = "refuses"
    await fleet.clock.advance(0.1)
    assert [process.rows.pace_factor for process in (one, other, third)] == [3.0, 3.0, 1.0]
    await third.rows.stop()
    await fleet.clock.advance(20)
    assert one.rows.pace_factor == 3.0
    one.store.trouble = None
    await fleet.clock.advance(1)
    assert one.rows.pace_factor == 1.0
    one.store.trouble = "refuses"
    await fleet.clock.advance(0.1)
    assert one.rows.pace_factor == 1.0


@virtual()
async def test_a_process_that_only_looks_notices_the_failure_too(fleet: Fleet) -> None:
    one = await fleet.start()
    one.store.trouble = "refuses"
    await fleet.clock.advance(0.1)
    assert not one.rows.up


def test_a_failure_is_one_line_and_its_end_another(caplog: pytest.LogCaptureFixture) -> None:
    events: list[Event] = []

    @virtual()
    async def scenario(fleet: Fleet) -> None:
        one, _ = await fleet.start(), await fleet.start()
        await fleet.clock.advance(2)
        one.store.trouble = "refuses"
        await fleet.clock.advance(3.5)
        one.store.trouble = None
        await fleet.clock.advance(10)
        assert one.rows.up
        events.extend(one.events)

    with caplog.at_level(logging.INFO):
        scenario()
    # Noticed 0.1 s after it began, tried again each second, back at the fourth try.
    assert events == [
        StoreFailed(DISK_ERROR, first=True),
        StoreFailed(DISK_ERROR, first=False),
        StoreFailed(DISK_ERROR, first=False),
        StoreFailed(DISK_ERROR, first=False),
        StoreRecovered(down_s=4.0),
    ]
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "ERROR",
            "The store does not work: disk I/O error, as the test wants it. Pacing goes on from this process's own "
            "memory, 2 times as slow, and the store is tried again every 1 s.",
        ),
        ("WARNING", "The store works again."),
    ]


@virtual()
async def test_on_return_what_happened_meanwhile_is_written_and_read(fleet: Fleet) -> None:
    one, other = await fleet.start(), await fleet.start()
    await one.stall("both")
    await one.stall("goes")
    await fleet.clock.advance(0.1)
    one.store.trouble = "refuses"
    await fleet.clock.advance(0.1)
    stalled_at = fleet.clock.now()
    await one.stall("both")
    await one.stall("own")
    await other.rows.change("both", lambda row, now: replace(row or HostState(), blocked_until=NOW + 99))
    await other.stall("others")
    await other.recover("goes")
    one.changed.clear()
    other.changed.clear()
    one.store.trouble = None
    await fleet.clock.advance(1)

    assert one.rows.up
    merged = await fleet.stored("both")
    assert merged is not None
    assert (merged.rung, merged.blocked_until, merged.stalled_at) == (2, NOW + 99, stalled_at)
    assert (await fleet.stored("own"), one.rung("others")) == (one.rows.get("own"), 1)
    # It went while this process could not see it: kept rather than forgotten.
    assert one.rung("goes") == 1
    assert sorted(one.changed) == ["both", "goes", "others", "own"]
    await fleet.clock.advance(0.1)
    assert dict(one.rows.items()) == dict(other.rows.items())
    assert one.rungs() == {"both": 2, "own": 1, "others": 1, "goes": 1}


@virtual()
async def test_what_happens_while_the_store_is_taken_up_again_is_not_lost(fleet: Fleet) -> None:
    one, other = await fleet.start(), await fleet.start()
    await one.stall("old")
    one.store.trouble = "refuses"
    await fleet.clock.advance(0.1)
    await one.stall("old")
    one.store.trouble = None
    one.store.held_back["swap"] = released = asyncio.Event()
    await fleet.clock.advance(1)
    assert not one.rows.up, "it is writing its rows"
    await one.stall("old")
    await one.stall("new")
    released.set()
    await fleet.clock.advance(0.2)

    assert one.rows.up
    assert one.rungs() == other.rungs() == {"old": 3, "new": 1}
    assert (await fleet.stored("old"), await fleet.stored("new")) == (one.rows.get("old"), one.rows.get("new"))
    # And they are rows like any other: the next change is written at once.
    swaps = one.store.swaps
    await one.stall("new")
    assert (one.store.swaps, one.rung("new")) == (swaps + 1, 2)


@virtual()
async def test_a_host_that_recovers_while_the_store_is_taken_up_again_is_in_step_with_it(fleet: Fleet) -> None:
    one, other = await fleet.start(), await fleet.start()
    await one.stall("a")
    one.store.trouble = "refuses"
    await fleet.clock.advance(0.1)
    await one.stall("a")
    one.store.trouble = None
    one.store.held_back["swap"] = released = asyncio.Event()
    await fleet.clock.advance(1)
    await one.recover("a")
    assert one.rung("a") is None
    released.set()
    await fleet.clock.advance(0.2)

    # Slower than it need be, but all know the same.
    assert one.rungs() == other.rungs() == {"a": 2}


@virtual()
async def test_a_look_that_comes_back_after_the_failure_takes_nothing_from_the_mirror(fleet: Fleet) -> None:
    one, other = await fleet.start(), await fleet.start()
    await one.stall("a")
    await fleet.clock.advance(0.1)
    await other.recover("a")
    one.store.held_back["changes_since"] = released = asyncio.Event()
    await fleet.clock.advance(0.1)
    one.store.trouble = "refuses"
    await one.stall("a")
    assert (one.rows.up, one.rung("a")) == (False, 2)
    one.store.trouble = None
    released.set()
    await fleet.clock.settle()
    assert one.rung("a") == 2
    await fleet.clock.advance(1.1)
    assert one.rungs() == other.rungs() == {"a": 2}


@virtual()
async def test_a_store_that_was_emptied_is_filled_again_on_return(fleet: Fleet) -> None:
    one = await fleet.start()
    await one.stall("a")
    await one.stall("a")
    one.store.trouble = "refuses"
    await fleet.clock.advance(0.1)
    emptied = MemoryStore(shared=True)
    one.store.behind = emptied
    one.store.trouble = None
    await fleet.clock.advance(1)
    assert one.rows.up
    assert await emptied.get("a") == one.rows.get("a") == HostState(rung=2, stalled_at=NOW, version=1)
    await one.stall("a")
    assert one.rung("a") == 3


@virtual()
async def test_a_store_that_another_has_taken_the_place_of_is_followed_at_the_next_write(fleet: Fleet) -> None:
    one = await fleet.start()
    await one.stall("a")
    await one.stall("a")
    # Its file was deleted. No call fails, and its versions begin anew.
    one.store.behind = renewed = MemoryStore(shared=True)
    await renewed.swap("b", None, HostState(rung=4), now=NOW)
    await fleet.clock.advance(0.1)
    assert one.rungs() == {"a": 2, "b": 4}
    assert await one.rows.change("a", claim_until(NOW + 60), once=True) == Written(None, won=False)
    assert one.rungs() == {"b": 4}
    await one.stall("b")
    assert one.rungs() == {"b": 5}
    assert await renewed.get("b") == one.rows.get("b")
    assert one.rows.up


@virtual()
async def test_nothing_is_reported_of_a_store_that_was_closed_on_purpose(fleet: Fleet) -> None:
    one = await fleet.start()
    await one.stall()
    await one.rows.stop()
    # The outcome of an attempt that outlived the engine.
    assert (await one.stall()).won
    assert (one.rung(), one.events) == (2, [])


@virtual()
async def test_stopping_twice_or_while_the_store_is_down_leaves_nothing_behind(fleet: Fleet) -> None:
    one = await fleet.start()
    one.store.trouble = "refuses"
    await fleet.clock.advance(5)
    await one.rows.stop()
    await one.rows.stop()
    assert fleet.clock.pending == 0


# --- the greater of two states


def test_the_greater_of_each_field_wins() -> None:
    one = HostState(
        rung=3,
        next_slot_at=10.0,
        blocked_until=0.0,
        stalled_at=9.0,
        counted_at=1.0,
        stalls_in_a_row=5,
        paused_until=0.0,
        pauses=2,
        quota_pace_s=0.0,
        version=7,
    )
    other = HostState(
        rung=1,
        next_slot_at=20.0,
        blocked_until=30.0,
        stalled_at=8.0,
        counted_at=2.0,
        stalls_in_a_row=0,
        paused_until=40.0,
        pauses=0,
        quota_pace_s=1.5,
        version=9,
    )
    expected = HostState(
        rung=3,
        next_slot_at=20.0,
        blocked_until=30.0,
        stalled_at=9.0,
        counted_at=2.0,
        stalls_in_a_row=5,
        paused_until=40.0,
        pauses=2,
        quota_pace_s=1.5,
        version=9,
    )
    assert greater(one, other) == greater(other, one) == expected


def test_of_two_limits_the_later_wins_and_of_two_at_once_the_lower() -> None:
    early, late = HostState(in_flight_limit=4, limited_at=10.0), HostState(in_flight_limit=9, limited_at=11.0)
    assert greater(early, late) == greater(late, early) == late
    lower = HostState(in_flight_limit=2, limited_at=11.0)
    assert greater(lower, late) == greater(late, lower) == lower
    climbed = HostState(rung=2)
    assert greater(climbed, late) == HostState(rung=2, in_flight_limit=9, limited_at=11.0)


def test_what_an_operator_has_decided_last_wins() -> None:
    early = HostState(rung=1, floor_s=9.0, operator_paused_until=90.0, operated_at=10.0)
    late = HostState(rung=3, floor_s=2.0, operated_at=11.0)
    expected = HostState(rung=3, floor_s=2.0, operated_at=11.0)
    assert greater(early, late) == greater(late, early) == expected
    at_once = HostState(floor_s=1.0, operator_paused_until=30.0, operated_at=11.0)
    expected = HostState(rung=3, floor_s=2.0, operator_paused_until=30.0, operated_at=11.0)
    assert greater(at_once, late) == greater(late, at_once) == expected


def test_trouble_from_before_a_resume_is_forgotten() -> None:
    resumed = HostState(next_slot_at=22.0, operated_at=20.0, resumed_at=20.0, version=3)
    sick = HostState(
        rung=4,
        next_slot_at=60.0,
        blocked_until=70.0,
        stalled_at=20.0,
        counted_at=19.0,
        stalls_in_a_row=3,
        paused_until=80.0,
        pauses=1,
        quota_pace_s=0.5,
        in_flight_limit=4,
        limited_at=18.0,
        floor_s=6.0,
        operated_at=5.0,
        version=2,
    )
    expected = HostState(
        next_slot_at=60.0, in_flight_limit=4, limited_at=18.0, operated_at=20.0, resumed_at=20.0, version=3
    )
    assert greater(resumed, sick) == greater(sick, resumed) == expected
    unfloored = dataclasses.replace(sick, floor_s=0.0)
    expected = dataclasses.replace(expected, next_slot_at=22.0)
    assert greater(resumed, unfloored) == greater(unfloored, resumed) == expected


def test_trouble_since_a_resume_is_not() -> None:
    resumed = HostState(operated_at=20.0, resumed_at=20.0)
    sick = HostState(rung=4, next_slot_at=60.0, stalled_at=20.5)
    expected = HostState(rung=4, next_slot_at=60.0, stalled_at=20.5, operated_at=20.0, resumed_at=20.0)
    assert greater(resumed, sick) == greater(sick, resumed) == expected
    # And what the resumed one has seen itself is not forgotten either.
    again = HostState(rung=1, stalled_at=21.0, operated_at=20.0, resumed_at=20.0)
    old = HostState(rung=5, stalled_at=19.0)
    assert greater(again, old) == greater(old, again) == again


def test_a_state_is_greater_than_none() -> None:
    state = HostState(rung=1)
    assert greater(state, None) is greater(None, state) is state
    assert greater(None, None) is None
