"""The virtual time of the tests is itself tested: every engine test stands on it."""

import asyncio

import pytest

from proxy_addon.clock import sleep
from tests.support.clock import FakeClock


def test_time_stands_still_until_it_is_moved() -> None:
    clock = FakeClock()

    async def scenario() -> None:
        await clock.settle()
        assert (clock.now(), clock.monotonic()) == (1_000_000.0, 1_000.0)
        await clock.advance(2.5)
        assert (clock.now(), clock.monotonic()) == (1_000_002.5, 1_002.5)

    clock.run(scenario())


def test_timers_fire_in_order_each_at_its_own_moment() -> None:
    clock = FakeClock()
    fired: list[tuple[str, float]] = []

    async def scenario() -> None:
        for name, when in [("c", 1_003.0), ("a", 1_001.0), ("b", 1_001.0), ("never", 1_009.0)]:
            clock.call_at(when, lambda name=name: fired.append((name, clock.monotonic())))  # type: ignore[misc]
        await clock.advance(3)

    clock.run(scenario())
    assert fired == [("a", 1_001.0), ("b", 1_001.0), ("c", 1_003.0)]
    assert clock.pending == 1


def test_a_timer_set_by_a_timer_fires_within_the_same_advance() -> None:
    clock = FakeClock()
    fired: list[float] = []

    def again() -> None:
        fired.append(clock.monotonic())
        clock.call_at(clock.monotonic() + 1, again)

    async def scenario() -> None:
        clock.call_at(1_001.0, again)
        await clock.advance(3.5)

    clock.run(scenario())
    assert fired == [1_001.0, 1_002.0, 1_003.0]


def test_a_timer_that_is_due_already_fires_soon_but_never_inside_the_call() -> None:
    clock = FakeClock()
    fired: list[str] = []

    async def scenario() -> None:
        clock.call_at(0.0, lambda: fired.append("late"))
        fired.append("first")
        await clock.settle()

    clock.run(scenario())
    assert fired == ["first", "late"]


def test_a_cancelled_timer_never_fires() -> None:
    clock = FakeClock()
    fired: list[str] = []

    async def scenario() -> None:
        due, later = (clock.call_at(when, lambda: fired.append("x")) for when in (0.0, 1_001.0))
        due.cancel()
        later.cancel()
        await clock.advance(5)
        later.cancel()

    clock.run(scenario())
    assert fired == []
    assert clock.pending == 0


def test_everything_at_one_moment_happens_before_the_next_however_long_the_chain() -> None:
    clock = FakeClock()
    done_at: list[float] = []

    async def chain(start: asyncio.Event) -> None:
        await start.wait()
        for _ in range(5_000):
            await asyncio.sleep(0)
        done_at.append(clock.monotonic())

    async def scenario() -> None:
        start = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(chain(start))
            clock.call_at(1_001.0, start.set)
            clock.call_at(1_002.0, lambda: None)
            await clock.advance(10)

    clock.run(scenario())
    assert done_at == [1_001.0]


def test_the_wall_clock_can_be_set_back_without_touching_the_waits() -> None:
    clock = FakeClock()
    fired: list[tuple[float, float]] = []

    async def scenario() -> None:
        clock.call_at(1_010.0, lambda: fired.append((clock.monotonic(), clock.now())))
        await clock.advance(4)
        clock.set_now(500.0)
        assert (clock.monotonic(), clock.now()) == (1_004.0, 500.0)
        await clock.advance(6)

    clock.run(scenario())
    assert fired == [(1_010.0, 506.0)]


def test_run_until_stops_at_the_moment_at_which_the_condition_becomes_true() -> None:
    clock = FakeClock()
    fired: list[float] = []

    async def scenario() -> None:
        for when in (1_001.0, 1_060.0, 1_600.0):
            clock.call_at(when, lambda: fired.append(clock.monotonic()))
        await clock.run_until(lambda: len(fired) == 2)
        assert clock.monotonic() == 1_060.0
        with pytest.raises(AssertionError, match="within 100 s"):
            await clock.run_until(lambda: len(fired) == 3, within=100)
        await clock.advance(600)
        with pytest.raises(AssertionError, match="nothing is left"):
            await clock.run_until(lambda: False)

    clock.run(scenario())


def test_the_selector_lets_real_input_and_output_through() -> None:
    clock = FakeClock()

    async def scenario() -> bytes:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readline())
            writer.close()
            await writer.wait_closed()

        async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"hello\n")
            try:
                return await reader.read()
            finally:
                writer.close()
                await writer.wait_closed()

    assert clock.run(scenario()) == b"hello\n"


def test_a_scenario_that_only_waits_is_played_to_its_end() -> None:
    clock, fired = FakeClock(monotonic=0.0), list[float]()

    async def scenario() -> str:
        clock.call_at(7200.0, lambda: fired.append(clock.monotonic()))
        await sleep(clock, 3600.0)
        return "over"

    assert clock.play(scenario()) == "over"
    assert (clock.monotonic(), clock.now(), fired) == (3600.0, 1_003_600.0, [])


def test_a_scenario_that_waits_for_nothing_is_not_played_for_ever() -> None:
    async def scenario() -> None:
        await asyncio.Event().wait()

    with pytest.raises(AssertionError, match="nothing is left that could make the condition true"):
        FakeClock().play(scenario())


def test_what_a_played_scenario_raises_is_raised() -> None:
    async def scenario() -> None:
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        FakeClock().play(scenario())
