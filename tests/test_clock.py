"""The system clock and the wait on a clock."""

import asyncio
import time

import pytest

from proxy_addon.clock import SystemClock, sleep
from tests.support.clock import FakeClock

_GUARD_S = 10.0


def test_now_is_unix_time_and_monotonic_its_own() -> None:
    clock = SystemClock()
    assert time.time() - 1 <= clock.now() <= time.time() + 1
    before = time.monotonic()
    assert before <= clock.monotonic() <= time.monotonic()


def test_a_timer_fires_on_the_loop_and_not_before_its_time() -> None:
    async def scenario() -> None:
        clock, fired = SystemClock(), asyncio.get_running_loop().create_future()
        due = clock.monotonic() + 0.05
        clock.call_at(due, lambda: fired.set_result(clock.monotonic()))
        # The loop's own resolution is the only tolerance.
        assert await asyncio.wait_for(fired, _GUARD_S) >= due - time.get_clock_info("monotonic").resolution

    asyncio.run(scenario())


def test_a_timer_that_is_due_already_fires_at_once_but_not_inside_the_call() -> None:
    async def scenario() -> None:
        clock, fired = SystemClock(), asyncio.Event()
        clock.call_at(clock.monotonic() - 100, fired.set)
        assert not fired.is_set()
        await asyncio.wait_for(fired.wait(), _GUARD_S)

    asyncio.run(scenario())


def test_timers_fire_in_the_order_of_their_times() -> None:
    async def scenario() -> list[int]:
        clock, order, last = SystemClock(), list[int](), asyncio.Event()
        now = clock.monotonic()
        clock.call_at(now + 0.06, last.set)
        for number in (3, 1, 2):
            clock.call_at(now + number / 100, lambda number=number: order.append(number))  # type: ignore[misc]
        await asyncio.wait_for(last.wait(), _GUARD_S)
        return order

    assert asyncio.run(scenario()) == [1, 2, 3]


def test_a_cancelled_timer_does_not_fire_and_may_be_cancelled_again() -> None:
    async def scenario() -> list[str]:
        clock, fired, later = SystemClock(), list[str](), asyncio.Event()
        timer = clock.call_at(clock.monotonic(), lambda: fired.append("cancelled"))
        timer.cancel()
        timer.cancel()
        done = clock.call_at(clock.monotonic() + 0.01, later.set)
        await asyncio.wait_for(later.wait(), _GUARD_S)
        done.cancel()
        return fired

    assert asyncio.run(scenario()) == []


def test_a_timer_needs_a_running_loop() -> None:
    with pytest.raises(RuntimeError):
        SystemClock().call_at(0.0, lambda: None)


def test_sleep_lasts_as_long_as_asked_by_that_clock() -> None:
    clock = FakeClock()

    async def scenario() -> None:
        sleeping = asyncio.ensure_future(sleep(clock, 30.0))
        await clock.advance(29.999)
        assert not sleeping.done()
        await clock.advance(0.001)
        assert sleeping.done()
        assert clock.pending == 0

    clock.run(scenario())


@pytest.mark.parametrize("seconds", [0.0, -5.0])
def test_sleep_for_nothing_lets_others_run_and_returns(seconds: float) -> None:
    clock = FakeClock()

    async def scenario() -> None:
        sleeping = asyncio.ensure_future(sleep(clock, seconds))
        await clock.settle()
        assert sleeping.done()
        assert clock.monotonic() == 1_000.0

    clock.run(scenario())


def test_a_sleep_that_is_cancelled_takes_its_timer_along() -> None:
    clock = FakeClock()

    async def scenario() -> None:
        sleeping = asyncio.ensure_future(sleep(clock, 30.0))
        await clock.settle()
        assert clock.pending == 1
        sleeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sleeping
        assert clock.pending == 0

    clock.run(scenario())


def test_a_wall_clock_that_is_set_does_not_touch_a_sleep() -> None:
    clock = FakeClock()

    async def scenario() -> None:
        sleeping = asyncio.ensure_future(sleep(clock, 30.0))
        await clock.settle()
        clock.set_now(clock.now() + 86_400)
        await clock.advance(29.0)
        assert not sleeping.done()
        clock.set_now(0.0)
        await clock.advance(1.0)
        assert sleeping.done()

    clock.run(scenario())
