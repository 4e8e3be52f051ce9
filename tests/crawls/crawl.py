"""The process of one crawl: a crawler asks a scenario's every URL, and what its user sees goes to a file.

    python -m tests.crawls.crawl --driver plain --scenario shop-pool --port 8080 --out crawl.jsonl

It stops at the scenario's cap; a page that has no outcome by then stays without one. It imports no more than its
crawler needs, so that it runs in an environment of the crawler's own.
"""

import argparse
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from tests.crawls import crawlers, frameworks
from tests.crawls.notebook import Notebook
from tests.simulation.scenarios import ALL, Scenario, override, urls

type Driver = Callable[[Scenario, Sequence[str], Notebook], None]

OWN_DRIVERS: Mapping[str, Driver] = MappingProxyType(
    {"plain": crawlers.plain, "plain-1": crawlers.plain_1, "plain-patient": crawlers.plain_patient}
)
"""Those that need nothing but what our own tests need."""
DRIVERS: Mapping[str, Driver] = MappingProxyType(
    {
        **OWN_DRIVERS,
        "urllib3": crawlers.urllib3_retry,
        "tenacity": crawlers.tenacity_httpx,
        "scrapy": frameworks.scrapy_throttled,
        "scrapy-tuned": frameworks.scrapy_tuned,
        "crawlee": frameworks.crawlee,
        "crawlee-tuned": frameworks.crawlee_tuned,
    }
)

_LOOK_S = 0.01


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.crawls.crawl", description="One crawl of a scenario.")
    parser.add_argument("--driver", choices=DRIVERS, default="plain")
    parser.add_argument("--scenario", choices=ALL, default="shop-pool")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="change the scenario")
    parser.add_argument("--port", type=int, required=True, help="the origin's port")
    parser.add_argument("--prefix", default="p", help="the first part of the paths")
    parser.add_argument("--proxy", metavar="URL", help="go through this proxy")
    parser.add_argument("--out", type=Path, default=Path("crawl.jsonl"), metavar="FILE")
    given = parser.parse_args(arguments)
    scenario = override(ALL[given.scenario], given.set)
    notebook = Notebook(scenario.scale, given.proxy)
    out = given.out.absolute()
    _stop_at(scenario.cap, notebook, out)
    DRIVERS[given.driver](scenario, urls(scenario, given.port, given.prefix), notebook)
    notebook.save(out)


def _stop_at(cap: float, notebook: Notebook, out: Path) -> None:
    def stop() -> None:
        while not notebook.begun:  # imports do not count
            time.sleep(_LOOK_S)
        time.sleep(cap * notebook.scale)
        notebook.save(out)
        os._exit(0)  # whatever the crawler still does

    threading.Thread(target=stop, name="cap", daemon=True).start()


if __name__ == "__main__":
    main()
