"""Everything that can befall the store's file while the proxy runs: traffic goes on, and never faster than the pace.

Each test begins with a host that is sick for good, and clients that go on waiting for it. What is judged is the
origin's own log; `LADDER` has one pace on every rung, so that each gap must be at least that.
"""

import resource
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from tests.scenarios.spacing import Entry, too_soon
from tests.support.behaviours import respond
from tests.support.clients import RawClient
from tests.support.origin import Origin
from tests.support.proxy import Paceproxy
from tests.support.visit import Request
from tests.support.waiting import until

PACE_S = 0.3
LADDER = (0, PACE_S, PACE_S, PACE_S)
FLAGS = ("--ladder", "0,0.3,0.3,0.3", "--pause-after", "0", "--page-fault-after", "0")
GONE, BACK = "The store does not work", "The store works again"


@pytest.fixture
def sick() -> Iterator[Origin]:
    with Origin(default=respond(503)) as running:
        yield running


@pytest.fixture
def file(tmp_path: Path) -> Path:
    # What a path may have in it: a space, another script, and what is special in a URL.
    return tmp_path / "of mine" / "größe 100%?#" / "pace.db"


@contextmanager
def crawl(proxy: Paceproxy, origin: Origin, path: str) -> Iterator[None]:
    """Three clients that wait for the host as long as it takes."""
    with ExitStack() as stack:
        for number in range(3):
            stack.enter_context(RawClient(proxy.port)).get(origin.url(f"{path}?{number}"))
        proxy.wait_for_metric("paceproxy_host_rung", 3, host=origin.host)
        yield


@contextmanager
def locked(file: Path) -> Iterator[None]:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


def empty_log(file: Path) -> None:
    """What is in SQLite's log would not be read from the file."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def overwrite(file: Path) -> None:
    """Everything after the first page."""
    empty_log(file)
    with file.open("r+b") as damaged:
        damaged.seek(4096)
        damaged.write(b"\xff" * (file.stat().st_size - 4096))


def truncate(file: Path) -> None:
    empty_log(file)
    file.write_bytes(b"")


def replace(file: Path) -> None:
    file.rename(file.with_name("away.db"))
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE theirs (x)")


def remove_folder(file: Path) -> None:
    shutil.rmtree(file.parent)


def limit_files_to(proxy: Paceproxy, size: int) -> None:
    """As a quota or a full disk does, what would make a file longer than this fails."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.prlimit(proxy.process.pid, resource.RLIMIT_FSIZE, (size, hard))


def hits_after(origin: Origin, number: int) -> None:
    """Return once there were so many more."""
    seen = len(origin.requests)
    origin.wait_for(lambda o: len(o.requests) >= seen + number)


class Watch:
    """The proxy's store as its log and its gauge show it."""

    def __init__(self, proxy: Paceproxy) -> None:
        self._proxy = proxy
        self._times = 0

    def gone(self) -> None:
        self._times += 1
        until(lambda: self._said(GONE) == self._times, "the log said that the store does not work")

    def back(self) -> None:
        until(lambda: self._said(BACK) == self._times, "the log said that the store works again", 20)
        assert self._proxy.metric("paceproxy_store_up") == 1
        assert self._said(GONE) == self._times

    def _said(self, line: str) -> int:
        return self._proxy.log.count(line)


def faults(origin: Origin, tolerance_s: float) -> list[str]:
    entries = [Entry(r.at, r.done_at or r.at, stalled=True) for r in list(origin.requests)]
    return too_soon(entries, LADDER, tolerance_s=tolerance_s)


def rows(file: Path) -> dict[str, tuple[int, float]]:
    """Rung and next slot of every host in the file."""
    with closing(sqlite3.connect(file)) as connection:
        found = connection.execute("SELECT name, rung, next_slot_at FROM host WHERE forget_at IS NULL").fetchall()
    return {name: (rung, next_slot_at) for name, rung, next_slot_at in found}


def test_whatever_befalls_its_file_the_traffic_goes_on_at_its_pace(sick: Origin, confdir: Path, file: Path) -> None:
    with Paceproxy(*FLAGS, "--store", f"sqlite:///{file}", confdir=confdir) as proxy, crawl(proxy, sick, "/"):
        store = Watch(proxy)

        with locked(file):
            store.gone()
            assert proxy.metric("paceproxy_store_up") == 0
            hits_after(sick, 2)
        store.back()

        limit_files_to(proxy, 0)
        store.gone()
        hits_after(sick, 2)
        limit_files_to(proxy, resource.RLIM_INFINITY)
        store.back()

        # What is there is refused until somebody takes it away, and is not touched.
        befall: Callable[[Path], None]
        for befall in (replace, overwrite):
            befall(file)
            store.gone()
            was = file.read_bytes()
            hits_after(sick, 2)
            assert proxy.metric("paceproxy_store_up") == 0
            assert file.read_bytes() == was
            file.rename(file.with_name("refused.db"))
            store.back()

        # What is gone is made anew.
        for befall in (truncate, remove_folder):
            befall(file)
            store.gone()
            store.back()
        hits_after(sick, 2)
        assert {path.name: path.stat().st_mode & 0o777 for path in file.parent.iterdir()} == {
            "pace.db": 0o600,
            "pace.db-wal": 0o600,
            "pace.db-shm": 0o600,
        }
        assert file.parent.stat().st_mode & 0o777 == 0o700
        proxy.kill()

    before = rows(file)
    assert before[sick.host][0] == 3
    with Paceproxy(*FLAGS, "--store", f"sqlite:///{file}", confdir=confdir) as again:
        assert again.metric("paceproxy_host_rung", host=sick.host) == 3
        with RawClient(again.port) as client:
            client.get(sick.url("/after"))
            sick.wait_for(lambda o: o.hits("/after"))
    assert rows(file)[sick.host] > before[sick.host]
    assert faults(sick, 0.02) == []


def test_two_processes_without_their_store_pace_for_both(sick: Origin, confdir: Path, file: Path) -> None:
    flags = (*FLAGS, "--store", f"sqlite:///{file}")
    with (
        Paceproxy(*flags, confdir=confdir) as one,
        Paceproxy(*flags, confdir=confdir) as other,
        crawl(one, sick, "/one"),
        crawl(other, sick, "/other"),
    ):
        proxies = {"/one": one, "/other": other}
        watches = [Watch(proxy) for proxy in proxies.values()]
        settled = len(sick.requests)
        both_have_counted(file)
        hits_after(sick, 3)
        for proxy in proxies.values():
            limit_files_to(proxy, 0)
        for watch in watches:
            watch.gone()
        apart = len(sick.requests)
        sick.wait_for(lambda o: all(count(o, path, apart) >= 4 for path in proxies), 20)
        together = len(sick.requests)
        for proxy in proxies.values():
            limit_files_to(proxy, resource.RLIM_INFINITY)
        for watch in watches:
            watch.back()
        back = len(sick.requests)
        hits_after(sick, 2)

        other.process.send_signal(signal.SIGSTOP)
        hits_after(sick, 3)
        other.process.send_signal(signal.SIGCONT)
        resumed = len(sick.requests)
        sick.wait_for(lambda o: count(o, "/other", resumed))
        other.kill()
        hits_after(sick, 2)

    for path in proxies:
        own = [request for request in sick.requests[apart:together] if request.path.startswith(path)]
        # The first may have been claimed while the store still worked.
        assert min(gaps(own[1:])) >= 2 * PACE_S - 0.02, (path, gaps(own))
    for shared in (sick.requests[settled:apart], sick.requests[back:]):
        assert min(gaps(shared)) >= PACE_S - 0.05, gaps(shared)


def both_have_counted(file: Path) -> None:
    """Wait until each of two processes has looked how many there are, now that both are there."""
    since = time.time()
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
        until(
            lambda: connection.execute("SELECT count(*) FROM process WHERE beat_at > ?", (since,)).fetchone() == (2,),
            "both processes have said that they live",
        )


def gaps(requests: Sequence[Request]) -> list[float]:
    return [later.at - earlier.at for earlier, later in pairwise(requests)]


def count(origin: Origin, path: str, since: int) -> int:
    return sum(1 for request in list(origin.requests)[since:] if request.path.startswith(path))
