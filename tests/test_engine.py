"""The engine of one process in virtual time, from the contract: what an outcome leads to, for origins and clients."""

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy_addon.engine import Engine
from proxy_addon.model import (
    AttemptEnded,
    ErrorName,
    Event,
    HostPaused,
    HostState,
    Outcome,
    Redialled,
    Reply,
    RequestEnded,
    RetryAfterCapped,
)
from proxy_addon.request import Deliver, Refusal, Refused
from proxy_addon.settings import Settings
from tests.support.answers import (
    ENDLESS,
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
    until,
)
from tests.support.examples import FIXED
from tests.support.world import World, check_the_pace, ended, virtual

RESET = Answer(error=ErrorName.CONNECTION_TERMINATED)
RESET_REUSED = Answer(error=ErrorName.CONNECTION_TERMINATED, reused=True)


# A healthy host


@virtual()
async def test_a_healthy_host_is_asked_at_once_and_nothing_is_written(world: World) -> None:
    for _ in range(100):
        world.visit()
    await world.clock.settle()

    assert world.sent() == [0.0] * 100
    assert world.process.store.swaps == 0
    assert world.process.engine.snapshot().hosts == ()


@virtual()
async def test_a_slow_host_that_answers_is_not_sick(world: World) -> None:
    world.origin = always(Answer(after_s=10.0))
    visits = [world.visit() for _ in range(50)]
    await world.finish()

    assert world.sent() == [0.0] * 50
    assert {visit.done_at for visit in visits} == {10.0}
    assert await world.stored() is None


# Climbing and stepping down, as the origin sees it


@virtual()
async def test_a_lone_request_is_tried_again_by_the_ladder_until_its_window_closes(world: World) -> None:
    world.origin = always(UNAVAILABLE)
    visit = world.visit()
    await world.finish()

    assert world.sent() == [0, 2, 7, 22, 52, 112, 172, 232, 292, 352, 412, 472, 532, 592]
    assert (visit.status, visit.done_at) == (503, 592.0)
    assert visit.request.outcome is Outcome.STALL


@virtual(climb="stall")
async def test_a_host_climbs_with_a_burst_and_steps_down_page_by_page(world: World) -> None:
    world.origin = until(60, UNAVAILABLE, SLOW_PAGE)
    visits = [world.visit() for _ in range(10)]
    await world.finish()

    assert world.sent() == [0] * 10 + [60, 91, 107, 113, 116] + [117] + [118, 118] + [119, 119]
    assert [visit.status for visit in visits] == [200] * 10
    assert await world.stored() is None


@virtual(window=3_600.0, attempt_timeout=25.0)
async def test_no_page_is_lost_in_an_outage_of_ten_minutes(world: World) -> None:
    world.origin = until(600, SILENT)
    visits = [world.visit(f"/{number}") for number in range(30)]
    await world.finish()

    assert world.sent()[:30] == [0] * 30
    assert world.sent()[30:41] == [85, 195, 305, 415, 525, 635, 665, 680, 685, 687, 687]
    assert [visit.status for visit in visits] == [200] * 30


@virtual()
async def test_other_hosts_go_at_full_speed_while_one_is_blocked(world: World) -> None:
    world.origin = always(status(429, retry_after="60"))
    world.visit()
    await world.pass_until(1)
    others = [world.visit(host=f"{name}.example") for name in ("a", "b") for _ in range(20)]
    await world.pass_until(2)

    assert {other.done_at for other in others} == {1.0}
    world.origin = always(PAGE)
    await world.finish()


@virtual(row=on_rung(3), climb="stall")
async def test_the_pace_is_the_hosts_however_many_requests_wait(world: World) -> None:
    world.origin = always(UNAVAILABLE)
    for _ in range(20):
        world.visit(window=100)
    await world.finish()

    assert world.sent() == [0, 30, 90, 100]
    assert [hit.late for hit in world.hits["shop.example"]] == [False, False, False, True]


# Retries


@virtual()
async def test_a_retry_waits_by_its_own_stalls_however_well_the_host_is(world: World) -> None:
    world.origin = by_path(bad=UNAVAILABLE)
    bad = world.visit("bad")
    await world.pass_until(1)
    good = world.visit("good")
    await world.pass_until(60)
    quick = world.visit("quick")
    await world.finish()

    assert world.sent("bad") == [0, 2, 7, 22, 52, 112]
    assert (good.done_at, quick.done_at) == (2.0, 60.0)
    assert (bad.status, bad.done_at) == (503, 112.0)


@virtual()
async def test_a_retry_that_cannot_come_before_its_window_closes_is_answered_at_once(world: World) -> None:
    world.origin = always(UNAVAILABLE)
    visit = world.visit(window=10)
    await world.finish()

    assert world.sent() == [0, 2, 7]
    assert (visit.status, visit.done_at) == (503, 7.0)


@virtual(max_attempts=3)
async def test_the_last_of_so_many_attempts_is_the_answer(world: World) -> None:
    world.origin = always(UNAVAILABLE)
    visit = world.visit()
    await world.finish()

    assert world.sent() == [0, 2, 7]
    assert (visit.status, visit.done_at) == (503, 7.0)


@virtual(row=on_rung(3, slot_in=15), max_attempts=1)
async def test_the_number_of_attempts_never_bounds_the_wait(world: World) -> None:
    visit = world.visit()
    await world.finish()

    assert (visit.status, visit.done_at) == (200, 15.0)


@virtual()
async def test_a_post_is_not_sent_twice_but_paced_and_its_stall_counts(world: World) -> None:
    world.origin = in_turn(status(500), PAGE)
    first = world.visit(method="POST")
    await world.pass_until(1)
    second = world.visit(method="POST")
    await world.finish()

    assert (first.status, first.done_at) == (500, 0.0)
    assert (second.status, second.done_at) == (200, 2.0)
    assert world.sent() == [0, 2]


@virtual()
async def test_a_post_with_a_key_is_sent_again(world: World) -> None:
    world.origin = in_turn(status(500), PAGE)
    visit = world.visit(method="POST", keyed=True)
    await world.finish()

    assert (visit.status, world.sent()) == (200, [0, 2])


@virtual()
async def test_a_post_that_cannot_have_arrived_is_sent_again(world: World) -> None:
    world.origin = in_turn(UNREACHABLE, PAGE)
    visit = world.visit(method="POST")
    await world.finish()

    assert (visit.status, world.sent()) == (200, [12])


@virtual()
async def test_a_streamed_body_is_sent_once(world: World) -> None:
    world.origin = always(UNAVAILABLE)
    visit = world.visit(method="PUT", held=False)
    await world.finish()

    assert (visit.status, world.sent()) == (503, [0])


@pytest.mark.parametrize(
    "answer", [status(409), Answer(error=ErrorName.DNS_TIMEOUT, refused=True)], ids=["in progress", "lookup"]
)
@virtual()
async def test_a_stall_that_does_not_climb_is_tried_again_and_holds_up_nobody(world: World, answer: Answer) -> None:
    world.origin = in_turn(answer, PAGE)
    stalled = world.visit(method="POST", keyed=True)
    await world.pass_until(1)
    other = world.visit("other")
    await world.finish()

    assert (stalled.status, stalled.done_at) == (200, 2.0)
    assert other.done_at == 1.0
    assert await world.stored() is None


# Time-outs


@virtual()
async def test_a_page_that_takes_longer_than_the_time_out_arrives(world: World) -> None:
    world.origin = always(Answer(after_s=40.0))
    visit = world.visit()
    await world.finish()

    assert world.sent() == [0, 32]
    assert (visit.status, visit.done_at) == (200, 72.0)


@virtual()
async def test_the_time_doubles_again_with_each_time_out(world: World) -> None:
    world.origin = always(Answer(after_s=100.0))
    visit = world.visit()
    await world.finish()

    assert world.sent() == [0, 32, 97]
    assert (visit.status, visit.done_at) == (200, 197.0)


@virtual()
async def test_the_longer_time_ends_with_the_window_but_never_below_the_setting(world: World) -> None:
    world.origin = always(Answer(after_s=100.0))
    visit = world.visit(window=100)
    await world.finish()

    assert world.sent() == [0, 32, 97]
    assert visit.done_at == 127.0
    assert visit.reply == Reply(error=ErrorName.HTTP_RESPONSE_TIMEOUT)


@virtual()
async def test_a_slow_answer_to_a_post_is_a_stall_at_the_time_out_and_arrives_all_the_same(world: World) -> None:
    world.origin = always(Answer(after_s=40.0))
    visit = world.visit(method="POST")
    await world.pass_until(31)
    assert world.process.rung() == 1
    await world.finish()

    assert world.sent() == [0]
    assert (visit.status, visit.done_at) == (200, 40.0)
    assert ended(world.process.events) == [(Outcome.STALL, ErrorName.HTTP_RESPONSE_TIMEOUT)]
    assert visit.ended.outcome is Outcome.SERVED
    await world.clock.settle()
    assert await world.stored() is None


@virtual()
async def test_a_stall_recorded_at_the_time_out_is_not_recorded_again_by_its_reply(world: World) -> None:
    world.origin = always(status(503, after_s=40.0))
    visit = world.visit(method="POST")
    await world.finish()
    await world.clock.settle()

    assert (visit.status, world.process.rung()) == (503, 1)
    assert ended(world.process.events) == [(Outcome.STALL, ErrorName.HTTP_RESPONSE_TIMEOUT)]


@virtual()
async def test_a_silent_post_is_given_up_when_its_window_closes(world: World) -> None:
    world.origin = always(SILENT)
    visit = world.visit(method="POST", window=100)
    await world.finish()

    assert visit.done_at == 100.0
    assert visit.reply == Reply(error=ErrorName.HTTP_RESPONSE_TIMEOUT)
    assert world.process.rung() == 1


@virtual()
async def test_a_client_that_leaves_after_its_stall_was_recorded_adds_none(world: World) -> None:
    world.origin = always(SILENT)
    visit = world.visit(method="POST")
    await world.pass_until(35)
    visit.leave()
    await world.clock.settle()

    assert world.process.rung() == 1
    assert ended(world.process.events) == [(Outcome.STALL, ErrorName.HTTP_RESPONSE_TIMEOUT)]
    assert visit.ended.outcome is Outcome.ABANDONED


# A kept-alive connection that the origin had closed


@pytest.mark.parametrize("farewell", [RESET_REUSED, Answer(status=408, reused=True)], ids=["reset", "408"])
@virtual()
async def test_a_dead_connection_costs_nothing(world: World, farewell: Answer) -> None:
    world.origin = in_turn(farewell, PAGE)
    visit = world.visit()
    await world.finish()

    assert world.sent() == [0, 0]
    assert (visit.status, visit.done_at) == (200, 0.0)
    assert ended(world.process.events) == [(Outcome.SERVED, None)]
    assert visit.ended.attempts == 1
    assert visit.ended.waited_s == 0.0
    assert world.process.store.swaps == 0
    assert [event for event in world.process.events if isinstance(event, Redialled)] == [Redialled("shop.example")]


@pytest.mark.parametrize(("method", "reused"), [("GET", False), ("POST", True)])
@virtual()
async def test_any_other_request_timeout_is_the_answer(world: World, method: str, reused: bool) -> None:
    world.origin = in_turn(Answer(status=408, reused=reused), PAGE)
    visit = world.visit(method=method)
    await world.finish()

    assert visit.status == 408
    assert len(world.sent()) == 1


@virtual(row=on_rung(1))
async def test_on_a_paced_host_the_second_connection_claims_a_slot_first(world: World) -> None:
    world.origin = in_turn(RESET_REUSED, ENDLESS)
    visit = world.visit()
    await world.pass_until(10)

    assert world.sent() == [0, 2]
    assert world.process.rung() == 1
    visit.leave()


@virtual()
async def test_a_second_dead_connection_is_a_stall(world: World) -> None:
    world.origin = in_turn(RESET_REUSED, RESET_REUSED, PAGE)
    world.visit()
    await world.finish()

    assert world.sent() == [0, 0, 2]
    assert ended(world.process.events) == [
        (Outcome.STALL, ErrorName.CONNECTION_TERMINATED),
        (Outcome.SERVED, None),
    ]


@pytest.mark.parametrize(("method", "answer"), [("POST", RESET_REUSED), ("POST", RESET), ("GET", RESET)])
@virtual()
async def test_any_other_reset_is_a_stall(world: World, method: str, answer: Answer) -> None:
    world.origin = in_turn(answer, PAGE)
    world.visit(method=method)
    await world.pass_until(1)

    assert world.process.rung() == 1
    assert ended(world.process.events) == [(Outcome.STALL, ErrorName.CONNECTION_TERMINATED)]
    await world.finish()


@virtual()
async def test_a_body_cut_short_after_its_release_is_one_stall_and_no_attempt(world: World) -> None:
    world.origin = in_turn(Answer(cut=True), PAGE)
    visit = world.visit()
    await world.pass_until(1)

    assert (world.sent(), world.process.rung()) == ([0], 1)
    assert (visit.ended.outcome, visit.ended.error) == (Outcome.STALL, ErrorName.HTTP_RESPONSE_INCOMPLETE)


@virtual()
async def test_a_cut_does_not_count_towards_the_pause_once_three_stalls_of_its_request_have(world: World) -> None:
    world.origin = in_turn(UNAVAILABLE, UNAVAILABLE, UNAVAILABLE, Answer(cut=True))
    world.visit()
    await world.finish()

    assert (row := await world.stored())
    assert (row.rung, row.stalls_in_a_row) == (3, 0)


@virtual(stalls=frozenset({"5xx"}))
async def test_a_cut_that_is_no_stall_by_the_setting_is_a_failure(world: World) -> None:
    world.origin = always(Answer(cut=True))
    visit = world.visit()
    await world.finish()
    await world.clock.settle()

    assert (visit.ended.outcome, visit.ended.error) == (Outcome.FAILURE, ErrorName.HTTP_RESPONSE_INCOMPLETE)
    assert world.process.rung() == 0


# Retry-After


@virtual()
async def test_a_retry_after_is_waited_out_by_everybody(world: World) -> None:
    world.origin = in_turn(status(429, retry_after="7"), PAGE)
    told, other = world.visit("told"), None
    await world.pass_until(1)
    other = world.visit("other")
    await world.finish()

    assert (told.status, other.status) == (200, 200)
    assert world.sent() == [0, 7, 7]


@virtual(ladder=(0.0, 0.1))
async def test_a_retry_after_may_be_a_fraction(world: World) -> None:
    world.origin = in_turn(status(429, retry_after="0.503"), PAGE)
    world.visit()
    await world.finish()

    assert world.sent() == [0, 0.503]


@pytest.mark.parametrize("value", ["-1", "nan", "inf", "1e999", "1m0s", "", "0"])
@virtual()
async def test_a_retry_after_that_adds_nothing_leaves_the_ladder(world: World, value: str) -> None:
    world.origin = in_turn(status(503, retry_after=value), PAGE)
    world.visit()
    await world.finish()

    assert world.sent() == [0, 2]


@virtual()
async def test_a_retry_after_longer_than_the_window_is_told_at_once(world: World) -> None:
    world.origin = in_turn(status(429, retry_after="9999999999"), PAGE)
    told = world.visit()
    await world.pass_until(1)
    hasty, patient = world.visit(window=45), world.visit()
    await world.clock.settle()

    assert (told.status, told.done_at) == (429, 0.0)
    assert hasty.done_at == 1.0
    assert hasty.refusal is not None
    assert (hasty.refusal.reason, hasty.refusal.retry_after_s) == (Refused.CANNOT_COME_IN_TIME, 299.0)
    await world.finish()
    assert (patient.status, patient.done_at) == (200, 300.0)
    assert world.process.happened(RetryAfterCapped) == [RetryAfterCapped("shop.example", 9_999_999_999.0)]


@virtual()
async def test_a_long_retry_after_of_a_503_is_waited_out_up_to_the_cap(world: World) -> None:
    world.origin = in_turn(status(503, retry_after="3600"), PAGE)
    visit = world.visit()
    await world.finish()

    assert (visit.status, world.sent()) == (200, [0, 300])


@virtual()
async def test_a_429_that_asks_for_more_than_the_window_is_the_answer(world: World) -> None:
    world.origin = always(status(429, retry_after="60"))
    visit = world.visit(window=45)
    await world.finish()

    assert (visit.status, visit.done_at) == (429, 0.0)
    assert visit.reply is not None
    assert visit.reply.fields == (("Retry-After", "60"),)


@virtual(row=on_rung(2, slot_in=5))
async def test_those_who_cannot_be_served_after_a_block_are_told_when_it_begins(world: World) -> None:
    world.origin = in_turn(status(429, retry_after="100"), PAGE)
    told, hasty = world.visit(window=45), world.visit(window=45)
    patient = world.visit(window=300)
    await world.finish()

    assert (told.status, told.done_at) == (429, 5.0)
    assert (hasty.refusal, hasty.done_at) == (Refusal(Refused.CANNOT_COME_IN_TIME, 100.0), 5.0)
    assert (patient.status, patient.done_at) == (200, 105.0)
    assert world.sent() == [5, 105]


# Forgiveness


@virtual(row=on_rung(4))
async def test_a_host_without_a_stall_for_half_an_hour_starts_afresh(world: World) -> None:
    await world.pass_until(1_790)
    row = await world.stored()
    assert row is not None
    await world.pass_until(1_810)
    assert await world.stored() is None
    for _ in range(10):
        world.visit()
    await world.finish()

    assert world.sent() == [1_810] * 10


# The pause


@virtual(max_attempts=1, window=3_600.0)
async def test_a_host_that_stays_down_is_left_alone_and_probed(world: World) -> None:
    world.origin = until(700, UNAVAILABLE)
    world.visit()
    await world.pass_until(0.5)
    for _ in range(15):
        world.visit()
    await world.finish()

    down = [0, 2, 7, 22, 52, 112, 172, 232, 292, 352]
    assert world.sent() == [*down, 472, 712, 772, 802, 817, 822]
    pauses = world.process.happened(HostPaused)
    assert [event.until - START for event in pauses] == [472.0, 712.0]
    assert pauses[0].stalls_in_a_row == 10
    assert pauses[0].error is ErrorName.HTTP_STATUS_5XX


@virtual(row=on_rung(5, paused_in=100, pauses=1))
async def test_only_those_who_can_wait_wait_for_the_end_of_a_pause(world: World) -> None:
    hasty, patient = world.visit(window=45), world.visit(window=600)
    await world.clock.settle()

    assert hasty.done_at == 0.0
    assert hasty.refusal is not None
    assert (hasty.refusal.reason, hasty.refusal.retry_after_s) == (Refused.CANNOT_COME_IN_TIME, 100.0)
    await world.finish()
    assert patient.done_at == 100.0


@virtual(ladder=(0.0, 1.0, 2.0), pause_after=2, pause=100.0, max_attempts=1)
async def test_a_probe_has_the_host_to_itself(world: World) -> None:
    world.origin = in_turn(UNAVAILABLE, UNAVAILABLE, Answer(after_s=20.0), PAGE)
    world.visit()
    await world.pass_until(0.5)
    for _ in range(3):
        world.visit()
    await world.finish()

    assert world.sent() == [0, 1, 101, 123]


@virtual(row=on_rung(5, paused_in=-1, pauses=1))
async def test_a_probe_whose_client_leaves_is_taken_over_by_the_next(world: World) -> None:
    world.origin = by_path(gone=UNREACHABLE, next=PAGE)
    gone, following = world.visit("gone"), world.visit("next")
    await world.pass_until(2)
    gone.leave()
    await world.finish()

    assert world.sent() == [2]
    assert (following.status, world.process.rung()) == (200, 5)


@virtual(climb="stall")
async def test_a_burst_counts_as_one_failure(world: World) -> None:
    world.origin = always(UNAVAILABLE)
    visits = [world.visit() for _ in range(50)]
    await world.clock.settle()

    row = await world.stored()
    assert row is not None
    assert (row.rung, row.stalls_in_a_row) == (5, 1)
    for visit in visits:
        visit.leave()


@virtual(window=3_600.0)
async def test_one_request_alone_never_makes_a_host_be_left_alone(world: World) -> None:
    world.origin = always(UNAVAILABLE)
    visit = world.visit()
    await world.pass_until(1_000)

    row = await world.stored()
    assert row is not None
    assert row.stalls_in_a_row == 3
    assert world.process.happened(HostPaused) == []
    visit.leave()


@virtual(pause_after=1)
async def test_a_page_ends_the_pause_that_its_own_slowness_began(world: World) -> None:
    world.origin = by_path(slow=Answer(after_s=40.0))
    slow = world.visit("slow", method="POST")
    await world.pass_until(35)
    row = await world.stored()
    assert row is not None
    assert row.paused_until == START + 150
    await world.pass_until(41)
    other = world.visit("other")
    await world.finish()

    assert (slow.status, other.done_at) == (200, 41.0)


# The clock is set


@virtual(row=on_rung(2), attempt_timeout=500.0)
async def test_a_clock_set_back_neither_hastens_nor_stops_the_line(world: World) -> None:
    world.origin = always(ENDLESS)
    visits = [world.visit() for _ in range(4)]
    await world.pass_until(1)
    world.clock.set_now(START - 3_600)
    await world.pass_until(120)

    assert len(world.sent()) == 4
    assert min(world.gaps()) >= 5.0
    assert world.sent()[1] <= 65.0
    for visit in visits:
        visit.leave()


@virtual(ladder=(0.0, 2.3))
async def test_a_clock_that_begins_in_1970_does_not_make_the_line_spin(world: World) -> None:
    """As on a machine without a battery. Unix times are finer then than those by which the process waits."""
    await world.pass_until(7.6)
    world.clock.set_now(13.0)
    world.origin = always(UNAVAILABLE)
    world.visit(method="POST")
    await world.clock.settle()
    for _ in range(15):
        world.visit(method="POST", window=100)
    await world.finish()

    # The tenth stall begins a pause, for which the others cannot wait.
    assert world.gaps() == pytest.approx([2.3] * 9, abs=1e-5)


@virtual(row=on_rung(2), attempt_timeout=500.0)
async def test_a_clock_set_forward_does_not_hasten_the_line(world: World) -> None:
    world.origin = always(ENDLESS)
    for _ in range(3):
        world.visit()
    await world.pass_until(1)
    world.clock.set_now(START + 600)
    await world.pass_until(2)
    world.visit("a newcomer, at whom the line looks again")
    await world.pass_until(16)

    assert world.sent() == [0, 5, 10, 15]
    for visit in world.visits:
        visit.leave()


# What the engine says of it


@virtual()
async def test_a_request_is_told_of_with_its_marks(world: World) -> None:
    world.origin = in_turn(UNAVAILABLE, SLOW_PAGE)
    world.visit()
    await world.finish()

    assert world.process.happened(RequestEnded) == [
        RequestEnded(
            host="shop.example",
            client="192.0.2.7",
            outcome=Outcome.SERVED,
            error=None,
            attempts=2,
            waited_s=2.0,
            rung=1,
            accepted_at=START,
            sent_at=START + 2,
            first_byte_at=START + 3,
            done_at=START + 3,
            duration_s=3.0,
            window_s=600.0,
            gave_up=False,
            method="GET",
            stalls=1,
        )
    ]
    assert world.process.happened(RequestEnded)[0].was_saved
    assert world.process.happened(AttemptEnded) == [
        AttemptEnded("shop.example", Outcome.STALL, ErrorName.HTTP_STATUS_5XX, 0.0),
        AttemptEnded("shop.example", Outcome.SERVED, None, 1.0),
    ]


@virtual(row=on_rung(2, slot_in=5), attempt_timeout=500.0)
async def test_a_snapshot_shows_who_waits_and_what_is_in_flight(world: World) -> None:
    world.origin = always(ENDLESS)
    for _ in range(4):
        world.visit()
    world.visit(host="other.example")
    await world.pass_until(10)

    snapshot = world.process.engine.snapshot()
    view = world.process.view()
    assert (snapshot.waiting, snapshot.in_flight, snapshot.store_up) == (2, 2, True)
    assert snapshot.at == START + 10
    assert [host.host for host in snapshot.hosts] == ["shop.example"]
    assert view is not None
    assert (view.waiting, view.in_flight, view.pace_s, view.state.rung) == (2, 2, 5.0, 2)
    for visit in world.visits:
        visit.leave()


@virtual()
async def test_as_many_attempts_are_told_of_as_the_origin_got(world: World) -> None:
    answers = [UNAVAILABLE, PAGE, status(429, retry_after="3"), SILENT, PAGE, status(404), RESET, PAGE, PAGE]
    world.origin = lambda hit: answers[(int(hit.path) + hit.attempt) % len(answers)]
    for number in range(60):
        world.visit(str(number), method="POST" if number % 5 == 0 else "GET")
    await world.finish()

    assert len(world.process.happened(AttemptEnded)) == len(world.sent())
    assert sum(event.attempts for event in world.process.happened(RequestEnded)) == len(world.sent())


def test_a_listener_that_fails_stops_no_request_and_no_other_listener(caplog: pytest.LogCaptureFixture) -> None:
    world = World(Settings())
    heard: list[Event] = []

    def deaf(event: Event) -> None:
        raise ValueError("the metrics are broken")

    async def scenario() -> None:
        engine = Engine(world.settings, world.memory, world.clock, [deaf, heard.append])
        await engine.start()
        request = engine.accept("shop.example", method="GET", window_s=600)
        engine.grant(request)
        engine.sending(request)
        assert engine.settle(request, Reply(status=200)) == Deliver()
        engine.close(request)
        await engine.stop()

    with caplog.at_level(logging.ERROR):
        world.clock.run(scenario())
    assert [type(event) for event in heard] == [AttemptEnded, RequestEnded]
    assert "the metrics are broken" in caplog.text


@virtual()
async def test_an_error_of_ours_is_charged_to_no_host(world: World) -> None:
    engine = world.process.engine
    request = engine.accept("shop.example", method="GET", window_s=600)
    engine.fail(request, ErrorName.PROXY_LOOP_DETECTED)
    engine.close(request)

    [event] = world.process.happened(RequestEnded)
    assert (event.outcome, event.error, event.attempts) == (Outcome.FAILURE, ErrorName.PROXY_LOOP_DETECTED, 0)
    assert world.process.happened(AttemptEnded) == []
    world.process.events.clear()


@virtual()
async def test_what_is_called_twice_or_too_late_is_harmless(world: World) -> None:
    engine = world.process.engine
    visit = world.visit()
    await world.finish()
    engine.close(visit.request)
    engine.leave(visit.request)
    engine.sending(visit.request)
    engine.overdue(visit.request)
    assert engine.settle(visit.request, Reply(status=503)) == Deliver()

    assert len(world.process.happened(RequestEnded)) == 1
    assert ended(world.process.events) == [(Outcome.SERVED, None)]
    assert world.process.rung() == 0


# A bug


@virtual(row=on_rung(2, slot_in=5))
async def test_a_bug_while_a_request_waits_is_an_error_and_never_a_hang(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    visits = [world.visit() for _ in range(3)]
    await world.pass_until(1)
    world.process.store.trouble = "crashes"
    await world.pass_until(6)

    for visit in visits:
        assert visit.done_at == 5.0
        with pytest.raises(RuntimeError, match="a bug, as the test wants it"):
            visit.task.result()
    assert world.sent() == []
    assert "shop.example has crashed" in caplog.text
    world.process.store.trouble = None
    world.visits.clear()
    world.process.events.clear()
    again = world.visit()
    await world.finish()
    assert again.status == 200


# Anything may happen


_ANSWERS = st.sampled_from(
    [
        PAGE,
        PAGE,
        SLOW_PAGE,
        UNAVAILABLE,
        status(500),
        status(429, retry_after="20"),
        status(503, retry_after="1"),
        SILENT,
        RESET,
        RESET_REUSED,
        REFUSED,
        UNREACHABLE,
        Answer(connect_s=3.0),
        Answer(connect_s=1.0, after_s=35.0),
        Answer(error=ErrorName.HTTP_PROTOCOL_ERROR),
        Answer(error=ErrorName.DNS_TIMEOUT, refused=True),
        Answer(cut=True),
    ]
)
_CLIENTS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.0, 0.5, 2.0, 40.0]),
        st.sampled_from(["GET", "GET", "GET", "POST"]),
        st.sampled_from([0.0, 10.0, 45.0, 600.0, 600.0]),
        st.none() | st.sampled_from([0.0, 1.0, 6.0, 50.0]),
    ),
    min_size=1,
    max_size=25,
)


@given(
    answers=st.lists(_ANSWERS, min_size=1, max_size=30),
    clients=_CLIENTS,
    row=st.sampled_from([None, on_rung(2), on_rung(5, slot_in=60), on_rung(5, paused_in=50, pauses=1)]),
)
@settings(FIXED, max_examples=150)
def test_whatever_happens_every_request_ends_and_the_pace_holds(
    answers: list[Answer], clients: list[tuple[float, str, float, float | None]], row: HostState | None
) -> None:
    @virtual(row=row)
    async def scenario(world: World) -> None:
        world.origin = in_turn(*answers)
        at, leavings = 0.0, []
        for after_s, method, window_s, leaves_after_s in clients:
            at += after_s
            await world.pass_until(at)
            visit = world.visit(method=method, window=window_s)
            if leaves_after_s is not None:
                leavings.append(world.clock.call_at(world.clock.monotonic() + leaves_after_s, visit.leave))
        await world.finish()
        for leaving in leavings:
            leaving.cancel()
        check_the_pace(world.hits["shop.example"])

    scenario()
