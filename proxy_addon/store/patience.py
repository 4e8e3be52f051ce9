"""A store that is not waited for without end: what does not answer in time has failed, as any other failure.

A disk can hang for minutes and raise nothing (a network mount, a dying device). Whoever waits for it then would wait
beyond the window of every request. What was asked may still be done later: nothing is known about it, as with every
`StoreError`.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from proxy_addon.clock import Clock
from proxy_addon.model import HostState
from proxy_addon.store import Changes, Store, StoreError

PATIENCE_S = 5.0
"""More than the two seconds for which SQLite waits for a lock, once for itself and once for the call before."""
PATIENCE_AT_START_S = 15.0
"""Opening waits for several locks, and checks the file: its own errors say more than "no answer"."""


class PatientStore:
    """Hands everything on to another store."""

    def __init__(self, behind: Store, clock: Clock) -> None:
        self._behind = behind
        self._clock = clock

    @property
    def shared(self) -> bool:
        return self._behind.shared

    async def open(self) -> None:
        await self._answered(self._behind.open(), PATIENCE_AT_START_S)

    async def close(self) -> None:
        # Whoever stops says how long there is for that.
        await self._behind.close()

    async def get(self, host: str) -> HostState | None:
        return await self._answered(self._behind.get(host))

    async def swap(self, host: str, expected: int | None, new: HostState | None, *, now: float) -> int | None:
        return await self._answered(self._behind.swap(host, expected, new, now=now))

    async def changes_since(self, version: int) -> Changes:
        return await self._answered(self._behind.changes_since(version))

    async def heartbeat(self, now: float) -> int:
        return await self._answered(self._behind.heartbeat(now))

    async def _answered[T](self, call: Coroutine[Any, Any, T], patience_s: float = PATIENCE_S) -> T:
        """As `asyncio.timeout`, by our own clock."""
        task = asyncio.current_task()
        assert task is not None
        cancelled, is_over = task.cancelling(), False

        def give_up() -> None:
            nonlocal is_over
            is_over = True
            task.cancel()

        timer = self._clock.call_at(self._clock.monotonic() + patience_s, give_up)
        try:
            return await call
        except asyncio.CancelledError:
            if is_over and task.uncancel() <= cancelled:
                remedy = "see whether its disk hangs"
                raise StoreError(f"gives no answer within {patience_s:g} s", remedy=remedy) from None
            raise
        finally:
            timer.cancel()
