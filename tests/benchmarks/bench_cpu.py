"""What pacing costs on a healthy host: CPU per request and latency, of ours, mitmdump, and a bare Master.

Ours runs twice, with and without a learned limit of attempts in flight.

    python tests/benchmarks/bench_cpu.py [--rounds 5] [--requests 2000]

All proxies run at the same time, idle but for the one that is measured; rounds alternate between them, so that
what else the machine does meets all alike. CPU seconds are the kernel's, of the proxy's process alone; origin and
load have processes of their own. Loopback only. Nothing is asserted: it is a measurement, for people to judge.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.processes import Proxy, cpu_s, running_origin, running_proxy

_HERE = Path(__file__).resolve().parent
_WARM_UP = 200
_MODES = ("keep-alive", "new")


@dataclass(frozen=True, slots=True)
class Measured:
    """One round of one proxy in one mode."""

    cpu_per_request_s: float
    p50_s: float
    p99_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=2000, help="of each proxy, in each mode and round")
    parser.add_argument("--clients", type=int, default=8, help="how many ask at the same time")
    given = parser.parse_args()
    with ExitStack() as stack:
        confdir = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
        origin = stack.enter_context(running_origin(_HERE / "healthy_origin.py"))
        proxies = {name: stack.enter_context(running_proxy(command)) for name, command in commands(confdir).items()}
        results: dict[tuple[str, str], list[Measured]] = {}
        for round_ in range(given.rounds + 1):
            requests = given.requests if round_ else _WARM_UP
            for mode in _MODES:
                for name, proxy in proxies.items():
                    measured = measure(proxy, origin, requests, given.clients, mode)
                    if round_:
                        results.setdefault((mode, name), []).append(measured)
    report(results, list(proxies))


def commands(confdir: str) -> dict[str, list[str]]:
    mitmdump = str(Path(sys.executable).with_name("mitmdump"))
    options = [f"confdir={confdir}", "connection_strategy=lazy", "http2=false", "http3=false", "flow_detail=0"]
    sets = [part for option in options for part in ("--set", option)]
    ours = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--store", "memory:", "--confdir", confdir]
    return {
        "mitmdump": [mitmdump, "--listen-host", "127.0.0.1", "--listen-port", "0", *sets],
        "bare Master": [sys.executable, str(_HERE / "lean_master.py"), confdir],
        "no limit": [sys.executable, "-m", "proxy_addon", *ours, "--in-flight", "off"],
        "paceproxy": [sys.executable, "-m", "proxy_addon", *ours],
    }


def measure(proxy: Proxy, origin: str, requests: int, clients: int, mode: str) -> Measured:
    before = cpu_s(proxy.pid)
    done = subprocess.run(
        [sys.executable, str(_HERE / "load.py"), str(proxy.port), origin, str(requests), str(clients), mode],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    latencies = sorted(json.loads(done.stdout))
    used = cpu_s(proxy.pid) - before
    return Measured(
        used / len(latencies),
        latencies[len(latencies) // 2],
        latencies[len(latencies) * 99 // 100],
    )


def report(results: Mapping[tuple[str, str], Sequence[Measured]], names: Sequence[str]) -> None:
    """Print medians over the rounds; the ratios are medians of the ratios within one round."""
    line = "{:12} {:12} {:>10} {:>13} {:>16} {:>12} {:>8} {:>8}\n"
    head = line.format(
        *("connections", "proxy", "CPU/req us", "to mitmdump", "to bare Master", "to no limit", "p50 ms", "p99 ms")
    )
    sys.stdout.write(head)
    for mode in _MODES:
        for name in names:
            rounds = results[mode, name]
            sys.stdout.write(
                line.format(
                    mode,
                    name,
                    f"{statistics.median(m.cpu_per_request_s for m in rounds) * 1e6:.0f}",
                    f"{ratio(rounds, results[mode, 'mitmdump']):.2f}",
                    f"{ratio(rounds, results[mode, 'bare Master']):.2f}",
                    f"{ratio(rounds, results[mode, 'no limit']):.2f}",
                    f"{statistics.median(m.p50_s for m in rounds) * 1e3:.1f}",
                    f"{statistics.median(m.p99_s for m in rounds) * 1e3:.1f}",
                )
            )


def ratio(rounds: Sequence[Measured], reference: Sequence[Measured]) -> float:
    pairs = zip(rounds, reference, strict=True)
    return statistics.median(ours.cpu_per_request_s / theirs.cpu_per_request_s for ours, theirs in pairs)


if __name__ == "__main__":
    main()
