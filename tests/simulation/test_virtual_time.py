"""The clock that jumps by itself."""

import asyncio

import pytest

from proxy_addon.clock import sleep
from tests.simulation import virtual_time
from tests.simulation.virtual_time import VirtualClock


def test_time_jumps_to_the_next_timer() -> None:
    clock = VirtualClock()

    async def scenario() -> None:
        await sleep(clock, 3600.0)

    clock.run(scenario())
    assert (clock.monotonic(), clock.now()) == (3600.0, 1_003_600.0)


def test_timers_fire_in_the_order_of_their_times_and_then_of_their_age() -> None:
    clock, fired = VirtualClock(), list[str]()

    async def scenario() -> None:
        for name, when in (("late", 2.0), ("early", 1.0), ("early too", 1.0), ("at once", 0.0)):
            clock.call_at(when, lambda name=name: fired.append(name))  # type: ignore[misc]
        await sleep(clock, 5.0)

    clock.run(scenario())
    assert fired == ["at once", "early", "early too", "late"]


def test_a_timer_that_was_cancelled_moves_no_time() -> None:
    clock = VirtualClock()

    async def scenario() -> None:
        clock.call_at(7.0, lambda: None).cancel()
        await sleep(clock, 9.0)
        assert clock.monotonic() == 9.0
        clock.call_at(10.0, lambda: None).cancel()

    clock.run(scenario())
    assert clock.monotonic() == 9.0


def test_what_can_happen_now_happens_before_time_moves() -> None:
    clock, seen = VirtualClock(), list[float]()

    async def busy() -> None:
        for _ in range(50):
            await asyncio.sleep(0)
        seen.append(clock.monotonic())

    async def scenario() -> None:
        task = asyncio.create_task(busy())
        await sleep(clock, 1.0)
        await task

    clock.run(scenario())
    assert seen == [0.0]


def test_a_scenario_in_which_nothing_can_happen_any_more_fails() -> None:
    async def scenario() -> None:
        await asyncio.Event().wait()

    with pytest.raises(AssertionError, match="nothing is left that could happen"):
        VirtualClock().run(scenario())


def test_a_wait_that_does_not_ask_the_clock_fails() -> None:
    async def scenario() -> None:
        await asyncio.sleep(0.1)

    with pytest.raises(AssertionError, match="a timer of the loop's own"):
        VirtualClock().run(scenario())


def test_what_spins_at_one_moment_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_time, "_MOST_TURNS", 100)

    async def turn(times: int) -> None:
        for _ in range(times):
            await asyncio.sleep(0)

    async def busy_for_long() -> None:
        for _ in range(5):
            await turn(60)
            await sleep(clock, 1.0)

    clock = VirtualClock()
    clock.run(busy_for_long())
    with pytest.raises(AssertionError, match="time stands still: something spins"):
        VirtualClock().run(turn(200))
