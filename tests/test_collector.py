"""When the garbage collector may look at everything."""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from proxy_addon.collector import Collector
from tests.support.clock import FakeClock


class Proxy:
    """The two numbers that the collector asks for."""

    def __init__(self) -> None:
        self.held = 0
        self.ended = 0

    def collector(self, clock: FakeClock | None = None) -> Collector:
        return Collector(clock or FakeClock(), held=lambda: self.held, ended=lambda: self.ended)


@contextmanager
def full_collections() -> Iterator[list[int]]:
    """The generations that are collected meanwhile, but only the oldest, which visits all there is."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            seen.append(info["generation"])

    gc.callbacks.append(note)
    try:
        yield seen
    finally:
        gc.callbacks.remove(note)


@pytest.mark.parametrize(
    ("held", "ended", "due"),
    [
        (0, 0, False),
        (0, 1_999, False),
        (0, 2_000, True),
        (199, 2_000, True),
        (200, 2_000, False),
        (10_000, 99_999, False),
        (10_000, 100_000, True),
        (0, 100_000, True),
    ],
)
def test_it_comes_when_it_is_cheap_or_overdue(held: int, ended: int, due: bool) -> None:
    proxy = Proxy()
    collector = proxy.collector()
    proxy.held, proxy.ended = held, ended
    with full_collections() as collections:
        assert collector.look() is due
    assert len(collections) == int(due)


def test_the_requests_of_before_do_not_count_again() -> None:
    proxy = Proxy()
    collector = proxy.collector()
    looks = []
    for ended in (2_500, 4_499, 4_500, 4_500, 6_499, 6_500):
        proxy.ended = ended
        looks.append(collector.look())
    assert looks == [True, False, True, False, False, True]


def test_what_was_put_off_comes_as_soon_as_nobody_is_served() -> None:
    proxy = Proxy()
    collector = proxy.collector()
    proxy.held, proxy.ended = 5_000, 50_000
    assert not collector.look()
    # They have all been let go, but many of them since the last look.
    proxy.held, proxy.ended = 0, 55_000
    assert not collector.look()
    proxy.ended = 55_049
    assert collector.look()
    assert not collector.look()


def test_afterwards_a_busy_proxy_need_not_be_quiet_again() -> None:
    proxy = Proxy()
    collector = proxy.collector()
    proxy.held, proxy.ended = 5_000, 100_000
    assert collector.look()
    proxy.held, proxy.ended = 0, 102_000
    assert not collector.look()
    proxy.ended = 102_010
    assert collector.look()
    proxy.ended = 104_010
    assert collector.look()


def test_it_looks_every_five_seconds_and_leaves_everything_as_it_was() -> None:
    clock, proxy = FakeClock(), Proxy()
    before, frozen = gc.get_threshold(), gc.get_freeze_count()

    async def scenario() -> None:
        running = asyncio.ensure_future(proxy.collector(clock).run())
        await clock.settle()
        assert gc.get_threshold() == (1_000, 5, 2**30)
        assert gc.get_freeze_count() > frozen
        with full_collections() as collections:
            proxy.ended = 2_000
            await clock.advance(4.999)
            assert len(collections) == 0
            await clock.advance(0.001)
            assert len(collections) == 1
            proxy.ended = 4_000
            await clock.advance(5)
            await clock.advance(60)
            assert len(collections) == 2
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    clock.run(scenario())
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
    assert clock.pending == 0


def test_a_proxy_that_cannot_be_asked_does_not_leave_the_thresholds_changed() -> None:
    clock = FakeClock()
    before = gc.get_threshold()

    def broken() -> int:
        raise ZeroDivisionError

    async def scenario() -> None:
        running = asyncio.ensure_future(Collector(clock, held=lambda: 0, ended=broken).run())
        await clock.advance(5)
        with pytest.raises(ZeroDivisionError):
            await running

    clock.run(scenario())
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_the_youngest_are_looked_at_while_requests_end_and_only_then() -> None:
    clock, proxy = FakeClock(), Proxy()
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            seen.append(info["generation"])

    async def scenario() -> None:
        running = asyncio.ensure_future(proxy.collector(clock).run())
        await clock.settle()
        seen.clear()
        await clock.advance(0.5)
        assert seen == []
        proxy.ended = 3
        await clock.advance(0.5)
        assert seen == [0]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    gc.disable()  # But for what is asked for.
    gc.callbacks.append(note)
    try:
        clock.run(scenario())
    finally:
        gc.callbacks.remove(note)
        gc.enable()
