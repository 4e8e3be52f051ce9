"""How much memory a body of any size takes on its way: the peak of the proxy's resident memory.

    python tests/benchmarks/bench_bodies.py [--size 1024]

Over HTTP/1.1 and over HTTP/2 (TLS on both sides) each: a download whose client stops reading now and then, an upload
whose origin does, and an upload that waits before it is sent, since its host is paced. Loopback only. Nothing is
asserted: it is a measurement, for people to judge.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.bulk import BulkClient, BulkOrigin
from tests.support.proxy import Paceproxy

MIB = 1 << 20
PAUSES = 3
PAUSE_S = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--size", type=int, default=1024, help="MiB")
    size = parser.parse_args().size * MIB
    with tempfile.TemporaryDirectory(prefix="bench-") as confdir:
        for h2 in (False, True):
            name = "HTTP/2" if h2 else "HTTP/1.1"
            for title, run in (("download", download), ("upload", upload), ("held upload", held_upload)):
                # A process for each: what one has left behind must not be what the next one uses.
                with (
                    Paceproxy("--http2", "--ssl-insecure", "--ladder", "0,5", confdir=Path(confdir)) as proxy,
                    BulkOrigin(h2=h2) as origin,
                    BulkClient(proxy.port, origin, proxy.ca) as client,
                    measured(proxy, f"{name} {title}", size),
                ):
                    run(client, origin, size)


def download(client: BulkClient, origin: BulkOrigin, size: int) -> None:
    client.received_bytes = 0
    client.take(client.ask(size), size, now_and_then(lambda: client.received_bytes, size))


def upload(client: BulkClient, origin: BulkOrigin, size: int) -> None:
    pause = now_and_then(lambda: origin.received_bytes, size)

    def slow_down() -> None:
        while origin.received_bytes < size:
            origin.reads.clear()
            pause()
            origin.reads.set()
            time.sleep(0.05)

    slowing = threading.Thread(target=slow_down, daemon=True)
    slowing.start()
    client.upload(size)
    slowing.join()


def held_upload(client: BulkClient, origin: BulkOrigin, size: int) -> None:
    client.fail()
    client.upload(size)


def now_and_then(count: Callable[[], int], size: int) -> Callable[[], None]:
    """A pause at each quarter."""
    done = 0

    def pause() -> None:
        nonlocal done
        if done < PAUSES and count() >= size * (done + 1) / (PAUSES + 1):
            done += 1
            time.sleep(PAUSE_S)

    return pause


@contextmanager
def measured(proxy: Paceproxy, what: str, size: int) -> Iterator[None]:
    Path(f"/proc/{proxy.process.pid}/clear_refs").write_text("5")
    before, cpu, began = proxy.peak_rss_bytes(), proxy.cpu_s(), time.monotonic()
    yield
    grown = (proxy.peak_rss_bytes() - before) / MIB
    took, used = time.monotonic() - began, proxy.cpu_s() - cpu
    memory = f"peak RSS {before / MIB:.0f} MiB + {grown:.1f} MiB"
    sys.stdout.write(f"{what}, {size // MIB} MiB: {memory}; {took:.0f} s, {used:.0f} s of CPU\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
