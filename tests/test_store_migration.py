"""A SQLite file that a paceproxy of an older version has made, written here by literal SQL, as a user has it."""

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from proxy_addon.model import HostState
from proxy_addon.store import StoreError
from proxy_addon.store.sqlite import SqliteStore
from proxy_addon.store.sqlite_file import read_sql

NOW = 1_700_000_000.0
PROJECT = Path(__file__).parents[1]
NEWEST = 1_700_000_000_000_005

VERSION_1 = """
BEGIN IMMEDIATE;
CREATE TABLE host (
    version         INTEGER PRIMARY KEY AUTOINCREMENT,
    name            TEXT    NOT NULL UNIQUE,
    forget_at       REAL, -- not NULL: the host's row was deleted, and that is remembered until then
    -- No defaults: with one, INSERT OR REPLACE would turn a NULL (which is what a NaN becomes) into it without a word.
    rung            INTEGER NOT NULL,
    next_slot_at    REAL    NOT NULL,
    blocked_until   REAL    NOT NULL,
    stalled_at      REAL    NOT NULL,
    counted_at      REAL    NOT NULL,
    stalls_in_a_row INTEGER NOT NULL,
    paused_until    REAL    NOT NULL,
    pauses          INTEGER NOT NULL,
    floor_s         REAL    NOT NULL
) STRICT;
CREATE INDEX host_forget_at ON host (forget_at) WHERE forget_at IS NOT NULL;
CREATE TABLE forgotten (version INTEGER NOT NULL) STRICT;
CREATE TRIGGER host_forgotten AFTER DELETE ON host WHEN old.forget_at IS NOT NULL
BEGIN
    UPDATE forgotten SET version = max(version, old.version);
END;
INSERT INTO sqlite_sequence (name, seq) VALUES ('host', 1700000000000000);
INSERT INTO forgotten (version) SELECT seq FROM sqlite_sequence WHERE name = 'host';
CREATE TABLE process (
    id      TEXT PRIMARY KEY,
    beat_at REAL NOT NULL
) STRICT;
PRAGMA application_id = 1348559717;
PRAGMA user_version = 1;
INSERT INTO host VALUES
    (1700000000000003, 'slow.example', NULL, 3, 1700000015.5, 0.0, 1700000000.5, 1700000000.25, 4, 0.0, 1, 0.5),
    (1700000000000004, 'well.example', 1700000060.0, 0, 0.0, 0.0, 0.0, 0.0, 0, 0.0, 0, 0.0),
    (1700000000000005, 'paused.example', NULL, 5, 0.0, 1700000300.0, 1.0, 1.0, 10, 1700000120.0, 2, 0.0);
COMMIT;
"""
SWAP_1 = """
INSERT OR REPLACE INTO host (
    name, forget_at,
    rung, next_slot_at, blocked_until, stalled_at, counted_at, stalls_in_a_row, paused_until, pauses, floor_s
)
SELECT
    :host, :forget_at,
    :rung, :next_slot_at, :blocked_until, :stalled_at, :counted_at, :stalls_in_a_row, :paused_until, :pauses, :floor_s
WHERE (SELECT version FROM host WHERE name = :host AND forget_at IS NULL) IS :expected
RETURNING version
"""
VERSION_2 = """
BEGIN IMMEDIATE;
ALTER TABLE host ADD COLUMN in_flight_limit INTEGER NOT NULL DEFAULT 0;
ALTER TABLE host ADD COLUMN limited_at REAL NOT NULL DEFAULT 0;
UPDATE host SET in_flight_limit = 6, limited_at = 1700000000.0 WHERE name = 'slow.example';
PRAGMA user_version = 2;
COMMIT;
"""
SWAP_2 = """
INSERT OR REPLACE INTO host (
    name, forget_at,
    rung, next_slot_at, blocked_until, stalled_at, counted_at, stalls_in_a_row, paused_until, pauses, floor_s,
    in_flight_limit, limited_at
)
SELECT
    :host, :forget_at,
    :rung, :next_slot_at, :blocked_until, :stalled_at, :counted_at, :stalls_in_a_row, :paused_until, :pauses, :floor_s,
    :in_flight_limit, :limited_at
WHERE (SELECT version FROM host WHERE name = :host AND forget_at IS NULL) IS :expected
RETURNING version
"""
SLOW = HostState(
    rung=3,
    next_slot_at=1_700_000_015.5,
    stalled_at=1_700_000_000.5,
    counted_at=1_700_000_000.25,
    stalls_in_a_row=4,
    pauses=1,
    quota_pace_s=0.5,
    version=1_700_000_000_000_003,
)
PAUSED = HostState(
    rung=5,
    blocked_until=1_700_000_300.0,
    stalled_at=1.0,
    counted_at=1.0,
    stalls_in_a_row=10,
    paused_until=1_700_000_120.0,
    pauses=2,
    version=NEWEST,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of version 1, and nothing open."""
    path = tmp_path / "hosts.sqlite3"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(VERSION_1)
    return path


@pytest.fixture
def path_2(path: Path) -> Path:
    """A file of version 2, and nothing open."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(VERSION_2)
    return path


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        version: int
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        return version


def columns_of(path: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA table_xinfo(host)").fetchall()


def refusal(path: Path) -> str:
    async def scenario() -> str:
        store = SqliteStore(path, busy_timeout_s=0.2)
        with pytest.raises(StoreError) as caught:
            await store.open()
        await store.close()
        return str(caught.value)

    return asyncio.run(scenario())


def test_what_the_file_holds_is_all_there(path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(path)
        await store.open()
        changes = await store.changes_since(0)
        assert (changes.version, changes.rows) == (NEWEST, {"slow.example": SLOW, "paused.example": PAUSED})
        # Also what was deleted, for those who have not looked since.
        since = await store.changes_since(1_700_000_000_000_003)
        assert since.rows == {"well.example": None, "paused.example": PAUSED}
        assert not since.whole
        await store.close()

    asyncio.run(scenario())
    assert version_of(path) == 3


def test_versions_go_on_from_where_they_were(path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(path)
        await store.open()
        limited = HostState(in_flight_limit=6, limited_at=NOW)
        assert await store.swap("well.example", None, limited, now=NOW) == NEWEST + 1
        assert await store.get("well.example") == HostState(in_flight_limit=6, limited_at=NOW, version=NEWEST + 1)
        assert await store.swap("slow.example", SLOW.version, None, now=NOW) == NEWEST + 2
        await store.close()
        await store.open()
        assert (await store.changes_since(0)).rows.keys() == {"paused.example", "well.example"}
        await store.close()

    asyncio.run(scenario())


def test_it_is_then_like_a_new_file(path: Path) -> None:
    async def open_once(store: SqliteStore) -> None:
        await store.open()
        await store.close()

    new = path.with_name("new.sqlite3")
    asyncio.run(open_once(SqliteStore(path)))
    asyncio.run(open_once(SqliteStore(new)))

    assert columns_of(path) == columns_of(new)
    assert [name for _, name, *_ in columns_of(path)][-4:] == [
        "operator_floor_s",
        "operator_paused_until",
        "operated_at",
        "resumed_at",
    ]
    assert (version_of(path), version_of(new)) == (3, 3)


def test_a_process_of_the_old_version_that_has_the_file_open_goes_on(path: Path) -> None:
    async def scenario() -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as old:
            row = {"host": "slow.example", "expected": SLOW.version, "forget_at": None, "rung": 4, "next_slot_at": 7.0}
            row |= {"blocked_until": 0.0, "stalled_at": 1.0, "counted_at": 1.0, "stalls_in_a_row": 5}
            row |= {"paused_until": 0.0, "pauses": 0, "floor_s": 0.0}
            assert old.execute("SELECT rung FROM host WHERE name = 'slow.example'").fetchall() == [(3,)]
            store = SqliteStore(path)
            await store.open()
            assert old.execute(SWAP_1, row).fetchall() == [(NEWEST + 1,)]
            written = await store.get("slow.example")
            assert written is not None
            assert (written.rung, written.in_flight_limit, written.limited_at) == (4, 0, 0.0)
            await store.close()

    asyncio.run(scenario())


def test_what_a_file_of_version_2_holds_is_all_there(path_2: Path) -> None:
    """What it called a floor was found out from quotas: nobody is to find it there for ever."""

    async def scenario() -> None:
        store = SqliteStore(path_2)
        await store.open()
        slow = replace(SLOW, in_flight_limit=6, limited_at=NOW)
        assert (slow.quota_pace_s, slow.floor_s) == (0.5, 0.0)
        assert (await store.changes_since(0)).rows == {"slow.example": slow, "paused.example": PAUSED}
        await store.close()

    asyncio.run(scenario())
    assert version_of(path_2) == 3


def test_a_process_of_version_2_takes_no_floor_for_what_its_quotas_allow_nor_makes_one(path_2: Path) -> None:
    async def scenario() -> None:
        with closing(sqlite3.connect(path_2, isolation_level=None)) as old:
            store = SqliteStore(path_2)
            await store.open()
            version = await store.swap(
                "new.example", None, HostState(floor_s=30.0, quota_pace_s=1.5, operated_at=NOW), now=NOW
            )
            assert old.execute("SELECT floor_s FROM host WHERE name = 'new.example'").fetchall() == [(1.5,)]
            row = {"host": "new.example", "expected": version, "forget_at": None, "rung": 0, "next_slot_at": 7.0}
            row |= {"blocked_until": 0.0, "stalled_at": 1.0, "counted_at": 1.0, "stalls_in_a_row": 0}
            row |= {"paused_until": 0.0, "pauses": 0, "floor_s": 1.25, "in_flight_limit": 4, "limited_at": NOW}
            assert old.execute(SWAP_2, row).fetchall() == [(NEWEST + 2,)]
            written = await store.get("new.example")
            # It is lost with the row, as anything is that such a process does not know of.
            assert written is not None
            assert (written.quota_pace_s, written.floor_s, written.in_flight_limit) == (1.25, 0.0, 4)
            await store.close()

    asyncio.run(scenario())


def test_many_that_open_it_at_once_bring_it_over_once(path: Path) -> None:
    script = """
import asyncio, sys
from proxy_addon.store.sqlite import SqliteStore
async def main():
    print("ready", flush=True)
    sys.stdin.read()
    store = SqliteStore(sys.argv[1])
    await store.open()
    print(sorted((await store.changes_since(0)).rows))
    await store.close()
asyncio.run(main())
"""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=PROJECT
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    said = [process.communicate(timeout=60)[0] for process in processes]

    assert said == ["['paused.example', 'slow.example']\n"] * 4
    assert [process.returncode for process in processes] == [0] * 4
    assert version_of(path) == 3


def test_what_dies_on_the_way_leaves_the_file_as_it_was(path: Path) -> None:
    columns = columns_of(path)
    script = read_sql("from_1_to_2")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(script[: script.index("COMMIT;")])
        assert connection.in_transaction

    assert (version_of(path), columns_of(path)) == (1, columns)


def test_a_file_in_use_is_refused_and_left_as_it_was(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert "is locked by another program" in refusal(path)

    assert version_of(path) == 1
    test_what_the_file_holds_is_all_there(path)


def test_a_damaged_file_is_refused_and_left_as_it_was(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(path.read_bytes())
    content[4096:8192] = b"\xff" * 4096
    path.write_bytes(content)

    assert refusal(path) == f"store sqlite:///{path} is damaged; move it away, and a new one is made"
    assert path.read_bytes() == content


@pytest.mark.parametrize("version", [4, 0, -1])
def test_a_file_of_a_version_that_is_not_known_is_refused_and_left_as_it_was(path: Path, version: int) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")

    assert refusal(path) == (
        f"store sqlite:///{path} was made by another version of paceproxy (schema {version}, not 3); "
        "use that version, or give another path"
    )
    assert version_of(path) == version
