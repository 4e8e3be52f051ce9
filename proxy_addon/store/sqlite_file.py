"""Opening the SQLite file: make it, or see that it is ours and in order, and bring it to our version. Synchronous;
`sqlite.py` calls it on a thread.

Its rule: a file that is not ours, not whole, or not usable is refused and never altered. What is said about a failure
is written for the person who runs the proxy, and without SQL. Reading and writing rows does not belong here.
"""

import fcntl
import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

from proxy_addon.clock import SystemClock
from proxy_addon.store import StoreError

type Identity = tuple[int, int]
"""Device and inode. Another file cannot have them while the first is open."""

_APPLICATION_ID = 0x50616365
"""`PRAGMA application_id` in schema.sql: "Pace" in ASCII. It marks a file as ours."""
_SCHEMA_VERSION = 3
"""`PRAGMA user_version` in schema.sql."""
_MIGRATIONS = {1: ("from_1_to_2", "from_2_to_3"), 2: ("from_2_to_3",)}
"""By the version of a file: the scripts that bring it to ours, one after the other."""
_OLDEST_SQLITE = (3, 37)
"""STRICT tables; RETURNING is older."""
_clock = SystemClock()
_LOOK_AT_LOCK_EVERY_S = 0.01
"""Opening takes some milliseconds: a whole fleet that starts at once is through in a second."""

_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_IN_PLAIN_WORDS = {
    sqlite3.SQLITE_BUSY: ("is locked by another program", "find that program with `fuser -v` and stop it"),
    sqlite3.SQLITE_LOCKED: ("is locked by another program", "find that program with `fuser -v` and stop it"),
    sqlite3.SQLITE_READONLY: ("is read-only", "make the file and its folder writable for this user"),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", "make the file and its folder writable for this user"),
    sqlite3.SQLITE_PERM: ("cannot be opened", "make the file and its folder writable for this user"),
    sqlite3.SQLITE_FULL: ("cannot be written, its disk is full", "free some space"),
    sqlite3.SQLITE_IOERR: ("cannot be read or written", "see whether its disk is full or failing"),
    sqlite3.SQLITE_CORRUPT: ("is damaged", "move it away, and a new one is made"),
    sqlite3.SQLITE_NOTADB: ("is not a SQLite database", "move it away, or give another path"),
    sqlite3.SQLITE_PROTOCOL: ("cannot be locked", "put it on a local disk, not on a network file system"),
}


def read_sql(name: str) -> str:
    """The text of `name`.sql, which lies beside this module."""
    return resources.files("proxy_addon.store").joinpath(f"{name}.sql").read_text("utf-8")


def is_locked(error: sqlite3.Error) -> bool:
    """Whether the cause is another program's lock, so that the connection itself is in order."""
    return _primary_code(error) in _LOCKED


def explain(path: Path, error: sqlite3.Error | OSError) -> StoreError:
    """The error to raise for `error`, in one line, with the path and the remedy."""
    if isinstance(error, OSError):
        reason = (error.strerror or type(error).__name__).lower()
        return refusal(path, f"cannot be opened: {reason}", "give a path that this user can write to")
    what, remedy = _IN_PLAIN_WORDS.get(
        _primary_code(error),
        (f"failed ({getattr(error, 'sqlite_errorname', type(error).__name__)})", "see whether it is in order"),
    )
    return refusal(path, what, remedy)


def refusal(path: Path, what: str, remedy: str) -> StoreError:
    """A StoreError in the one form that all messages of this store have."""
    return StoreError(what, store=f"sqlite:///{path}", remedy=remedy)


def identity(path: Path) -> Identity | None:
    """Of the file that lies at `path` now; None where there is none to be seen."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def open_file(path: Path, *, busy_timeout_s: float) -> tuple[sqlite3.Connection, Identity]:
    """A connection in autocommit mode to the database at `path`, which is made if it does not exist.

    Raises StoreError where it cannot be used; then nothing has been changed, save that folders may have been made.
    """
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise refusal(
            path,
            f"needs SQLite 3.37 or newer, this Python has {sqlite3.sqlite_version}",
            "use a Python with a newer SQLite, or the store memory:",
        )
    try:
        real_path = Path(os.path.realpath(path))
        _make_folder(real_path.parent)
        with _folder_locked(path, real_path.parent, patience_s=busy_timeout_s):
            _make_file(path, real_path)
            connection = sqlite3.connect(
                f"{real_path.as_uri()}?mode=rw", uri=True, timeout=busy_timeout_s, isolation_level=None
            )
            try:
                _make_ready(path, connection)
                opened = os.stat(path)
            except BaseException:
                connection.close()
                raise
            return connection, (opened.st_dev, opened.st_ino)
    except (sqlite3.Error, OSError) as error:
        raise explain(path, error) from error


def _primary_code(error: sqlite3.Error) -> int:
    # Errors that Python's module itself raises have no code.
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _make_folder(folder: Path) -> None:
    missing = [step for step in (folder, *folder.parents) if not step.exists()]
    for step in reversed(missing):
        step.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def _folder_locked(path: Path, folder: Path, *, patience_s: float) -> Iterator[None]:
    """Only one process at a time opens a database in `folder`.

    Otherwise two could make the same file, and one would remove what the other has just made. The kernel lets go of
    the lock when the process dies.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    # By the clock: on a busy machine a sleep takes longer than it was asked to.
    until = _clock.monotonic() + patience_s
    try:
        while not _lock(descriptor):
            if _clock.monotonic() >= until:
                raise refusal(path, "is being opened by another process", "see which one hangs with `fuser -v`")
            time.sleep(_LOOK_AT_LOCK_EVERY_S)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _make_file(path: Path, real_path: Path) -> None:
    """An empty file where there is none; a StoreError where there is something else than a file."""
    if real_path.exists():
        if not stat.S_ISREG(real_path.stat().st_mode):
            raise refusal(path, "is not a file", "give the path of a file, such as paceproxy.db in that folder")
        return
    # Left behind by a database that was deleted. SQLite would apply them to the new one, and so destroy it.
    for suffix in ("-wal", "-shm", "-journal"):
        real_path.with_name(real_path.name + suffix).unlink(missing_ok=True)
    # Closing it drops no lock of SQLite's (POSIX locks go with any descriptor of a file): nobody can have one yet.
    os.close(os.open(real_path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _make_ready(path: Path, connection: sqlite3.Connection) -> None:
    # Whatever it turns out to be: until it is known to be ours, closing it must not write to it.
    connection.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, True)
    version = _check_ours(path, connection)
    use_wal(path, connection)
    if version == 0:
        os.chmod(path, 0o600)
        connection.executescript(read_sql("schema"))
    # Nobody else does so meanwhile: the folder is locked. Processes that have the file open go on with it.
    for script in _MIGRATIONS.get(version, ()):
        connection.executescript(read_sql(script))
    connection.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, False)
    # A power cut may lose the last commits but not the file; a killed process loses nothing. A rung is not worth more.
    connection.execute("PRAGMA synchronous = NORMAL")
    # Reading works in a read-only file, and so does BEGIN IMMEDIATE: only a statement that would write tells.
    connection.execute("DELETE FROM process WHERE false")


def _check_ours(path: Path, connection: sqlite3.Connection) -> int:
    """The version of its schema, 0 where it is new, that is empty. Raises where it is neither new nor ours, nor in
    order."""
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application_id == 0 and objects == 0:
        return 0
    if application_id != _APPLICATION_ID:
        raise refusal(path, "belongs to another program", "give another path")
    schema_version: int
    (schema_version,) = connection.execute("PRAGMA user_version").fetchone()
    if schema_version != _SCHEMA_VERSION and schema_version not in _MIGRATIONS:
        raise refusal(
            path,
            f"was made by another version of paceproxy (schema {schema_version}, not {_SCHEMA_VERSION})",
            "use that version, or give another path",
        )
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise refusal(path, *_IN_PLAIN_WORDS[sqlite3.SQLITE_CORRUPT])
    return schema_version


def use_wal(path: Path, connection: sqlite3.Connection) -> None:
    """Switch to write-ahead logging, in which readers and the writer do not wait for each other."""
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise refusal(
            path,
            f"cannot keep a write-ahead log there (journal mode {mode})",
            "put it on a local disk, not on a network file system",
        )
