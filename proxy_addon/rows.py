"""The rows of the hosts as this process knows them: a mirror of the store, and the only way to write to it.

Its rule: own writes are in the mirror at once, other processes' at most `POLL_S` later, and while the store is down
the process goes on with its own rows, slower, never faster. It knows no ladder: what a row becomes is decided by the
function that the caller hands in; who wins a race is decided by the store.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, fields, replace
from typing import Any

from proxy_addon.clock import Clock, sleep
from proxy_addon.model import Event, HostState, StoreFailed, StoreRecovered
from proxy_addon.operated import untroubled
from proxy_addon.store import Changes, Store, StoreError
from proxy_addon.store.patience import PatientStore

logger = logging.getLogger(__name__)

POLL_S = 0.1
"""How long another process's write may go unseen: the one tolerance between processes."""
HEARTBEAT_S = 2.0
"""A process counts until 10 s after its last heartbeat; five tries fit into that."""
RETRY_S = 1.0
"""How often a store that is down is tried again."""

type Decide = Callable[[HostState | None, float], HostState | None]
"""(the stored row, now in Unix seconds) -> the row it becomes. The very same object: nothing to write."""


@dataclass(frozen=True, slots=True)
class Written:
    """The result of `Rows.change`."""

    row: HostState | None
    """The row as it stands now."""
    won: bool
    """Whether what was decided is what stands now. Always so unless `once` was asked for."""


class Rows:
    """Mirror and writer of the rows. `on_change` is called with a host whose row another process has changed."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        emit: Callable[[Event], None],
        on_change: Callable[[str], None],
    ) -> None:
        self._store: Store = PatientStore(store, clock)
        self._clock = clock
        self._emit = emit
        self._on_change = on_change
        self._mirror: dict[str, HostState] = {}
        self._seen = 0
        self._processes = 1
        self._down_since: float | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stopped = False

    async def start(self) -> None:
        """Open the store and read every row. Raises `StoreError`: a store that cannot be opened at start is fatal."""
        await self._store.open()
        self._take_over(await self._store.changes_since(0))
        if self._store.shared:
            self._processes = await self._store.heartbeat(self._clock.now())
            self._spawn(self._poll())
            self._spawn(self._beat())

    async def stop(self) -> None:
        """Stop looking and close the store."""
        self._stopped = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self._store.close()

    @property
    def up(self) -> bool:
        """Whether the store worked when it was last asked."""
        return self._down_since is None

    @property
    def pace_factor(self) -> float:
        """What every pace is multiplied by: 1, or without the store the number of processes that may share a host."""
        return 1.0 if self.up else float(self._processes)

    def get(self, host: str) -> HostState | None:
        """The host's row as last seen; None for a healthy host. No I/O."""
        return self._mirror.get(host)

    def __len__(self) -> int:
        return len(self._mirror)

    def items(self) -> list[tuple[str, HostState]]:
        """Every row, as a copy that may be kept over an await."""
        return list(self._mirror.items())

    async def change(self, host: str, decide: Decide, *, once: bool = False) -> Written:
        """Write what `decide` makes of the host's row, against all others who write to it.

        Decided anew, from the row as it is then, for as long as races are lost; with `once` (a claim) a race lost or
        an unknown result is the end: `won` is False and nothing may be sent.
        """
        row = self._mirror.get(host)
        while True:
            now = self._clock.now()
            new = decide(row, now)
            if new is row:
                return Written(row, won=True)
            if not self.up:
                return Written(self._mirror_set(host, new), won=True)
            try:
                version = await self._store.swap(host, row.version if row else None, new, now=now)
                if version is not None:
                    if version > self._seen:
                        self._mirror_set(host, replace(new, version=version) if new else None)
                    # Else a look at the store has overtaken this answer, and the mirror is newer.
                    return Written(self._mirror.get(host), won=True)
                row = self._mirror_set(host, await self._store.get(host))
            except StoreError as error:
                self._failed(error)
                row = self._mirror.get(host)
            if once:
                return Written(row, won=False)

    def _mirror_set(self, host: str, row: HostState | None) -> HostState | None:
        if row is None:
            self._mirror.pop(host, None)
        else:
            self._mirror[host] = row
        return row

    def _take_over(self, changes: Changes) -> None:
        """Let the mirror follow what others have written."""
        self._seen = changes.version
        rows = dict(changes.rows)
        if changes.whole:
            rows |= {host: None for host in self._mirror if host not in rows}
        for host, row in rows.items():
            known = self._mirror.get(host)
            if known is None and row is None:
                continue
            # Where an own write has overtaken this look at the store, the mirror is newer.
            if known is None or known.version < (row.version if row is not None else changes.version):
                self._mirror_set(host, row)
                self._on_change(host)

    async def _poll(self) -> None:
        while True:
            await sleep(self._clock, POLL_S)
            if not self.up:
                continue
            try:
                changes = await self._store.changes_since(self._seen)
                if self.up:
                    self._take_over(changes)
            except StoreError as error:
                self._failed(error)

    async def _beat(self) -> None:
        while True:
            await sleep(self._clock, HEARTBEAT_S)
            if not self.up:
                continue
            try:
                self._processes = await self._store.heartbeat(self._clock.now())
            except StoreError as error:
                self._failed(error)

    def _failed(self, error: StoreError) -> None:
        if self._stopped:
            # The outcome of an attempt that outlived us: there is no store any more, and nobody who would miss it.
            self._down_since = self._clock.monotonic()
            return
        first = self.up
        self._emit(StoreFailed(message=str(error), first=first))
        if first:
            logger.error(
                "The store does not work: %s. Pacing goes on from this process's own memory%s, and the store is tried "
                "again every %g s.",
                error,
                f", {self._processes} times as slow" if self._processes > 1 else "",
                RETRY_S,
            )
            self._down_since = self._clock.monotonic()
            self._spawn(self._recover())

    async def _recover(self) -> None:
        """Try until the store works again; then of two states the greater of each field wins."""
        assert self._down_since is not None
        since = self._down_since
        while True:
            await sleep(self._clock, RETRY_S)
            try:
                changes = await self._store.changes_since(0)
                self._processes = await self._store.heartbeat(self._clock.now()) if self._store.shared else 1
                stored = dict(changes.rows)
                await self._agree(stored)
            except StoreError as error:
                self._emit(StoreFailed(message=str(error), first=False))
                continue
            break
        self._seen = changes.version
        self._down_since = None
        self._emit(StoreRecovered(down_s=self._clock.monotonic() - since))
        logger.warning("The store works again.")
        for host in stored:
            self._on_change(host)

    async def _agree(self, stored: dict[str, HostState | None]) -> None:
        """Write and read until the mirror is what is `stored`; also what changes in the mirror meanwhile."""
        while hosts := [h for h in self._mirror.keys() | stored.keys() if self._mirror.get(h) != stored.get(h)]:
            for host in hosts:
                stored[host] = await self._reconcile(host, stored.get(host))

    async def _reconcile(self, host: str, stored: HostState | None) -> HostState | None:
        """Have the greater of the mirror's and the store's row in both; the latter as it is then."""
        while (merged := _greater_than_stored(self._mirror.get(host), stored)) != stored:
            version = await self._store.swap(host, stored.version if stored else None, merged, now=self._clock.now())
            if version is not None and merged is not None:
                stored = replace(merged, version=version)
                break
            stored = await self._store.get(host)
        self._mirror_set(host, _greater_than_stored(self._mirror.get(host), stored))
        return stored

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.append(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if task in self._tasks:
            self._tasks.remove(task)
        if not task.cancelled() and (error := task.exception()):
            logger.error("A background task of the store has crashed.", exc_info=error)


def greater(one: HostState | None, other: HostState | None) -> HostState | None:
    """Of two states of a host the greater of each field, so that neither is forgotten.

    But for:
    1. trouble that is over because an operator has resumed the host since: it is forgotten.
    2. what an operator has decided: it is as decided last, and of two at the same moment the greater.
    3. the limit of attempts in flight, where the greater is not the safe one: it is the one found out last, and of two
       at the same moment the lower.
    """
    if one is None or other is None:
        return one or other
    resumed_at = max(one.resumed_at, other.resumed_at)
    two = (_since_resumed(one, resumed_at), _since_resumed(other, resumed_at))
    both = HostState(**{f.name: max(getattr(state, f.name) for state in two) for f in fields(HostState)})
    decided = [state for state in two if state.operated_at == both.operated_at]
    return replace(
        both,
        in_flight_limit=min(state.in_flight_limit for state in two if state.limited_at == both.limited_at),
        floor_s=max(state.floor_s for state in decided),
        operator_paused_until=max(state.operator_paused_until for state in decided),
    )


def _since_resumed(state: HostState, resumed_at: float) -> HostState:
    """What counts of it after an operator has resumed the host at `resumed_at`, which this state may not know of: all
    where the host has stalled since, else nothing of its trouble."""
    if state.resumed_at >= resumed_at or state.stalled_at > resumed_at:
        return state
    return untroubled(state)


def _greater_than_stored(own: HostState | None, stored: HostState | None) -> HostState | None:
    """The same, with the version that the store knows it by."""
    both = greater(own, stored)
    return both if both is None else replace(both, version=stored.version if stored else 0)
