"""Rows in a SQLite file, which several processes on one machine may share.

Its rule: every access is one SQL statement that commits by itself, so that no transaction is ever open between two
awaits. One statement at a time is with the thread that aiosqlite keeps; a cancelled caller leaves at once, its
statement runs to its end, and only then comes the next. After an error other than a lock the connection is given up,
and the next call opens the file anew, or makes it: the store heals when the cause goes. What makes a file fit to be
opened is in `sqlite_file.py`, the tables in `schema.sql`.
"""

import asyncio
import math
import secrets
import sqlite3
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiosqlite

from proxy_addon.model import HostState
from proxy_addon.store import ALIVE_S, TOMBSTONE_S, Changes, StoreError
from proxy_addon.store.sqlite_file import Identity, explain, identity, is_locked, open_file, read_sql, refusal

_GET = read_sql("get")
_SWAP = read_sql("swap")
_CHANGES = read_sql("changes")
_PRUNE = read_sql("prune")
_BEAT = read_sql("beat")
_ALIVE = read_sql("alive")
_BURY = read_sql("bury")
_LEAVE = read_sql("leave")

type _Parameters = dict[str, str | float | None]


class SqliteStore:
    """The store at `path`, relative to the working directory of now. A local disk only: SQLite's log needs one.

    `busy_timeout_s` is how long a call waits for another program's lock before it is a StoreError. Two seconds are far
    more than all writes of a fleet take, and less than the lowest rung of the ladder.
    """

    def __init__(self, path: Path | str, *, busy_timeout_s: float = 2.0) -> None:
        self._path = Path(path).absolute()
        self._busy_timeout_s = busy_timeout_s
        self._process: str | None = None
        """This process's id in the store; None while it is not open."""
        self._connection: aiosqlite.Connection | None = None
        """None also while open, after an error: the next call connects again."""
        self._identity: Identity | None = None
        self._turn = asyncio.Lock()
        """Held while a statement is with the thread."""
        self._failures = 0
        self._failure: StoreError | None = None
        """The last one."""
        self._pruned_at = -math.inf

    @property
    def shared(self) -> bool:
        return True

    async def open(self) -> None:
        await self._turn.acquire()
        await self._finish(self._open())

    async def close(self) -> None:
        await self._turn.acquire()
        await self._finish(self._close())

    async def get(self, host: str) -> HostState | None:
        rows = await self._ask(_GET, {"host": host})
        return _state(rows[0]) if rows else None

    async def swap(self, host: str, expected: int | None, new: HostState | None, *, now: float) -> int | None:
        if expected is None and new is None:
            return None
        if abs(now - self._pruned_at) >= TOMBSTONE_S:
            self._pruned_at = now
            await self._ask(_PRUNE, {"now": now})
        written = HostState() if new is None else new
        rows = await self._ask(
            _SWAP,
            {
                "host": host,
                "expected": expected,
                "forget_at": now + TOMBSTONE_S if new is None else None,
                "rung": written.rung,
                "next_slot_at": written.next_slot_at,
                "blocked_until": written.blocked_until,
                "stalled_at": written.stalled_at,
                "counted_at": written.counted_at,
                "stalls_in_a_row": written.stalls_in_a_row,
                "paused_until": written.paused_until,
                "pauses": written.pauses,
                "quota_pace_s": written.quota_pace_s,
                "in_flight_limit": written.in_flight_limit,
                "limited_at": written.limited_at,
                "floor_s": written.floor_s,
                "operator_paused_until": written.operator_paused_until,
                "operated_at": written.operated_at,
                "resumed_at": written.resumed_at,
            },
        )
        return int(rows[0][0]) if rows else None

    async def changes_since(self, version: int) -> Changes:
        # Not gated by PRAGMA data_version: that does not tell of this connection's own writes, so that a cancelled
        # swap could be overlooked, and saves little: the search by version ends at once when nothing is new.
        rows = await self._ask(_CHANGES, {"since": version})
        if not rows or rows[0][0] is None:
            # Its counter is gone. SQLite finds nothing wrong with that; versions would be given out twice.
            raise refusal(self._path, "is damaged", "move it away, and a new one is made")
        newest, whole, *_ = rows[0]
        changed = {
            host: None if is_deleted else _state(columns)
            for _, _, host, is_deleted, *columns in rows
            if host is not None
        }
        return Changes(version=newest, rows=changed, whole=bool(whole))

    async def heartbeat(self, now: float) -> int:
        await self._ask(_BEAT, {"id": self._process, "now": now})
        await self._ask(_BURY, {"now": now, "alive_s": ALIVE_S})
        rows = await self._ask(_ALIVE, {})
        return int(rows[0][0])

    async def _ask(self, sql: str, parameters: _Parameters) -> Sequence[Sequence[Any]]:
        """The rows that one statement gives, when its turn has come.

        Whoever stands in line behind a failure fails with it: each would wait out the same lock, one after the other.
        """
        failures = self._failures
        await self._turn.acquire()
        if self._failure is not None and self._failures != failures:
            self._turn.release()
            raise refusal(self._path, self._failure.problem, self._failure.remedy)
        return await self._finish(self._execute(sql, parameters))

    async def _finish[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work of a turn, and end the turn when it is done: also if the caller is cancelled meanwhile."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._end_turn)
        await asyncio.wait((task,))
        return task.result()

    def _end_turn(self, task: asyncio.Task[Any]) -> None:
        self._turn.release()
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, StoreError):
            self._failures += 1
            self._failure = error

    async def _execute(self, sql: str, parameters: _Parameters) -> Sequence[Sequence[Any]]:
        if self._process is None:
            raise refusal(self._path, "is not open", "call open() first")
        connection = self._connection or await self._connect()
        try:
            rows = await connection.execute_fetchall(sql, parameters)
        except sqlite3.Error as error:
            if not is_locked(error):
                await self._disconnect()
            raise explain(self._path, error) from error
        # Looked at afterwards: where the file is still in place now, it was so when the statement was committed.
        if identity(self._path) != self._identity:
            await self._disconnect()
            raise refusal(self._path, "was deleted or replaced while in use", "the next access takes what is there")
        return list(rows)

    async def _open(self) -> None:
        if self._process is None:
            await self._connect()
            self._process = secrets.token_hex(8)

    async def _close(self) -> None:
        process, self._process = self._process, None
        if self._connection is not None:
            # A process that cannot say goodbye is not counted any more after ALIVE_S.
            with suppress(sqlite3.Error):
                await self._connection.execute_fetchall(_LEAVE, {"id": process})
            await self._disconnect()

    async def _connect(self) -> aiosqlite.Connection:
        opening = _Opening(self._path, self._busy_timeout_s)
        connecting = aiosqlite.Connection(opening, iter_chunk_size=64)
        # A program that crashes without closing the store must end, and not wait for this thread for ever. It may be
        # stopped anywhere: the file bears SIGKILL too. (In aiosqlite 0.21 the connection is itself the thread.)
        thread: Any = getattr(connecting, "_thread", connecting)
        thread.daemon = True
        connection = await connecting
        if opening.failure is not None:
            await connection.close()
            raise opening.failure
        self._connection = connection
        self._identity = opening.identity
        return connection

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # Closing tries to tidy up a file that may be broken. The caller hears of the cause, not of this.
            with suppress(sqlite3.Error):
                await connection.close()


class _Opening:
    """Opens the file on aiosqlite's thread, and keeps what else came of it."""

    def __init__(self, path: Path, busy_timeout_s: float) -> None:
        self._path = path
        self._busy_timeout_s = busy_timeout_s
        self.identity: Identity | None = None
        self.failure: StoreError | None = None

    def __call__(self) -> sqlite3.Connection:
        try:
            connection, self.identity = open_file(self._path, busy_timeout_s=self._busy_timeout_s)
        except StoreError as error:
            # If this raised, aiosqlite would not wait for the end of its thread, and the thread could find the event
            # loop closed. So it gets a connection to close in the ordinary way.
            self.failure = error
            return sqlite3.connect(":memory:")
        return connection


def _state(columns: Sequence[Any]) -> HostState:
    """A row, in the order in which get.sql and changes.sql give its columns."""
    (
        rung,
        next_slot_at,
        blocked_until,
        stalled_at,
        counted_at,
        stalls_in_a_row,
        paused_until,
        pauses,
        quota_pace_s,
        in_flight_limit,
        limited_at,
        floor_s,
        operator_paused_until,
        operated_at,
        resumed_at,
        version,
    ) = columns
    return HostState(
        rung=rung,
        next_slot_at=next_slot_at,
        blocked_until=blocked_until,
        stalled_at=stalled_at,
        counted_at=counted_at,
        stalls_in_a_row=stalls_in_a_row,
        paused_until=paused_until,
        pauses=pauses,
        quota_pace_s=quota_pace_s,
        in_flight_limit=in_flight_limit,
        limited_at=limited_at,
        floor_s=floor_s,
        operator_paused_until=operator_paused_until,
        operated_at=operated_at,
        resumed_at=resumed_at,
        version=version,
    )
