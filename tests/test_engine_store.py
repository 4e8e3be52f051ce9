"""Several engines on one store, and engines whose store is in trouble, in virtual time."""

import asyncio
import itertools
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy_addon.model import StoreFailed, StoreRecovered
from tests.support.answers import (
    ENDLESS,
    PAGE,
    REFUSED,
    SILENT,
    SLOW_PAGE,
    START,
    UNAVAILABLE,
    Answer,
    always,
    by_path,
    in_turn,
    on_rung,
    status,
    until,
)
from tests.support.examples import FIXED
from tests.support.stores import Trouble
from tests.support.world import World, virtual

EVEN = (0.0, *(0.25 for _ in range(1_100)))
"""So many rungs with one pace that a thousand pages do not reach the bottom."""


def leave_all(world: World) -> None:
    for visit in world.visits:
        visit.leave()


# Several processes


@virtual(processes=2, row=on_rung(2, slot_in=5), attempt_timeout=500.0)
async def test_of_two_processes_exactly_one_gets_the_slot(world: World) -> None:
    world.origin = always(ENDLESS)
    for process in world.processes:
        process.visit()
    await world.pass_until(9)
    assert world.sent() == [5]
    await world.pass_until(10)
    assert world.sent() == [5, 10]
    leave_all(world)


@virtual(processes=2, row=on_rung(2), attempt_timeout=500.0)
async def test_the_pace_is_between_sendings_also_of_two_processes(world: World) -> None:
    world.origin = by_path(a=Answer(connect_s=3.0, after_s=500.0), b=ENDLESS)
    one, other = world.processes
    one.visit("a")
    await world.pass_until(0.5)
    other.visit("b")
    await world.pass_until(20)

    assert world.sent() == [3, 8]
    leave_all(world)


@virtual(processes=8, row=on_rung(2, slot_in=5), attempt_timeout=500.0)
async def test_however_many_processes_race_the_host_gets_one_attempt_per_pace(world: World) -> None:
    world.origin = always(ENDLESS)
    for process in world.processes:
        for _ in range(3):
            process.visit()
    await world.pass_until(60)

    assert world.sent() == [5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60]
    leave_all(world)


@virtual(processes=3, ladder=EVEN, row=on_rung(1_100))
async def test_a_thousand_requests_of_three_processes_drain_at_exactly_one_per_pace(world: World) -> None:
    visits = [world.processes[number % 3].visit() for number in range(1_000)]
    await world.finish()

    assert world.sent() == [number * 0.25 for number in range(1_000)]
    assert {visit.status for visit in visits} == {200}


@virtual(processes=2)
async def test_another_process_hears_of_a_stall_within_a_tenth_of_a_second(world: World) -> None:
    world.origin = in_turn(UNAVAILABLE, PAGE)
    one, other = world.processes
    one.visit()
    await world.pass_until(0.1)
    visit = other.visit()
    await world.finish()

    assert visit.done_at == 2.0
    assert world.sent() == [0, 2, 2]


@virtual(processes=2, row=on_rung(3, slot_in=15))
async def test_a_page_of_one_process_hastens_the_line_of_the_other(world: World) -> None:
    one, other = world.processes
    one.visit(window=45)
    await world.pass_until(1)
    waiting = other.visit()
    await world.finish()

    assert world.sent() == [15, 20]
    assert waiting.status == 200


@virtual(processes=2, row=on_rung(1, slot_in=2))
async def test_the_line_of_one_process_ends_when_the_other_brings_the_host_back(world: World) -> None:
    one, other = world.processes
    for _ in range(3):
        one.visit(window=45)
    await world.pass_until(1)
    waiting = [other.visit() for _ in range(3)]
    await world.finish()

    assert world.sent()[0] == 2
    assert all(visit.done_at is not None and visit.done_at <= 2.2 for visit in waiting)
    assert await world.stored() is None


@virtual(processes=2, climb="stall")
async def test_outcomes_of_two_processes_at_one_moment_are_both_counted(world: World) -> None:
    world.origin = always(status(503, after_s=1.0))
    for process in world.processes:
        process.visit(window=2)
        process.visit(window=2)
    await world.pass_until(1)

    row = await world.stored()
    assert row is not None
    assert row.rung == 4
    await world.finish()


@virtual(processes=2, pause_after=1)
async def test_one_process_leaves_alone_what_another_has_given_up(world: World) -> None:
    world.origin = until(100, UNAVAILABLE)
    one, other = world.processes
    one.visit(window=300)
    await world.pass_until(1)
    hasty, patient = other.visit(window=45), other.visit(window=300)
    await world.clock.settle()
    assert hasty.done_at == 1.0
    await world.finish()

    assert world.sent()[:2] == [0, 120]
    assert patient.status == 200


@virtual(processes=2)
async def test_a_look_at_the_store_that_comes_late_does_not_undo_an_own_write(world: World) -> None:
    """The look has seen that the other's row is gone, and its answer comes after this process has made a new one."""
    one, other = world.processes
    world.origin = by_path(a=status(503, after_s=0.01), b=Answer(after_s=0.05), c=status(503, after_s=0.15))
    other.visit("a", method="POST")
    other.visit("b")
    one.visit("c", method="POST")
    await world.pass_until(0.07)
    one.store.held_back["changes_since"] = released = asyncio.Event()
    await world.pass_until(0.16)
    assert one.rung() == 1
    del one.store.held_back["changes_since"]
    released.set()
    await world.clock.settle()

    assert one.rung() == 1


@virtual(processes=2)
async def test_an_own_write_answered_late_does_not_hide_what_another_wrote_after_it(world: World) -> None:
    one, other = world.processes
    world.origin = by_path(a=status(503, after_s=0.01), b=Answer(after_s=0.05), c=status(503, after_s=0.06))
    one.visit("a", method="POST")
    other.visit("c", method="POST")
    one.visit("b")
    await world.pass_until(0.04)
    one.store.held_back["swap"] = released = asyncio.Event()
    await world.pass_until(0.15)
    del one.store.held_back["swap"]
    released.set()
    await world.clock.settle()

    assert (one.rung(), other.rung()) == (1, 1)


@given(
    answers=st.lists(
        st.sampled_from(
            [PAGE, SLOW_PAGE, UNAVAILABLE, status(429, retry_after="12"), SILENT, REFUSED, Answer(cut=True)]
        ),
        min_size=1,
        max_size=20,
    ),
    clients=st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.0, 0.03, 1.0, 7.0]),
            st.integers(0, 2),
            st.sampled_from([0.0, 20.0, 600.0]),
            st.none() | st.sampled_from([0.0, 1.0, 6.0, 50.0]),
        ),
        min_size=1,
        max_size=25,
    ),
)
@settings(FIXED, max_examples=30)
def test_whatever_several_processes_do_together_they_keep_the_pace(
    answers: list[Answer], clients: list[tuple[float, int, float, float | None]]
) -> None:
    # One pace on every rung, and too many rungs for the row to go: what is due is 5 s, from the first to the last.
    @virtual(processes=3, row=on_rung(40), ladder=(0.0, *(5.0 for _ in range(40))), pause_after=0)
    async def scenario(world: World) -> None:
        world.origin = in_turn(*answers)
        at, leavings = 0.0, []
        for after_s, process, window_s, leaves_after_s in clients:
            at += after_s
            await world.pass_until(at)
            visit = world.processes[process].visit(window=window_s)
            if leaves_after_s is not None:
                leavings.append(world.clock.call_at(world.clock.monotonic() + leaves_after_s, visit.leave))
        await world.finish()
        for leaving in leavings:
            leaving.cancel()

        in_slots = [hit for hit in world.hits["shop.example"] if not hit.late]
        for earlier, later in itertools.pairwise(in_slots):
            assert later.at - earlier.at >= 5.0 - 1e-6, (earlier, later)

    scenario()


# Restart


@virtual(processes=1, row=on_rung(3, slot_in=15))
async def test_a_process_finds_the_rows_as_they_were(world: World) -> None:
    await world.pass_until(3)
    await world.process.engine.stop()
    again = await world.start_process()
    visit = again.visit()
    await world.finish()

    assert visit.done_at == 15.0
    assert (again.rung(), world.sent()) == (2, [15])


@virtual()
async def test_what_happened_just_before_the_end_is_written(world: World) -> None:
    world.origin = always(UNAVAILABLE)
    world.visit(method="POST")
    await world.finish()
    await world.process.engine.stop()

    row = await world.stored()
    assert row is not None
    assert (row.rung, row.next_slot_at) == (1, START + 2)


@virtual(row=on_rung(3, slot_in=15))
async def test_stopping_answers_everybody(world: World) -> None:
    visits = [world.visit() for _ in range(100)]
    await world.pass_until(1)
    await world.process.engine.stop()
    await world.clock.settle()

    assert [visit.done_at for visit in visits] == [1.0] * 100
    assert world.sent() == []


@virtual()
async def test_an_attempt_that_outlives_the_engine_disturbs_nobody(world: World) -> None:
    world.origin = always(status(503, after_s=5.0))
    visit = world.visit(method="POST")
    await world.pass_until(1)
    await world.process.engine.stop()
    await world.finish()
    await world.clock.settle()

    assert visit.status == 503
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert world.clock.pending == 0


# A store in trouble


@pytest.mark.parametrize("trouble", ["refuses", "loses answers"])
@virtual(row=on_rung(2), attempt_timeout=500.0)
async def test_without_its_store_a_process_goes_on_at_the_same_pace(world: World, trouble: Trouble) -> None:
    world.origin = always(ENDLESS)
    for _ in range(5):
        world.visit()
    await world.pass_until(1)
    world.process.store.trouble = trouble
    await world.pass_until(20)

    assert world.sent() == [0, 5, 10, 15, 20]
    assert not world.process.engine.snapshot().store_up
    failures = world.process.happened(StoreFailed)
    assert [failure.first for failure in failures].count(True) == 1
    assert failures[0].first
    leave_all(world)


@virtual(row=on_rung(2), attempt_timeout=500.0)
async def test_a_store_that_hangs_is_given_up_and_the_pace_goes_on(world: World) -> None:
    world.origin = always(ENDLESS)
    for _ in range(5):
        world.visit()
    await world.pass_until(1)
    world.process.store.trouble = "hangs"
    await world.pass_until(25)

    # The claim at 5 s gets no answer, for 5 s.
    assert world.sent()[:4] == [0, 10, 15, 20]
    failures = world.process.happened(StoreFailed)
    assert failures[0] == StoreFailed(message="gives no answer within 5 s", first=True)
    world.process.store.trouble = None
    await world.pass_until(32)
    assert world.process.engine.snapshot().store_up
    leave_all(world)


@virtual(row=on_rung(2), attempt_timeout=500.0)
async def test_a_claim_that_is_written_though_its_answer_never_comes_gives_its_slot_to_nobody(world: World) -> None:
    world.origin = always(ENDLESS)
    for _ in range(5):
        world.visit()
    await world.pass_until(1)
    world.process.store.held_back["swap"] = asyncio.Event()
    await world.pass_until(25)

    assert world.sent()[:4] == [0, 10, 15, 20]
    world.process.store.held_back.clear()
    await world.pass_until(32)
    row = await world.stored()
    assert row is not None
    assert row.next_slot_at == START + 30
    leave_all(world)


@virtual()
async def test_a_healthy_host_does_not_notice_that_the_store_is_down(world: World) -> None:
    world.process.store.trouble = "refuses"
    visits = [world.visit(host=f"{number}.example") for number in range(50)]
    await world.finish()

    assert {(visit.status, visit.done_at) for visit in visits} == {(200, 0.0)}


@virtual(attempt_timeout=500.0)
async def test_without_its_store_a_process_still_climbs_and_steps_down(world: World) -> None:
    world.process.store.trouble = "refuses"
    world.origin = in_turn(UNAVAILABLE, UNAVAILABLE, PAGE)
    world.visit("first")
    await world.pass_until(1)
    for _ in range(3):
        world.visit()
    await world.finish()

    assert world.sent()[:3] == [0, 2, 7]
    assert world.sent()[3] == 9
    assert not world.process.engine.snapshot().store_up


@virtual(processes=3, row=on_rung(2, slot_in=10), attempt_timeout=500.0)
async def test_without_the_store_each_process_is_as_much_slower_as_there_are_processes(world: World) -> None:
    """Three processes that know nothing of each other send, together, no more than the pace allows."""
    world.origin = always(ENDLESS)
    for process in world.processes:
        for _ in range(10):
            process.visit(str(world.processes.index(process)))
    await world.pass_until(5)
    for process in world.processes:
        process.store.trouble = "refuses"
    await world.pass_until(100)

    for number in range(3):
        own = world.sent(str(number))
        assert len(own) >= 6
        assert all(later - earlier >= 15 for earlier, later in itertools.pairwise(own))
    leave_all(world)


@virtual(processes=3, row=on_rung(3, slot_in=10))
async def test_without_the_store_a_page_does_not_make_a_process_faster_than_its_share(world: World) -> None:
    await world.pass_until(5)
    for process in world.processes:
        process.store.trouble = "refuses"
    for number in range(3):
        world.process.visit(str(number))
    await world.finish()

    first, second, third = world.sent()
    assert second - first >= 15, "rung 2, a pace of 5 s, for three processes"
    assert third - second >= 6, "rung 1"


@virtual(processes=2, row=on_rung(2), attempt_timeout=500.0)
async def test_without_the_store_the_multiplied_pace_is_between_sendings_too(world: World) -> None:
    world.origin = always(Answer(connect_s=4.0, after_s=500.0))
    await world.pass_until(3)
    for process in world.processes:
        process.store.trouble = "refuses"
    world.visit()
    world.visit()
    await world.pass_until(40)

    # A claim at 3, which is sent at 7; the next one not before 17.
    assert world.sent() == [7, 21]
    leave_all(world)


@virtual(processes=2, row=on_rung(2, slot_in=4), attempt_timeout=500.0)
async def test_without_the_store_a_clock_set_forward_does_not_hasten_a_process_beyond_its_share(world: World) -> None:
    world.origin = always(ENDLESS)
    await world.pass_until(3)
    for process in world.processes:
        process.store.trouble = "refuses"
    world.visit()
    world.visit()
    await world.pass_until(5)
    world.clock.set_now(START + 1_000)
    world.visit()
    await world.pass_until(20)

    assert world.sent() == [4, 14]
    leave_all(world)


@virtual(processes=3, row=on_rung(5, slot_in=10), attempt_timeout=500.0)
async def test_without_the_store_the_longest_pace_is_multiplied_too(world: World) -> None:
    world.origin = always(ENDLESS)
    await world.pass_until(5)
    for process in world.processes:
        process.store.trouble = "refuses"
    for _ in range(3):
        world.process.visit()
    await world.pass_until(400)

    assert world.sent() == [10, 190, 370]
    leave_all(world)


@virtual(row=on_rung(2), attempt_timeout=500.0)
async def test_the_store_is_taken_up_again_by_itself(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.origin = always(ENDLESS)
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            world.visit()
        await world.pass_until(1)
        world.process.store.trouble = "refuses"
        await world.pass_until(12)
        world.process.store.trouble = None
        await world.pass_until(14)

    assert world.process.engine.snapshot().store_up
    assert [event.down_s for event in world.process.happened(StoreRecovered)] == [8.0]
    row = await world.stored()
    assert row is not None
    assert row.next_slot_at == START + 15
    assert len(caplog.records) == 2, "one line when it fails, one when it is back"
    await world.pass_until(15)
    assert world.sent() == [0, 5, 10, 15]
    leave_all(world)


@virtual(processes=2, row=on_rung(1), attempt_timeout=500.0)
async def test_on_return_the_greater_of_two_states_wins(world: World) -> None:
    cut_off, other = world.processes
    world.origin = in_turn(UNAVAILABLE, UNAVAILABLE, UNAVAILABLE, ENDLESS)
    await world.pass_until(3)
    cut_off.store.trouble = "refuses"
    for _ in range(3):
        cut_off.visit(method="POST")
    await world.pass_until(60)
    assert (cut_off.rung(), other.rung()) == (4, 1)
    cut_off.store.trouble = None
    await world.pass_until(62)

    assert (cut_off.rung(), other.rung()) == (4, 4)
    leave_all(world)


@virtual(processes=2, row=on_rung(1), attempt_timeout=500.0)
async def test_on_return_a_process_learns_what_the_others_have_met_with(world: World) -> None:
    cut_off, other = world.processes
    world.origin = in_turn(status(503, retry_after="250"), ENDLESS)
    await world.pass_until(3)
    cut_off.store.trouble = "refuses"
    cut_off.visit("probe of the store", host="elsewhere.example")
    await world.pass_until(4)
    other.visit(method="POST")
    await world.pass_until(10)
    cut_off.store.trouble = None
    await world.pass_until(12)
    late = cut_off.visit(window=100)
    await world.clock.settle()

    assert late.done_at == 12.0
    assert cut_off.rung() == 2


@virtual(processes=2, row=on_rung(2, slot_in=4.97), attempt_timeout=500.0)
async def test_a_claim_whose_answer_is_lost_gives_the_slot_to_nobody_else(world: World) -> None:
    world.origin = always(ENDLESS)
    unlucky, other = world.processes
    unlucky.visit("unlucky")
    other.visit("other")
    await world.pass_until(4.95)
    unlucky.store.trouble = "loses answers"
    await world.pass_until(9.9)
    assert world.sent() == [4.97]
    await world.pass_until(10)

    assert world.sent("other") == [9.97]
    leave_all(world)


@virtual(processes=2, row=on_rung(3, slot_in=10))
async def test_a_store_that_fails_while_it_is_taken_up_again_is_tried_again(world: World) -> None:
    process = world.process
    await world.pass_until(1)
    process.store.trouble = "loses answers"
    await world.pass_until(5)
    assert not process.engine.snapshot().store_up
    process.store.trouble = None
    await world.pass_until(7)

    assert process.engine.snapshot().store_up
    assert [failure.first for failure in process.happened(StoreFailed)] == [True, False, False, False]
    assert len(process.happened(StoreRecovered)) == 1


@virtual(processes=2, row=on_rung(1), attempt_timeout=500.0)
async def test_a_row_that_another_writes_while_this_process_returns_is_not_lost(world: World) -> None:
    cut_off, other = world.processes
    world.origin = by_path(a=UNAVAILABLE, b=UNAVAILABLE)
    await world.pass_until(3)
    cut_off.store.trouble = "refuses"
    cut_off.visit("a", method="POST")
    await world.pass_until(3.2)
    assert cut_off.rung() == 2
    cut_off.store.trouble = None
    cut_off.store.held_back["changes_since"] = released = asyncio.Event()
    await world.pass_until(8)
    other.visit("b", method="POST")
    await world.pass_until(8.05)
    assert other.rung() == 2
    del cut_off.store.held_back["changes_since"]
    released.set()
    await world.pass_until(8.3)

    row = await world.stored()
    assert row is not None
    assert (row.rung, row.stalled_at) == (2, START + 8)
    assert cut_off.view() is not None
    assert cut_off.engine.snapshot().store_up


_MOMENTS = st.lists(st.sampled_from([0.5, 1.0, 2.0, 2.5, 7.0, 20.0, 61.0]), max_size=8)


@given(
    moments=_MOMENTS,
    trouble=st.sampled_from(["refuses", "loses answers"]),
    answers=st.lists(
        st.sampled_from([PAGE, UNAVAILABLE, status(429, retry_after="9"), Answer(after_s=1.0)]), min_size=1, max_size=20
    ),
)
@settings(FIXED, max_examples=60)
def test_a_store_that_comes_and_goes_never_makes_one_process_faster_than_the_pace(
    moments: list[float], trouble: Trouble, answers: list[Answer]
) -> None:
    # One pace on every rung: of two states the greater of each field wins, and so rung and slot may be of two.
    @virtual(row=on_rung(20, slot_in=1), ladder=(0.0, *(5.0 for _ in range(20))))
    async def scenario(world: World) -> None:
        world.origin = in_turn(*answers)
        at = 0.0
        for number in range(12):
            world.visit(str(number), window=100)
        for after_s in moments:
            at += after_s
            await world.pass_until(at)
            world.process.store.trouble = None if world.process.store.trouble else trouble
        await world.finish()

        hits = [hit for hit in world.hits["shop.example"] if not hit.late]
        assert {hit.pace_s for hit in hits} == {5.0}
        for earlier, later in itertools.pairwise(hits):
            assert later.at - earlier.at >= 5.0 - 1e-6

    scenario()
