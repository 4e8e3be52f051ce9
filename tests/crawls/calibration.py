"""Which of the shop's numbers make the incident what it is: each changed alone, in virtual time, over twelve seeds.

    python -m tests.crawls.calibration

The incident: 7 pages fine, then 24 time-outs in a row over 4.5 minutes, and the shop well again about two minutes after
the load stopped. Nothing paces here: it is a plain crawler at the pool.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from types import MappingProxyType

from tests.simulation.scenarios import SCENARIOS, SEED
from tests.simulation.site_model import Job, Pool, Scenario, override, page_cost, paths

SHOP = SCENARIOS["shop-pool"]

_STEP_S = 0.1
_LONGEST_S = 1e5
_RECOVERY_LIMIT_S = 3600.0
_COOL = 0.05
"""Heat below which the shop is well again."""

_CHANGES: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {
        "parallel": (1, 2, 3, 4, 6, 8, 12),
        "workers": (2, 3, 4, 5, 8, 12),
        "timeout": (10, 20, 30, 90, 120, 180, 300),
        "heat_up": (0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1),
        "heat_max": (0, 3, 5, 7, 8, 10, 12),
        "heat_down": (0.05, 0.1, 0.5, 2),
        "cores": (1, 3, 4, 5),
        "jitter": (0, 0.2, 0.6),
        "cost": (1.5, 2.5, 4, 5),
    }
)


@dataclass(frozen=True, slots=True)
class Incident:
    """What came of one crawl."""

    pages: int
    streak: int
    """The longest run of failures."""
    makespan: float
    recovery: float
    """Seconds after the crawl until the shop is idle and cool."""


def incident(shop: Scenario, seed: int, *, frees_worker: bool = False) -> Incident:
    """A plain crawl. `frees_worker`: a worker stops when its client leaves, as real ones do not."""
    pool, todo, now = Pool(shop), paths(shop)[::-1], 0.0
    live: dict[int, tuple[float, Job]] = {}
    pages = streak = longest = 0
    while (todo or live) and now < _LONGEST_S:
        for number, (sent, job) in list(live.items()):
            if job.left > 0 and now - sent < shop.timeout:
                continue
            del live[number]
            pages += job.left <= 0
            streak = 0 if job.left <= 0 else streak + 1
            longest = max(longest, streak)
            if frees_worker:
                _drop(pool, job)
        while todo and len(live) < shop.parallel:
            job = Job(page_cost(shop, seed, todo.pop()))
            live[len(todo)] = now, job
            pool.submit(job)
        now = round(now + _STEP_S, 1)
        pool.advance(now)
    makespan = pool.now
    while (pool.busy or pool.queue or pool.heat > _COOL) and pool.now < makespan + _RECOVERY_LIMIT_S:
        pool.advance(pool.now + 1)
    return Incident(pages, longest, makespan, pool.now - makespan)


def _drop(pool: Pool, job: Job) -> None:
    if job in pool.busy:
        pool.busy.remove(job)
    elif job in pool.queue:
        pool.queue.remove(job)


def row(label: str, shop: Scenario, seeds: Iterable[int] = range(1, 13), *, frees_worker: bool = False) -> str:
    """One line of the table: the middle (least..most) of these seeds."""
    came = [incident(shop, seed, frees_worker=frees_worker) for seed in seeds]
    columns = zip(*((one.pages, one.streak, one.makespan, one.recovery) for one in came), strict=True)
    return f"| {label} | {' | '.join(_middle(values) for values in columns)} |"


def _middle(values: Sequence[float]) -> str:
    spread = f" ({min(values):.0f}..{max(values):.0f})" if len(values) > 1 else ""
    return f"{median(values):.0f}{spread}"


def table() -> Iterable[str]:
    """The whole table, line by line."""
    yield f"| change | pages got of {SHOP.pages} | longest run of failures | makespan s | well again after s |"
    yield "|---|---|---|---|---|"
    yield row(f"none, seed {SEED}", SHOP, [SEED])
    yield row("none", SHOP)
    for name, values in _CHANGES.items():
        for value in values:
            yield row(f"{name} = {value:g} (not {getattr(SHOP, name):g})", override(SHOP, [f"{name}={value:g}"]))
    yield row("a time-out frees the worker", SHOP, frees_worker=True)
    yield row("... and heat_max = 7", replace(SHOP, heat_max=7), frees_worker=True)


if __name__ == "__main__":
    for line in table():
        sys.stdout.write(f"{line}\n")
