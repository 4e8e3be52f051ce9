"""A site that a crawl is tried on: its numbers, what each page costs, and the model of a small host's worker pool.

Rule: no clock and no sockets, so that an origin on real sockets and one in virtual time run the very same code. Every
duration is in simulated seconds. What an origin does with a request is not here.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from hashlib import blake2b
from statistics import NormalDist
from typing import get_type_hints


@dataclass(frozen=True, slots=True)
class Scenario:
    """One site, and what a user wants of it."""

    name: str
    about: str
    pages: int
    """What the user asks for, of each host."""
    scale: float
    """Real seconds per simulated one, where it is run on real sockets."""
    parallel: int = 5
    """Requests that the crawler keeps in flight."""
    timeout: float = 56.0
    """The user's own time-out."""
    cap: float = 1800.0
    """The crawl is stopped after so long."""
    cost: float = 1.0
    """The service time of a page on an idle host."""
    jitter: float = 0.2
    """A page costs cost * (1 +- jitter), fixed for each page."""
    spread: float = 0.0
    """Instead of the jitter: page times are lognormal around the cost, with this sigma; 0: they are not."""
    slow_share: float = 0.0
    """The share of pages that are slow, whatever the load ..."""
    slow_times: float = 1.0
    """... so many times slower than others."""
    lull_times: float = 1.0
    """In its lulls the host is so many times slower, whatever the load; 1: it has none."""
    lull_least: float = 10.0
    """A lull, and a time without one, lasts from so long ..."""
    lull_most: float = 30.0
    """... to so long."""

    workers: int = 0
    """The size of the worker pool; 0: no pool, each page takes its cost."""
    cores: float = 2.0
    """Pages made at full speed at the same time."""
    cores_end: float = 0.0
    """The cores change evenly to this number ..."""
    cores_fall: float = 0.0
    """... within so many seconds; 0: they do not."""
    heat_up: float = 0.026
    """Thrash: d(heat)/dt = heat_up * (busy - cores) * (1 + heat); service is 1 + heat times slower."""
    heat_down: float = 0.25
    """How fast it cools once no more than `cores` are busy."""
    heat_max: float = 9.0
    backlog: int = 128
    """The accept queue; a request beyond it never gets a word."""
    full: str = "silent"
    """What a full pool does: silent (it queues), 503 or 429."""
    step: float = 0.1
    """The pool is reckoned in steps of so many seconds: pages are ready at their ends."""

    dead_from: float = 0.0
    """The host is dead from here ..."""
    dead_to: float = 0.0
    """... to here."""
    dead_how: str = "503"
    """503, or silent: it accepts and never answers."""
    rate: float = 0.0
    """A token bucket, requests a second; 0: none."""
    burst: float = 5.0
    retry_after: float = 4.0
    """What a 429 says, in seconds and as a date in turn."""
    poison: float = 0.0
    """The share of pages that always answer 500."""
    flaky: float = 0.0
    """The share of requests answered 503 at random."""
    hosts: int = 1
    """With more than one they are 127.0.1.1 and so on."""
    sick: int = 0
    """The number (from 1) of the only one that is dead from `dead_from` to `dead_to`; 0: all are."""
    probe_after: float = 0.0
    """So long after the crawl 8 pages are asked for, one by one; 0: none."""


FOREVER = 1e9
SEED = 3
"""With this seed `shop-pool` is the incident, to the page."""
QUICK = 0.05
"""How long an error page takes."""


def unit(*key: object) -> float:
    """A repeatable random number in [0, 1) for this key."""
    return int.from_bytes(blake2b(repr(key).encode(), digest_size=8).digest(), "big") / 2**64


def urls(scenario: Scenario, port: int, prefix: str = "p") -> list[str]:
    """The URLs of a crawl, hosts interleaved."""
    first = "127.0.1.1" if scenario.hosts > 1 else "127.0.0.1"
    net, _, low = first.rpartition(".")
    return [
        f"http://{net}.{int(low) + host}:{port}/{prefix}/{number}"
        for number in range(scenario.pages)
        for host in range(scenario.hosts)
    ]


def paths(scenario: Scenario) -> list[str]:
    """The pages of one host, in the order in which they are asked for."""
    return [f"/p/{number}" for number in range(scenario.pages)]


def page_cost(scenario: Scenario, seed: int, path: str) -> float:
    """The service time of this page on an idle host."""
    if scenario.spread:
        cost = scenario.cost * math.exp(scenario.spread * NormalDist().inv_cdf(_inside(unit(seed, "cost", path))))
    else:
        cost = scenario.cost * (1 + scenario.jitter * (2 * unit(seed, "cost", path) - 1))
    slow = scenario.slow_share > 0 and path in _chosen(scenario, seed, "slow", scenario.slow_share)
    return cost * scenario.slow_times if slow else cost


def _inside(number: float) -> float:
    """Not at the very ends, where the normal distribution is infinite."""
    return min(max(number, 1e-9), 1 - 1e-9)


def ready_at(scenario: Scenario, seed: int, start: float, cost: float) -> float:
    """When a page of a host without a pool is ready that was begun at `start`: lulls slow down what is being made."""
    if scenario.lull_times == 1:
        return start + cost
    now, end, number = 0.0, 0.0, 0
    while True:
        least, most = scenario.lull_least, scenario.lull_most
        end += least + (most - least) * unit(seed, "lull", number)
        now, times = max(now, start), scenario.lull_times if number % 2 else 1.0
        if now + cost * times <= end:
            return now + cost * times
        if end > now:
            cost -= (end - now) / times
            now = end
        number += 1


def poisoned(scenario: Scenario, seed: int, path: str) -> bool:
    """Whether it always answers 500: exactly round(poison * pages) pages do, chosen by the seed."""
    return scenario.poison > 0 and path in _chosen(scenario, seed, "poison", scenario.poison)


@lru_cache(maxsize=64)
def _chosen(scenario: Scenario, seed: int, what: str, share: float) -> frozenset[str]:
    """Exactly this share of the pages, to the nearest."""
    in_turn = sorted(paths(scenario), key=lambda path: unit(seed, what, path))
    return frozenset(in_turn[: round(share * scenario.pages)])


def override(scenario: Scenario, pairs: Iterable[str]) -> Scenario:
    """The scenario with these `NAME=VALUE`. Raises `ValueError` for a name or a value that cannot be."""
    kinds = get_type_hints(Scenario)
    changes = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if name not in kinds:
            names = ", ".join(field.name for field in fields(Scenario))
            raise ValueError(f"a scenario has no {name!r}; it has {names}")
        try:
            changes[name] = kinds[name](value)
        except ValueError:
            raise ValueError(f"a scenario's {name} cannot be {value!r}") from None
    return replace(scenario, **changes)


@dataclass(slots=True, eq=False)
class Job:
    """One page being made. Nobody can stop it: that is the point."""

    left: float
    """Seconds of work, at full speed."""
    done: Callable[["Job"], None] | None = None
    start: float | None = None
    """When a worker took it."""


class Pool:
    """A finite worker pool on a small machine.

    Up to `cores` busy workers run at full speed; more of them share the cores and, while they do, the machine heats up
    (swap, locks, the hoster's throttle), which slows everything down by 1 + heat. It cools only while at most `cores`
    workers are busy. Jobs of clients that left stay.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.now = 0.0
        self.heat = 0.0
        self.busy: list[Job] = []
        self.queue: deque[Job] = deque()

    def cores(self) -> float:
        """As many as there are now."""
        scenario = self.scenario
        if not scenario.cores_fall:
            return scenario.cores
        return scenario.cores + (scenario.cores_end - scenario.cores) * min(1, self.now / scenario.cores_fall)

    def full(self) -> bool:
        """Whether every worker is busy."""
        return len(self.busy) >= self.scenario.workers

    def submit(self, job: Job) -> None:
        """A worker takes it, at once or in its turn."""
        self.queue.append(job)
        self._fill()

    def idle_until(self) -> float:
        """No page can be made before then, unless others are submitted; infinity if none is being made."""
        if not self.busy:
            return math.inf
        cores = max(self.cores(), self.scenario.cores_end)
        return self.now + min(job.left for job in self.busy) / min(1, cores / len(self.busy))

    def _fill(self) -> None:
        while self.queue and not self.full():
            job = self.queue.popleft()
            job.start = self.now
            self.busy.append(job)

    def advance(self, to: float) -> None:
        """Work until then, and call back for each page that is made."""
        scenario, step = self.scenario, self.scenario.step
        while self.now < to - 1e-9:
            if not self.busy and not self.heat:
                self.now = to
                return
            dt = min(step, to - self.now)
            busy, cores = len(self.busy), self.cores()
            if busy:
                work = dt * min(1, cores / busy) / (1 + self.heat)
                for job in self.busy:
                    job.left -= work
            self.now += dt
            over = busy - cores
            self.heat += dt * (scenario.heat_up * over * (1 + self.heat) if over > 0 else -scenario.heat_down)
            self.heat = min(max(self.heat, 0), scenario.heat_max)
            for job in [job for job in self.busy if job.left <= 0]:
                self.busy.remove(job)
                if job.done:
                    job.done(job)
            self._fill()
