"""Happy Eyeballs in virtual time: when each attempt begins, which one is taken, and what becomes of the others."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from proxy_addon.clock import sleep
from proxy_addon.race import NoneWorkedError, first_to_work, interleaved
from tests.support.clock import FakeClock


class Race:
    """Attempts that take their time, on a clock that starts at 0; what happened to them is noted with its time."""

    def __init__(self, **attempts: tuple[float, Exception | None]) -> None:
        """Name → after how many seconds it ends, and with which error (None: it works)."""
        self.clock = FakeClock(monotonic=0.0)
        self.noted: list[tuple[float, str]] = []
        self._attempts = attempts

    def run(self, *, cancelled_at: float | None = None) -> str:
        """Who won; the guard is 100 s of virtual time."""
        return self.clock.run(self._run(cancelled_at))

    async def _run(self, cancelled_at: float | None) -> str:
        race = asyncio.create_task(
            first_to_work(
                [self._attempt(name, *what) for name, what in self._attempts.items()],
                clock=self.clock,
                discard=lambda name: self._note(f"{name} discarded"),
            )
        )
        if cancelled_at is not None:
            await self.clock.settle()
            self.clock.call_at(cancelled_at, functools.partial(_cancel, race))
        await self.clock.run_until(race.done, within=100)
        await self.clock.settle()
        assert self.clock.pending == 0
        return await race

    def _attempt(self, name: str, takes_s: float, error: Exception | None) -> Callable[[], Coroutine[Any, Any, str]]:
        async def attempt() -> str:
            self._note(f"{name} begins")
            try:
                await sleep(self.clock, takes_s)
            except asyncio.CancelledError:
                self._note(f"{name} cancelled")
                raise
            if error is not None:
                raise error
            return name

        return attempt

    def _note(self, what: str) -> None:
        self.noted.append((self.clock.monotonic(), what))


def _cancel(task: "asyncio.Task[str]") -> None:
    task.cancel()


REFUSED = ConnectionRefusedError(111, "refused")
RESET = ConnectionResetError(104, "reset")
DEAD = (1000.0, None)


def test_a_quick_first_address_is_the_only_one_that_is_tried() -> None:
    race = Race(a=(0.2, None), b=(0.1, None))
    assert race.run() == "a"
    assert race.noted == [(0.0, "a begins")]


def test_a_dead_address_costs_a_quarter_of_a_second() -> None:
    race = Race(a=DEAD, b=(0.1, None), c=(0.1, None))
    assert race.run() == "b"
    assert race.noted == [(0.0, "a begins"), (0.25, "b begins"), (0.35, "a cancelled")]


def test_several_dead_addresses_cost_a_quarter_of_a_second_each() -> None:
    race = Race(a=DEAD, b=DEAD, c=DEAD, d=(0.1, None))
    assert race.run() == "d"
    assert [at for at, what in race.noted if "begins" in what] == [0.0, 0.25, 0.5, 0.75]


def test_a_slow_first_address_may_still_win() -> None:
    race = Race(a=(0.3, None), b=(0.2, None))
    assert race.run() == "a"
    assert race.noted == [(0.0, "a begins"), (0.25, "b begins"), (0.3, "b cancelled")]


def test_after_a_refusal_the_next_one_begins_at_once() -> None:
    race = Race(a=(0.1, REFUSED), b=(0.0, REFUSED), c=(0.1, None))
    assert race.run() == "c"
    assert race.noted == [(0.0, "a begins"), (0.1, "b begins"), (0.1, "c begins")]


def test_a_refusal_of_an_older_one_lets_the_next_begin_too() -> None:
    race = Race(a=(0.3, REFUSED), b=DEAD, c=(0.1, None))
    assert race.run() == "c"
    assert race.noted == [(0.0, "a begins"), (0.25, "b begins"), (0.3, "c begins"), (0.4, "b cancelled")]


def test_the_last_one_has_all_the_time_there_is() -> None:
    race = Race(a=(0.1, REFUSED), b=(30.0, None))
    assert race.run() == "b"
    assert race.clock.monotonic() == 30.1


def test_of_two_that_work_at_the_same_moment_the_first_is_taken_and_the_other_discarded() -> None:
    race = Race(a=(0.5, None), b=(0.25, None))
    assert race.run() == "a"
    assert race.noted == [(0.0, "a begins"), (0.25, "b begins"), (0.5, "b discarded")]


def test_where_none_works_all_their_errors_are_told() -> None:
    race = Race(a=(0.3, REFUSED), b=(0.0, RESET))
    with pytest.raises(NoneWorkedError) as caught:
        race.run()
    assert caught.value.errors == [RESET, REFUSED]


def test_an_error_that_is_no_failure_to_connect_ends_it() -> None:
    race = Race(a=DEAD, b=(0.0, ZeroDivisionError()), c=(0.1, None))
    with pytest.raises(ZeroDivisionError):
        race.run()
    assert race.noted == [(0.0, "a begins"), (0.25, "b begins"), (0.25, "a cancelled")]


def test_to_cancel_it_is_to_cancel_every_attempt() -> None:
    race = Race(a=DEAD, b=DEAD, c=DEAD)
    with pytest.raises(asyncio.CancelledError):
        race.run(cancelled_at=0.4)
    assert race.noted == [(0.0, "a begins"), (0.25, "b begins"), (0.4, "a cancelled"), (0.4, "b cancelled")]


def test_what_worked_at_the_moment_of_cancelling_is_discarded() -> None:
    race = Race(a=(0.4, None))
    with pytest.raises(asyncio.CancelledError):
        race.run(cancelled_at=0.4)
    assert race.noted == [(0.0, "a begins"), (0.4, "a discarded")]


@pytest.mark.parametrize(
    ("addresses", "order"),
    [
        (["::1", "::2", "10.0.0.1", "10.0.0.2"], ["::1", "10.0.0.1", "::2", "10.0.0.2"]),
        (["10.0.0.1", "10.0.0.2", "10.0.0.3", "::1"], ["10.0.0.1", "::1", "10.0.0.2", "10.0.0.3"]),
        (["10.0.0.1", "10.0.0.2"], ["10.0.0.1", "10.0.0.2"]),
        (["fe80::1%eth0", "10.0.0.1", "::ffff:10.0.0.1"], ["fe80::1%eth0", "10.0.0.1", "::ffff:10.0.0.1"]),
    ],
)
def test_families_take_turns_and_the_systems_first_choice_stays_first(addresses: list[str], order: list[str]) -> None:
    assert interleaved(addresses) == order
