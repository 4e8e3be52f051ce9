"""A world in virtual time: origins that answer by a script, and clients whose requests go through real engines.

Rule: a visit calls the engine exactly as the paced layer does (the order is in `proxy_addon/exchange.py`); what it
adds is only the origin and the client. There are no sockets and no bodies: those are the layer's, and tested there.
"""

import asyncio
import functools
import inspect
import itertools
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Self

from proxy_addon.engine import Engine
from proxy_addon.in_flight_limit import Limit
from proxy_addon.model import (
    AttemptEnded,
    ErrorName,
    Event,
    HostState,
    HostView,
    Outcome,
    Reply,
    RequestEnded,
)
from proxy_addon.request import Deliver, Grant, Refusal, Request
from proxy_addon.settings import Settings
from proxy_addon.store.memory import MemoryStore
from tests.support.answers import CLIENT, HOST, PAGE, START, Hit, Script, always
from tests.support.clock import FakeClock
from tests.support.stores import TroubledStore


class Visit:
    """One client with one request."""

    def __init__(self, process: "Process", host: str, path: str, request: Request) -> None:
        self.process = process
        self.host = host
        self.path = path
        self.request = request
        self.reply: Reply | None = None
        """The origin's own reply, where that was the answer."""
        self.refusal: Refusal | None = None
        """The engine's, where that was the answer."""
        self.done_at: float | None = None
        """Seconds since the world began."""
        self._ended: Event | None = None
        self._gone = False
        self._passing: asyncio.Future[None] | None = None
        self.task = asyncio.get_running_loop().create_task(self._run())

    @property
    def done(self) -> bool:
        return self.done_at is not None

    @property
    def status(self) -> int | None:
        """Of the origin's own reply."""
        return None if self.reply is None else self.reply.status

    @property
    def ended(self) -> RequestEnded:
        """What the engine said of the request when it was over."""
        assert isinstance(self._ended, RequestEnded)
        return self._ended

    def leave(self) -> None:
        """The client goes away."""
        self._gone = True
        self.process.engine.leave(self.request)
        if self._passing is not None and not self._passing.done():
            self._passing.set_result(None)

    async def _run(self) -> None:
        engine, world = self.process.engine, self.process.world
        try:
            while not self._gone:
                answer = engine.grant(self.request) or await engine.hold(self.request)
                if isinstance(answer, Refusal):
                    self.refusal = answer
                    return
                script = world.origins[self.host]
                came = None if self._gone else await self._attempt(answer, script)
                if came is None:
                    return
                reply, cut = came
                if isinstance(engine.settle(self.request, reply), Deliver):
                    self.reply = reply
                    engine.first_byte(self.request)
                    if cut:
                        engine.cut(self.request)
                    return
        finally:
            engine.close(self.request)
            self.done_at = world.at()
            self._ended = self.process.events[-1]

    async def _attempt(self, grant: Grant, script: Script) -> tuple[Reply, bool] | None:
        """Dial, send and wait. None: the client left meanwhile."""
        engine, world = self.process.engine, self.process.world
        answer = script(Hit(world.at(), self.path, self.request.attempts))
        limit_s = world.settings.connect_timeout
        if not await self._pass(min(answer.connect_s, limit_s)):
            return None
        if answer.connect_s > limit_s:
            return Reply(error=ErrorName.CONNECTION_TIMEOUT), False
        if answer.refused:
            return answer.reply(), False
        pace_s = world.settings.ladder[grant.rung]
        engine.sending(self.request)
        world.hits[self.host].append(Hit(world.at(), self.path, self.request.attempts, pace_s, grant.late))
        waited_s = 0.0
        if grant.overdue_s is not None and answer.after_s > grant.overdue_s:
            waited_s = grant.overdue_s
            if not await self._pass(waited_s):
                return None
            engine.overdue(self.request)
        if not await self._pass(min(answer.after_s, grant.limit_s) - waited_s):
            return None
        if answer.after_s > grant.limit_s:
            return Reply(error=ErrorName.HTTP_RESPONSE_TIMEOUT), False
        return answer.reply(), answer.cut

    async def _pass(self, seconds: float) -> bool:
        """Let time pass, at least a turn of the loop. False: the client has left."""
        clock = self.process.world.clock
        self._passing = passing = asyncio.get_running_loop().create_future()

        def over() -> None:
            if not passing.done():
                passing.set_result(None)

        timer = clock.call_at(clock.monotonic() + seconds, over)
        try:
            await passing
        finally:
            timer.cancel()
        return not self._gone


class Process:
    """One proxy process: an engine with its own handle on the store."""

    def __init__(self, world: "World", store: TroubledStore) -> None:
        self.world = world
        self.store = store
        self.events: list[Event] = []
        self.limits: list[Limit] = []
        """Those of its hosts, in the order in which they were met, where the test has brought its own."""
        self.engine = Engine(
            world.settings, store, world.clock, [self.events.append], new_limit=world.limit and self._new_limit
        )

    def _new_limit(self) -> Limit:
        assert self.world.limit is not None
        self.limits.append(self.world.limit())
        return self.limits[-1]

    def visit(
        self,
        path: str = "/",
        *,
        host: str = HOST,
        method: str = "GET",
        window: float | None = None,
        keyed: bool = False,
        held: bool = True,
    ) -> Visit:
        """A client sends a request now. `window` None is the setting."""
        window_s = self.world.settings.window if window is None else window
        request = self.engine.accept(host, method=method, window_s=window_s, keyed=keyed, client=CLIENT)
        request.held = held
        visit = Visit(self, host, path, request)
        self.world.visits.append(visit)
        return visit

    def happened[E](self, kind: type[E]) -> list[E]:
        """The engine's events of this kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    def view(self, host: str = HOST) -> HostView | None:
        """The host as the engine shows it; None where there is nothing to show."""
        return next((view for view in self.engine.snapshot().hosts if view.host == host), None)

    def rung(self, host: str = HOST) -> int:
        view = self.view(host)
        return 0 if view is None else view.state.rung


class World:
    """Everything there is. `async with` it: at the end every request must be over, and nothing may be left."""

    def __init__(
        self,
        settings: Settings,
        processes: int = 1,
        row: HostState | None = None,
        limit: Callable[[], Limit] | None = None,
    ) -> None:
        self.settings = settings
        self.limit = limit
        self.clock = FakeClock(now=START)
        self.memory = MemoryStore(shared=processes > 1)
        self.origins: defaultdict[str, Script] = defaultdict(lambda: always(PAGE))
        self.hits: defaultdict[str, list[Hit]] = defaultdict(list)
        self.visits: list[Visit] = []
        self.processes: list[Process] = []
        self._count = processes
        self._row = row
        self._began = self.clock.monotonic()

    async def __aenter__(self) -> Self:
        if self._row is not None:
            await self.memory.swap(HOST, None, self._row, now=START)
        for _ in range(self._count):
            await self.start_process()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for process in self.processes:
            await process.engine.stop()
        for visit in self.visits:
            if kind is None:
                assert visit.done, f"the request for {visit.path} never ended"
                if not visit.task.cancelled():
                    visit.task.result()
            visit.task.cancel()
        if kind is None:
            await self.clock.settle()
            self._check_that_nothing_is_left()

    def _check_that_nothing_is_left(self) -> None:
        for process in self.processes:
            snapshot = process.engine.snapshot()
            assert (snapshot.waiting, snapshot.in_flight) == (0, 0)
            assert all((view.waiting, view.in_flight) == (0, 0) for view in snapshot.hosts)
            assert len(process.happened(RequestEnded)) == sum(visit.process is process for visit in self.visits)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert self.clock.pending == 0

    async def start_process(self) -> Process:
        """Another process on the same store."""
        store = self.memory.beside() if self.memory.shared else self.memory
        process = Process(self, TroubledStore(store))
        await process.engine.start()
        self.processes.append(process)
        return process

    @property
    def process(self) -> Process:
        """The first process."""
        return self.processes[0]

    @property
    def origin(self) -> Script:
        """What the usual host answers."""
        return self.origins[HOST]

    @origin.setter
    def origin(self, script: Script) -> None:
        self.origins[HOST] = script

    def visit(self, path: str = "/", **how: Any) -> Visit:
        """A client of the first process sends a request now: see `Process.visit`."""
        return self.process.visit(path, **how)

    def at(self) -> float:
        """Seconds since the world began."""
        return round(self.clock.monotonic() - self._began, 6)

    async def pass_until(self, moment: float) -> None:
        """Let time pass until that many seconds since the world began."""
        await self.clock.advance_to(self._began + moment)

    async def finish(self, *, within: float = 86_400.0) -> None:
        """Let time pass until every request is over."""
        await self.clock.run_until(lambda: all(visit.done for visit in self.visits), within=within)

    def sent(self, path: str | None = None, *, host: str = HOST) -> list[float]:
        """When attempts were sent to the host, in seconds since the world began; of one path, if it is named."""
        return [hit.at for hit in self.hits[host] if path is None or hit.path == path]

    def paths(self, *, host: str = HOST) -> list[str]:
        """What the host was asked for, in order."""
        return [hit.path for hit in self.hits[host]]

    def gaps(self, *, host: str = HOST) -> list[float]:
        """The seconds between the attempts that the host got."""
        return [round(later - earlier, 6) for earlier, later in itertools.pairwise(self.sent(host=host))]

    async def stored(self, host: str = HOST) -> HostState | None:
        """The host's row as it stands in the store."""
        return await self.memory.get(host)


def check_the_pace(hits: list[Hit]) -> None:
    """Two sendings to a paced host are a pace apart; a late one, and what a healthy host got, are exempt."""
    in_slots = [hit for hit in hits if not hit.late]
    for earlier, later in itertools.pairwise(in_slots):
        if earlier.pace_s > 0:
            assert later.at - earlier.at >= later.pace_s - 1e-6, (earlier, later)


def ended(events: Iterable[Event]) -> list[tuple[Outcome, ErrorName | None]]:
    """The outcomes of the attempts, in the order in which they had them."""
    return [(event.outcome, event.error) for event in events if isinstance(event, AttemptEnded)]


def virtual(
    *,
    processes: int = 1,
    row: HostState | None = None,
    limit: Callable[[], Limit] | None = None,
    **settings: Any,
) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """Run the async test, whose first argument is the `World`, in virtual time with these settings.

    There is no limit of attempts in flight but one that is asked for.
    `row`: what the store knows of the usual host when the processes start. `limit`: makes the limit of each host, where
    it is to be another than the setting's.
    """

    def decorate(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            async def scenario() -> None:
                async with world:
                    await test(world, *args, **kwargs)

            world = World(Settings(**({"in_flight": "off"} | settings)), processes, row, limit)
            world.clock.run(scenario())

        signature = inspect.signature(test)
        parameters = list(signature.parameters.values())[1:]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return run

    return decorate
