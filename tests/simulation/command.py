"""Crawls in virtual time, and what came of them.

python -m tests.simulation                                      every scenario, seed 3
python -m tests.simulation -s shop-pool,flaky -p 5,20,50 --seeds 20 --jobs 2
python -m tests.simulation -s healthy-ones --pages-per-slot 40  hosts that are well; also: sick-ones, measured
python -m tests.simulation -c direct-plain,plain --set window=300 --site workers=8
python -m tests.simulation -s shop-pool -c plain --trace        every event of one crawl
"""

import argparse
import itertools
import json
import logging
import multiprocessing
import signal
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from proxy_addon.settings import SettingError
from tests.simulation.crawl import CLIENTS
from tests.simulation.judge import Judged
from tests.simulation.runs import DIRECT, Run, run
from tests.simulation.scenarios import ALL, HEALTHY, SCENARIOS, SEED, SICK
from tests.simulation.table import summary, table
from tests.simulation.trace import trace

_GROUPS = {"all": ALL, "measured": SCENARIOS, "healthy-ones": HEALTHY, "sick-ones": SICK}


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    try:
        wanted = list(_runs(given))
        for one in wanted:
            _ = one.site, one.made_settings
    except (SettingError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if given.trace:
        if len(wanted) != 1:
            sys.stderr.write("--trace is for one scenario, one client, one -p and one seed\n")
            return 2
        judged = [trace(wanted[0], sys.stdout.write)]
    else:
        judged = _all(wanted, given.jobs, together=len(given.client) * (1 + len(given.versus)))
    sys.stdout.write((table if given.seeds == 1 else summary)(judged) + "\n")
    if given.json:
        given.json.write_text("".join(json.dumps(one.figures()) + "\n" for one in judged))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m tests.simulation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds, clients = ", ".join([*_GROUPS, *ALL]), ", ".join([*CLIENTS, f"and the same after {DIRECT}-"])
    parser.add_argument("-s", "--scenario", type=_names, default=["all"], metavar="A,B", help=kinds)
    parser.add_argument("-c", "--client", type=_names, default=["plain", "plain-patient"], metavar="A,B", help=clients)
    parser.add_argument("-p", "--parallel", type=_numbers, default=[None], metavar="P,Q", help="the crawler's slots")
    parser.add_argument("--seeds", type=int, default=1, help="how many, from 1")
    parser.add_argument("--seed", type=int, default=SEED, help="the one, where there is no --seeds")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of Paceproxy")
    versus = "run everything with these settings as well, to compare; may be given several times"
    parser.add_argument("--versus", action="append", default=[], metavar="'NAME=VALUE ...'", help=versus)
    parser.add_argument("--site", action="append", default=[], metavar="NAME=VALUE", help="a number of the scenario")
    parser.add_argument("--pages-per-slot", type=int, help="of hosts that are well: pages for each -p")
    parser.add_argument("--round-trip", type=float, default=0.0, metavar="SECONDS", help="on the network")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every crawl there, one a line")
    parser.add_argument("--trace", action="store_true", help="tell every event of the one crawl")
    return parser


def _names(text: str) -> list[str]:
    return text.split(",")


def _numbers(text: str) -> list[int]:
    numbers = [int(number) for number in text.split(",")]
    if min(numbers) < 1:
        raise ValueError
    return numbers


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.replace("-", "_"), value


def _runs(given: argparse.Namespace) -> Iterable[Run]:
    names = dict.fromkeys(name for word in given.scenario for name in _GROUPS.get(word, [word]))
    seeds = range(1, given.seeds + 1) if given.seeds > 1 else [given.seed]
    base = dict(_pair(text) for text in given.set)
    policies = [base, *(base | dict(_pair(pair) for pair in text.split()) for text in given.versus)]
    # Side by side what shares an oracle.
    for name, parallel, seed, client, policy in itertools.product(names, given.parallel, seeds, given.client, policies):
        yield Run(
            scenario=name,
            client=client,
            parallel=parallel,
            seed=seed,
            settings=tuple(policy.items()),
            changes=tuple(given.site),
            pages_per_slot=given.pages_per_slot,
            round_trip_s=given.round_trip,
        )


def _all(wanted: Sequence[Run], jobs: int, together: int) -> list[Judged]:
    """`together`: how many in a row are best left to one process."""
    if jobs == 1:
        return [run(one) for one in wanted]
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _quieten) as processes:
        return list(processes.map(run, wanted, chunksize=together))


def _quieten() -> None:
    """What the engine says of each host is in the figures; its errors are not."""
    logging.disable(logging.WARNING)


def run_command() -> int:
    """As a process of its own."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it, without a complaint.
    _quieten()
    return main()
