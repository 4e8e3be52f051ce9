"""Where the rows of the hosts live: the contract that every store keeps.

A store arbitrates races between processes and knows no policy: no ladder, no pace, no arithmetic on a row. The one
suite `tests/test_store_conformance.py` runs on every store. A row is a `HostState`; a host without a row is healthy.
"""

import re
from dataclasses import dataclass
from typing import Protocol

from proxy_addon.model import HostState

TOMBSTONE_S = 60.0
"""How long a deletion is remembered, in seconds: far longer than the 100 ms at which processes look for changes."""
ALIVE_S = 10.0
"""How long after its last heartbeat a process still counts, in seconds."""


class StoreError(Exception):
    """The store could not do what it was asked: unreachable, locked for too long, read-only, full or corrupt.

    Nothing is known about the request that raised it: a claim may or may not have been written. `str()` is one line
    that names the store, the problem and the remedy.
    """

    def __init__(self, problem: str, *, store: str = "", remedy: str = "") -> None:
        super().__init__(f"store {store} {problem}; {remedy}" if store else problem)
        self.problem = problem
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Changes:
    """What happened in the store since a version."""

    version: int
    """The store's newest version: what to pass to the next `changes_since`."""
    rows: dict[str, HostState | None]
    """By host: its row now, or None where it was deleted."""
    whole: bool
    """True: `rows` holds every row there is, and a host not in it has none. Always so for `changes_since(0)`, and
    wherever the version asked about is older than the oldest deletion still remembered, or was never given out here
    (the file was deleted, and another has taken its place)."""


class Store(Protocol):
    """Rows by host, swapped atomically. Every method may raise `StoreError`; none blocks the event loop.

    One that does not come back in time is given up by cancelling it (`patience.py`); what it was asked to do may be
    done all the same, before anything that is asked later.
    """

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

        A process counts until `ALIVE_S` after its last heartbeat, or until its `close`.
        """


def open_store(url: str) -> Store:
    """The store that `url` names, not yet opened: `memory:`, `sqlite:///relative/path` or `sqlite:////absolute/path`.

    A path is taken as it stands: no percent-decoding, no parameters, no `~`. Raises ValueError for any other URL.
    """
    # Imported here, because the stores import this module's contract.
    from proxy_addon.store.memory import MemoryStore
    from proxy_addon.store.sqlite import SqliteStore

    scheme, colon, rest = url.partition(":")
    match scheme.lower() if colon else "":
        case "memory" if not rest:
            return MemoryStore()
        case "sqlite":
            return SqliteStore(_sqlite_path(url, rest))
        case _:
            raise ValueError(f"store must be memory: or sqlite:///PATH, got {_without_password(url)!r}")


def _sqlite_path(url: str, rest: str) -> str:
    """What follows `sqlite:///`."""
    prefix, path = rest[:3], rest[3:]
    if prefix != "///":
        remedy = "sqlite:///relative/path and sqlite:////absolute/path have three and four slashes"
    elif path == ":memory:":
        remedy = "for rows that are gone when the process ends, give memory:"
    elif path.startswith("~"):
        remedy = "~ is not expanded, write the folder out: sqlite:////home/me/paceproxy.db"
    elif not path or path.endswith(("/", "/.", "/..")) or path in (".", ".."):
        remedy = "give the path of a file: sqlite:////var/lib/paceproxy/paceproxy.db"
    elif "\0" in path:
        remedy = "a path cannot hold a NUL character"
    else:
        return path
    raise ValueError(f"store must name a file, got {_without_password(url)!r}: {remedy}")


def _without_password(url: str) -> str:
    """For messages: a URL for another kind of store may carry one."""
    return re.sub(r"//.*@", "//…@", url)
