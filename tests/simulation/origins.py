"""The simulated site in virtual time: what its hosts do with each request, and their log.

Rule: the gates in front of the pages come in a fixed order (dead, no token, flaky, pool), and a client that leaves
frees nothing: the page is made all the same. Time begins with the first request. What a page costs, and the pool, are
in `site_model.py`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from email.utils import formatdate

from proxy_addon.clock import Clock, Timer
from tests.simulation.site_model import QUICK, Job, Pool, Scenario, page_cost, poisoned, ready_at, unit

type Fields = tuple[tuple[str, str], ...]


@dataclass(slots=True, eq=False)
class Arrival:
    """A request as the host's log has it; seconds since the first one."""

    host: str
    path: str
    at: float
    busy: int
    """Workers at that moment, or without a pool requests in hand."""
    queued: int
    in_flight: int
    """Requests of clients that were still there, this one included."""
    saturated: bool = False
    """The host could not begin to serve it: no free worker, dead, no token."""
    start: float | None = None
    """When a worker took it."""
    finish: float | None = None
    status: int | None = None
    """None: not a word yet, or ever."""
    left: float | None = None
    """When its client left without an answer."""

    @property
    def abandoned(self) -> bool:
        return self.left is not None


type Answered = Callable[[int, Fields], None]
"""Called with status and header fields, unless the client has left by then."""


class Site:
    """All hosts of a scenario, by name."""

    def __init__(self, scenario: Scenario, seed: int, clock: Clock) -> None:
        self.scenario = scenario
        self.seed = seed
        self.clock = clock
        self.log: list[Arrival] = []
        self._zero: float | None = None
        self.hosts = {name: Host(self, name, self._of(number)) for number, name in enumerate(names(scenario), 1)}

    def _of(self, number: int) -> Scenario:
        if self.scenario.sick and number != self.scenario.sick:
            return replace(self.scenario, dead_from=0, dead_to=0)
        return self.scenario

    def at(self) -> float:
        """Seconds since the first request; before it, 0."""
        if self._zero is None:
            self._zero = self.clock.monotonic()
        return self.clock.monotonic() - self._zero

    def call_at(self, at: float, callback: Callable[[], None]) -> Timer:
        """At so many seconds since the first request."""
        self.at()
        assert self._zero is not None
        return self.clock.call_at(self._zero + at, callback)

    def retry_after(self, *, as_date: bool) -> Fields:
        """When to come back: in whole seconds, or as a date, which is rounded up once more. They are rounded as if it
        ran at the scenario's time scale, where HTTP's seconds last longer."""
        scale, now = self.scenario.scale, self.clock.now()
        seconds = math.ceil(self.scenario.retry_after * scale)
        if not as_date:
            return (("Retry-After", f"{seconds / scale:g}"),)
        date = math.floor(math.floor(now * scale) / scale)
        until = math.ceil((math.ceil(now * scale) + seconds) / scale)
        return ("Date", formatdate(date, usegmt=True)), ("Retry-After", formatdate(until, usegmt=True))

    @property
    def most_in_flight(self) -> int:
        """The most that one host had to bear at the same time, without those whose clients had left."""
        return max((host.most_in_flight for host in self.hosts.values()), default=0)


def names(scenario: Scenario) -> list[str]:
    """The hosts, in the order of their numbers."""
    return [f"127.0.1.{number}" for number in range(1, scenario.hosts + 1)] if scenario.hosts > 1 else ["127.0.0.1"]


class Host:
    """One host of the site."""

    def __init__(self, site: Site, name: str, scenario: Scenario) -> None:
        self.name = name
        self.most_in_flight = 0
        self._site = site
        self._scenario = scenario
        self._pool = Pool(scenario) if scenario.workers else None
        self._tick: Timer | None = None
        self._tokens, self._token_at = scenario.burst, 0.0
        self._asked: dict[str, int] = {}
        self._limited = 0
        self._open = 0
        self.in_flight = 0

    def ask(self, path: str, answered: Answered) -> "Asked":
        """A request arrives now."""
        at = self._site.at()
        if self._pool:
            self._pool.advance(at)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        busy = len(self._pool.busy) if self._pool else self._open
        queued = len(self._pool.queue) if self._pool else 0
        arrival = Arrival(self.name, path, at, busy, queued, self.in_flight)
        self._site.log.append(arrival)
        self._open += 1
        asked = Asked(self, arrival, answered)
        self._gates(asked)
        self._wake()
        return asked

    def closed(self, arrival: Arrival) -> None:
        """The host has done with it."""
        arrival.finish = self._site.at()
        self._open -= 1

    def now(self) -> float:
        """Seconds since the site's first request."""
        return self._site.at()

    def _gates(self, asked: "Asked") -> None:
        scenario, seed, arrival = self._scenario, self._site.seed, asked.arrival
        nth = self._asked[arrival.path] = self._asked.get(arrival.path, 0) + 1
        if scenario.dead_from <= arrival.at < scenario.dead_to:
            arrival.saturated = True
            if scenario.dead_how == "silent":
                asked.silent = True
            else:
                self._quick(asked, 503)
        elif scenario.rate and not self._take_token(arrival.at):
            arrival.saturated = True
            self._limit(asked)
        elif scenario.flaky and unit(seed, "flaky", arrival.path, nth) < scenario.flaky:
            self._quick(asked, 503)
        elif self._pool:
            self._to_pool(self._pool, asked)
        else:
            arrival.start = arrival.at
            ready = ready_at(scenario, seed, arrival.at, page_cost(scenario, seed, arrival.path))
            self._site.call_at(ready, lambda: self._page(asked))

    def _to_pool(self, pool: Pool, asked: "Asked") -> None:
        scenario, arrival = self._scenario, asked.arrival
        arrival.saturated = pool.full()
        if pool.full() and scenario.full == "503":
            self._quick(asked, 503)
        elif pool.full() and scenario.full == "429":
            self._limit(asked)
        elif pool.full() and len(pool.queue) >= scenario.backlog:
            asked.silent = True
        else:

            def made(job: Job) -> None:
                arrival.start = job.start
                self._page(asked)

            pool.submit(Job(page_cost(scenario, self._site.seed, arrival.path), made))

    def _page(self, asked: "Asked") -> None:
        is_bad = poisoned(self._scenario, self._site.seed, asked.arrival.path)
        asked.answer(500 if is_bad else 200, ())

    def _limit(self, asked: "Asked") -> None:
        """429, and when to come back. It is made once the answer goes out, as the date in it is."""

        def answer() -> None:
            self._limited += 1
            asked.answer(429, self._site.retry_after(as_date=self._limited % 2 == 0))

        self._site.call_at(asked.arrival.at + QUICK, answer)

    def _quick(self, asked: "Asked", status: int) -> None:
        self._site.call_at(asked.arrival.at + QUICK, lambda: asked.answer(status, ()))

    def _take_token(self, at: float) -> bool:
        scenario = self._scenario
        self._tokens = min(scenario.burst, self._tokens + (at - self._token_at) * scenario.rate)
        self._token_at = at
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _wake(self) -> None:
        """Look at the pool again at the end of the step in which its next page may be ready."""
        pool = self._pool
        if pool is None:
            return
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        until = pool.idle_until()
        if until < math.inf:
            step = self._scenario.step
            number = max(math.ceil(until / step - 1e-6), math.floor(pool.now / step + 1e-6) + 1)
            self._tick = self._site.call_at(round(number * step, 6), self._work)

    def _work(self) -> None:
        assert self._pool is not None
        self._tick = None
        self._pool.advance(self._site.at())
        self._wake()


class Asked:
    """A request in the host's hands."""

    def __init__(self, host: Host, arrival: Arrival, answered: Answered) -> None:
        self.arrival = arrival
        self.silent = False
        """It never gets a word."""
        self._host = host
        self._answered = answered

    def answer(self, status: int, fields: Fields) -> None:
        """Give this answer to the client, if it is still there."""
        arrival = self.arrival
        arrival.status = status
        self._host.closed(arrival)
        if arrival.left is None:
            self._host.in_flight -= 1
            self._answered(status, fields)

    def leave(self) -> bool:
        """The client has gone. Its page is made all the same. False: it has been answered, or has left before."""
        if self.arrival.finish is not None or self.arrival.left is not None:
            return False
        self.arrival.left = self._host.now()
        self._host.in_flight -= 1
        if self.silent:
            self._host.closed(self.arrival)
        return True
