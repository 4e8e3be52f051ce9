"""The command `python -m tests.crawls`: what to run, from its arguments, and what came of it, in tables."""

import argparse
import os
import subprocess
import sys
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from proxy_addon.settings import SettingError
from tests.crawls import report, results, tables
from tests.crawls.contenders import PEERS, Contender
from tests.crawls.crawl import DRIVERS
from tests.crawls.proxies import ROOT, Command, Ours, Proxy
from tests.crawls.run import Trial, run
from tests.crawls.scaled_settings import scaled_environment
from tests.simulation.oracle import healthy_oracle, oracle
from tests.simulation.scenarios import ALL, SCENARIOS, SEED, Scenario, override

PEERS_FOLDER = ROOT / "build" / "peers"

_ABOUT = """\
Whole crawls of simulated small hosts on real sockets, in scaled time: what becomes of each with Paceproxy, with the
crawlers and proxies that people use today, and with perfect knowledge. All traffic stays on loopback.
"""
_EXAMPLES = f"""\
examples:
  python -m tests.crawls paceproxy                                   every scenario through Paceproxy
  python -m tests.crawls paceproxy -s shop-pool,flaky -c plain       some, with an impatient client
  python -m tests.crawls paceproxy -s shop-pool --parallel 5,20,50 --pages 400
  python -m tests.crawls paceproxy --option window=300 --option in_flight=off
  sh tests/crawls/setup.sh                                           install the peers, once, into build/peers
  python -m tests.crawls peers                                       everybody else, about half an hour
  python -m tests.crawls peers -d plain,plain-patient                these need no set-up
  python -m tests.crawls proxy 'my-proxy --port {{port}}' -s outage    any other proxy
  python -m tests.crawls report                                      the README's table and chart, from the results
  python -m tests.crawls oracle                                      the best possible result of each scenario

scenarios: {", ".join(SCENARIOS)}
further ones: {", ".join(name for name in ALL if name not in SCENARIOS)}
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 1 where something could not be run, 2 for a bad argument."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        if given.what == "report":
            report.write()
            return 0
        if given.what == "oracle":
            return _show_oracle(given)
        wanted = list(_trials(given))
    except (SettingError, ValueError) as error:
        parser.error(str(error))
    return _run_all(wanted, given.results)


def trials(arguments: Sequence[str]) -> list[Trial]:
    """The runs that these arguments ask for. Raises `ValueError` or `SettingError` for what cannot be."""
    return list(_trials(_parser().parse_args(arguments)))


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m tests.crawls", description=_ABOUT, epilog=_EXAMPLES, formatter_class=raw
    )
    kinds = parser.add_subparsers(dest="what", required=True, metavar="WHAT")

    ours = kinds.add_parser("paceproxy", help="crawl through Paceproxy as it is in this clone")
    _add_clients(ours)
    ours.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of Paceproxy; durations are simulated seconds, as all of its settings",
    )
    ours.set_defaults(name="paceproxy")

    peers = kinds.add_parser("peers", help="crawl with the crawlers and proxies that people use")
    peers.add_argument(
        "-d", "--driver", default=",".join(PEERS), metavar="NAME,...", help=f"some of {', '.join(PEERS)}"
    )

    other = kinds.add_parser("proxy", help="crawl through any other proxy", description=_DESCRIBED)
    other.add_argument("command", metavar="COMMAND", help="starts it; {port}, {scale} and {dir} are put in")
    other.add_argument("--name", default="proxy", help="what to call it in the tables")
    _add_clients(other)

    for running in (ours, peers, other):
        _add_conditions(running)
    kinds.add_parser("report", help="write the README's table, all tables and the chart from the stored results")
    best = kinds.add_parser("oracle", help="print the best possible result of each scenario")
    _add_scenarios(best)
    return parser


_DESCRIBED = """\
The proxy must listen on port {port} of 127.0.0.1, multiply every duration that it would use in production by {scale},
and stop on SIGTERM; {dir} is an empty folder. The same is in BENCH_PROXY_PORT, BENCH_TIME_SCALE and BENCH_DIR.
"""


def _add_clients(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c",
        "--client",
        default="plain,plain-patient",
        metavar="NAME,...",
        help=f"who asks through the proxy, of {', '.join(DRIVERS)} (default: %(default)s)",
    )


def _add_scenarios(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-s", "--scenario", default="all", metavar="NAME,...", help="default: the first eleven")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="change a scenario's parameter"
    )


def _add_conditions(parser: argparse.ArgumentParser) -> None:
    _add_scenarios(parser)
    parser.add_argument(
        "--parallel", metavar="N,...", help="requests that the crawler keeps in flight, one run for each"
    )
    parser.add_argument("--pages", type=int, metavar="N", help="pages to ask for, of each host")
    parser.add_argument("--scale", type=float, help="real seconds per simulated one (default: the scenario's)")
    parser.add_argument("--peers", type=Path, default=PEERS_FOLDER, metavar="DIR", help="what setup.sh made")
    parser.add_argument("--results", type=Path, metavar="FILE", help="keep each result in this file of JSON lines")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep each crawl's outcomes and origin's log here")


def _trials(given: argparse.Namespace) -> Iterator[Trial]:
    """Every run that is asked for. Raises `ValueError` or `SettingError` for what cannot be."""
    contenders = list(_contenders(given))
    parallels = [int(number) for number in given.parallel.split(",")] if given.parallel else [None]
    for name in _scenarios(given):
        for parallel in parallels:
            asked = {"parallel": parallel, "pages": given.pages}
            pairs = [*given.set, *(f"{key}={value}" for key, value in asked.items() if value is not None)]
            changes = _real_changes(ALL[name], pairs)
            for contender in contenders:
                yield Trial(
                    scenario=name,
                    contender=contender,
                    changes=changes,
                    scale=given.scale,
                    seed=given.seed,
                    peers=given.peers.absolute(),
                    kept=given.keep and given.keep / "--".join([name, contender.label, *changes]),
                )


def _contenders(given: argparse.Namespace) -> Iterator[Contender]:
    if given.what == "peers":
        for name in given.driver.split(","):
            _check(name, PEERS, "driver")
            yield PEERS[name]
        return
    proxy: Proxy = Command(given.command) if given.what == "proxy" else Ours(_pairs(given.option))
    if isinstance(proxy, Ours):
        scaled_environment(1.0, proxy.options)  # to refuse a bad one before anything runs
    for client in given.client.split(","):
        _check(client, DRIVERS, "driver")
        yield Contender(f"{given.name}-{client}", client, proxy)


def _scenarios(given: argparse.Namespace) -> list[str]:
    names = list(SCENARIOS) if given.scenario == "all" else given.scenario.split(",")
    for name in names:
        _check(name, ALL, "scenario")
    return names


def _check(name: str, known: Container[str], what: str) -> None:
    if name not in known:
        raise ValueError(f"there is no {what} {name!r}; see --help")


def _pairs(texts: Iterable[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, given, value = text.partition("=")
        pairs[name] = value if given else "true"
    return pairs


def _real_changes(scenario: Scenario, pairs: Iterable[str]) -> tuple[str, ...]:
    """Those that change something: what is asked for as it is anyway is the same run."""
    return tuple(sorted(pair for pair in pairs if override(scenario, [pair]) != scenario))


def _run_all(wanted: Sequence[Trial], kept: Path | None) -> int:
    failures = 0
    for (name, changes), group in groupby(wanted, key=lambda trial: (trial.scenario, trial.changes)):
        found = []
        for trial in group:
            try:
                result = run(trial)
            except (RuntimeError, OSError, AssertionError, subprocess.SubprocessError) as error:
                notes = "\n".join(getattr(error, "__notes__", []))
                sys.stderr.write(f"{name} {trial.contender.label}: could not run: {error}\n{notes[-800:]}")
                failures += 1
                continue
            found.append(result)
            if kept:
                results.keep(kept, [result])
        _say(f"\n{_headline(override(ALL[name], changes), changes, wanted[0].seed)}\n{tables.all_columns(found)}")
        if found:
            load = max(result.conditions.load for result in found)
            _say(f"load average up to {load} on {os.cpu_count()} cores")
    return 1 if failures else 0


def _headline(scenario: Scenario, changes: Sequence[str], seed: int) -> str:
    best = oracle(scenario, seed)
    name = " ".join([scenario.name, *changes])
    return f"{name}: {scenario.about}\noracle {best.makespan:.1f} s, {best.pages} pages: {best.how}"


def _show_oracle(given: argparse.Namespace) -> int:
    for name in _scenarios(given):
        scenario = override(ALL[name], given.set)
        best = oracle(scenario, given.seed)
        _say(f"{name:12} {best.makespan:7.1f} s  {best.pages:4} pages  {best.how}")
        if scenario.hosts > 1:
            _say(f"{'':12} {healthy_oracle(scenario, given.seed):7.1f} s  its healthy hosts alone")
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
