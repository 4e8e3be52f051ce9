"""What came of one crawl: its user's outcomes and the origin's log, judged against the oracle.

Pure: values in, values out. What the figures mean is said at each of them, and nowhere else.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.crawls.records import Outcome
from tests.simulation.oracle import healthy_oracle, oracle
from tests.simulation.origins import Arrival
from tests.simulation.site_model import Scenario

_ERRORS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """One crawl in figures. Times are simulated seconds."""

    asked: int
    """Pages that the user wanted."""
    can: int
    """Pages that can be had at all."""
    got: int
    """Pages with status 200."""
    streak: int
    """The longest run of failed pages, in the order in which the user learnt of them."""
    makespan: float
    """From the first page sent to the last outcome; the cap where the crawl was stopped there."""
    cut: int
    """Pages that were still open when the crawl was stopped."""
    oracle: float
    """The makespan with perfect knowledge."""
    received: int
    """Requests that reached the origin."""
    wasted: int
    """Those that did not become a page of the user: received - got."""
    abandoned: int
    """Those whose client left before the answer."""
    errored: int
    """Those answered 4xx or 5xx."""
    saturated: int
    """Those that came when the host could not have begun to serve them."""
    least_gap: float | None
    """Between two arrivals at one host."""
    median_gap: float | None
    errors: tuple[str, ...]
    """What the user saw instead of pages, the most frequent first."""
    healthy_got: int | None = None
    """Of the pages of the hosts that are well; None: there is one host only."""
    healthy_makespan: float | None = None
    healthy_oracle: float | None = None

    @property
    def failed(self) -> int:
        return self.asked - self.got

    @property
    def ratio(self) -> float:
        """The makespan by the oracle's."""
        return self.makespan / self.oracle

    @property
    def has_all(self) -> bool:
        """Whether every page came that can be had."""
        return self.got >= self.can


def judge(scenario: Scenario, seed: int, outcomes: Sequence[Outcome], arrivals: Sequence[Arrival]) -> Verdict:
    """What came of a crawl. `arrivals`: those of this crawl only."""
    got = [outcome for outcome in outcomes if outcome.got]
    asked = scenario.pages * scenario.hosts
    cut = asked - len(outcomes)
    began = min((outcome.t0 for outcome in outcomes), default=0.0)
    ended = max((outcome.t1 for outcome in outcomes), default=0.0)
    best = oracle(scenario, seed)
    gaps = _gaps(arrivals)
    healthy_got, healthy_makespan, healthy_best = _healthy_hosts(scenario, seed, outcomes, began)
    return Verdict(
        asked=asked,
        can=best.pages,
        got=len(got),
        streak=_longest_streak(outcomes),
        makespan=round(scenario.cap if cut else ended - began, 2),
        cut=cut,
        oracle=round(best.makespan, 2),
        received=len(arrivals),
        wasted=len(arrivals) - len(got),
        abandoned=sum(arrival.abandoned for arrival in arrivals),
        errored=sum(not arrival.abandoned and (arrival.status or 0) >= 400 for arrival in arrivals),
        saturated=sum(arrival.saturated for arrival in arrivals),
        least_gap=round(gaps[0], 2) if gaps else None,
        median_gap=round(gaps[len(gaps) // 2], 2) if gaps else None,
        errors=_errors(outcomes),
        healthy_got=healthy_got,
        healthy_makespan=healthy_makespan,
        healthy_oracle=healthy_best,
    )


def _longest_streak(outcomes: Sequence[Outcome]) -> int:
    streak = longest = 0
    for outcome in sorted(outcomes, key=lambda outcome: outcome.t1):
        streak = 0 if outcome.got else streak + 1
        longest = max(longest, streak)
    return longest


def _gaps(arrivals: Sequence[Arrival]) -> list[float]:
    """Between two arrivals at one host, the shortest first."""
    times = defaultdict(list)
    for arrival in arrivals:
        times[arrival.host].append(arrival.at)
    return sorted(after - before for of_host in times.values() for before, after in pairwise(sorted(of_host)))


def _errors(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    counted = Counter(str(outcome.status or outcome.error) for outcome in outcomes if not outcome.got)
    return tuple(f"{count}x {what}" for what, count in counted.most_common(_ERRORS_SHOWN))


def _healthy_hosts(
    scenario: Scenario, seed: int, outcomes: Sequence[Outcome], began: float
) -> tuple[int | None, float | None, float | None]:
    """Pages got, makespan and oracle of the hosts that are well, where there are several."""
    if scenario.hosts == 1:
        return None, None, None
    sick = f"//127.0.1.{scenario.sick}:"
    well = [outcome for outcome in outcomes if sick not in outcome.url]
    got = sum(outcome.got for outcome in well)
    makespan = max((outcome.t1 for outcome in well), default=began) - began
    return got, round(makespan, 2), round(healthy_oracle(scenario, seed), 2)
