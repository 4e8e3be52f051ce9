"""The sites that a crawl is tried on, by name, and the model of a small host's worker pool.

Rule: no clock and no sockets, so that an origin on real sockets and one in virtual time run the very same code. Every
duration is in simulated seconds. What an origin does with a request is not here.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from hashlib import blake2b
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

_SHOP = Scenario(
    name="shop-pool",
    about="the incident: 6 workers, 2 cores; thrash above 2 in flight; a full pool says nothing",
    pages=31,
    scale=0.02,
    cost=3.3,
    jitter=0.4,
    workers=6,
    probe_after=120,
)

SCENARIOS = {
    scenario.name: scenario
    for scenario in [
        _SHOP,
        replace(_SHOP, name="shop-503", about="the same shop, but a full pool answers 503 at once", full="503"),
        Scenario(
            name="outage",
            about="healthy 30 s, 503 for 5 minutes, healthy again",
            pages=120,
            scale=0.02,
            cost=2,
            dead_from=30,
            dead_to=330,
        ),
        Scenario(
            name="outage-small",
            about="the same outage 2 s into a small crawl of a fast host",
            pages=30,
            scale=0.02,
            cost=0.5,
            dead_from=2,
            dead_to=302,
        ),
        Scenario(
            name="rate-limit",
            about="token bucket 1 request/s, burst 5; 429 + Retry-After, seconds and date form in turn",
            pages=60,
            scale=0.25,
            cost=0.3,
            rate=1,
            cap=400,
        ),
        Scenario(
            name="slow-start",
            about="pool whose 5 cores dwindle to 1 in the first minute",
            pages=80,
            scale=0.02,
            cost=3.3,
            workers=8,
            cores=5,
            cores_end=1,
            cores_fall=60,
        ),
        Scenario(
            name="poison",
            about="2% of the pages always answer 500, the rest is fine",
            pages=150,
            scale=0.1,
            poison=0.02,
        ),
        Scenario(
            name="blackhole",
            about="accepts every connection and never answers",
            pages=30,
            scale=0.02,
            dead_to=FOREVER,
            dead_how="silent",
        ),
        Scenario(
            name="flaky",
            about="10% of requests answer 503 at random",
            pages=150,
            scale=0.1,
            flaky=0.10,
        ),
        Scenario(
            name="mixed-fleet",
            about="20 hosts, 10 pages each; host 7 is silent for its first 90 s",
            pages=10,
            scale=0.2,
            parallel=40,
            cost=3,
            cap=400,
            hosts=20,
            sick=7,
            dead_to=90,
            dead_how="silent",
        ),
        Scenario(
            name="healthy",
            about="a fast, healthy host: no pacing should show",
            pages=200,
            scale=0.5,
            cost=0.1,
            cap=120,
        ),
    ]
}


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
    return scenario.cost * (1 + scenario.jitter * (2 * unit(seed, "cost", path) - 1))


def poisoned(scenario: Scenario, seed: int, path: str) -> bool:
    """Whether it always answers 500: exactly round(poison * pages) pages do, chosen by the seed."""
    return scenario.poison > 0 and path in _poisoned_paths(scenario, seed)


@lru_cache(maxsize=64)
def _poisoned_paths(scenario: Scenario, seed: int) -> frozenset[str]:
    in_turn = sorted(paths(scenario), key=lambda path: unit(seed, "poison", path))
    return frozenset(in_turn[: round(scenario.poison * scenario.pages)])


def override(scenario: Scenario, pairs: Iterable[str]) -> Scenario:
    """The scenario with these `NAME=VALUE`. Raises `ValueError` for a name or a value that cannot be."""
    kinds = get_type_hints(Scenario)
    changes = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if name not in kinds:
            names = ", ".join(field.name for field in fields(Scenario))
            raise ValueError(f"a scenario has no {name!r}; it has {names}")
        changes[name] = kinds[name](value)
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

    def _fill(self) -> None:
        while self.queue and not self.full():
            job = self.queue.popleft()
            job.start = self.now
            self.busy.append(job)

    def advance(self, to: float, step: float = 0.1) -> None:
        """Work until then, and call back for each page that is made."""
        scenario = self.scenario
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
