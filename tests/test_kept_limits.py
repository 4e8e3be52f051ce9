"""The limit of a host and its row, in virtual time: what is found out outlives a restart, and is shared and forgiven.

And what a limit is told: the whole life of every attempt, in order, whatever becomes of it.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import cast

import pytest

from proxy_addon.model import ErrorName, HostState, Outcome
from proxy_addon.request import Grant, Refusal, Refused
from tests.support.answers import (
    HOST,
    PAGE,
    REFUSED,
    SILENT,
    SLOW_PAGE,
    START,
    UNAVAILABLE,
    UNREACHABLE,
    Answer,
    always,
    by_path,
    in_turn,
    on_rung,
    status,
)
from tests.support.limits import Told
from tests.support.world import Process, World, virtual

KNOWN = HostState(in_flight_limit=3, limited_at=START - 100)
"""A row that only keeps a limit."""


def of(process: Process) -> Told:
    """The limit of the usual host in that process."""
    return cast(Told, process.limits[-1])


async def find(world: World, limit: int, *, process: Process | None = None) -> None:
    """Have that process find out what the usual host bears: it says so as an attempt ends."""
    process = process or world.process
    visit = process.visit()
    await world.clock.settle()
    if not visit.done:
        await world.clock.run_until(lambda: visit.done)
    of(process).found = limit
    visit = process.visit()
    await world.clock.run_until(lambda: visit.done)


# The row


@virtual(limit=Told)
async def test_what_is_found_out_is_in_the_row_once(world: World) -> None:
    await find(world, 6)
    assert await world.stored() == HostState(in_flight_limit=6, limited_at=START, version=1)
    for _ in range(10):
        world.visit()
    await world.finish()

    assert world.process.store.swaps == 1
    assert of(world.process).in_row == []


@virtual(limit=Told)
async def test_a_host_about_which_nothing_is_found_out_has_no_row(world: World) -> None:
    for _ in range(10):
        world.visit()
    await world.finish()

    assert world.process.store.swaps == 0


@virtual(limit=Told, row=KNOWN)
async def test_a_host_whose_row_only_keeps_a_limit_is_healthy(world: World) -> None:
    visits = [world.visit() for _ in range(10)]
    await world.finish()

    assert [visit.done_at for visit in visits] == [0.0] * 10
    assert [visit.ended.waited_s for visit in visits] == [0.0] * 10
    assert not world.process.engine.is_paced(visits[0].request)
    assert world.process.store.swaps == 0
    assert await world.stored() == HostState(in_flight_limit=3, limited_at=START - 100, version=1)


@virtual(limit=Told, row=KNOWN)
async def test_what_the_row_says_is_told_when_the_host_is_met(world: World) -> None:
    world.visit()
    world.visit()
    await world.finish()

    assert of(world.process).in_row == [3]


@virtual(limit=Told, processes=2)
async def test_what_one_process_finds_out_the_other_is_told(world: World) -> None:
    one, other = world.processes
    other.visit()
    await find(world, 6, process=one)
    await world.pass_until(0.3)
    assert of(other).in_row == [6]
    await find(world, 4, process=other)
    await world.pass_until(0.6)

    assert (of(one).in_row, of(other).in_row) == ([4], [6])
    stored = await world.stored()
    assert stored is not None
    assert (stored.in_flight_limit, one.store.swaps, other.store.swaps) == (4, 1, 1)


@virtual(limit=Told, processes=2)
async def test_a_process_that_meets_the_host_later_is_told(world: World) -> None:
    await find(world, 6)
    await world.pass_until(10)
    world.processes[1].visit()
    await world.finish()

    assert of(world.processes[1]).in_row == [6]


@virtual(limit=Told)
async def test_it_outlives_a_restart(world: World) -> None:
    await find(world, 6)
    await world.process.engine.stop()
    again = await world.start_process()
    again.visit()
    await world.finish()

    assert of(again).in_row == [6]


@virtual(limit=Told, row=KNOWN)
async def test_it_is_forgiven_by_the_clock_alone(world: World) -> None:
    world.visit()
    await world.pass_until(1_699)
    assert await world.stored() is not None
    await world.pass_until(1_706)

    assert await world.stored() is None
    assert of(world.process).in_row == [3, 0]


@virtual(limit=Told, row=KNOWN, forgive_after=50.0, retry_after_cap=40.0, pause_after=0)
async def test_what_was_forgiven_before_the_host_is_met_is_not_told(world: World) -> None:
    world.visit()
    await world.finish()

    assert of(world.process).in_row == []


@virtual(limit=Told)
async def test_what_is_found_out_again_is_not_forgiven(world: World) -> None:
    await find(world, 6)
    await world.pass_until(1_000)
    await find(world, 5)
    await world.pass_until(2_000)
    stored = await world.stored()

    assert stored == HostState(in_flight_limit=5, limited_at=START + 1_000, version=2)


@virtual(limit=Told, row=KNOWN)
async def test_a_host_that_stalls_climbs_and_keeps_its_limit(world: World) -> None:
    world.origin = in_turn(UNAVAILABLE, PAGE)
    visit = world.visit()
    await world.pass_until(1)
    stored = await world.stored()
    assert stored is not None
    assert (stored.rung, stored.in_flight_limit, stored.limited_at) == (1, 3, START - 100)
    assert world.process.engine.is_paced(visit.request)
    await world.finish()

    assert visit.done_at == 2.0
    assert await world.stored() == HostState(in_flight_limit=3, limited_at=START - 100, version=4)
    assert world.process.rung() == 0


@virtual(limit=Told, row=KNOWN)
async def test_batches_begin_when_the_row_stops_pacing_though_it_stays(world: World) -> None:
    world.origin = lambda hit: status(503) if hit.at == 0 and hit.path == "bad" else SLOW_PAGE
    world.visit("bad")
    await world.pass_until(1)
    for _ in range(7):
        world.visit("page")
    await world.finish()

    # One in its slot at 2 s, whose page ends the pace; then 1, 2, 4 as each is served.
    assert world.sent("page") == [2, 3, 4, 4, 5, 5, 5]
    assert world.sent("bad") == [0, 5]


@virtual(limit=Told, processes=2, row=KNOWN)
async def test_of_two_that_find_out_the_later_is_right_though_it_is_written_first(world: World) -> None:
    one, other = world.processes
    for process in world.processes:
        process.visit()
    await world.finish()
    of(one).found, of(other).found = 8, 2
    one.visit()
    other.visit()
    await world.clock.settle()
    await world.pass_until(1)
    stored = await world.stored()

    # The same moment: the one that lost the race is decided again, and both know what came of it.
    assert stored is not None
    assert of(one).found == of(other).found == stored.in_flight_limit


@virtual(limit=Told)
async def test_without_the_store_the_limit_is_kept_here_and_written_on_return(world: World) -> None:
    world.process.store.trouble = "refuses"
    await find(world, 6)
    await world.pass_until(5)
    assert await world.stored() is None
    world.process.store.trouble = None
    await world.pass_until(10)
    stored = await world.stored()

    assert stored is not None
    assert stored.in_flight_limit == 6


@virtual(in_flight=2, row=KNOWN)
async def test_a_number_that_was_set_leaves_what_others_have_found_out_alone(world: World) -> None:
    world.origin = always(SLOW_PAGE)
    for _ in range(6):
        world.visit()
    await world.finish()

    assert world.sent() == [0, 0, 1, 1, 2, 2]
    assert await world.stored() == HostState(in_flight_limit=3, limited_at=START - 100, version=1)


@virtual(in_flight="off", row=KNOWN)
async def test_a_limit_in_the_row_limits_nothing_where_there_is_to_be_none(world: World) -> None:
    world.origin = always(SLOW_PAGE)
    for _ in range(10):
        world.visit()
    await world.finish()

    assert world.sent() == [0.0] * 10


@virtual(limit=Told)
async def test_a_row_of_a_host_that_only_keeps_a_limit_is_in_no_list_of_slow_hosts(world: World) -> None:
    await find(world, 6)
    view = world.process.view()

    assert view is not None
    assert (view.state.rung, view.pace_s, view.in_flight_limit) == (0, 0.0, 100)


# What a limit is told


@virtual(limit=Told)
async def test_a_page_is_granted_sent_and_ended(world: World) -> None:
    world.visit()
    await world.finish()

    assert of(world.process).names == ["granted", "sent", "ended"]
    assert of(world.process).ends == [(Outcome.SERVED, None, False)]


@virtual(limit=Told)
@pytest.mark.parametrize(
    ("answer", "names", "end"),
    [
        (status(503), ["granted", "sent", "ended"], (Outcome.STALL, ErrorName.HTTP_STATUS_5XX, False)),
        (REFUSED, ["granted", "ended"], (Outcome.FAILURE, ErrorName.CONNECTION_REFUSED, False)),
        (UNREACHABLE, ["granted", "ended"], (Outcome.STALL, ErrorName.CONNECTION_TIMEOUT, False)),
        (Answer(cut=True), ["granted", "sent", "ended"], (Outcome.SERVED, None, False)),
        (Answer(after_s=40.0), ["granted", "sent", "overdue", "ended"], (Outcome.SERVED, None, False)),
        (
            SILENT,
            ["granted", "sent", "overdue", "ended"],
            (Outcome.STALL, ErrorName.HTTP_RESPONSE_TIMEOUT, False),
        ),
    ],
)
async def test_what_an_attempt_came_to_is_told(
    world: World, answer: Answer, names: list[str], end: tuple[Outcome, ErrorName | None, bool]
) -> None:
    world.origin = always(answer)
    world.visit(method="POST", window=60)
    await world.finish()

    assert of(world.process).names[: len(names)] == names
    assert of(world.process).ends[0] == end


@virtual(limit=Told)
async def test_what_is_sent_again_on_another_connection_is_granted_twice(world: World) -> None:
    world.origin = in_turn(Answer(error=ErrorName.CONNECTION_TERMINATED, reused=True), PAGE)
    visit = world.visit()
    await world.finish()

    assert of(world.process).names == ["granted", "sent", "ended", "granted", "sent", "ended"]
    assert of(world.process).ends == [(Outcome.ABANDONED, None, False), (Outcome.SERVED, None, False)]
    assert visit.ended.attempts == 1


@virtual(limit=Told)
@pytest.mark.parametrize(
    ("answer", "stays_s", "end"),
    [
        (Answer(connect_s=9.0), 1.0, (Outcome.ABANDONED, None, True)),
        (Answer(connect_s=9.0), 6.0, (Outcome.STALL, ErrorName.CONNECTION_TIMEOUT, True)),
        (SILENT, 1.0, (Outcome.ABANDONED, None, True)),
        (SILENT, 6.0, (Outcome.STALL, ErrorName.HTTP_RESPONSE_TIMEOUT, True)),
    ],
)
async def test_an_attempt_whose_client_leaves_is_given_up(
    world: World, answer: Answer, stays_s: float, end: tuple[Outcome, ErrorName | None, bool]
) -> None:
    world.origin = always(answer)
    visit = world.visit()
    await world.pass_until(stays_s)
    visit.leave()
    await world.finish()

    assert of(world.process).ends == [end]


@virtual(limit=Told)
async def test_an_attempt_that_we_give_up_is_given_up(world: World) -> None:
    world.origin = always(SILENT)
    visit = world.visit()
    await world.pass_until(1)
    world.process.engine.withdraw(visit.request, ErrorName.HTTP_REQUEST_ERROR)
    visit.leave()
    await world.finish()

    assert of(world.process).ends == [(Outcome.ABANDONED, None, True)]


@virtual(limit=Told)
async def test_an_overdue_attempt_whose_client_leaves_is_given_up(world: World) -> None:
    world.origin = always(SILENT)
    visit = world.visit(method="POST")
    await world.pass_until(31)
    visit.leave()
    await world.finish()

    assert of(world.process).names == ["granted", "sent", "overdue", "ended"]
    assert of(world.process).ends == [(Outcome.ABANDONED, None, True)]


@virtual(limit=Told, row=on_rung(5, slot_in=60))
async def test_a_late_attempt_counts(world: World) -> None:
    world.visit(window=10)
    await world.finish()

    assert world.sent() == [10.0]
    assert of(world.process).names == ["granted", "sent", "ended"]


@virtual(limit=Told, row=on_rung(1, slot_in=2))
async def test_what_is_passed_on_is_granted_after_the_other_has_ended(world: World) -> None:
    world.origin = by_path(first=Answer(connect_s=9.0))
    first = world.visit("first")
    world.visit("second")
    await world.pass_until(4)
    first.leave()
    await world.finish()

    assert of(world.process).names == ["granted", "ended", "granted", "sent", "ended"]
    assert world.sent("second") == [4.0]


@virtual(limit=lambda: Told(most=1))
async def test_how_many_others_wait_for_room_is_told_at_each_grant_and_each_end(world: World) -> None:
    world.origin = always(SLOW_PAGE)
    for _ in range(3):
        world.visit()
    await world.finish()

    assert of(world.process).names == ["granted", "sent", "ended"] * 3
    assert of(world.process).waiting == [0, 2, 1, 1, 0, 0]


@virtual(limit=Told, row=on_rung(1, slot_in=2))
async def test_who_waits_for_a_slot_does_not_wait_for_room(world: World) -> None:
    world.origin = in_turn(status(503), status(503), PAGE)
    for _ in range(3):
        world.visit()
    await world.finish()

    assert set(of(world.process).waiting) == {0}


@virtual(limit=lambda: Told(most=1))
async def test_a_limit_that_has_no_room_for_the_first_is_not_asked(world: World) -> None:
    world.visit()
    await world.finish()
    of(world.process).most = 0
    for _ in range(3):
        world.visit()
    await world.finish()

    assert len(world.sent()) == 4


@virtual(limit=lambda: Told(most=1))
async def test_those_who_wait_go_together_when_the_limit_grows(world: World) -> None:
    world.origin = always(SLOW_PAGE)
    for _ in range(10):
        world.visit()
    await world.pass_until(0.5)
    of(world.process).most = 6
    await world.finish()

    assert world.sent() == [0, 1, 1, 1, 1, 1, 1, 2, 2, 2]


@virtual(limit=lambda: Told(most=6))
async def test_when_the_limit_shrinks_nobody_goes_until_there_is_room(world: World) -> None:
    world.origin = lambda hit: Answer(after_s=float(hit.path))
    for seconds in range(2, 10):
        world.visit(str(seconds))
    await world.pass_until(0.5)
    of(world.process).most = 2
    await world.finish()

    # Six end at 2, 3, 4, 5, 6 and 7 s: the fifth leaves room for one more.
    assert world.sent() == [0, 0, 0, 0, 0, 0, 6, 7]


# Where things meet


@virtual(limit=Told, processes=2, row=replace(on_rung(1, slot_in=2.05), in_flight_limit=3, limited_at=START))
async def test_a_slot_is_not_claimed_of_a_row_that_has_stopped_pacing_meanwhile(world: World) -> None:
    visit = world.visit()
    await world.pass_until(2.01)
    well = HostState(in_flight_limit=3, limited_at=START)
    assert await world.memory.swap(HOST, 1, well, now=START) == 2
    await world.finish()

    assert visit.status == 200
    assert await world.stored() == replace(well, version=2)


@virtual(limit=lambda: Told(most=1), row=KNOWN)
async def test_one_that_gets_no_room_is_told_to_come_again_soon(world: World) -> None:
    world.origin = always(SLOW_PAGE)
    world.visit()
    impatient = world.visit(window=0)
    await world.finish()

    assert impatient.refusal == Refusal(Refused.WINDOW_CLOSED, 1.0)


@virtual(limit=lambda: Told(most=5), row=on_rung(1, slot_in=2))
async def test_an_unused_grant_is_not_passed_on_where_there_is_no_room_any_more(world: World) -> None:
    world.origin = by_path(slow=Answer(after_s=8.0), gone=Answer(connect_s=9.0))
    world.visit("slow")
    gone = world.visit("gone")
    world.visit("next")
    await world.pass_until(5)
    of(world.process).most = 1
    gone.leave()
    await world.finish()

    assert [(hit.path, hit.at) for hit in world.hits[HOST]] == [("slow", 2), ("next", 10)]


@virtual(limit=Told, processes=2)
async def test_what_another_wrote_before_does_not_undo_what_is_still_to_be_written(world: World) -> None:
    one, other = world.processes
    for process in world.processes:
        process.visit()
    await world.pass_until(0.91)
    of(other).found = 4
    other.visit()
    await world.pass_until(0.92)
    one.store.held_back["get"] = asyncio.Event()
    of(one).found = 6
    one.visit()
    await world.pass_until(1.5)
    one.store.held_back.pop("get").set()
    await world.pass_until(2)
    stored = await world.stored()

    assert stored is not None
    assert (stored.in_flight_limit, stored.limited_at) == (6, START + 0.92)
    assert (of(one).in_row, of(other).in_row) == ([], [6])


@dataclass
class FoundOverdue(Told):
    """Finds out that four are too many when one of them is overdue."""

    def overdue(self, grant: Grant, *, now: float) -> None:
        self.found = 4


@virtual(limit=FoundOverdue)
async def test_what_an_overdue_attempt_tells_is_kept_though_it_goes_on(world: World) -> None:
    world.origin = always(Answer(after_s=100.0))
    world.visit(method="POST")
    await world.pass_until(31)
    stored = await world.stored()
    await world.finish()

    assert stored is not None
    assert (stored.rung, stored.in_flight_limit) == (1, 4)


@virtual(limit=lambda: Told(most=1), row=KNOWN)
async def test_those_who_wait_for_room_at_the_end_of_the_proxy_are_told_to_come_again_soon(world: World) -> None:
    world.origin = always(SLOW_PAGE)
    world.visit()
    waits = world.visit()
    await world.pass_until(0.5)
    world.process.engine.cut_off()
    await world.finish()

    assert waits.refusal == Refusal(Refused.DRAINING, 1.0)
