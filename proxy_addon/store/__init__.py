"""Where the rows of the hosts live: the contract that every store keeps.

A store arbitrates races between processes and knows no policy: no ladder, no pace, no arithmetic on a row. The one
suite `tests/test_store_conformance.py` runs on every store. A row is a `HostState`; a host without a row is healthy.
"""

from dataclasses import dataclass
from typing import Protocol

from proxy_addon.model import HostState

TOMBSTONE_S = 60.0
"""How long a deletion is remembered, in seconds: far longer than the 100 ms at which processes look for changes."""


class StoreError(Exception):
    """The store could not do what it was asked: unreachable, locked for too long, read-only, full or corrupt.

    Nothing is known about the request that raised it: a claim may or may not have been written.
    """


@dataclass(frozen=True, slots=True)
class Changes:
    """What happened in the store since a version."""

    version: int
    """The store's newest version: what to pass to the next `changes_since`."""
    rows: dict[str, HostState | None]
    """By host: its row now, or None where it was deleted."""
    whole: bool
    """True: `rows` holds every row there is, and a host not in it has none. Always so for `changes_since(0)`, and
    wherever the version asked about is older than the oldest deletion still remembered."""


class Store(Protocol):
    """Rows by host, swapped atomically. Every method may raise `StoreError`; none blocks the event loop."""

    @property
    def shared(self) -> bool:
        """Whether other processes may write to it, so that a process has to look for changes."""

    async def open(self) -> None:
        """Make it ready. Called once, before anything else; what it raises names the URL and the remedy."""

    async def close(self) -> None:
        """Let go of it. Harmless when called twice or before `open`."""

    async def get(self, host: str) -> HostState | None:
        """The host's row, with its version; None where there is none."""

    async def swap(self, host: str, expected: int | None, new: HostState | None, *, now: float) -> int | None:
        """Replace the host's row if its version is still `expected`, as one atomic statement.

        `expected` None: only if the host has no row (insert). `new` None: delete, which leaves a tombstone for
        `TOMBSTONE_S` from `now` (Unix seconds). `new.version` is ignored: the store numbers every write, deletions
        too, from one counter for the whole store; a version is never used twice, not even after a deletion or a
        restart. Returns the version written, or None where the race was lost and nothing was changed. (None, None)
        is a no-op that returns None.
        """

    async def changes_since(self, version: int) -> Changes:
        """Everything written after `version`. Cheap when nothing was. 0: everything there is."""

    async def heartbeat(self, now: float) -> int:
        """Say that this process is alive and return how many processes are, itself included (so at least 1).

        A process counts until 10 s after its last heartbeat, or until its `close`.
        """
