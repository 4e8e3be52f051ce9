"""A host that shares its power among the pages it makes, crawled through a limit of attempts in flight: no engine.

Event by event, with the same pages in every run, so that a test can say what a limit makes of such a host. The crawler
asks for the next page as soon as it has one. Sites as they are, through the real engine, are in `tests/simulation/`.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from proxy_addon.in_flight_limit import Limit
from proxy_addon.model import Outcome
from proxy_addon.request import Grant

_SOURCE = random.Random(1)
_COSTS = [_SOURCE.uniform(0.7, 1.3) for _ in range(10_000)]


def about_a_second(number: int) -> float:
    """What the page with that number takes on an idle host, in seconds."""
    return _COSTS[number]


@dataclass(eq=False)
class _Page:
    grant: Grant
    left_s: float
    """What it still takes on an idle host."""


@dataclass(eq=False)
class Crawl:
    """Of one host."""

    limit: Limit
    slots: int
    """How many pages the crawler asks for at a time."""
    power: float = math.inf
    """How many pages the host makes at full speed at a time; more share it."""
    times: float = 1.0
    """How many times longer each page takes, whatever the load."""
    cost: Callable[[int], float] = about_a_second
    """Of the page with that number, on an idle host, in seconds."""
    now: float = 0.0
    served: int = 0
    limits: list[int] = field(default_factory=list)
    """After each page."""
    ends: list[float] = field(default_factory=list)
    """When each page came."""
    _asked: int = 0
    _in_flight: list[_Page] = field(default_factory=list)

    def serve(self, pages: int) -> None:
        """Until so many more have come."""
        last = self.served + pages
        self._fill()
        while self.served < last:
            self._serve_next()
            self._fill()

    def finish(self) -> None:
        """The crawler asks for no more."""
        self.slots = 0
        while self._in_flight:
            self._serve_next()

    def rate(self, pages: int) -> float:
        """Pages per second, of the last so many."""
        return pages / (self.ends[-1] - self.ends[-1 - pages])

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def waiting(self) -> int:
        return max(0, self.slots - self.in_flight)

    def _fill(self) -> None:
        while self.waiting and (not self._in_flight or self.limit.room(now=self.now, waiting=self.waiting)):
            grant = Grant(granted=self.now, rung=0, limit_s=30.0, overdue_s=None)
            waiting = self.waiting - 1
            self._in_flight.append(_Page(grant, self.cost(self._asked)))
            self._asked += 1
            self.limit.granted(grant, now=self.now, waiting=waiting)
            self.limit.sent(grant, now=self.now)

    def _serve_next(self) -> None:
        first = min(self._in_flight, key=lambda page: page.left_s)
        done_s = first.left_s
        self.now += done_s * self.times * max(1.0, len(self._in_flight) / self.power)
        for page in self._in_flight:
            page.left_s -= done_s
        self._in_flight.remove(first)
        # The crawler has not asked for the next one yet.
        waiting = max(0, self.slots - len(self._in_flight) - 1)
        self.limit.ended(first.grant, now=self.now, outcome=Outcome.SERVED, error=None, given_up=False, waiting=waiting)
        self.served += 1
        self.limits.append(self.limit.limit)
        self.ends.append(self.now)
