"""Whether the proxy stays as it is: 50,000 requests in 10 minutes, 5 % of them to pages that misbehave.

    python tests/benchmarks/soak.py [--requests 50000] [--minutes 10] [--faulty 5]

Measured is the proxy's process alone; origins and clients are others. It ends with exit code 1 where its memory grew by
5 % or more in the second half of the time, where it kept files open, or where something is in its log that should
not be: a disk that is busy with other things makes its store stop, so better give a TMPDIR in memory. Loopback only.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.processes import Proxy, cpu_s, rss_bytes, running_origin, running_proxy
from tests.fuzz.session import trouble
from tests.support.proxy import Samples
from tests.support.waiting import until

_HERE = Path(__file__).resolve().parent
_LOOKS = 100
"""In the time given. On a slow machine it takes longer, and there are more."""
_LOOKS_PER_LINE = 5
_GROWTH_LIMIT = 0.05
_SETTLE_S = 30.0
# Scaled, so that hosts climb and come down all the time, and requests last seconds.
_FLAGS = (
    *("--ladder", "0,0.1,0.3,1", "--window", "5", "--attempt-timeout", "1", "--connect-timeout", "1"),
    *("--retry-after-cap", "2", "--pause", "2", "--pause-max", "4", "--forgive-after", "30", "--body-timeout", "2"),
    "--ssl-insecure",
)


@dataclass(frozen=True, slots=True)
class Look:
    """At the proxy, `at_s` after the beginning."""

    at_s: float
    rss_bytes: int
    open_files: int
    requests: float
    cpu_s: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--faulty", type=float, default=5.0, help="per cent of the replies")
    given = parser.parse_args()
    seconds = given.minutes * 60
    with ExitStack() as stack:
        confdir = stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-"))
        ports = stack.enter_context(running_origin(_HERE / "soak_origins.py", str(given.faulty))).split()
        store = f"sqlite:///{confdir}/hosts.sqlite3"
        ours = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--store", store, "--confdir", confdir)
        proxy = stack.enter_context(running_proxy([sys.executable, "-m", "proxy_addon", *ours, *_FLAGS]))
        before = look(proxy, 0.0)
        ca = f"{confdir}/mitmproxy-ca-cert.pem"
        crowd = [str(proxy.port), ca, *ports, str(given.requests), str(seconds)]
        with subprocess.Popen(
            [sys.executable, str(_HERE / "soak_crowd.py"), *crowd], stdout=subprocess.PIPE, text=True
        ) as clients:
            try:
                looks = watch(proxy, clients, seconds / _LOOKS)
            finally:
                clients.terminate()
            assert clients.stdout is not None
            say(f"answers: {json.loads(clients.stdout.read())}")
        until(lambda: look(proxy, 0.0).open_files <= before.open_files, "its files were closed", _SETTLE_S)
        faults = [*judge(looks), *trouble(proxy.log.read_text())]
        say("\n".join(faults) or "nothing grew, and nothing is in the log")
        return 1 if faults else 0


def watch(proxy: Proxy, clients: "subprocess.Popen[str]", every_s: float) -> list[Look]:
    """A look every so often, until the clients are done."""
    began = time.monotonic()
    looks: list[Look] = []
    say(f"{'min':>5} {'requests':>9} {'RSS MiB':>8} {'files':>6} {'CPU s':>7}")
    while clients.poll() is None:
        one = look(proxy, time.monotonic() - began)
        if len(looks) % _LOOKS_PER_LINE == 0:
            mib = one.rss_bytes / 2**20
            say(f"{one.at_s / 60:5.1f} {one.requests:9.0f} {mib:8.1f} {one.open_files:6d} {one.cpu_s:7.1f}")
        looks.append(one)
        time.sleep(every_s)
    return looks


def look(proxy: Proxy, at_s: float) -> Look:
    with urllib.request.urlopen(f"http://127.0.0.1:{proxy.admin_port}/metrics", timeout=30) as answer:
        samples = Samples(answer.read().decode())
    files = len(os.listdir(f"/proc/{proxy.pid}/fd"))
    return Look(at_s, rss_bytes(proxy.pid), files, samples.value("paceproxy_requests_total"), cpu_s(proxy.pid))


def judge(looks: list[Look]) -> list[str]:
    """What grew. Compared are the tenth of the time after the middle and the last one, each by its median."""
    ends_at_s = looks[-1].at_s
    after_middle = [one for one in looks if 0.5 <= one.at_s / ends_at_s < 0.6]
    at_end = [one for one in looks if one.at_s / ends_at_s >= 0.9]
    found = []
    for what in ("rss_bytes", "open_files"):
        middle, end = (statistics.median(getattr(one, what) for one in some) for some in (after_middle, at_end))
        say(f"{what}: {middle:.0f} after the middle, {end:.0f} at the end: {end / middle - 1:+.1%}")
        # How many connections there are at a time varies with what the origins do.
        limit = _GROWTH_LIMIT if what == "rss_bytes" else 0.3
        if end / middle - 1 >= limit:
            found.append(f"{what} grew by {end / middle - 1:.1%} in the second half")
    return found


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
