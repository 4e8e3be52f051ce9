"""Virtual time for whole crawls: a clock that jumps to its next timer as soon as nothing is left to do at the moment.

Rule: as `tests.support.clock.FakeClock`, but nobody moves it, and no turn of the loop is spent on the jump: a crawl of
a thousand pages takes less than a second. An asyncio loop asks its selector to wait only when no callback is ready;
the selector made here takes that for the moment to jump. Threads and sockets are not seen.
"""

import asyncio
import heapq
import itertools
import selectors
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

_MOST_TURNS = 1_000_000
"""Loop turns at one virtual moment after which it is taken for spinning: some seconds of real time."""


@dataclass(slots=True, eq=False)
class VirtualTimer:
    """A pending `VirtualClock.call_at`."""

    callback: Callable[[], None] | None

    def cancel(self) -> None:
        """Undo the timer; harmless after it has fired."""
        self.callback = None

    def fire(self) -> None:
        """Call back, once, unless cancelled."""
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()


class VirtualClock:
    """A `proxy_addon.clock.Clock`. Its monotonic seconds begin at 0, its Unix seconds at `began_at`."""

    def __init__(self, began_at: float = 1_000_000.0) -> None:
        self._began_at = began_at
        self._elapsed = 0.0
        self._timers: list[tuple[float, int, VirtualTimer]] = []
        """A heap, by time and then by age."""
        self._numbers = itertools.count()

    def now(self) -> float:
        return self._began_at + self._elapsed

    def monotonic(self) -> float:
        return self._elapsed

    def call_at(self, when: float, callback: Callable[[], None]) -> VirtualTimer:
        timer = VirtualTimer(callback)
        if when <= self._elapsed:
            asyncio.get_running_loop().call_soon(timer.fire)
        else:
            heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def run[T](self, scenario: Coroutine[Any, Any, T]) -> T:
        """Run it on a loop of its own, and return what it returns. What it leaves running is cancelled."""
        selector = _JumpingSelector(self)
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
            return runner.run(scenario)

    def jump(self) -> bool:
        """Go to the next timer, and fire all that are due with it. False: there is none."""
        timers = self._timers
        while timers and timers[0][2].callback is None:
            heapq.heappop(timers)
        if not timers:
            return False
        self._elapsed = timers[0][0]
        while timers and timers[0][0] <= self._elapsed:
            heapq.heappop(timers)[2].fire()
        return True


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            self._turns = 0
            assert self._clock.jump(), "nothing is left that could happen"
            return []
        assert timeout == 0, "a timer of the loop's own: whoever waits must ask the clock"
        self._turns += 1
        assert self._turns < _MOST_TURNS, "time stands still: something spins"
        return []
