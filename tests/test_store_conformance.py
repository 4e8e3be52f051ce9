"""What every store promises: the contract in `proxy_addon/store/__init__.py`, sentence by sentence.

A further store joins by one line in `_KINDS`.
"""

import asyncio
import dataclasses
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from proxy_addon.model import HostState
from proxy_addon.store import Store
from proxy_addon.store.memory import MemoryStore
from proxy_addon.store.sqlite import SqliteStore

type Handles = Callable[[], Store]
"""Each call gives one more handle on the same rows, as another process would have it (or, where a store is for one
process alone, the same handle again)."""


def _memory(folder: Path) -> Handles:
    store = MemoryStore()
    return lambda: store


def _memory_shared(folder: Path) -> Handles:
    return MemoryStore(shared=True).beside


def _sqlite(folder: Path) -> Handles:
    return lambda: SqliteStore(folder / "state.db")


class Kind(NamedTuple):
    handles: Callable[[Path], Handles]
    shared: bool
    """Several processes may use it."""
    durable: bool
    """The rows are still there when every handle is closed."""


_KINDS = {
    "memory": Kind(_memory, shared=False, durable=False),
    "memory shared": Kind(_memory_shared, shared=True, durable=False),
    "sqlite": Kind(_sqlite, shared=True, durable=True),
}

NOW = 1_700_000_000.0
SICK = HostState(rung=1, next_slot_at=NOW + 2)
SICKER = HostState(rung=2, next_slot_at=NOW + 5)


@pytest.fixture(params=_KINDS)
def handles(request: pytest.FixtureRequest, tmp_path: Path) -> Handles:
    return _KINDS[request.param].handles(tmp_path)


@pytest.fixture(params=[name for name, kind in _KINDS.items() if kind.shared])
def shared_handles(request: pytest.FixtureRequest, tmp_path: Path) -> Handles:
    return _KINDS[request.param].handles(tmp_path)


@pytest.fixture(params=[name for name, kind in _KINDS.items() if kind.durable])
def durable_handles(request: pytest.FixtureRequest, tmp_path: Path) -> Handles:
    return _KINDS[request.param].handles(tmp_path)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def guarded() -> None:
        async with asyncio.timeout(30):
            await scenario

    asyncio.run(guarded())


@asynccontextmanager
async def opened(handles: Handles) -> AsyncIterator[Store]:
    store = handles()
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def written(store: Store, host: str, expected: int | None, new: HostState | None, now: float = NOW) -> int:
    """Like `swap`, where the race must be won."""
    version = await store.swap(host, expected, new, now=now)
    assert version is not None
    return version


def test_a_new_store_is_empty(handles: Handles) -> None:
    async def scenario() -> None:
        async with opened(handles) as store:
            assert await store.get("a.example") is None
            changes = await store.changes_since(0)
            assert (changes.rows, changes.whole) == ({}, True)

    run(scenario())


@pytest.mark.parametrize("name", _KINDS)
def test_a_store_says_whether_others_write_to_it(name: str, tmp_path: Path) -> None:
    assert _KINDS[name].handles(tmp_path)().shared is _KINDS[name].shared


def test_every_field_of_a_row_comes_back_as_it_was_written(handles: Handles) -> None:
    full = HostState(
        rung=5,
        next_slot_at=1_700_000_000.123456,
        blocked_until=1_700_000_300.1,
        stalled_at=1_699_999_999.999999,
        counted_at=1_699_999_998.5,
        stalls_in_a_row=9,
        paused_until=1_700_000_120.25,
        pauses=3,
        quota_pace_s=0.1,
        in_flight_limit=7,
        limited_at=1_699_999_997.75,
        floor_s=2.5,
        operator_paused_until=1_700_003_600.125,
        operated_at=1_699_999_996.625,
        resumed_at=1_699_999_995.0625,
    )
    defaults = HostState()
    unset = [f.name for f in dataclasses.fields(full) if getattr(full, f.name) == getattr(defaults, f.name)]
    assert unset == ["version"], "a new field of HostState must be stored, and be part of this test"

    async def scenario() -> None:
        async with opened(handles) as store:
            version = await written(store, "a.example", None, full)
            expected = dataclasses.replace(full, version=version)
            assert await store.get("a.example") == expected
            assert (await store.changes_since(0)).rows == {"a.example": expected}

    run(scenario())


@pytest.mark.parametrize("host", ["[2001:db8::1]:8080", "xn--bcher-kva.example", "a" * 253, "it's;--", "A.example"])
def test_a_host_is_any_text_and_its_case_counts(handles: Handles, host: str) -> None:
    async def scenario() -> None:
        async with opened(handles) as store:
            await written(store, "a.example", None, SICKER)
            version = await written(store, host, None, SICK)
            assert await store.get(host) == dataclasses.replace(SICK, version=version)

    run(scenario())


def test_inserting_loses_where_the_host_has_a_row(handles: Handles) -> None:
    async def scenario() -> None:
        async with opened(handles) as store:
            version = await written(store, "a.example", None, SICK)
            assert await store.swap("a.example", None, SICKER, now=NOW) is None
            assert await store.get("a.example") == dataclasses.replace(SICK, version=version)

    run(scenario())


def test_replacing_wins_only_with_the_version_that_is_there(handles: Handles) -> None:
    async def scenario() -> None:
        async with opened(handles) as store:
            first = await written(store, "a.example", None, SICK)
            second = await written(store, "a.example", first, SICKER)
            for stale in (first, second + 1, 0, -1):
                assert await store.swap("a.example", stale, HostState(rung=5), now=NOW) is None
            assert await store.swap("b.example", second, SICK, now=NOW) is None
            assert await store.get("a.example") == dataclasses.replace(SICKER, version=second)
            assert await store.get("b.example") is None

    run(scenario())


def test_deleting_wins_only_with_the_version_that_is_there(handles: Handles) -> None:
    async def scenario() -> None:
        async with opened(handles) as store:
            first = await written(store, "a.example", None, SICK)
            second = await written(store, "a.example", first, SICKER)
            assert await store.swap("a.example", first, None, now=NOW) is None
            assert await store.get("a.example") == dataclasses.replace(SICKER, version=second)
            await written(store, "a.example", second, None)
            assert await store.get("a.example") is None
            assert await store.swap("a.example", second, None, now=NOW) is None

    run(scenario())


def test_a_deletion_has_no_version_that_could_be_replaced(handles: Handles) -> None:
    async def scenario() -> None:
        async with opened(handles) as store:
            version = await written(store, "a.example", None, SICK)
            deletion = await written(store, "a.example", version, None)
            assert await store.swap("a.example", deletion, SICKER, now=NOW) is None
            assert await store.swap("a.example", deletion, None, now=NOW) is None
            assert await store.get("a.example") is None

    run(scenario())


def test_a_version_from_before_a_deletion_never_touches_a_later_row(handles: Handles) -> None:
    async def scenario() -> None:
        async with opened(handles) as store:
            old = await written(store, "a.example", None, SICK)
            await written(store, "a.example", old, None)
            new = await written(store, "a.example", None, SICK)
            assert await store.swap("a.example", old, None, now=NOW) is None
            assert await store.swap("a.example", old, SICKER, now=NOW) is None
            assert await store.get("a.example") == dataclasses.replace(SICK, version=new)

    run(scenario())


def test_swapping_nothing_for_nothing_does_nothing(handles: Handles) -> None:
    async def scenario() -> None:
        async with opened(handles) as store:
            version = await written(store, "a.example", None, SICK)
            assert await store.swap("a.example", None, None, now=NOW) is None
            assert await store.swap("b.example", None, None, now=NOW) is None
            changes = await store.changes_since(version)
            assert (changes.version, changes.rows, changes.whole) == (version, {}, False)

    run(scenario())


def test_the_version_in_a_new_row_is_ignored(handles: Handles) -> None:
    async def scenario() -> None:
        async with opened(handles) as store:
            version = await written(store, "a.example", None, dataclasses.replace(SICK, version=77))
            assert version != 77
            assert await store.get("a.example") == dataclasses.replace(SICK, version=version)

    run(scenario())


def test_one_counter_numbers_all_writes_and_a_lost_race_writes_nothing(handles: Handles) -> None:
    async def scenario() -> None:
        async with opened(handles) as store:
            a = await written(store, "a.example", None, SICK)
            b = await written(store, "b.example", None, SICK)
            assert await store.swap("b.example", None, SICK, now=NOW) is None
            assert (await store.changes_since(0)).version == b
            gone = await written(store, "a.example", a, None)
            back = await written(store, "a.example", None, SICK)
            last = await written(store, "b.example", b, SICKER)
            assert 0 < a < b < gone < back < last
            assert (await store.changes_since(0)).version == last

    run(scenario())


def test_changes_tell_what_was_written_since_each_host_once(handles: Handles) -> None:
    async def scenario() -> None:
        async with opened(handles) as store:
            a1 = await written(store, "a.example", None, SICK)
            b1 = await written(store, "b.example", None, SICK)
            c1 = await written(store, "c.example", None, SICK)
            a2 = await written(store, "a.example", a1, SICKER)
            a3 = await written(store, "a.example", a2, SICK)
            b2 = await written(store, "b.example", b1, None)

            a, c = dataclasses.replace(SICK, version=a3), dataclasses.replace(SICK, version=c1)
            for since, rows in {
                a1: {"a.example": a, "b.example": None, "c.example": c},
                b1: {"a.example": a, "b.example": None, "c.example": c},
                c1: {"a.example": a, "b.example": None},
                a2: {"a.example": a, "b.example": None},
                a3: {"b.example": None},
                b2: {},
            }.items():
                changes = await store.changes_since(since)
                assert (changes.version, changes.rows, changes.whole) == (b2, rows, False)

    run(scenario())


def test_everything_means_the_rows_there_are_and_no_deletions(handles: Handles) -> None:
    async def scenario() -> None:
        async with opened(handles) as store:
            a = await written(store, "a.example", None, SICK)
            b = await written(store, "b.example", None, SICK)
            gone = await written(store, "a.example", a, None)
            changes = await store.changes_since(0)
            assert changes.rows == {"b.example": dataclasses.replace(SICK, version=b)}
            assert (changes.version, changes.whole) == (gone, True)

    run(scenario())


def test_a_deletion_is_remembered_for_60_seconds_and_then_forgotten(handles: Handles) -> None:
    async def scenario() -> None:
        async with opened(handles) as store:
            a = await written(store, "a.example", None, SICK, now=NOW)
            gone = await written(store, "a.example", a, None, now=NOW)
            b = await written(store, "b.example", None, SICK, now=NOW + 59.9)
            changes = await store.changes_since(a)
            assert (changes.whole, set(changes.rows)) == (False, {"a.example", "b.example"})
            assert changes.rows["a.example"] is None

            # Twice, because a store need not look for what it can forget more often than once in 60 seconds.
            b = await written(store, "b.example", b, SICK, now=NOW + 125)
            b = await written(store, "b.example", b, SICK, now=NOW + 250)
            changes = await store.changes_since(a)
            assert (changes.whole, set(changes.rows)) == (True, {"b.example"})
            changes = await store.changes_since(gone)
            assert (changes.whole, set(changes.rows)) == (False, {"b.example"})

    run(scenario())


def test_a_host_that_has_a_row_again_is_not_forgotten_with_its_deletion(handles: Handles) -> None:
    async def scenario() -> None:
        async with opened(handles) as store:
            a = await written(store, "a.example", None, SICK, now=NOW)
            await written(store, "a.example", a, None, now=NOW)
            again = await written(store, "a.example", None, SICKER, now=NOW + 1)
            b = await written(store, "b.example", None, SICK, now=NOW + 125)
            await written(store, "b.example", b, None, now=NOW + 250)
            changes = await store.changes_since(a)
            assert changes.whole is False
            assert changes.rows == {"a.example": dataclasses.replace(SICKER, version=again), "b.example": None}

    run(scenario())


@pytest.mark.parametrize("version", [-1, 2**53])
def test_a_version_that_was_never_given_gets_everything(handles: Handles, version: int) -> None:
    async def scenario() -> None:
        async with opened(handles) as store:
            a = await written(store, "a.example", None, SICK)
            changes = await store.changes_since(version)
            assert (changes.version, set(changes.rows), changes.whole) == (a, {"a.example"}, True)

    run(scenario())


def test_of_many_claims_at_once_exactly_one_wins(handles: Handles) -> None:
    async def scenario() -> None:
        async with opened(handles) as one, opened(handles) as other:
            claims = (one.swap("a.example", None, HostState(rung=n), now=NOW) for n in range(1, 51))
            others = (other.swap("a.example", None, HostState(rung=n), now=NOW) for n in range(51, 101))
            results = await asyncio.gather(*claims, *others)
            [winner] = [(n, version) for n, version in enumerate(results, 1) if version is not None]
            row = await one.get("a.example")
            assert row is not None
            assert (row.rung, row.version) == winner
            assert await other.get("a.example") == row

    run(scenario())


def test_what_one_process_writes_the_others_see_at_once(shared_handles: Handles) -> None:
    async def scenario() -> None:
        async with opened(shared_handles) as one, opened(shared_handles) as other:
            before = (await other.changes_since(0)).version
            version = await written(one, "a.example", None, SICK)
            row = dataclasses.replace(SICK, version=version)
            assert await other.get("a.example") == row
            changes = await other.changes_since(before)
            assert changes.rows == {"a.example": row}
            assert changes.version == version
            assert await other.swap("a.example", None, SICKER, now=NOW) is None
            gone = await written(other, "a.example", version, None)
            assert gone > version
            assert (await one.changes_since(version)).rows == {"a.example": None}

    run(scenario())


def test_a_cancelled_swap_happens_wholly_or_not_at_all(handles: Handles) -> None:
    async def scenario() -> None:
        async with opened(handles) as store:
            version = await written(store, "a.example", None, SICK)
            for steps in range(8):
                swap = asyncio.create_task(store.swap("a.example", version, SICKER, now=NOW))
                for _ in range(steps):
                    await asyncio.sleep(0)
                swap.cancel()
                await asyncio.wait((swap,))

                row = await store.get("a.example")
                assert row is not None
                changes = await store.changes_since(version)
                if row.version == version:
                    assert (row.rung, changes.rows) == (1, {})
                else:
                    assert (row.rung, changes.rows) == (2, {"a.example": row})
                version = await written(store, "a.example", row.version, SICK)

    run(scenario())


def test_a_process_counts_itself(handles: Handles) -> None:
    async def scenario() -> None:
        async with opened(handles) as store:
            assert await store.heartbeat(NOW) == 1
            assert await store.heartbeat(NOW + 1) == 1
            assert await store.heartbeat(NOW + 1000) == 1

    run(scenario())


def test_a_process_counts_until_10_seconds_after_its_last_beat(shared_handles: Handles) -> None:
    async def scenario() -> None:
        async with opened(shared_handles) as one, opened(shared_handles) as other, opened(shared_handles) as third:
            assert await one.heartbeat(NOW) == 1
            assert await other.heartbeat(NOW + 1) == 2
            assert await third.heartbeat(NOW + 9.9) == 3
            assert await third.heartbeat(NOW + 10.1) == 2
            assert await third.heartbeat(NOW + 11.1) == 1
            assert await one.heartbeat(NOW + 11.2) == 2

    run(scenario())


def test_a_process_that_closes_the_store_counts_no_more(shared_handles: Handles) -> None:
    async def scenario() -> None:
        async with opened(shared_handles) as one:
            async with opened(shared_handles) as other:
                assert await other.heartbeat(NOW) == 1
                assert await one.heartbeat(NOW) == 2
            assert await one.heartbeat(NOW) == 1

    run(scenario())


def test_the_beat_of_a_dead_process_does_not_count_for_ever_when_the_clock_is_set_back(
    shared_handles: Handles,
) -> None:
    async def scenario() -> None:
        async with opened(shared_handles) as one, opened(shared_handles) as other:
            assert await other.heartbeat(NOW) == 1
            assert await one.heartbeat(NOW - 3600) == 1

    run(scenario())


def test_closing_is_harmless_before_opening_and_twice(handles: Handles) -> None:
    async def scenario() -> None:
        store = handles()
        await store.close()
        await store.open()
        await store.close()
        await store.close()

    run(scenario())


def test_rows_deletions_and_the_counter_outlive_a_restart(durable_handles: Handles) -> None:
    async def scenario() -> None:
        async with opened(durable_handles) as store:
            a = await written(store, "a.example", None, SICK)
            b = await written(store, "b.example", None, SICKER)
            gone = await written(store, "a.example", a, None)
        async with opened(durable_handles) as store:
            assert await store.get("b.example") == dataclasses.replace(SICKER, version=b)
            changes = await store.changes_since(b)
            assert (changes.version, changes.rows, changes.whole) == (gone, {"a.example": None}, False)
            # What was last given is deleted and forgotten: its number still is not given again.
            last = await written(store, "b.example", b, None, now=NOW)
            c = await written(store, "c.example", None, SICK, now=NOW + 500)
            forgotten = await written(store, "c.example", c, None, now=NOW + 1000)
        async with opened(durable_handles) as store:
            assert forgotten > c > last > gone
            assert await written(store, "d.example", None, SICK, now=NOW + 2000) > forgotten

    run(scenario())


# ---- any sequence of steps, against a model that is too simple to be wrong ----

HOSTS = st.sampled_from(["a.example", "b.example", "c.example"])


class _Tomb(NamedTuple):
    version: int
    forget_at: float


class StoreMachine(RuleBasedStateMachine):
    """Two handles on one store, each with a mirror that it keeps by `changes_since`, as the engine does."""

    kind: Kind

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="paceproxy-"))
        self.runner = asyncio.Runner()
        self.handles = self.kind.handles(self.folder)
        self.stores = [self.handles(), self.handles()]
        for store in self.stores:
            self.runner.run(store.open())

        self.now = NOW
        self.rows: dict[str, HostState] = {}
        self.newest = 0
        self.writes: list[tuple[int, str]] = []
        self.tombs: list[_Tomb] = []
        self.may_be_forgotten = 0
        """The newest deletion whose 60 seconds are over."""
        self.mirrors: list[dict[str, HostState]] = [{}, {}]
        self.mirrored: list[int] = [0, 0]
        self.beats: dict[int, float] = {}

    @initialize()
    def start(self) -> None:
        for store in self.stores:
            changes = self.runner.run(store.changes_since(0))
            assert (changes.rows, changes.whole) == ({}, True)
            self.newest = changes.version

    def teardown(self) -> None:
        for store in self.stores:
            self.runner.run(store.close())
        self.runner.close()
        shutil.rmtree(self.folder)

    def _wrote(self, host: str, version: int | None, new: HostState | None) -> None:
        assert version is not None
        assert version > self.newest
        self.newest = version
        self.writes.append((version, host))
        if new is None:
            del self.rows[host]
            self.tombs.append(_Tomb(version, self.now + 60))
        else:
            self.rows[host] = dataclasses.replace(new, version=version)

    @rule(
        who=st.integers(0, 1),
        host=HOSTS,
        right=st.sampled_from([True, True, True, False]),
        stale=st.integers(0, 30),
        rung=st.none() | st.integers(0, 5),
        slot=st.floats(0, 1e10, allow_nan=False),
    )
    def swap(self, who: int, host: str, right: bool, stale: int, rung: int | None, slot: float) -> None:
        there = self.rows[host].version if host in self.rows else None
        if right:
            expected = there
        else:
            others: list[int | None] = [None, 0, self.newest + 1, *(version for version, _ in self.writes)]
            expected = others[stale % len(others)]
        new = None if rung is None else HostState(rung=rung, next_slot_at=slot)
        version = self.runner.run(self.stores[who].swap(host, expected, new, now=self.now))

        for tomb in self.tombs:
            if tomb.forget_at <= self.now:
                self.may_be_forgotten = max(self.may_be_forgotten, tomb.version)
        if expected == there and not (expected is None and new is None):
            self._wrote(host, version, new)
        else:
            assert version is None

    @rule(seconds=st.sampled_from([0.0, 0.1, 5.0, 59.9, 60.0, 200.0, -30.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(who=st.integers(0, 1))
    def mirror(self, who: int) -> None:
        since = self.mirrored[who]
        changes = self.runner.run(self.stores[who].changes_since(since))
        assert changes.version == self.newest
        if changes.whole:
            assert since == 0 or since < self.may_be_forgotten, "everything again, though nothing is forgotten"
            assert changes.rows == self.rows
            self.mirrors[who].clear()
        else:
            assert since > 0
            assert changes.rows.keys() == {host for version, host in self.writes if version > since}
        for host, row in changes.rows.items():
            if row is None:
                self.mirrors[who].pop(host, None)
            else:
                self.mirrors[who][host] = row
        self.mirrored[who] = changes.version
        assert self.mirrors[who] == self.rows

    @precondition(lambda self: self.writes)
    @rule(who=st.integers(0, 1), which=st.integers(0, 30))
    def look_back(self, who: int, which: int) -> None:
        """As one who last looked any number of writes ago."""
        since, _ = self.writes[which % len(self.writes)]
        changes = self.runner.run(self.stores[who].changes_since(since))
        if changes.whole:
            assert since < self.may_be_forgotten, "everything again, though nothing is forgotten"
            assert changes.rows == self.rows
        else:
            assert changes.rows == {h: self.rows.get(h) for version, h in self.writes if version > since}

    @precondition(lambda self: self.kind.shared)
    @rule(who=st.integers(0, 1))
    def beat(self, who: int) -> None:
        self.beats[who] = self.now
        alive = sum(abs(self.now - beat_at) <= 10 for beat_at in self.beats.values())
        assert self.runner.run(self.stores[who].heartbeat(self.now)) == alive

    @precondition(lambda self: self.kind.shared)
    @rule(who=st.integers(0, 1))
    def one_restarts(self, who: int) -> None:
        self.runner.run(self.stores[who].close())
        self.stores[who] = self.handles()
        self.runner.run(self.stores[who].open())
        self.beats.pop(who, None)

    @precondition(lambda self: self.kind.durable)
    @rule()
    def all_restart(self) -> None:
        for store in self.stores:
            self.runner.run(store.close())
        self.stores = [self.handles(), self.handles()]
        for store in self.stores:
            self.runner.run(store.open())
        self.beats.clear()

    @invariant()
    def every_handle_reads_what_the_model_says(self) -> None:
        for store in self.stores:
            for host in ("a.example", "b.example", "c.example"):
                assert self.runner.run(store.get(host)) == self.rows.get(host)


@pytest.mark.parametrize("name", _KINDS)
def test_any_sequence_of_steps_agrees_with_the_model(name: str) -> None:
    machine = type("Machine", (StoreMachine,), {"kind": _KINDS[name]})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=40,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
