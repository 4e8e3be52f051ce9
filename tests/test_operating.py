"""What an operator does to a host, seen by its clients and its origin, in virtual time."""

import math

import pytest

from proxy_addon.model import HostState, Outcome
from tests.support.answers import HOST, PAGE, SLOW_PAGE, START, always
from tests.support.world import World, virtual

TOP = HostState(rung=5, next_slot_at=START + 50, stalled_at=START - 10, stalls_in_a_row=4, pauses=1)
QUIET = "quiet.example"


# --- resume


@virtual(row=TOP)
async def test_a_resumed_host_gets_those_who_wait_in_batches_that_double(world: World) -> None:
    world.origin = always(SLOW_PAGE)
    for number in range(7):
        world.visit(f"/{number}")
    await world.pass_until(10)
    assert world.sent() == []

    view = await world.process.engine.resume(HOST)

    assert (view.state.rung, view.pace_s, view.state.pauses) == (0, 0.0, 0)
    await world.finish()
    assert world.sent() == [10, 11, 11, 12, 12, 12, 12]
    assert world.paths() == [f"/{number}" for number in range(7)]


# --- pause


@virtual()
async def test_a_paused_host_that_was_well_goes_on_without_a_probe(world: World) -> None:
    view = await world.process.engine.pause(HOST, 60)
    assert (view.paused_until, view.state.paused_until) == (START + 60, 0)
    world.visit("/patient")
    hasty = world.visit("/hasty", window=59)
    await world.pass_until(1)
    assert hasty.done_at == 0
    assert hasty.ended.outcome is Outcome.UNSENT

    await world.finish()

    assert world.sent() == [60]
    assert world.process.rung() == 0


# --- floor


@virtual()
async def test_a_floor_holds_until_it_is_taken_away(world: World) -> None:
    view = await world.process.engine.set_floor(HOST, 7)
    assert (view.floor_s, view.pace_s) == (7, 7)
    for number in range(4):
        world.visit(f"/{number}")
    await world.pass_until(15)
    assert world.sent() == [7, 14]

    await world.process.engine.set_floor(HOST, 0)

    await world.finish()
    assert world.sent() == [7, 14, 15, 15]


@pytest.mark.parametrize("seconds", [0, -1, 86_401, math.nan, math.inf])
@virtual()
async def test_a_pause_that_makes_no_sense_is_refused(world: World, seconds: float) -> None:
    with pytest.raises(
        ValueError, match=r"a pause must be above 0 and at most 86400 seconds \(a day\), got .*; to end"
    ):
        await world.process.engine.pause(HOST, seconds)
    assert await world.stored() is None


@pytest.mark.parametrize("seconds", [-0.1, 3_601, math.nan, math.inf, -math.inf])
@virtual()
async def test_a_floor_that_makes_no_sense_is_refused(world: World, seconds: float) -> None:
    with pytest.raises(ValueError, match=r"a floor must be from 0 \(none\) to 3600 seconds between two .*, got .*; to"):
        await world.process.engine.set_floor(HOST, seconds)
    assert await world.stored() is None


# --- what is seen


@virtual()
async def test_a_host_is_known_when_it_was_asked_for_or_has_a_row(world: World) -> None:
    engine = world.process.engine
    assert engine.view(HOST) is None
    world.visit()
    await world.finish()
    view = engine.view(HOST)
    assert view is not None
    assert (view.pace_s, view.floor_s, view.paused_until, view.waiting) == (0, 0, 0, 0)
    await engine.set_floor(QUIET, 1)
    assert engine.view(QUIET) == world.process.view(QUIET)
    assert engine.view("never.example") is None


@virtual()
async def test_healthy_hosts_count_for_ten_minutes_after_they_were_asked_for_something(world: World) -> None:
    engine = world.process.engine
    world.origin = always(PAGE)
    assert engine.snapshot().healthy_hosts == 0
    world.visit()
    world.visit(host=QUIET)
    await world.finish()
    assert engine.snapshot().healthy_hosts == 2
    await engine.set_floor(QUIET, 1)
    assert engine.snapshot().healthy_hosts == 1
    await world.pass_until(600)
    assert engine.snapshot().healthy_hosts == 1
    await world.pass_until(601)
    assert engine.snapshot().healthy_hosts == 0
