"""A crawl in virtual time: the user's crawler, with Paceproxy's engine between it and the site, or directly.

Rule: the engine is the real one, and it is called exactly as the paced layer calls it (the order is in
`proxy_addon/exchange.py`). There are no sockets and no bodies. What came of it is judged in `judge.py`.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from proxy_addon.engine import Engine
from proxy_addon.model import ErrorName, Event, Reply, RequestEnded
from proxy_addon.request import Deliver, Grant, Refusal, Request
from proxy_addon.settings import Settings
from proxy_addon.store.memory import MemoryStore
from tests.simulation.origins import Arrival, Asked, Fields, Host, Site
from tests.simulation.site_model import Scenario, urls
from tests.support.clock import FakeClock

_PORT = 80
_CLIENT = "192.0.2.7"
_REFUSED = 503
_TIMED_OUT = 504

CLIENTS: dict[str, Callable[[Scenario], Scenario]] = {
    "plain": lambda scenario: scenario,
    "plain-1": lambda scenario: replace(scenario, parallel=scenario.hosts),
    "plain-patient": lambda scenario: replace(scenario, timeout=3600),
}
"""What the crawlers, by name, make of a scenario: P in flight and one client time-out, no retry; the same with 1 in
flight for each host; and with a time-out of an hour."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A page as its user saw it; seconds since the crawl began."""

    host: str
    path: str
    asked: float
    ended: float
    status: int | None
    """None: the user's own time-out."""

    @property
    def got(self) -> bool:
        return self.status == 200


@dataclass(slots=True)
class Crawl:
    """What came of a crawl."""

    seen: list[Seen] = field(default_factory=list)
    """The pages that had an outcome before the crawl was stopped, in the order of their outcomes."""
    log: list[Arrival] = field(default_factory=list)
    """What the hosts got, in order."""
    ended: list[RequestEnded] = field(default_factory=list)
    """What the engine said of each request; empty without it."""
    most_in_flight: int = 0
    """The most that one host had to bear at the same time."""


type Watch = Callable[[str, Arrival, Engine | None], None]
"""Called with "sent", "answered" or "left", for each of them as it happens."""


def crawl(
    scenario: Scenario,
    seed: int,
    settings: Settings | None,
    *,
    round_trip_s: float = 0.0,
    watch: Watch | None = None,
    clock: FakeClock | None = None,
) -> Crawl:
    """Ask for every page of the scenario with `scenario.parallel` requests in flight. `settings` None: directly.
    `clock`: one `from_zero`, for those who want to set timers of their own."""
    clock = clock or from_zero()

    async def run() -> Crawl:
        site = Site(scenario, seed, clock)
        crawler = _Crawler(site, clock, round_trip_s, watch)
        if settings is None:
            return await crawler.run(None)
        crawler.window_s = settings.window
        engine = Engine(settings, MemoryStore(), clock, [crawler.note])
        await engine.start()
        try:
            return await crawler.run(engine)
        finally:
            await engine.stop()

    return clock.play(run())


def from_zero() -> FakeClock:
    """A clock whose monotonic seconds are those since the crawl began."""
    return FakeClock(monotonic=0.0)


class _Crawler:
    def __init__(self, site: Site, clock: FakeClock, round_trip_s: float, watch: Watch | None) -> None:
        self.site = site
        self.clock = clock
        self.way_s = round_trip_s / 2
        self.watch = watch
        self.crawl = Crawl()
        self.engine: Engine | None = None
        self.window_s = 0.0
        self.is_over = False

    def note(self, event: Event) -> None:
        """What the engine says."""
        if isinstance(event, RequestEnded) and not self.is_over:
            self.crawl.ended.append(event)

    async def run(self, engine: Engine | None) -> Crawl:
        """Until every page has an outcome, or the crawl is stopped."""
        self.engine = engine
        scenario, loop = self.site.scenario, asyncio.get_running_loop()
        todo = deque(url.removeprefix("http://") for url in urls(scenario, _PORT))
        slots = [loop.create_task(self._slot(todo)) for _ in range(scenario.parallel)]
        stopped = loop.create_future()
        timer = self.clock.call_at(scenario.cap, lambda: stopped.set_result(None))
        everything = loop.create_task(asyncio.wait(slots, return_when=asyncio.FIRST_EXCEPTION))
        await asyncio.wait([everything, stopped], return_when=asyncio.FIRST_COMPLETED)
        timer.cancel()
        self.is_over = True
        for slot in slots:
            if slot.done():
                slot.result()
            slot.cancel()
        await asyncio.wait(slots)
        self.crawl.log = self.site.log
        self.crawl.most_in_flight = self.site.most_in_flight
        return self.crawl

    async def _slot(self, todo: deque[str]) -> None:
        """One of the crawler's places: page after page."""
        clock = self.clock
        while todo:
            where, _, path = todo.popleft().partition("/")
            host, path, asked = where.partition(":")[0], f"/{path}", clock.monotonic()
            status = await _Visit(self, host, path).run()
            self.crawl.seen.append(Seen(host, path, asked, clock.monotonic(), status))


class _Visit:
    """One page that the user asks for. It is made for one `run`."""

    def __init__(self, crawler: _Crawler, host: str, path: str) -> None:
        self._crawler = crawler
        self._clock = crawler.clock
        self._name = host
        self._host: Host = crawler.site.hosts[host]
        self._path = path
        self._request: Request | None = None
        self._gone = False
        self._attempt: _Attempt | None = None

    async def run(self) -> int | None:
        """The status that the user gets; None: it did not wait for it."""
        timer = self._clock.call_at(self._clock.monotonic() + self._crawler.site.scenario.timeout, self._leave)
        try:
            engine = self._crawler.engine
            return await (self._directly() if engine is None else self._through(engine))
        finally:
            timer.cancel()

    def _leave(self) -> None:
        self._gone = True
        if self._request is not None and self._crawler.engine is not None:
            self._crawler.engine.leave(self._request)
        if self._attempt is not None:
            self._attempt.end(None)

    async def _directly(self) -> int | None:
        reply = await self._try(None, None)
        return None if reply is None else reply.status

    async def _through(self, engine: Engine) -> int | None:
        window_s = self._crawler.window_s
        request = engine.accept(self._name, method="GET", window_s=window_s, client=_CLIENT)
        self._request = request
        try:
            while not self._gone:
                answer = engine.grant(request) or await engine.hold(request)
                if isinstance(answer, Refusal):
                    return None if self._gone else _status(request.last_reply)
                reply = None if self._gone else await self._try(engine, answer)
                if reply is None:
                    return None
                if isinstance(engine.settle(request, reply), Deliver):
                    engine.first_byte(request)
                    return _status(reply)
            return None
        finally:
            engine.close(request)

    async def _try(self, engine: Engine | None, grant: Grant | None) -> Reply | None:
        """Send it and wait. None: the client left meanwhile."""
        if engine is not None and self._request is not None:
            engine.sending(self._request)
        self._attempt = attempt = _Attempt(self._crawler, self._host, self._path)
        timers = []
        if grant is not None:
            too_late = Reply(error=ErrorName.HTTP_RESPONSE_TIMEOUT)
            timers.append(self._clock.call_at(self._clock.monotonic() + grant.limit_s, lambda: attempt.end(too_late)))
        try:
            return await attempt.reply
        finally:
            self._attempt = None
            attempt.end(None)
            for timer in timers:
                timer.cancel()


class _Attempt:
    """One sending of a page to the site."""

    def __init__(self, crawler: _Crawler, host: Host, path: str) -> None:
        self.reply: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
        self._crawler = crawler
        self._host = host
        self._path = path
        self._asked: Asked | None = None
        if crawler.way_s:
            crawler.clock.call_at(crawler.clock.monotonic() + crawler.way_s, self._arrive)
        else:
            self._arrive()

    def end(self, reply: Reply | None) -> None:
        """It is over for the one who sent it, whatever the site does."""
        if not self.reply.done():
            self.reply.set_result(reply)
        if self._asked is not None and self._asked.leave():
            self._tell("left", self._asked)

    def _arrive(self) -> None:
        if self.reply.done():
            return
        self._asked = self._host.ask(self._path, self._answered)
        self._tell("sent", self._asked)

    def _answered(self, status: int, fields: Fields) -> None:
        def come() -> None:
            if not self.reply.done():
                self.reply.set_result(Reply(status=status, fields=fields))

        if self._asked is not None:
            self._tell("answered", self._asked)
        if self._crawler.way_s:
            self._crawler.clock.call_at(self._crawler.clock.monotonic() + self._crawler.way_s, come)
        else:
            come()

    def _tell(self, what: str, asked: Asked) -> None:
        if self._crawler.watch is not None:
            self._crawler.watch(what, asked.arrival, self._crawler.engine)


def _status(last: Reply | None) -> int:
    """What the proxy answers at the end."""
    if last is None:
        return _REFUSED
    return last.status or _TIMED_OUT
