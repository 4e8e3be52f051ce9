"""Virtual time for tests: a clock that stands still until the test moves it, and the loop that it moves.

Rule: time never passes while anything can still happen at the present moment. How to know that nothing can?
An asyncio loop says so itself, in public: it asks its selector to wait only when no callback is ready. So
the loop made here has a selector that takes such a question for "we are at rest". That is exact for chains
of callbacks of any length, and nothing is slept. Work in other threads and on sockets is not seen: such
tests use the system clock.
"""

import asyncio
import heapq
import itertools
import math
import selectors
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

_GUARD_S = 30.0
"""Real seconds after which a loop in which nothing happens is taken for hung."""
_MOST_TURNS = 1_000_000
"""Loop turns at one virtual moment after which it is taken for spinning: some seconds of real time."""


@dataclass(slots=True, order=True)
class FakeTimer:
    """A pending `FakeClock.call_at`; ordered by time, then by age."""

    when: float
    number: int
    callback: Callable[[], None] | None = field(compare=False)

    def cancel(self) -> None:
        """Undo the timer; harmless after it has fired."""
        self.callback = None

    def fire(self) -> None:
        """Call back, once, unless cancelled."""
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()


class FakeClock:
    """A `proxy_addon.clock.Clock` that only the test moves.

        clock = FakeClock()
        clock.run(scenario())

    Inside the scenario `await clock.advance(7.5)` jumps from timer to timer, and lets everything that a
    timer sets off come to rest before the next. Timers due at the same moment fire together, like a loop's
    own: those are the moments at which races show.
    """

    def __init__(self, *, now: float = 1_000_000.0, monotonic: float = 1_000.0) -> None:
        self._monotonic = monotonic
        self._unix_offset = now - monotonic
        self._timers: list[FakeTimer] = []
        self._numbers = itertools.count()
        self._selector: _RestingSelector | None = None

    def now(self) -> float:
        return self._unix_offset + self._monotonic

    def monotonic(self) -> float:
        return self._monotonic

    def call_at(self, when: float, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(when, next(self._numbers), callback)
        if when <= self._monotonic:
            asyncio.get_running_loop().call_soon(timer.fire)
        else:
            heapq.heappush(self._timers, timer)
        return timer

    def set_now(self, now: float) -> None:
        """Set the wall clock, forwards or back, as an administrator does. Waits are not touched by it."""
        self._unix_offset = now - self._monotonic

    @property
    def pending(self) -> int:
        """How many timers wait to fire."""
        return sum(timer.callback is not None for timer in self._timers)

    def run[T](self, scenario: Coroutine[Any, Any, T]) -> T:
        """Run the scenario on a loop of its own, and return what it returns."""
        self._selector = selector = _RestingSelector()
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
            return runner.run(scenario)

    def play[T](self, scenario: Coroutine[Any, Any, T]) -> T:
        """The same, but time moves by itself: from timer to timer, until the scenario is over."""

        async def whole() -> T:
            task = asyncio.get_running_loop().create_task(scenario)
            await self.run_until(task.done, within=math.inf)
            return task.result()

        return self.run(whole())

    async def settle(self) -> None:
        """Let everything happen that can happen now."""
        assert self._selector is not None, "virtual time moves only inside FakeClock.run"
        await self._selector.rest()

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""
        await self.advance_to(self._monotonic + seconds)

    async def advance_to(self, when: float) -> None:
        """Let time pass until `monotonic()` is `when`."""
        await self.settle()
        while (due_at := self._next_timer_at()) is not None and due_at <= when:
            await self._jump(due_at)
        self._monotonic = max(self._monotonic, when)
        await self.settle()

    async def run_until(self, condition: Callable[[], bool], *, within: float = 86_400.0) -> None:
        """Jump from timer to timer until the condition holds; AssertionError if it does not `within`
        seconds."""
        last = self._monotonic + within
        await self.settle()
        while not condition():
            due_at = self._next_timer_at()
            assert due_at is not None, "nothing is left that could make the condition true"
            assert due_at <= last, f"the condition did not become true within {within:g} s of virtual time"
            await self._jump(due_at)

    def _next_timer_at(self) -> float | None:
        while self._timers and self._timers[0].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0].when if self._timers else None

    async def _jump(self, when: float) -> None:
        self._monotonic = when
        while self._timers and self._timers[0].when <= when:
            heapq.heappop(self._timers).fire()
        await self.settle()


class _RestingSelector(selectors.DefaultSelector):
    """Tells those who wait for it when its loop has nothing left to do at the moment."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[asyncio.Future[None]] = []
        self._turns = 0

    async def rest(self) -> None:
        """Return when no callback is ready. The caller is the first to go on."""
        waiting = asyncio.get_running_loop().create_future()
        self._turns = 0
        self._waiting.append(waiting)
        await waiting

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        at_rest = timeout is None or timeout > 0
        events = super().select(0 if self._waiting else _GUARD_S if timeout is None else timeout)
        if self._waiting:
            self._turns += 1
            if self._turns > _MOST_TURNS:
                self._wake(AssertionError("the loop does not come to rest: something spins"))
            elif at_rest and not events:
                self._wake(None)
        elif timeout is None and not events:
            raise AssertionError(f"nothing happened for {_GUARD_S:g} s: the test waits without moving the clock")
        return events

    def _wake(self, error: AssertionError | None) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
