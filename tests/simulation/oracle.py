"""The best possible crawl of each scenario, with perfect knowledge.

Rule: the same pages and the same pool as the simulated site. The oracle is bound by the crawler's slots
(`Scenario.parallel`), knows outages, tokens, bad pages and cores in advance, and never sends a request in vain.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from tests.simulation.site_model import (
    FOREVER,
    QUICK,
    SEED,
    Job,
    Pool,
    Scenario,
    page_cost,
    paths,
    poisoned,
    ready_at,
    unit,
)

_LONGEST_S = 1e5
_FLEET = "healthy hosts at once, the sick one when it is back"


@dataclass(frozen=True, slots=True)
class Best:
    """What perfect knowledge comes to."""

    makespan: float
    pages: int
    """That can be had at all."""
    how: str


def oracle(scenario: Scenario, seed: int = SEED) -> Best:
    """The best crawl of this scenario."""
    costs = [page_cost(scenario, seed, path) for path in paths(scenario)]
    if scenario.workers:
        return _pool(replace(scenario, parallel=min(scenario.parallel, scenario.workers), timeout=0), seed)
    if scenario.dead_to >= FOREVER:
        how = "one client timeout: nothing can be had, one try is the least it takes to know"
        return Best(scenario.timeout, 0, how)
    if scenario.hosts > 1:
        return Best(_fleet(scenario, costs), scenario.pages * scenario.hosts, _FLEET)
    if scenario.dead_to:
        dead_from, dead_to = scenario.dead_from, scenario.dead_to
        makespan = slots(costs, scenario.parallel, lambda t: dead_to if dead_from <= t < dead_to else t)
        return Best(makespan, scenario.pages, "not one request during the outage")
    if scenario.rate:
        numbers = iter(range(scenario.pages))
        makespan = slots(
            costs, scenario.parallel, lambda t: max(t, (next(numbers) + 1 - scenario.burst) / scenario.rate)
        )
        return Best(makespan, scenario.pages, "each request the moment its token is there")
    if scenario.flaky:
        tries = [_tries(scenario, seed, path) for path in paths(scenario)]
        costs = [cost + QUICK * (count - 1) for cost, count in zip(costs, tries, strict=True)]
        return Best(slots(costs, scenario.parallel), scenario.pages, "retries at once, P in flight")
    bad = sum(poisoned(scenario, seed, path) for path in paths(scenario))
    how = "P in flight" + (", bad pages asked once" if bad else "")
    makespan = slots(costs, scenario.parallel, taken=lambda start, cost: ready_at(scenario, seed, start, cost))
    return Best(makespan, scenario.pages - bad, how)


def healthy_oracle(scenario: Scenario, seed: int = SEED) -> float:
    """With several hosts: the makespan of the healthy ones' pages alone."""
    costs = [page_cost(scenario, seed, path) for path in paths(scenario) for _ in range(scenario.hosts - 1)]
    return slots(costs, scenario.parallel)


def slots(
    costs: Iterable[float],
    count: int,
    ready: Callable[[float], float] = lambda t: t,
    taken: Callable[[float, float], float] = lambda start, cost: start + cost,
) -> float:
    """The makespan of these costs in `count` slots; `ready(t)` says when one that is free at t may start, and
    `taken(start, cost)` when it is free again."""
    free = [0.0] * count
    for cost in costs:
        heapq.heappush(free, taken(ready(heapq.heappop(free)), cost))
    return max(free)


def _fleet(scenario: Scenario, costs: Sequence[float]) -> float:
    """The healthy hosts' pages, and then those of the sick one."""
    well = [cost for cost in costs for _ in range(scenario.hosts - 1)]
    numbers = iter(range(len(well) + len(costs)))
    return slots(
        [*well, *costs],
        scenario.parallel,
        lambda t: t if next(numbers) < len(well) else max(t, scenario.dead_to),
    )


def _tries(scenario: Scenario, seed: int, path: str) -> int:
    count = 1
    while unit(seed, "flaky", path, count) < scenario.flaky:
        count += 1
    return count


@lru_cache(maxsize=256)
def _pool(scenario: Scenario, seed: int) -> Best:
    """The best of all fixed numbers in flight. More than there are workers would only wait inside the host; and where
    nothing thrashes, no number between the cores and the workers is better than both."""
    counts = range(1, scenario.parallel + 1)
    if not scenario.heat_up and not scenario.cores_fall:
        counts = range(min(math.ceil(scenario.cores), scenario.parallel), scenario.parallel + 1)
        counts = counts[:: max(1, len(counts) - 1)]
    rules: dict[str, Callable[[Pool], int]] = {
        f"always {count} in flight": lambda pool, count=count: count  # type: ignore[misc]
        for count in counts
    }
    if scenario.cores_fall:
        rules["as many in flight as cores are left"] = lambda pool: min(scenario.parallel, max(1, int(pool.cores())))
    spans = {how: _crawl(scenario, seed, rule) for how, rule in rules.items()}
    how = min(spans, key=lambda how: spans[how])
    return Best(spans[how], scenario.pages, how)


def _crawl(scenario: Scenario, seed: int, in_flight: Callable[[Pool], int]) -> float:
    """The makespan with so many requests open at the pool."""
    pool, todo, live, end, now = Pool(scenario), paths(scenario)[::-1], list[Job](), 0.0, 0.0
    while (todo or live) and now < _LONGEST_S:
        still = [job for job in live if job.left > 0]
        if len(still) < len(live):
            live, end = still, now
        while todo and len(live) < in_flight(pool):
            job = Job(page_cost(scenario, seed, todo.pop()))
            live.append(job)
            pool.submit(job)
        # With cores that change, their number may be another at the very next step.
        soonest = now + scenario.step
        until = soonest if scenario.cores_fall else max(soonest, pool.idle_until())
        now = round(math.ceil(min(until, _LONGEST_S) / scenario.step - 1e-6) * scenario.step, 6)
        pool.advance(now)
    return end
