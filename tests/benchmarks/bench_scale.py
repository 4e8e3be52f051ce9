"""What many held requests cost: memory each, an idle core's share, and the loop's worst lag when they are let go.

    python tests/benchmarks/bench_scale.py [--held 10000] [--block 150]

The origin answers its first request with a 429 and a long Retry-After; meanwhile the crowd arrives, each client on
a connection of its own, and waits without having had a reply. When the block ends, the host recovers at once, and
everybody is let go: the worst case for the event loop. The lag is measured inside the loop. Loopback only; it
needs two open files for each held request. Nothing is asserted: it is a measurement, for people to judge.
"""

import argparse
import json
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.processes import Proxy, cpu_s, rss_bytes, running_origin, running_proxy
from tests.support.proxy import Samples
from tests.support.waiting import until

_HERE = Path(__file__).resolve().parent
_IDLE_S = 5.0
_AFTERWARDS_S = 15.0
_LAG = re.compile(r"worst lag: ([\d.]+) ([\d.]+)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--held", type=int, default=10_000)
    parser.add_argument("--block", type=int, default=150, help="seconds; the crowd must have arrived by then")
    given = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as stack:
        confdir = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
        origin = stack.enter_context(running_origin(_HERE / "healthy_origin.py", str(given.block)))
        proxy = stack.enter_context(running_proxy(command(confdir)))
        first = stack.enter_context(crowd(proxy, origin, 1))
        wait_for_waiting(proxy, 1)
        say(f"idle, one held: {idle_share(proxy):.1%} of a core")
        before = rss_bytes(proxy.pid)
        with lag(proxy, "arriving"):
            many = stack.enter_context(crowd(proxy, origin, given.held))
        wait_for_waiting(proxy, given.held + 1)
        held = rss_bytes(proxy.pid) - before
        say(f"held: {held / given.held / 1024:.1f} KiB each, {held / 2**20:.0f} MiB in all")
        say(f"idle, all held: {idle_share(proxy):.1%} of a core")
        with lag(proxy, "released"):
            answers = [process.communicate(timeout=given.block + 300)[0] for process in (first, many)]
        say(f"answers: {json.loads(answers[1])}")
        # What they left behind is tidied up now: that counts as well.
        with lag(proxy, "afterwards"):
            say(f"idle, afterwards: {idle_share(proxy, _AFTERWARDS_S):.1%} of a core")


def command(confdir: str) -> list[str]:
    ours = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--store", "memory:", "--confdir", confdir]
    return [sys.executable, str(_HERE / "probed_command.py"), *ours, "--ladder", "0,1"]


@contextmanager
def crowd(proxy: Proxy, origin: str, count: int) -> Iterator[subprocess.Popen[str]]:
    """Clients that have all sent their request."""
    with subprocess.Popen(
        [sys.executable, str(_HERE / "crowd.py"), str(proxy.port), origin, str(count)],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "sent\n"
            yield process
        finally:
            process.kill()


def wait_for_waiting(proxy: Proxy, count: int) -> None:
    def waiting() -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{proxy.admin_port}/metrics", timeout=30) as answer:
            return Samples(answer.read().decode()).value("paceproxy_waiting_requests")

    until(lambda: waiting() == count, f"{count} requests were held", 120, look_every_s=0.5)


def idle_share(proxy: Proxy, seconds: float = _IDLE_S) -> float:
    """The share of a core that it uses while nothing happens."""
    before, began = cpu_s(proxy.pid), time.monotonic()
    time.sleep(seconds)
    return (cpu_s(proxy.pid) - before) / (time.monotonic() - began)


@contextmanager
def lag(proxy: Proxy, what: str) -> Iterator[None]:
    """Watch the loop meanwhile, and say its worst lag."""
    said = len(_LAG.findall(proxy.log.read_text()))
    proxy.signal(signal.SIGUSR1)
    yield
    proxy.signal(signal.SIGUSR1)
    until(lambda: len(_LAG.findall(proxy.log.read_text())) > said, "the probe reported", 60)
    wall_ms, cpu_ms = _LAG.findall(proxy.log.read_text())[-1]
    say(f"{what}: worst lag {wall_ms} ms; most CPU at a stretch {cpu_ms} ms")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
