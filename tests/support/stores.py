"""A store that can be told to fail, and that counts what it is asked.

Rule: what it says it has written is what the store behind it has written; it adds failures and delays, nothing else.
"""

import asyncio
from typing import Literal

from proxy_addon.model import HostState
from proxy_addon.store import Changes, Store, StoreError

type Trouble = Literal["refuses", "hangs", "loses answers", "crashes"]
"""What is wrong with a store: it does nothing, and says so or not; it does what it is asked and the answer gets lost;
it has a bug."""


class TroubledStore:
    """Hands everything on to another store. Every call lets others run before and after it, as any real one does."""

    def __init__(self, behind: Store) -> None:
        self.behind = behind
        self.trouble: Trouble | None = None
        self.swaps = 0
        """How often a row was to be written, races lost and failures included."""
        self.held_back: dict[str, asyncio.Event] = {}
        """By method: the event that its answers wait for, though what was asked is done."""
        self._open = False

    @property
    def shared(self) -> bool:
        return self.behind.shared

    async def open(self) -> None:
        if self.trouble == "hangs":
            await asyncio.Event().wait()
        await self.behind.open()
        self._open = True

    async def close(self) -> None:
        self._open = False
        await self.behind.close()

    async def get(self, host: str) -> HostState | None:
        await self._ask()
        row = await self.behind.get(host)
        await self._answer("get")
        return row

    async def swap(self, host: str, expected: int | None, new: HostState | None, *, now: float) -> int | None:
        self.swaps += 1
        await self._ask()
        version = await self.behind.swap(host, expected, new, now=now)
        await self._answer("swap")
        return version

    async def changes_since(self, version: int) -> Changes:
        await self._ask()
        changes = await self.behind.changes_since(version)
        await self._answer("changes_since")
        return changes

    async def heartbeat(self, now: float) -> int:
        await self._ask()
        processes = await self.behind.heartbeat(now)
        await self._answer("heartbeat")
        return processes

    async def _ask(self) -> None:
        await asyncio.sleep(0)
        if not self._open:
            raise StoreError("the store is closed")
        if self.trouble == "refuses":
            raise StoreError("disk I/O error, as the test wants it")
        if self.trouble == "hangs":
            await asyncio.Event().wait()
        if self.trouble == "crashes":
            raise ZeroDivisionError("a bug, as the test wants it")

    async def _answer(self, method: str) -> None:
        await asyncio.sleep(0)
        if (released := self.held_back.get(method)) is not None:
            await released.wait()
        if self.trouble == "loses answers":
            raise StoreError("the answer was lost, as the test wants it")
