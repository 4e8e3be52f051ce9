"""What a crawl came to: one row of figures, from what its user saw and from the log of the site.

Rule: as with crawls on real sockets, so that the rows can be put side by side. Nothing is run here.
"""

import itertools
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any

from tests.simulation.crawl import Crawl, Seen
from tests.simulation.oracle import healthy_oracle, oracle
from tests.simulation.origins import names
from tests.simulation.site_model import Scenario, page_cost, paths


@dataclass(frozen=True, slots=True)
class Judged:
    """One crawl. Durations in simulated seconds."""

    scenario: str
    policy: str
    """The settings that it went by, where they are not the defaults."""
    parallel: int
    client: str
    seed: int
    asked: int
    """Pages that the user asked for."""
    can: int
    """Those that could be had."""
    got: int
    streak: int
    """The longest run of failures that the user saw."""
    cut: int
    """Pages without an outcome when the crawl was stopped."""
    makespan: float
    oracle: float
    last_page: float
    """When the last page came; what has none after it was in vain."""
    received: int
    """Requests that the site got."""
    abandoned: int
    errored: int
    saturated: int
    """They came when the host could not begin to serve them."""
    least_gap: float | None
    """Between two arrivals at one host."""
    median_gap: float | None
    most_in_flight: int
    longest_wait: float
    """The longest time for which one page was held before its attempts, all together."""
    direct: float | None
    """The makespan of the same crawl without a proxy; None where that is no measure."""
    later_pages: float | None
    """How many page times later than that it ended, by what a page takes on an idle host."""
    healthy_asked: int
    """With a sick host among several: pages of the others; else 0."""
    healthy_got: int | None
    """What came of them."""
    healthy_makespan: float | None
    healthy_oracle: float | None
    healthy_direct: float | None
    also: str

    @property
    def failed(self) -> int:
        return self.asked - self.got

    @property
    def ratio(self) -> float:
        """The makespan by the oracle's."""
        return self.makespan / self.oracle

    @property
    def page_ratio(self) -> float:
        """When the last page came, by the oracle's makespan."""
        return self.last_page / self.oracle

    @property
    def to_direct(self) -> float | None:
        return None if self.direct is None else self.makespan / self.direct

    @property
    def healthy_to_direct(self) -> float | None:
        if self.healthy_makespan is None or not self.healthy_direct:
            return None
        return self.healthy_makespan / self.healthy_direct

    @property
    def in_vain(self) -> int:
        """Requests that the site got and that did not become a page of the user."""
        return self.received - self.got

    @property
    def in_vain_share(self) -> float:
        return self.in_vain / self.received if self.received else 0.0

    @property
    def is_failure(self) -> bool:
        """Not everything came that could be had; or nothing could be, and the crawl never ended."""
        return self.got < self.can or (self.can == 0 and self.cut > 0)

    def figures(self) -> dict[str, Any]:
        """All of them, by name."""
        derived = ("ratio", "page_ratio", "to_direct", "healthy_to_direct", "in_vain", "in_vain_share", "is_failure")
        return asdict(self) | {name: getattr(self, name) for name in derived}


def judge(
    scenario: Scenario, client: str, seed: int, crawl: Crawl, *, policy: str = "", direct: Crawl | None = None
) -> Judged:
    """`direct`: the same crawl without a proxy, where that is a measure."""
    best = oracle(scenario, seed)
    asked = scenario.pages * scenario.hosts
    got = [seen for seen in crawl.seen if seen.got]
    well, well_directly = _well(scenario, crawl), None if direct is None else _well(scenario, direct)
    makespan = _makespan(scenario, crawl)
    direct_makespan = page_time = None
    if direct is not None and not scenario.sick:
        direct_makespan = _makespan(scenario, direct)
        page_time = mean(page_cost(scenario, seed, path) for path in paths(scenario))
    gaps = _gaps(crawl)
    return Judged(
        scenario=scenario.name,
        policy=policy,
        parallel=scenario.parallel,
        client=client,
        seed=seed,
        asked=asked,
        can=best.pages,
        got=len(got),
        streak=_streak(crawl.seen),
        cut=asked - len(crawl.seen),
        makespan=makespan,
        oracle=best.makespan,
        last_page=max((seen.ended for seen in got), default=0.0),
        received=len(crawl.log),
        abandoned=sum(arrival.abandoned for arrival in crawl.log),
        errored=sum(not arrival.abandoned and (arrival.status or 0) >= 400 for arrival in crawl.log),
        saturated=sum(arrival.saturated for arrival in crawl.log),
        least_gap=gaps[0] if gaps else None,
        median_gap=gaps[len(gaps) // 2] if gaps else None,
        most_in_flight=crawl.most_in_flight,
        longest_wait=max((ended.waited_s for ended in crawl.ended), default=0.0),
        direct=direct_makespan,
        later_pages=(makespan - direct_makespan) / page_time if direct_makespan is not None and page_time else None,
        healthy_asked=scenario.pages * (scenario.hosts - 1) if scenario.sick else 0,
        healthy_got=None if well is None else sum(seen.got for seen in well),
        healthy_makespan=_last(well),
        healthy_oracle=None if well is None else healthy_oracle(scenario, seed),
        healthy_direct=_last(well_directly),
        also=_also(scenario, crawl, well, seed),
    )


def _makespan(scenario: Scenario, crawl: Crawl) -> float:
    """From the first request to the last outcome; where it was stopped, until then."""
    if len(crawl.seen) < scenario.pages * scenario.hosts:
        return scenario.cap
    return max(seen.ended for seen in crawl.seen)


def _well(scenario: Scenario, crawl: Crawl) -> list[Seen] | None:
    """What was seen of the hosts that are not sick, where one of several is."""
    if not scenario.sick:
        return None
    sick = names(scenario)[scenario.sick - 1]
    return [seen for seen in crawl.seen if seen.host != sick]


def _last(pages: list[Seen] | None) -> float | None:
    return None if pages is None else max((seen.ended for seen in pages), default=0.0)


def _streak(pages: list[Seen]) -> int:
    runs = (sum(1 for _ in run) for got, run in itertools.groupby(pages, key=lambda seen: seen.got) if not got)
    return max(runs, default=0)


def _gaps(crawl: Crawl) -> list[float]:
    arrivals = defaultdict(list)
    for arrival in crawl.log:
        arrivals[arrival.host].append(arrival.at)
    return sorted(later - earlier for ats in arrivals.values() for earlier, later in itertools.pairwise(ats))


def _also(scenario: Scenario, crawl: Crawl, well: list[Seen] | None, seed: int) -> str:
    said = []
    if well is not None:
        span, got = _last(well) or 0.0, sum(seen.got for seen in well)
        asked = scenario.pages * (scenario.hosts - 1)
        said.append(f"healthy hosts {got}/{asked} in {span:.1f} s (x{span / healthy_oracle(scenario, seed):.2f})")
    why = Counter("time-out" if seen.status is None else str(seen.status) for seen in crawl.seen if not seen.got)
    said += [f"{count}x {what}" for what, count in why.most_common(3)]
    cut = scenario.pages * scenario.hosts - len(crawl.seen)
    if cut:
        said.append(f"{cut} pages still open when stopped")
    return "; ".join(said)
