"""What an operator does to a host, seen by its clients and its origin, in virtual time."""

import asyncio
import math
from functools import partial

import pytest

from proxy_addon import ladder
from proxy_addon.clock import sleep
from proxy_addon.model import ErrorName, HostPaused, HostState, Outcome
from tests.support.answers import (
    HOST,
    PAGE,
    SILENT,
    SLOW_PAGE,
    START,
    UNAVAILABLE,
    Answer,
    always,
    by_path,
    in_turn,
    status,
    until,
)
from tests.support.world import Process, World, virtual

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


@virtual(row=TOP)
async def test_those_who_rest_after_a_stall_go_as_well(world: World) -> None:
    """The host is well again: nobody is to wait for what it once was."""
    world.origin = until(60, SILENT)
    world.visit("/first")
    await world.pass_until(50)
    assert world.sent() == [50]
    await world.pass_until(81)  # It has stalled at 80, and rests for 2 s.
    await world.process.engine.resume(HOST)
    await world.finish()
    assert world.sent() == [50, 81]


@virtual(pause_after=1)
async def test_a_resume_ends_an_automatic_pause_and_there_is_no_probe(world: World) -> None:
    world.origin = always(UNAVAILABLE)
    world.visit(window=600)
    await world.clock.run_until(lambda: bool(world.process.happened(HostPaused)), within=600)
    world.origin = always(SLOW_PAGE)
    for number in range(3):
        world.visit(f"/{number}")
    await world.pass_until(10)
    assert world.sent() == [0]
    await world.process.engine.resume(HOST)
    await world.finish()
    assert world.sent() == [0, 10, 11, 11, 12]
    stored = await world.stored()
    assert stored is not None
    assert not ladder.paces(stored)


@virtual()
async def test_attempts_in_flight_at_a_resume_do_not_make_the_host_climb_again(world: World) -> None:
    world.origin = always(SILENT)
    for number in range(5):
        world.visit(f"/{number}", method="POST")
    await world.pass_until(20)
    await world.process.engine.resume(HOST)
    world.origin = always(PAGE)

    await world.finish()

    assert [visit.ended.error for visit in world.visits] == [ErrorName.HTTP_RESPONSE_TIMEOUT] * 5
    assert world.process.rung() == 0
    world.origin = always(UNAVAILABLE)
    world.visit(window=1)
    await world.finish()
    assert world.process.rung() == 1


@virtual(processes=2)
async def test_nor_do_those_of_another_process(world: World) -> None:
    one, other = world.processes
    world.origin = always(SILENT)
    other.visit("/", method="POST")
    await world.pass_until(20)
    await one.engine.resume(HOST)
    await world.finish()
    assert (one.rung(), other.rung()) == (0, 0)


@virtual(row=HostState(rung=3, next_slot_at=START + 9, stalled_at=START, in_flight_limit=2, limited_at=START))
async def test_a_resumed_host_keeps_what_is_known_of_its_limit(world: World) -> None:
    await world.process.engine.resume(HOST)
    stored = await world.stored()
    assert stored is not None
    assert (stored.in_flight_limit, stored.limited_at) == (2, START)
    assert not ladder.paces(stored)


@virtual(row=HostState(rung=1, next_slot_at=START + 2, stalled_at=START))
async def test_a_stall_at_the_moment_of_a_resume_is_one_of_before(world: World) -> None:
    world.origin = always(Answer(status=503, after_s=1.0))
    world.visit(method="POST")
    await world.pass_until(2.5)
    world.origin = always(PAGE)
    resuming = asyncio.create_task(world.process.engine.resume(HOST))
    world.process.visit("/next")
    await world.finish()
    await resuming
    assert world.process.rung() == 0
    assert world.sent("/next") == [2.5]


@virtual(row=TOP, processes=2)
async def test_a_resume_that_loses_its_race_is_made_again(world: World) -> None:
    one, other = world.processes
    await asyncio.gather(one.engine.resume(HOST), other.engine.set_floor(HOST, 3))
    stored = await world.stored()
    assert stored is not None
    assert (stored.rung, stored.floor_s, stored.resumed_at) == (0, 3, START)


@virtual()
async def test_what_was_measured_of_its_quotas_is_forgotten(world: World) -> None:
    refused = status(429, retry_after="10")
    world.origin = in_turn(*[PAGE] * 10, refused, PAGE, refused, PAGE)
    for number in range(10):
        world.visit(f"/{number}")
    await world.finish()
    world.visit("/refused", window=1)
    await world.pass_until(5)
    await world.process.engine.resume(HOST)
    world.visit("/page")
    world.visit("/refused-again")
    await world.pass_until(15.5)
    view = world.process.view()
    assert view is not None
    assert world.sent("/refused-again") == [5, 15]
    assert view.state.quota_pace_s == 0  # One page since then is no measure.


@virtual(row=HostState(operated_at=START - 10, resumed_at=START - 10))
async def test_a_resume_of_long_ago_ends_no_rest(world: World) -> None:
    world.origin = in_turn(Answer(error=ErrorName.DNS_TIMEOUT), PAGE)
    world.visit()
    await world.finish()
    assert world.sent() == [0, 2]


@virtual()
async def test_the_log_does_not_call_a_resumed_host_well_and_says_when_it_is_slow_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "proxy_addon")
    world.origin = always(UNAVAILABLE)
    world.visit(window=1)
    await world.finish()
    await world.process.engine.resume(HOST)
    await world.pass_until(61)
    world.visit(window=1)
    await world.finish()
    slow = "shop.example is slow (http_status_5xx): one attempt in 2 s, 0 waiting."
    assert [record.getMessage() for record in caplog.records] == [slow, slow]


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


@virtual()
async def test_what_is_in_flight_and_what_is_being_dialled_goes_on_when_a_pause_begins(world: World) -> None:
    world.origins[HOST] = by_path(_flying=Answer(after_s=5.0), _dialling=Answer(connect_s=2.0, after_s=1.0))
    flying, dialling = world.visit("_flying"), world.visit("_dialling")
    await world.pass_until(1)
    await world.process.engine.pause(HOST, 60)
    world.visit("_late")
    await world.pass_until(10)
    assert (flying.done_at, dialling.done_at) == (5, 3)
    assert (flying.status, dialling.status) == (200, 200)
    await world.finish()
    assert world.sent("_late") == [61]


@virtual()
async def test_a_grant_that_is_not_used_is_not_passed_on_in_a_pause(world: World) -> None:
    await world.process.engine.set_floor(HOST, 2)
    world.origin = always(Answer(connect_s=1.0))
    leaving = world.visit("/leaving")
    await world.pass_until(2.5)
    world.visit("/next")
    await world.process.engine.pause(HOST, 60)
    leaving.leave()
    await world.finish()
    assert world.sent() == [63.5]


@virtual(row=HostState(rung=3, next_slot_at=START, stalled_at=START))
async def test_a_host_on_a_rung_is_there_still_when_a_pause_ends(world: World) -> None:
    await world.process.engine.pause(HOST, 1_700)
    world.visit("/1", window=600)
    await world.pass_until(1)
    assert world.visits[0].done
    await world.pass_until(1_690)
    world.visit("/2")
    world.visit("/3")
    await world.finish()
    assert world.sent() == [1_700, 1_705]  # The page at 1,700 takes it to rung 2.


@virtual()
async def test_those_who_waited_leave_in_batches_when_a_pause_ends(world: World) -> None:
    world.origin = always(SLOW_PAGE)
    await world.process.engine.pause(HOST, 60)
    for number in range(7):
        world.visit(f"/{number}")
    await world.finish()
    assert world.sent() == [60, 61, 61, 62, 62, 62, 62]


@virtual()
async def test_a_pause_can_be_made_shorter_and_ended(world: World) -> None:
    engine = world.process.engine
    await engine.pause(HOST, 3_600)
    view = await engine.pause(HOST, 60)
    assert view.paused_until == START + 60
    world.visit()
    await world.pass_until(10)
    view = await engine.resume(HOST)
    assert view.paused_until == 0
    await world.finish()
    assert world.sent() == [10]


@virtual()
async def test_whom_a_pause_turns_away_is_told_when_to_come_back(world: World) -> None:
    await world.process.engine.pause(HOST, 300)
    for window in (0, 10):
        visit = world.visit(window=window)
        await world.pass_until(world.at() + 1)
        assert visit.refusal is not None
        assert 297 <= visit.refusal.retry_after_s <= 300
    assert world.sent() == []


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


@virtual()
async def test_a_floor_holds_from_the_next_attempt_on_a_host_that_is_crawled_at_full_speed(world: World) -> None:
    async def crawl() -> None:
        while world.at() < 30:
            visit = world.visit()
            await sleep(world.clock, 0.25)
            await visit.task

    crawling = asyncio.create_task(crawl())
    await world.pass_until(5.1)
    assert len(world.sent()) == 21
    await world.process.engine.set_floor(HOST, 4)
    await world.pass_until(20)
    assert world.sent()[20:] == [5, 9.1, 13.1, 17.1]
    await world.process.engine.set_floor(HOST, 0)
    await world.pass_until(40)
    await crawling
    assert world.gaps()[-1] == 0.25


@virtual(in_flight="learn")
async def test_a_floor_is_reached_though_the_limit_of_attempts_in_flight_is_yet_to_be_learned(world: World) -> None:
    world.origin = always(Answer(after_s=2.0))
    await world.process.engine.set_floor(HOST, 0.5)
    for number in range(200):
        world.visit(f"/{number}")
    await world.finish()
    assert min(world.gaps()) >= 0.5
    assert set(world.gaps()[100:]) == {0.5}


@virtual(in_flight=1)
async def test_a_limit_that_somebody_has_set_holds_beside_a_floor(world: World) -> None:
    world.origin = always(Answer(after_s=2.0))
    await world.process.engine.set_floor(HOST, 0.5)
    for number in range(4):
        world.visit(f"/{number}")
    await world.finish()
    assert world.sent() == [0.5, 2.5, 4.5, 6.5]


@virtual()
async def test_no_attempt_is_late_where_there_is_a_floor(world: World) -> None:
    await world.process.engine.set_floor(HOST, 100)
    world.visit("/1", window=90)
    world.visit("/2", window=150)
    world.visit("/3", window=150)
    await world.finish()
    assert world.sent() == [100]


@virtual()
async def test_a_floor_outlives_trouble_and_its_forgiveness(world: World) -> None:
    await world.process.engine.set_floor(HOST, 3)
    world.origin = until(10, UNAVAILABLE)
    world.visit()
    await world.finish()
    await world.pass_until(4_000)
    view = world.process.view()
    assert view is not None
    assert (view.state.rung, view.pace_s, view.floor_s) == (0, 3, 3)


@virtual()
async def test_a_host_can_get_a_floor_before_anybody_asks_for_it(world: World) -> None:
    await world.process.engine.set_floor(QUIET, 5)
    await world.pass_until(100)
    for number in range(3):
        world.visit(f"/{number}", host=QUIET)
    await world.finish()
    assert world.sent(host=QUIET) == [100, 105, 110]


# --- several processes, a restart, a store that is down


@virtual(processes=2)
async def test_another_process_follows_within_a_tenth_of_a_second(world: World) -> None:
    one, other = world.processes
    await one.engine.set_floor(HOST, 5)
    await one.engine.pause(HOST, 60)
    await world.pass_until(0.1)
    view = other.view()
    assert view is not None
    assert (view.floor_s, view.paused_until) == (5, START + 60)
    for process in (one, other, one, other):
        process.visit(window=600)
    await world.pass_until(10)
    assert world.sent() == []
    await other.engine.resume(HOST)
    await world.finish()
    assert world.gaps() == [5, 5, 5]


@virtual(processes=2)
async def test_a_process_that_starts_later_knows_of_it(world: World) -> None:
    await world.process.engine.set_floor(HOST, 5)
    await world.process.engine.pause(HOST, 60)
    await world.process.engine.stop()
    later = await world.start_process()
    view = later.view()
    assert view is not None
    assert (view.floor_s, view.paused_until) == (5, START + 60)


async def _cut_off(world: World, *processes: Process) -> None:
    """From now on the store does not work for these processes, and they have noticed."""
    await world.pass_until(3)  # They have seen each other's heartbeat.
    for process in processes:
        process.store.trouble = "refuses"
    await world.clock.run_until(lambda: not any(p.engine.snapshot().store_up for p in processes), within=10)


async def _back(world: World, *processes: Process) -> None:
    """They find it again, one after the other."""
    for process in processes:
        process.store.trouble = None
        await world.clock.run_until(partial(_is_up, process), within=10)
    await world.clock.advance(1)


def _is_up(process: Process) -> bool:
    return process.engine.snapshot().store_up


SHARED = HostState(
    rung=5,
    next_slot_at=START + 50,
    stalled_at=START - 10,
    floor_s=60.0,
    operator_paused_until=START + 3_600,
    operated_at=START - 5,
)


@pytest.mark.parametrize("first", [0, 1])
@virtual(processes=2, row=SHARED)
async def test_what_is_decided_without_a_store_holds_on_its_return(world: World, first: int) -> None:
    """Also where the others were cut off as well, and come back with what they knew."""
    one, other = world.processes
    await _cut_off(world, one, other)

    view = await one.engine.resume(HOST)
    assert (view.state.rung, view.paused_until) == (0, 0)
    view = await one.engine.pause(HOST, 900)
    view = await one.engine.set_floor(HOST, 2)

    assert (view.paused_until - world.clock.now(), view.floor_s) == (900, 2)
    assert view.pace_s == 4  # Two processes, each on its own.
    await _back(world, world.processes[first], world.processes[1 - first])
    for process in (one, other):
        seen = process.view()
        assert seen is not None
        assert (seen.state.rung, seen.pace_s, seen.paused_until) == (0, 2, view.paused_until)


@virtual(processes=2, row=SHARED)
async def test_what_stalls_elsewhere_after_a_resume_that_was_not_heard_of_counts(world: World) -> None:
    one, other = world.processes
    await other.engine.set_floor(HOST, 0)
    await other.engine.pause(HOST, 1)
    await world.pass_until(0.2)
    await _cut_off(world, one)
    await one.engine.resume(HOST)
    world.origin = always(UNAVAILABLE)
    other.visit(window=70)
    await world.pass_until(60)
    await _back(world, one)
    assert (one.rung(), other.rung()) == (5, 5)


@virtual(row=TOP)
async def test_a_host_is_resumed_though_the_store_hangs(world: World) -> None:
    world.process.store.trouble = "hangs"
    world.visit()
    resuming = asyncio.create_task(world.process.engine.resume(HOST))
    await world.finish()
    assert world.sent() == [5]  # So long a store is waited for.
    assert (await resuming).state.rung == 0
    await _back(world, world.process)
    stored = await world.stored()
    assert stored is not None
    assert stored.rung == 0


@virtual(row=TOP)
async def test_who_asks_hears_of_it_when_the_pacing_crashes(world: World) -> None:
    world.process.store.trouble = "crashes"
    for ask in (world.process.engine.resume(HOST), world.process.engine.pause(HOST, 5)):
        with pytest.raises(RuntimeError, match=r"the pacing of shop\.example has crashed: ZeroDivisionError"):
            await ask
    world.process.store.trouble = None
    assert (await world.process.engine.resume(HOST)).state.rung == 0


@virtual(row=TOP)
async def test_what_is_asked_is_done_though_who_asks_goes_away(world: World) -> None:
    asking = asyncio.create_task(world.process.engine.set_floor(HOST, 9))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await world.pass_until(1)
    assert asking.cancelled()
    view = world.process.view()
    assert view is not None
    assert view.floor_s == 9


# --- bad values


@pytest.mark.parametrize("seconds", [0, 0.0009, -1, 86_401, math.nan, math.inf, 10**400])
@virtual()
async def test_a_pause_that_makes_no_sense_is_refused(world: World, seconds: float) -> None:
    with pytest.raises(ValueError, match=r"a pause must be from 0\.001 to 86400 seconds \(a day\), got .*; to end"):
        await world.process.engine.pause(HOST, seconds)
    assert await world.stored() is None


@pytest.mark.parametrize("seconds", [-0.1, 1e-320, 3_601, math.nan, math.inf, -math.inf, 10**400])
@virtual()
async def test_a_floor_that_makes_no_sense_is_refused(world: World, seconds: float) -> None:
    with pytest.raises(
        ValueError, match=r"a floor must be 0 \(none\) or from 0\.001 to 3600 seconds between two .*, got .*; to"
    ):
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
