"""What the learned limit costs on a healthy host, in instructions: noise of the machine does not count.

    python tests/benchmarks/bench_instructions.py [--rounds 2] [--requests 300] [--clients 2] [--page 1]

The proxy runs under valgrind's callgrind (Debian's package valgrind), which counts what it executes and makes it some
fifty times slower; `--page` is how long a page takes, and must be far longer than the proxy then takes for all clients
together, or its own slowness looks like load. Rounds alternate between `--in-flight learn` and `off`. Loopback only,
connections are kept alive. Nothing is asserted: it is a measurement, for people to judge.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.processes import running_proxy

_CONTENDERS = ("off", "learn")
_WARM_UP = 12
"""Requests of each client: the limit has been learned by then, and caches are filled."""
_PAGE = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + b"x" * 100
_PATIENCE_S = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--requests", type=int, default=300, help="of each contender in each round")
    parser.add_argument("--clients", type=int, default=2, help="how many ask at the same time")
    parser.add_argument("--page", type=float, default=1.0, help="seconds that the origin takes for a page")
    given = parser.parse_args()
    found: dict[str, list[float]] = {contender: [] for contender in _CONTENDERS}
    with running_origin(given.page) as url, tempfile.TemporaryDirectory(prefix="bench-") as confdir:
        for _ in range(given.rounds):
            for contender in _CONTENDERS:
                counted = instructions(contender, url, given.requests, given.clients, confdir)
                found[contender].append(counted / given.requests / 1e6)
                print(f"{contender}: {found[contender][-1]:.3f} million instructions a request", flush=True)  # noqa: T201
    ratio = statistics.mean(found["learn"]) / statistics.mean(found["off"])
    print(f"learn by off: {ratio:.3f}")  # noqa: T201


def instructions(in_flight: str, url: str, requests: int, clients: int, confdir: str) -> int:
    """What a proxy executes for so many requests."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/counts.%p"]
        proxy = [sys.executable, "-m", "proxy_addon", "--listen=127.0.0.1:0", "--admin=off", "--store=memory:"]
        command = [*valgrind, *proxy, f"--confdir={confdir}", f"--in-flight={in_flight}"]
        with running_proxy(command, start_timeout_s=_PATIENCE_S) as running:
            load(running.port, url, _WARM_UP * clients, clients)
            _count(running.pid, on=True)
            load(running.port, url, requests, clients)
            _count(running.pid, on=False)
        lines = [line for path in Path(folder).iterdir() for line in path.read_text(errors="replace").splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("totals:"))


def load(port: int, url: str, requests: int, clients: int) -> None:
    """Ask for this page so often, by several clients at once."""

    def ask(count: int) -> None:
        with closing(HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_S)) as connection:
            for _ in range(count):
                connection.request("GET", url)
                response = connection.getresponse()
                assert response.status == 200, response.status
                response.read()

    with ThreadPoolExecutor(clients) as threads:
        list(threads.map(ask, [requests // clients] * clients))


@contextmanager
def running_origin(page_s: float) -> Iterator[str]:
    """An origin that takes so long for every page; its URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            try:
                while True:
                    await reader.readuntil(b"\r\n\r\n")
                    await asyncio.sleep(page_s)
                    writer.write(_PAGE)
            except (asyncio.IncompleteReadError, ConnectionError):
                pass

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/page"
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


def _count(pid: int, *, on: bool) -> None:
    subprocess.run(["callgrind_control", "-i", "on" if on else "off", str(pid)], check=True, capture_output=True)


if __name__ == "__main__":
    main()
