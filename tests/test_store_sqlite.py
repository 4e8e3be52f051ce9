"""What only the SQLite store promises: several processes on one file, death, files that are not fit, and healing.

The rest of its contract is in `test_store_conformance.py`.
"""

import asyncio
import contextlib
import dataclasses
import fcntl
import gc
import json
import os
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from proxy_addon.model import HostState
from proxy_addon.store import StoreError, open_store
from proxy_addon.store.memory import MemoryStore
from proxy_addon.store.sqlite import SqliteStore
from proxy_addon.store.sqlite_file import open_file, use_wal
from tests.support.clock import FakeClock
from tests.support.waiting import until

NOW = 1_700_000_000.0
SICK = HostState(rung=1, next_slot_at=NOW + 2)
SICKER = HostState(rung=2, next_slot_at=NOW + 5)
PROJECT = Path(__file__).parents[1]


def run[T](scenario: Coroutine[Any, Any, T]) -> T:
    async def guarded() -> T:
        async with asyncio.timeout(30):
            return await scenario

    return asyncio.run(guarded())


@asynccontextmanager
async def opened(path: Path, **kwargs: float) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, **kwargs)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def written(store: SqliteStore, host: str, expected: int | None, new: HostState | None) -> int:
    version = await store.swap(host, expected, new, now=NOW)
    assert version is not None
    return version


def refusal(path: Path) -> str:
    """What `open` says where it must refuse; the store is closed afterwards."""

    async def scenario() -> str:
        store = SqliteStore(path, busy_timeout_s=0.2)
        with pytest.raises(StoreError) as caught:
            await store.open()
        await store.close()
        return str(caught.value)

    message = run(scenario())
    assert "\n" not in message
    return message


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@contextmanager
def python(script: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Another process that runs `script`; it ends with the block."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=PROJECT,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process holds the database's write lock."""
    script = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
connection.close()
"""
    with python(script, path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield


# ---- URLs ----


def test_the_url_names_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def made(url: str) -> None:
        store = open_store(url)
        await store.open()
        await store.close()

    assert isinstance(open_store("memory:"), MemoryStore)
    run(made("sqlite:///state.db"))
    run(made("sqlite:///deep/er/state.db"))
    run(made(f"sqlite:///{tmp_path}/absolute.db"))
    run(made("SQLITE:///a%20b ü?c=d#e.db"))
    assert sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()) == [
        "a%20b ü?c=d#e.db",
        "absolute.db",
        "deep/er/state.db",
        "state.db",
    ]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "store must be memory: or sqlite:///PATH, got ''"),
        ("state.db", "store must be memory: or sqlite:///PATH, got 'state.db'"),
        ("memory", "store must be memory: or sqlite:///PATH, got 'memory'"),
        ("memory://x", "store must be memory: or sqlite:///PATH, got 'memory://x'"),
        ("redis://u:p/w@h/0", "store must be memory: or sqlite:///PATH, got 'redis://…@h/0'"),
        ("sqlite:state.db", "sqlite:///relative/path and sqlite:////absolute/path have three and four slashes"),
        ("sqlite://host/state.db", "sqlite:///relative/path and sqlite:////absolute/path have three and four"),
        ("sqlite:///", "give the path of a file: sqlite:////var/lib/paceproxy/paceproxy.db"),
        ("sqlite:////var/", "give the path of a file: sqlite:////var/lib/paceproxy/paceproxy.db"),
        ("sqlite:///..", "give the path of a file: sqlite:////var/lib/paceproxy/paceproxy.db"),
        ("sqlite:///:memory:", "for rows that are gone when the process ends, give memory:"),
        ("sqlite:///~/state.db", "~ is not expanded, write the folder out: sqlite:////home/me/paceproxy.db"),
        ("sqlite:///a\0b", "a path cannot hold a NUL character"),
    ],
)
def test_a_url_that_names_no_store_is_a_value_error_with_the_remedy(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"^store must ") as caught:
        open_store(url)
    assert message in str(caught.value)


# ---- files ----


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def modes_under(folder: Path) -> dict[str, int]:
    return {str(found.relative_to(folder)): mode(found) for found in folder.rglob("*")}


def move_away(path: Path) -> None:
    path.rename(path.with_name("away"))


def delete(*paths: Path) -> None:
    for path in paths:
        path.unlink()


def damage(path: Path) -> None:
    """Overwrite everything after the first page."""
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))


def test_folders_and_files_are_for_this_user_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "deep" / "er" / "state.db") as store:
            await written(store, "a.example", None, SICK)
            assert modes_under(tmp_path) == {
                "deep": 0o700,
                "deep/er": 0o700,
                "deep/er/state.db": 0o600,
                "deep/er/state.db-wal": 0o600,
                "deep/er/state.db-shm": 0o600,
            }

    before = os.umask(0)
    try:
        run(scenario())
    finally:
        os.umask(before)


def test_an_empty_file_becomes_a_database_for_this_user_alone(path: Path) -> None:
    path.touch(mode=0o666)

    async def scenario() -> None:
        async with opened(path) as store:
            await written(store, "a.example", None, SICK)

    run(scenario())
    assert mode(path) == 0o600


def test_a_symbolic_link_leads_to_the_database(tmp_path: Path) -> None:
    link, real = tmp_path / "link.db", tmp_path / "real" / "state.db"
    link.symlink_to(real)

    async def scenario() -> None:
        async with opened(link) as one, opened(real) as other:
            version = await written(one, "a.example", None, SICK)
            assert await other.get("a.example") == dataclasses.replace(SICK, version=version)

    run(scenario())
    assert link.is_symlink()


def test_the_path_is_taken_from_the_working_directory_of_the_construction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteStore("state.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    async def scenario() -> None:
        await store.open()
        await store.close()

    run(scenario())
    assert (tmp_path / "state.db").exists()


def sqlite_file(path: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


@pytest.mark.parametrize(
    ("journal", "mark"),
    [("DELETE", 0), ("WAL", 0), ("WAL", 42)],
)
def test_another_programs_database_is_refused_and_not_touched(path: Path, journal: str, mark: int) -> None:
    theirs = sqlite3.connect(path, isolation_level=None)
    for statement in (
        f"PRAGMA journal_mode = {journal}",
        "CREATE TABLE host (name TEXT)",
        "INSERT INTO host VALUES ('precious')",
        f"PRAGMA application_id = {mark}",
    ):
        theirs.execute(statement)
    # Theirs died without closing: what it wrote last is in the log only, and must stay there.
    copy = path.with_name("copy.db")
    shutil.copyfile(path, copy)
    if journal == "WAL":
        shutil.copyfile(f"{path}-wal", f"{copy}-wal")
    theirs.close()
    before = {file.name: file.read_bytes() for file in path.parent.glob("copy.db*")}

    assert refusal(copy) == f"store sqlite:///{copy} belongs to another program; give another path"
    after = {file.name: file.read_bytes() for file in path.parent.glob("copy.db*") if not file.name.endswith("-shm")}
    assert after == before


async def _once(path: Path) -> None:
    async with opened(path) as store:
        await written(store, "a.example", None, SICK)


def test_a_file_that_is_no_database_is_refused_and_not_touched(path: Path) -> None:
    path.write_bytes(b"my diary\n" * 1000)
    assert refusal(path) == (f"store sqlite:///{path} is not a SQLite database; move it away, or give another path")
    assert path.read_bytes() == b"my diary\n" * 1000


def test_a_damaged_database_is_refused_and_not_touched(path: Path) -> None:
    run(_once(path))
    damage(path)
    damaged = path.read_bytes()
    assert refusal(path) == f"store sqlite:///{path} is damaged; move it away, and a new one is made"
    assert path.read_bytes() == damaged


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path) == (
        f"store sqlite:///{tmp_path} is not a file; give the path of a file, such as paceproxy.db in that folder"
    )


def test_a_path_through_a_file_is_refused(path: Path) -> None:
    path.touch()
    inside = path / "state.db"
    assert refusal(inside) == (
        f"store sqlite:///{inside} cannot be opened: not a directory; give a path that this user can write to"
    )


def test_a_database_that_is_locked_for_long_is_refused_and_can_be_opened_later(path: Path) -> None:
    async def scenario() -> None:
        await _once(path)
        store = SqliteStore(path, busy_timeout_s=0.2)
        with locked(path), pytest.raises(StoreError, match="is locked by another program"):
            await store.open()
        await store.open()
        assert set((await store.changes_since(0)).rows) == {"a.example"}
        await store.close()

    run(scenario())


def test_it_is_waited_for_by_the_clock_however_long_a_sleep_takes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sleeps: list[float] = []

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        monkeypatch.setattr("proxy_addon.store.sqlite_file._clock", FakeClock(monotonic=0.3 * len(sleeps)))

    monkeypatch.setattr("proxy_addon.store.sqlite_file._clock", FakeClock(monotonic=0.0))
    monkeypatch.setattr("proxy_addon.store.sqlite_file.time.sleep", sleep)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="is being opened by another process"):
            open_file(path, busy_timeout_s=1.0)
    finally:
        os.close(folder)
    assert len(sleeps) == 4


def test_a_process_that_hangs_while_opening_is_not_waited_for_without_end(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        assert refusal(path) == (
            f"store sqlite:///{path} is being opened by another process; see which one hangs with `fuser -v`"
        )
        assert not path.exists()
    finally:
        os.close(folder)
    run(_once(path))


def test_a_journal_mode_other_than_wal_is_refused(path: Path) -> None:
    # SQLite's own lock-file VFS, meant for network file systems, has no shared memory, and so no log.
    with (
        contextlib.closing(
            sqlite3.connect(f"{path.as_uri()}?vfs=unix-dotfile", uri=True, isolation_level=None)
        ) as connection,
        pytest.raises(StoreError) as caught,
    ):
        use_wal(path, connection)
    assert str(caught.value) == (
        f"store sqlite:///{path} cannot keep a write-ahead log there (journal mode delete); "
        "put it on a local disk, not on a network file system"
    )


_OPEN_EACH = """
import asyncio, sys
from pathlib import Path
from proxy_addon.store import StoreError
from proxy_addon.store.sqlite import SqliteStore

async def scenario(path):
    store = SqliteStore(path)
    try:
        await store.open()
    except StoreError as error:
        print(error)
    await store.close()

for path in sys.argv[1:]:
    asyncio.run(scenario(Path(path)))
"""


def test_what_this_user_cannot_write_to_is_refused(tmp_path: Path) -> None:
    read_only, shut, dark = tmp_path / "read-only.db", tmp_path / "shut", tmp_path / "dark"
    shut.mkdir()
    run(_once(read_only))
    run(_once(shut / "state.db"))
    before = read_only.read_bytes()
    read_only.chmod(0o400)
    shut.chmod(0o500)
    dark.mkdir(mode=0o000)
    paths = [read_only, shut / "state.db", shut / "new.db", shut / "new" / "state.db", dark / "state.db"]

    command: list[str | Path] = [sys.executable, "-c", _OPEN_EACH, *paths]
    if os.geteuid() == 0:  # root may write everywhere, unless it gives up the capabilities for it
        if shutil.which("setpriv") is None:
            pytest.skip("needs setpriv (util-linux) when run as root")
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
    result = subprocess.run(command, capture_output=True, text=True, cwd=PROJECT, timeout=30)
    dark.chmod(0o700)
    shut.chmod(0o700)

    assert result.stderr == ""
    make_writable = "make the file and its folder writable for this user"
    give_another = "give a path that this user can write to"
    assert result.stdout.splitlines() == [
        f"store sqlite:///{read_only} is read-only; {make_writable}",
        f"store sqlite:///{shut}/state.db is read-only; {make_writable}",
        f"store sqlite:///{shut}/new.db cannot be opened: permission denied; {give_another}",
        f"store sqlite:///{shut}/new/state.db cannot be opened: permission denied; {give_another}",
        f"store sqlite:///{dark}/state.db cannot be opened: permission denied; {give_another}",
    ]
    assert read_only.read_bytes() == before


def test_a_python_with_an_old_sqlite_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.36.0")
    assert refusal(path) == (
        f"store sqlite:///{path} needs SQLite 3.37 or newer, this Python has 3.36.0; "
        "use a Python with a newer SQLite, or the store memory:"
    )
    assert not path.exists()


# ---- several processes ----

_RACER = """
import asyncio, json, sys
from dataclasses import replace
from proxy_addon.model import HostState
from proxy_addon.store.sqlite import SqliteStore

async def race(path, wins):
    store = SqliteStore(path, busy_timeout_s=20)
    await store.open()
    print("ready", flush=True)
    sys.stdin.readline()
    won, lost = [], 0
    while len(won) < wins:
        row = await store.get("a.example")
        expected = row.version if row else None
        # Every tenth win of a process is a deletion; `pauses` counts the wins of all.
        new = None if row and len(won) % 10 == 9 else HostState(rung=1, pauses=row.pauses + 1 if row else 1)
        version = await store.swap("a.example", expected, new, now=1_700_000_000.0)
        if version is None:
            lost += 1
        else:
            won.append((expected, version, new.pauses if new else None))
    await store.close()
    print(json.dumps({"won": won, "lost": lost}), flush=True)

asyncio.run(race(sys.argv[1], int(sys.argv[2])))
"""


def test_of_several_processes_exactly_one_wins_each_version(path: Path) -> None:
    """They also open, and so make, the file at the same moment."""
    processes, wins = 4, 60
    with contextlib.ExitStack() as stack:
        racers = [stack.enter_context(python(_RACER, path, wins)) for _ in range(processes)]
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        results = [json.loads(racer.communicate("go\n", timeout=60)[0]) for racer in racers]

    assert [len(result["won"]) for result in results] == [wins] * processes
    # In the order of the versions each win stands on the one before, or on its deletion: nobody's write was lost, and
    # none was written over another.
    chain = sorted((won for result in results for won in result["won"]), key=lambda won: won[1])
    assert len({version for _, version, _ in chain}) == processes * wins
    before: tuple[int | None, int] = (None, 0)
    for expected, version, pauses in chain:
        assert expected == before[0]
        assert pauses is None or pauses == before[1] + 1
        before = (None, 0) if pauses is None else (version, pauses)

    async def scenario() -> None:
        async with opened(path) as store:
            changes = await store.changes_since(0)
            assert changes.version == chain[-1][1]
            row = changes.rows.get("a.example")
            assert (row.version if row else None, row.pauses if row else 0) == before
            assert await store.heartbeat(NOW) == 1

    run(scenario())


_WRITER = """
import asyncio, sys
from proxy_addon.model import HostState
from proxy_addon.store.sqlite import SqliteStore

async def write(path, life):
    store = SqliteStore(path)
    await store.open()
    await store.heartbeat(1_700_000_000.0)
    for n in range(100_000):
        host = f"{life}-{n % 50}.example"
        row = await store.get(host)
        version = await store.swap(
            host, row.version if row else None, HostState(rung=3, next_slot_at=float(n)), now=1_700_000_000.0
        )
        print(host, n, version, flush=True)

asyncio.run(write(sys.argv[1], sys.argv[2]))
"""


def test_what_was_written_survives_sigkill(path: Path) -> None:
    rows: dict[str, HostState] = {}
    newest = 0
    for life, lines in enumerate((1, 30, 77, 200)):
        with python(_WRITER, path, life) as process:
            assert process.stdout is not None
            said = [process.stdout.readline() for _ in range(lines)]
            process.send_signal(signal.SIGKILL)
            said += process.stdout.readlines()
            assert process.wait(timeout=10) == -signal.SIGKILL
        for line in said:
            if line.endswith("\n"):
                host, n, version = line.split()
                assert int(version) > newest
                newest = int(version)
                rows[host] = HostState(rung=3, next_slot_at=float(n), version=newest)

        async def scenario(newest: int = newest) -> None:
            async with opened(path) as store:
                found = (await store.changes_since(0)).rows
                # The last swap may have been committed and not yet been told.
                untold = [row for host, row in found.items() if row != rows.get(host)]
                assert all(row is not None and row.version > newest for row in untold)
                assert len(untold) <= 1
                assert rows.keys() <= found.keys()
                rows.update({host: row for host, row in found.items() if row is not None})
                # The dead one counts until its time is over.
                assert await store.heartbeat(NOW) == 2
                assert await store.heartbeat(NOW + 10.1) == 1

        run(scenario())
        newest = max([newest, *(row.version for row in rows.values())])


_CRASH = """
import asyncio, sys
from proxy_addon.store.sqlite import SqliteStore

stores = []

async def crash(path):
    stores.append(SqliteStore(path))
    await stores[0].open()
    sys.exit(3)

asyncio.run(crash(sys.argv[1]))
"""


def test_a_program_that_forgets_to_close_the_store_ends_all_the_same(path: Path) -> None:
    result = subprocess.run([sys.executable, "-c", _CRASH, path], cwd=PROJECT, timeout=30, capture_output=True)
    assert result.returncode == 3


# ---- trouble while running ----


def test_a_lock_held_for_long_is_a_store_error_and_is_over_when_it_goes(path: Path) -> None:
    async def scenario() -> None:
        async with opened(path, busy_timeout_s=0.2) as store:
            version = await written(store, "a.example", None, SICK)
            with locked(path):
                with pytest.raises(StoreError) as caught:
                    await store.swap("a.example", version, SICKER, now=NOW)
                assert str(caught.value) == (
                    f"store sqlite:///{path} is locked by another program; "
                    "find that program with `fuser -v` and stop it"
                )
                # Readers do not wait for a writer.
                assert await store.get("a.example") == dataclasses.replace(SICK, version=version)
            await written(store, "a.example", version, SICKER)

    run(scenario())


def test_a_lock_held_for_a_moment_is_waited_out(path: Path) -> None:
    async def scenario() -> None:
        async with opened(path, busy_timeout_s=20) as store:
            version = await written(store, "a.example", None, SICK)
            with locked(path):
                swap = asyncio.create_task(store.swap("a.example", version, SICKER, now=NOW))
                done, _ = await asyncio.wait((swap,), timeout=0.05)
                assert not done
            assert await swap is not None

    run(scenario())


def test_those_in_line_behind_a_lock_fail_together(path: Path) -> None:
    """One after the other they would take 100 times the time-out, more than the guard of this test."""

    async def scenario() -> None:
        async with opened(path, busy_timeout_s=1) as store:
            await written(store, "a.example", None, SICK)
            with locked(path):
                swaps = [store.swap(f"{n}.example", None, SICK, now=NOW) for n in range(100)]
                results = await asyncio.gather(*swaps, return_exceptions=True)
            assert [type(result) for result in results] == [StoreError] * 100
            message = (
                f"store sqlite:///{path} is locked by another program; find that program with `fuser -v` and stop it"
            )
            assert {str(result) for result in results} == {message}
            assert set((await store.changes_since(0)).rows) == {"a.example"}
            await written(store, "b.example", None, SICK)

    run(scenario())


def test_a_caller_cancelled_while_the_database_is_locked_leaves_at_once_and_no_transaction_behind(path: Path) -> None:
    async def scenario() -> None:
        async with opened(path, busy_timeout_s=20) as store, opened(path, busy_timeout_s=1) as other:
            version = await written(store, "a.example", None, SICK)
            with locked(path):
                running = asyncio.create_task(store.swap("a.example", version, SICKER, now=NOW))
                waiting = asyncio.create_task(store.swap("b.example", None, SICK, now=NOW))
                done, _ = await asyncio.wait((running, waiting), timeout=0.05)
                assert not done
                # One after the other: the place of the first is not free before its statement has ended.
                for task in (running, waiting):
                    task.cancel()
                    done, _ = await asyncio.wait((task,), timeout=5)
                    assert done
                    assert task.cancelled()
                    await asyncio.sleep(0)
            # The statement that was under way has run to its end; the one that had not begun never runs.
            row = await store.get("a.example")
            assert row is not None
            assert row.rung == 2
            assert await store.get("b.example") is None
            # Had it left a transaction open, nobody else could write.
            await written(other, "b.example", None, SICK)

    run(scenario())


@pytest.mark.parametrize("steps", range(8))
def test_closing_after_a_cancelled_call_waits_until_its_work_has_ended(path: Path, steps: int) -> None:
    async def cancelled(call: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(call)
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait((task,))

    async def scenario() -> None:
        store = SqliteStore(path)
        await cancelled(store.open())
        await store.close()

        await store.open()
        await cancelled(store.swap("a.example", None, SICK, now=NOW))
        await store.close()

    threads = threading.active_count()
    run(scenario())
    until(lambda: threading.active_count() == threads, "aiosqlite's thread has ended")
    # A connection that is still open would be a warning now, and so an error of the test.
    gc.collect()
    # Whoever closes a database last removes its log.
    assert not path.with_name("state.db-wal").exists()


def test_a_store_that_is_not_open_is_a_store_error(path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(path)
        with pytest.raises(StoreError, match="is not open; call open"):
            await store.get("a.example")
        await store.open()
        await store.close()
        with pytest.raises(StoreError, match="is not open; call open"):
            await store.swap("a.example", None, SICK, now=NOW)

    run(scenario())


def test_a_state_that_cannot_be_stored_is_an_error_and_leaves_the_row_as_it_was(path: Path) -> None:
    async def scenario() -> None:
        async with opened(path) as store:
            version = await written(store, "a.example", None, SICK)
            with pytest.raises(StoreError):
                await store.swap("a.example", version, HostState(rung=1, next_slot_at=float("nan")), now=NOW)
            assert await store.get("a.example") == dataclasses.replace(SICK, version=version)

    run(scenario())


DELETED = "was deleted or replaced while in use; the next access takes what is there"


@pytest.mark.parametrize("suffixes", [("",), ("", "-wal", "-shm")])
def test_a_deleted_file_is_noticed_and_made_anew(path: Path, suffixes: tuple[str, ...]) -> None:
    async def scenario() -> None:
        async with opened(path) as one, opened(path) as other:
            old = await written(one, "a.example", None, SICK)
            delete(*(path.with_name(path.name + suffix) for suffix in suffixes))
            with pytest.raises(StoreError) as caught:
                await one.swap("a.example", old, SICKER, now=NOW)
            assert str(caught.value) == f"store sqlite:///{path} {DELETED}"
            assert await one.get("a.example") is None
            new = await written(one, "a.example", None, SICK)
            assert new > old
            changes = await one.changes_since(old)
            assert (set(changes.rows), changes.whole) == ({"a.example"}, True)

            # The other one writes to the old file until it looks; none of that counts, or harms the new one.
            with pytest.raises(StoreError):
                await other.swap("a.example", old, None, now=NOW)
            assert await one.get("a.example") == dataclasses.replace(SICK, version=new)
            new = await written(one, "a.example", new, SICK)
            assert await other.swap("a.example", old, None, now=NOW) is None
            assert await other.get("a.example") == dataclasses.replace(SICK, version=new)
        assert mode(path) == 0o600
        async with opened(path) as again:
            assert await again.get("a.example") == dataclasses.replace(SICK, version=new)

    run(scenario())


_STAYS_BEHIND = """
import asyncio, sys
from proxy_addon.model import HostState
from proxy_addon.store import StoreError
from proxy_addon.store.sqlite import SqliteStore

async def scenario(path):
    store = SqliteStore(path)
    await store.open()
    version = await store.swap("a.example", None, HostState(rung=1), now=1_700_000_000.0)
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        await store.swap("a.example", version, HostState(rung=5), now=1_700_000_000.0)
    except StoreError as error:
        print(error, flush=True)
    row = await store.get("b.example")
    print(row.rung, await store.swap("b.example", row.version, HostState(rung=4), now=1_700_000_000.0), flush=True)
    sys.stdin.readline()
    await store.close()

asyncio.run(scenario(sys.argv[1]))
"""


def test_a_process_that_still_has_the_deleted_file_does_no_harm_to_the_new_one(path: Path) -> None:
    """Only the database is deleted: its log and the log's index, in shared memory, stay, and are in use."""

    async def scenario() -> None:
        with python(_STAYS_BEHIND, path) as behind:
            assert behind.stdin is not None
            assert behind.stdout is not None
            assert behind.stdout.readline() == "ready\n"
            delete(path)
            async with opened(path) as store:
                for n in range(50):
                    await written(store, f"{n}.example", None, SICK)
                await written(store, "b.example", None, SICKER)
                behind.stdin.write("go\n")
                behind.stdin.flush()
                assert behind.stdout.readline() == f"store sqlite:///{path} {DELETED}\n"
                rung, version = behind.stdout.readline().split()
                assert rung == "2"
                assert await store.get("b.example") == HostState(rung=4, version=int(version))
                assert len((await store.changes_since(0)).rows) == 51
                await written(store, "b.example", int(version), SICK)
            assert behind.communicate("end\n", timeout=10)[0] == ""
            assert behind.returncode == 0
        async with opened(path) as again:
            assert len((await again.changes_since(0)).rows) == 51

    run(scenario())


def test_a_deleted_folder_is_noticed_and_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "state.db"

    async def scenario() -> None:
        async with opened(path) as store:
            await written(store, "a.example", None, SICK)
            shutil.rmtree(path.parent)
            with pytest.raises(StoreError):
                await store.heartbeat(NOW)
            assert await store.heartbeat(NOW) == 1
            await written(store, "a.example", None, SICK)

    run(scenario())


def test_a_file_replaced_by_another_programs_is_refused_until_it_goes(path: Path) -> None:
    async def scenario() -> None:
        async with opened(path) as store:
            await written(store, "a.example", None, SICK)
            move_away(path)
            sqlite_file(path, "CREATE TABLE theirs (x)")
            with pytest.raises(StoreError, match="was deleted or replaced"):
                await store.get("a.example")
            for _ in range(2):
                with pytest.raises(StoreError, match="belongs to another program"):
                    await store.get("a.example")
            delete(path)
            await written(store, "a.example", None, SICK)

    run(scenario())


def test_a_file_damaged_while_running_is_refused_until_it_goes(path: Path) -> None:
    async def scenario() -> None:
        async with opened(path) as store:
            version = await written(store, "a.example", None, SICK)
            # What is in the log is not read from the file: so it must be in the file first.
            sqlite_file(path, "PRAGMA wal_checkpoint(TRUNCATE)")
            damage(path)
            # What is in this process's memory is not read again until another process has written.
            sqlite_file(path, "PRAGMA user_version = 2")
            for _ in range(2):
                with pytest.raises(StoreError, match="is damaged; move it away, and a new one is made"):
                    await store.swap("a.example", version, SICKER, now=NOW)
            move_away(path)
            await written(store, "a.example", None, SICK)

    run(scenario())


@pytest.mark.parametrize("statement", ["DELETE FROM forgotten", "DELETE FROM sqlite_sequence"])
def test_a_database_whose_counter_is_gone_is_damaged(path: Path, statement: str) -> None:
    async def scenario() -> None:
        async with opened(path) as store:
            await written(store, "a.example", None, SICK)
            sqlite_file(path, statement)
            for _ in range(2):
                with pytest.raises(StoreError, match="is damaged; move it away, and a new one is made"):
                    await store.changes_since(0)
            move_away(path)
            with contextlib.suppress(StoreError):
                await store.changes_since(0)
            await written(store, "a.example", None, SICK)

    run(scenario())


_ON_A_FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from proxy_addon.model import HostState
from proxy_addon.store import StoreError
from proxy_addon.store.sqlite import SqliteStore

def limit_files_to(size):
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

async def scenario(path):
    store = SqliteStore(path)
    await store.open()
    rows = {}

    async def write(host):
        try:
            rows[host] = await store.swap(host, None, HostState(rung=1), now=1_700_000_000.0)
        except StoreError as error:
            print(error)
            return False
        return True

    # It fills up while rows are written,
    limit_files_to(200_000)
    for n in range(1000):
        if not await write(f"{n}.example"):
            break
    print(len(rows) > 10)
    # is full when the file is opened again,
    limit_files_to(0)
    await write("other.example")
    await write("other.example")
    # and has space again.
    limit_files_to(resource.RLIM_INFINITY)
    await write("last.example")
    found = await store.changes_since(0)
    print({host: row.version for host, row in found.rows.items()} == rows, "last.example" in rows)
    await store.close()

asyncio.run(scenario(Path(sys.argv[1])))
"""


def test_a_full_disk_is_a_store_error_and_is_over_when_there_is_space(path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert hard == resource.RLIM_INFINITY
    result = subprocess.run(
        [sys.executable, "-c", _ON_A_FULL_DISK, path], capture_output=True, text=True, cwd=PROJECT, timeout=30
    )
    assert result.stderr == ""
    message = f"store sqlite:///{path} cannot be read or written; see whether its disk is full or failing"
    assert result.stdout.splitlines() == [message, "True", message, message, "True True"]


def test_what_is_forgotten_takes_no_space(path: Path) -> None:
    async def scenario() -> None:
        async with opened(path) as store:
            for n in range(500):
                version = await store.swap(f"{n}.example", None, SICK, now=NOW + n)
                await store.swap(f"{n}.example", version, None, now=NOW + n)
            await store.heartbeat(NOW + 500)

    run(scenario())
    with contextlib.closing(sqlite3.connect(path)) as connection:
        # One a second: those of 60 seconds, and of up to 60 more until the store looks again.
        (remembered,) = connection.execute("SELECT count(*) FROM host").fetchone()
        assert 60 <= remembered <= 120
