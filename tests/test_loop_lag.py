"""The lag of the event loop, in virtual time."""

import asyncio
from collections.abc import Callable

from proxy_addon import loop_lag
from tests.support.clock import FakeClock, FakeTimer


class BusyClock(FakeClock):
    """Its loop comes `late_s` too late to every timer."""

    late_s = 0.0

    def call_at(self, when: float, callback: Callable[[], None]) -> FakeTimer:
        return super().call_at(when + self.late_s, callback)


def test_each_look_tells_how_late_it_came() -> None:
    clock = BusyClock()
    lags: list[float] = []

    async def scenario() -> None:
        watching = asyncio.create_task(loop_lag.watch(clock, lags.append))
        await clock.advance(0.5)
        clock.late_s = 1.5
        await clock.advance(2.0)  # the look that was asked for in time, and one that comes too late
        watching.cancel()
        await asyncio.wait([watching])

    clock.run(scenario())
    assert lags == [0.0, 0.0, 0.0, 1.5]
    assert clock.pending == 0
