"""Rows in this process's memory, for trials and tests: gone when it ends.

No method awaits anything, so that each is atomic on its event loop. For tests it can stand for a store that several
processes share: `MemoryStore(shared=True)`, used by several engines, or one `beside()` for each.
"""

from dataclasses import dataclass, field, replace

from proxy_addon.model import HostState
from proxy_addon.store import ALIVE_S, TOMBSTONE_S, Changes


@dataclass(frozen=True, slots=True)
class _Tombstone:
    version: int
    forget_at: float


@dataclass(slots=True, eq=False)
class _Contents:
    """What the handles of one store have in common."""

    newest: int = 0
    """The last version given."""
    forgotten: int = 0
    """The newest version that is no longer remembered."""
    rows: dict[str, HostState] = field(default_factory=dict)
    """In the order of their versions."""
    tombstones: dict[str, _Tombstone] = field(default_factory=dict)
    """In the order of their versions. A host has a row, or a tombstone, or nothing."""
    beats: dict["MemoryStore", float] = field(default_factory=dict)


class MemoryStore:
    """A handle on rows in memory. `shared` is what the property of the same name says."""

    def __init__(self, *, shared: bool = False) -> None:
        self._shared = shared
        self._contents = _Contents()

    def beside(self) -> "MemoryStore":
        """Another handle on the same rows, as another process would have it. Only for a shared one."""
        if not self._shared:
            raise ValueError("beside() needs MemoryStore(shared=True): the others would never look for changes")
        other = MemoryStore(shared=True)
        other._contents = self._contents
        return other

    @property
    def shared(self) -> bool:
        return self._shared

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        self._contents.beats.pop(self, None)

    async def get(self, host: str) -> HostState | None:
        return self._contents.rows.get(host)

    async def swap(self, host: str, expected: int | None, new: HostState | None, *, now: float) -> int | None:
        contents = self._contents
        row = contents.rows.get(host)
        if expected != (None if row is None else row.version) or (row is None and new is None):
            return None
        self._prune(now)
        contents.newest += 1
        # Taken out first, so that it comes last again: the order is that of the versions.
        contents.rows.pop(host, None)
        contents.tombstones.pop(host, None)
        if new is None:
            contents.tombstones[host] = _Tombstone(contents.newest, now + TOMBSTONE_S)
        else:
            contents.rows[host] = replace(new, version=contents.newest)
        return contents.newest

    async def changes_since(self, version: int) -> Changes:
        contents = self._contents
        if version == 0 or not contents.forgotten <= version <= contents.newest:
            return Changes(version=contents.newest, rows=dict(contents.rows), whole=True)
        changed: dict[str, HostState | None] = {}
        for host, row in reversed(contents.rows.items()):
            if row.version <= version:
                break
            changed[host] = row
        for host, tombstone in reversed(contents.tombstones.items()):
            if tombstone.version <= version:
                break
            changed[host] = None
        return Changes(version=contents.newest, rows=changed, whole=False)

    async def heartbeat(self, now: float) -> int:
        beats = self._contents.beats
        beats[self] = now
        for process in [process for process, beat_at in beats.items() if abs(now - beat_at) > ALIVE_S]:
            del beats[process]
        return len(beats)

    def _prune(self, now: float) -> None:
        """Forget the oldest deletions whose time is over. Those behind one that is not wait for it."""
        contents = self._contents
        while contents.tombstones:
            host, oldest = next(iter(contents.tombstones.items()))
            if oldest.forget_at > now:
                break
            del contents.tombstones[host]
            contents.forgotten = oldest.version
