"""The line of a host in one process in virtual time, from the contract: who is sent when, and who is not."""

import asyncio
from collections.abc import Callable

import pytest

from proxy_addon.model import (
    AttemptEnded,
    ErrorName,
    HostState,
    Outcome,
    Reply,
    RequestEnded,
)
from proxy_addon.request import Deliver, Refusal, Refused
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
from tests.support.world import World, ended, virtual

# The line


@virtual(row=on_rung(2, slot_in=5), attempt_timeout=500.0)
async def test_ten_thousand_waiters_cost_one_claim_per_slot(world: World) -> None:
    world.origin = always(ENDLESS)
    visits = [world.visit() for _ in range(10_000)]
    await world.pass_until(25)

    assert world.sent() == [5, 10, 15, 20, 25]
    assert world.process.store.swaps == 5
    assert world.process.engine.snapshot().waiting == 9_995
    for visit in visits:
        visit.leave()


@virtual(row=on_rung(2, slot_in=5))
async def test_with_equal_windows_first_come_is_first_served(world: World) -> None:
    for name in "abcde":
        world.visit(name)
    await world.finish()

    assert world.paths() == ["a", "b", "c", "d", "e"]


@virtual(row=on_rung(2, slot_in=5))
async def test_someone_watching_a_spinner_gets_ahead_of_a_batch(world: World) -> None:
    world.visit("batch 1", window=600)
    world.visit("batch 2", window=600)
    await world.pass_until(1)
    world.visit("spinner", window=45)
    await world.finish()

    assert world.paths() == ["spinner", "batch 1", "batch 2"]


@virtual(ladder=(0.0, 580.0), row=on_rung(1, slot_in=580))
async def test_a_batch_is_not_kept_waiting_for_ever_by_spinners(world: World) -> None:
    world.visit("batch", window=600)
    await world.pass_until(554)
    world.visit("early spinner", window=45)
    await world.pass_until(556)
    world.visit("late spinner", window=45)
    await world.finish()

    assert world.paths() == ["early spinner", "batch", "late spinner"]


@virtual(row=on_rung(1, slot_in=2))
async def test_a_bad_page_goes_to_the_back_of_the_line(world: World) -> None:
    world.origin = by_path(bad=UNAVAILABLE)
    for name in ("bad", "a", "b", "c"):
        world.visit(name, window=60)
    await world.finish()

    assert world.paths()[:5] == ["bad", "a", "b", "c", "bad"]
    assert world.sent()[:5] == [2, 7, 9, 9, 9]


# The pace between sendings


@virtual(row=on_rung(1), attempt_timeout=500.0)
async def test_nothing_is_granted_while_an_attempt_still_connects(world: World) -> None:
    world.origin = by_path(a=Answer(connect_s=5.0, after_s=500.0), b=ENDLESS)
    visits = [world.visit("a"), world.visit("b")]
    await world.pass_until(20)

    assert world.sent() == [5, 7]
    for visit in visits:
        visit.leave()


@virtual(row=on_rung(2), attempt_timeout=500.0)
async def test_a_slot_is_a_pace_after_the_sending_and_not_after_the_grant(world: World) -> None:
    world.origin = by_path(a=Answer(connect_s=2.0, after_s=500.0), b=ENDLESS)
    visits = [world.visit("a"), world.visit("b")]
    await world.pass_until(20)

    assert world.sent() == [2, 7]
    for visit in visits:
        visit.leave()


# The end of a window


@virtual(climb="stall")
async def test_a_request_that_waits_when_its_window_closes_gets_its_last_reply(world: World) -> None:
    world.origin = always(UNAVAILABLE)
    visits = [world.visit(window=30) for _ in range(5)]
    await world.finish()

    assert world.sent() == [0] * 5
    for visit in visits:
        assert visit.done_at == 30.0
        assert visit.refusal is not None
        assert visit.refusal.reason is Refused.WINDOW_CLOSED
        assert visit.request.last_reply == Reply(status=503)
        assert visit.request.outcome is Outcome.STALL


@virtual()
async def test_an_attempt_in_flight_when_the_window_closes_may_finish(world: World) -> None:
    world.origin = always(Answer(after_s=20.0))
    visit = world.visit(window=10)
    await world.finish()

    assert (visit.status, visit.done_at) == (200, 20.0)


@virtual(row=on_rung(5, slot_in=60), attempt_timeout=500.0)
async def test_a_request_without_an_attempt_is_sent_once_late(world: World) -> None:
    world.origin = always(ENDLESS)
    visit = world.visit(window=10)
    await world.pass_until(20)

    assert world.sent() == [10]
    row = await world.stored()
    assert row is not None
    assert row.next_slot_at == START + 60, "a late attempt leaves the slot as it is"
    visit.leave()


@virtual(row=on_rung(5, slot_in=60))
async def test_what_a_late_attempt_brings_counts(world: World) -> None:
    visit = world.visit(window=10)
    await world.finish()
    await world.clock.settle()

    assert visit.status == 200
    row = await world.stored()
    assert row is not None
    assert (row.rung, row.next_slot_at) == (4, START + 40)


@virtual(row=on_rung(5, slot_in=60))
async def test_a_host_is_not_stormed_by_windows_that_close_together(world: World) -> None:
    visits = [world.visit(window=10) for _ in range(300)]
    await world.finish()

    assert world.sent() == [10]
    unsent = [visit for visit in visits if visit.refusal is not None]
    assert len(unsent) == 299
    assert {visit.request.outcome for visit in unsent} == {Outcome.UNSENT}
    assert {visit.refusal.reason for visit in unsent if visit.refusal} == {Refused.WINDOW_CLOSED}
    assert all(visit.refusal.retry_after_s > 0 for visit in unsent if visit.refusal)


@virtual(row=on_rung(5, slot_in=60), attempt_timeout=500.0)
async def test_late_attempts_are_as_far_apart_as_the_top_of_the_ladder(world: World) -> None:
    world.origin = always(ENDLESS)
    for at, window in [(0, 10), (15, 10), (50, 600), (61, 8), (62, 13)]:
        await world.pass_until(at)
        world.visit(f"entered at {at}", window=window)
    await world.pass_until(100)

    assert world.paths() == ["entered at 0", "entered at 50", "entered at 62"]
    assert world.sent() == [10, 60, 75]
    for visit in world.visits:
        visit.leave()


@virtual(row=on_rung(5, slot_in=9), attempt_timeout=500.0)
async def test_no_late_attempt_follows_closely_on_another(world: World) -> None:
    world.origin = always(ENDLESS)
    world.visit("in its slot", window=9.5)
    late = world.visit("late", window=10.5)
    await world.pass_until(20)

    assert world.paths() == ["in its slot"]
    assert (late.done_at, late.request.outcome) == (10.5, Outcome.UNSENT)
    world.visits[0].leave()


@pytest.mark.parametrize(
    "row",
    [on_rung(5, slot_in=60, paused_in=-1), on_rung(5, slot_in=60, blocked_in=5, paused_in=-1)],
    ids=["probe", "probe after a block"],
)
def test_no_late_attempt_disturbs_a_probe(row: HostState) -> None:
    @virtual(row=row)
    async def scenario(world: World) -> None:
        visit = world.visit(window=10)
        await world.finish()

        assert world.sent() == []
        assert visit.request.outcome is Outcome.UNSENT

    scenario()


@virtual(row=on_rung(5, slot_in=60), attempt_timeout=500.0)
async def test_a_late_attempt_is_never_passed_on(world: World) -> None:
    world.origin = by_path(late=Answer(connect_s=5.0), patient=ENDLESS)
    late = world.visit("late", window=10)
    patient = world.visit("patient")
    await world.pass_until(12)
    late.leave()
    await world.pass_until(61)

    assert world.sent() == [60]
    assert world.paths() == ["patient"]
    patient.leave()


# A window of nothing


@virtual()
async def test_a_window_of_nothing_is_no_hindrance_at_a_healthy_host(world: World) -> None:
    visit = world.visit(window=0)
    await world.finish()

    assert (visit.status, visit.done_at) == (200, 0.0)


@virtual(row=on_rung(2))
async def test_a_window_of_nothing_takes_a_slot_that_is_free(world: World) -> None:
    visit = world.visit(window=0)
    await world.finish()

    assert (visit.status, visit.done_at) == (200, 0.0)
    assert world.process.store.swaps >= 1, "it claimed"


@virtual(row=on_rung(2, slot_in=1))
async def test_a_window_of_nothing_is_answered_at_once_where_no_slot_is_free(world: World) -> None:
    visit = world.visit(window=0)
    await world.clock.settle()

    assert visit.done_at == 0.0
    assert visit.refusal is not None
    assert visit.refusal.retry_after_s > 0
    assert (world.sent(), visit.request.outcome) == ([], Outcome.UNSENT)


@virtual(row=on_rung(1, slot_in=5))
async def test_a_window_of_nothing_does_not_jump_the_line(world: World) -> None:
    patient = world.visit("patient")
    await world.pass_until(4.999)
    hasty = world.visit("hasty", window=0)
    await world.finish()

    assert (hasty.done_at, patient.done_at) == (4.999, 5.0)
    assert world.paths() == ["patient"]


@virtual(row=on_rung(2), attempt_timeout=500.0)
async def test_of_many_windows_of_nothing_exactly_one_takes_the_free_slot(world: World) -> None:
    world.origin = always(ENDLESS)
    visits = [world.visit(window=0) for _ in range(10)]
    await world.clock.settle()

    assert world.sent() == [0]
    assert [visit.done_at for visit in visits if visit.done] == [0.0] * 9
    for visit in visits:
        visit.leave()


@virtual()
async def test_a_window_of_nothing_is_sent_to_a_healthy_host_whatever_is_being_noted_of_it(world: World) -> None:
    world.origin = by_path(lost=Answer(connect_s=1.0, error=ErrorName.DNS_TIMEOUT, refused=True), slow=UNREACHABLE)
    world.visit("slow")
    world.visit("lost", window=2)
    await world.clock.settle()
    hurried = []
    world.clock.call_at(world.clock.monotonic() + 1.0, lambda: hurried.append(world.visit("hurried", window=0)))
    await world.pass_until(1)
    await world.finish()

    assert (world.sent("hurried"), hurried[0].status) == ([1], 200)


@virtual(row=on_rung(1), attempt_timeout=500.0)
async def test_a_window_of_nothing_does_not_wait_for_an_attempt_that_connects(world: World) -> None:
    world.origin = by_path(slow=Answer(connect_s=8.0))
    world.visit("slow")
    await world.pass_until(4)
    hasty = world.visit("hasty", window=0)
    await world.finish()

    assert (hasty.done_at, hasty.request.outcome) == (4.0, Outcome.UNSENT)


@virtual()
async def test_a_window_of_nothing_is_no_time_for_a_retry(world: World) -> None:
    world.origin = always(UNAVAILABLE)
    visit = world.visit(window=0)
    await world.finish()

    assert (visit.status, visit.done_at, world.sent()) == (503, 0.0, [0])


# The client that leaves


@virtual(row=on_rung(2, slot_in=5))
async def test_nothing_is_sent_for_a_client_that_left_and_the_next_takes_its_place(world: World) -> None:
    gone, next_one = world.visit("gone"), world.visit("next")
    await world.pass_until(1)
    gone.leave()
    await world.clock.settle()
    assert gone.done_at == 1.0
    await world.finish()

    assert world.paths() == ["next"]
    assert next_one.done_at == 5.0
    assert (gone.ended.outcome, gone.ended.attempts, gone.ended.sent_at) == (Outcome.ABANDONED, 0, None)


@virtual(row=on_rung(2), attempt_timeout=500.0)
async def test_a_client_that_leaves_while_its_attempt_connects_passes_its_grant_on(world: World) -> None:
    world.origin = by_path(gone=UNREACHABLE, a=ENDLESS, b=ENDLESS)
    gone, a, b = world.visit("gone"), world.visit("a"), world.visit("b")
    await world.pass_until(3)
    gone.leave()
    await world.pass_until(20)

    assert world.paths() == ["a", "b"]
    assert world.sent() == [3, 8]
    for visit in (a, b):
        visit.leave()


@virtual(row=on_rung(2))
async def test_an_attempt_that_was_never_sent_is_not_counted(world: World) -> None:
    world.origin = always(UNREACHABLE)
    visit = world.visit()
    await world.pass_until(3)
    visit.leave()
    await world.finish()

    assert world.process.happened(AttemptEnded) == []
    assert visit.ended.attempts == 0
    assert visit.ended.sent_at is None


@virtual(row=on_rung(2), attempt_timeout=500.0)
async def test_a_grant_that_nobody_can_use_gives_its_slot_back(world: World) -> None:
    world.origin = by_path(gone=UNREACHABLE, next=ENDLESS)
    gone = world.visit("gone")
    await world.pass_until(3)
    gone.leave()
    await world.pass_until(4)
    following = world.visit("next")
    await world.pass_until(10)

    assert world.sent() == [4]
    following.leave()


@virtual(row=on_rung(2))
async def test_a_client_that_leaves_soon_does_not_move_the_host(world: World) -> None:
    world.origin = always(SILENT)
    visit = world.visit()
    await world.pass_until(4.9)
    visit.leave()
    await world.finish()
    await world.clock.settle()

    assert world.process.rung() == 2
    assert ended(world.process.events) == [(Outcome.ABANDONED, None)]
    assert visit.ended.outcome is Outcome.ABANDONED
    row = await world.stored()
    assert row is not None
    assert row.next_slot_at == START + 5


@virtual()
async def test_a_client_that_loses_patience_with_a_silent_host_makes_it_climb(world: World) -> None:
    world.origin = always(SILENT)
    visit = world.visit()
    await world.pass_until(5)
    visit.leave()
    await world.clock.settle()

    assert world.process.rung() == 1
    assert ended(world.process.events) == [(Outcome.STALL, ErrorName.HTTP_RESPONSE_TIMEOUT)]
    assert visit.ended.outcome is Outcome.ABANDONED


@virtual()
async def test_patience_is_measured_from_the_dialling(world: World) -> None:
    world.origin = always(Answer(connect_s=4.0, after_s=500.0))
    visit = world.visit()
    await world.pass_until(6)
    visit.leave()
    await world.clock.settle()

    assert world.process.rung() == 1


@virtual()
async def test_a_client_that_loses_patience_with_the_dialling_makes_the_host_climb(world: World) -> None:
    world.origin = always(UNREACHABLE)
    visit = world.visit()
    await world.pass_until(6)
    visit.leave()
    await world.clock.settle()

    assert world.process.rung() == 1


@virtual()
async def test_a_silent_page_is_not_a_silent_host(world: World) -> None:
    world.origin = by_path(silent=SILENT)
    silent = world.visit("silent")
    await world.pass_until(3)
    world.visit("page")
    await world.pass_until(8)
    silent.leave()
    await world.clock.settle()

    assert world.process.rung() == 0
    assert ended(world.process.events) == [(Outcome.SERVED, None), (Outcome.ABANDONED, None)]


@virtual()
async def test_a_page_served_before_the_dialling_says_nothing_of_now(world: World) -> None:
    world.origin = by_path(silent=SILENT)
    world.visit("page")
    await world.pass_until(1)
    silent = world.visit("silent")
    await world.pass_until(7)
    silent.leave()
    await world.clock.settle()

    assert world.process.rung() == 1


async def come_back(world: World, *, every_s: float, times: int, path: str = "silent") -> None:
    """A client that gives up again and again, and at once asks once more."""
    for _ in range(times):
        visit = world.visit(path)
        await world.clock.advance(every_s)
        visit.leave()
    await world.clock.settle()


@virtual()
async def test_a_silent_host_climbs_however_impatient_its_clients_are(world: World) -> None:
    world.origin = always(SILENT)
    await come_back(world, every_s=1.0, times=4)
    assert world.process.rung() == 0
    await come_back(world, every_s=1.0, times=1)

    assert world.process.rung() == 1
    assert world.sent() == [0, 1, 2, 3, 4]
    assert ended(world.process.events) == [
        *[(Outcome.ABANDONED, None)] * 4,
        (Outcome.STALL, ErrorName.HTTP_RESPONSE_TIMEOUT),
    ]
    # From there on one attempt in 2 s, then in 5 s, and so on: whoever is next in line takes it.
    await come_back(world, every_s=1.3, times=300)
    assert world.process.rung() == 5
    assert len(world.sent()) == 34


@virtual()
async def test_a_silence_of_a_while_ago_is_forgotten(world: World) -> None:
    world.origin = always(SILENT)
    for _ in range(8):
        await come_back(world, every_s=1.0, times=1)
        await world.clock.advance(61.0)
    assert world.process.rung() == 0
    for _ in range(5):
        await world.clock.advance(59.0)
        await come_back(world, every_s=1.0, times=1)
    assert world.process.rung() == 1


@virtual()
async def test_clients_that_wait_at_the_same_time_do_not_make_the_silence_longer(world: World) -> None:
    world.origin = always(SILENT)
    for _ in range(4):
        crowd = [world.visit() for _ in range(10)]
        await world.clock.advance(1.0)
        for visit in crowd:
            visit.leave()
    await world.clock.settle()

    assert world.process.rung() == 0
    assert ended(world.process.events) == [(Outcome.ABANDONED, None)] * 40


@virtual()
async def test_an_impatient_client_of_one_page_does_not_slow_a_host_that_serves_others(world: World) -> None:
    world.origin = by_path(silent=SILENT)
    for _ in range(20):
        world.visit("page")
        await come_back(world, every_s=2.0, times=2)

    assert world.process.rung() == 0
    assert len(world.sent()) == 60


@virtual()
async def test_a_host_that_says_no_is_not_silent(world: World) -> None:
    world.origin = by_path(silent=SILENT, failing=REFUSED)
    await come_back(world, every_s=2.0, times=2)
    world.visit("failing")
    await come_back(world, every_s=2.0, times=2)

    assert world.process.rung() == 0


@virtual()
async def test_a_host_that_cannot_be_connected_to_climbs_however_impatient_its_clients_are(world: World) -> None:
    world.origin = always(UNREACHABLE)
    await come_back(world, every_s=2.0, times=3)

    assert world.process.rung() == 1
    assert ended(world.process.events) == [(Outcome.STALL, ErrorName.CONNECTION_TIMEOUT)]


@virtual()
@pytest.mark.parametrize("dials_s", [0.0, 9.0])
async def test_an_upload_that_its_client_breaks_off_says_nothing_of_an_origin_that_it_reached(
    world: World, dials_s: float
) -> None:
    world.origin = always(Answer(connect_s=dials_s, after_s=50.0))
    visit = world.visit(method="PUT", held=False)
    await world.pass_until(8)
    world.process.engine.leave(visit.request, uploading=True)
    visit.leave()
    await world.finish()

    assert world.process.rung() == (1 if dials_s else 0)


@virtual(abandon_stall_after=0.0)
async def test_impatience_never_counts_where_that_is_switched_off(world: World) -> None:
    world.origin = always(SILENT)
    await come_back(world, every_s=29.0, times=3)

    assert world.process.rung() == 0
    assert ended(world.process.events) == [(Outcome.ABANDONED, None)] * 3


@virtual()
async def test_a_client_that_leaves_after_the_head_was_served(world: World) -> None:
    engine = world.process.engine
    request = engine.accept("shop.example", method="GET", window_s=600)
    assert engine.grant(request) is not None
    engine.sending(request)
    assert engine.settle(request, Reply(status=200)) == Deliver()
    engine.first_byte(request)
    engine.leave(request)
    engine.close(request)

    assert ended(world.process.events) == [(Outcome.SERVED, None)]
    (told,) = world.process.happened(RequestEnded)
    assert (told.outcome, told.gave_up) == (Outcome.ABANDONED, False)
    world.process.events.clear()


@virtual(row=on_rung(2, slot_in=5))
@pytest.mark.parametrize("uploading", [False, True])
async def test_a_client_that_leaves_the_line_has_given_up(world: World, uploading: bool) -> None:
    visit = world.visit()
    await world.pass_until(1)
    world.process.engine.leave(visit.request, uploading=uploading)
    visit.leave()
    await world.finish()

    assert visit.ended.gave_up


@virtual()
@pytest.mark.parametrize(("uploading", "gave_up"), [(False, True), (True, False)])
async def test_a_client_that_leaves_its_attempt_has_given_up_unless_it_was_still_sending(
    world: World, uploading: bool, gave_up: bool
) -> None:
    world.origin = always(SILENT)
    visit = world.visit()
    await world.pass_until(1)
    world.process.engine.leave(visit.request, uploading=uploading)
    visit.leave()
    await world.finish()

    assert visit.ended.gave_up is gave_up


# Slots given back


@virtual(row=on_rung(3))
async def test_failures_before_the_first_byte_do_not_use_up_slots(world: World) -> None:
    world.origin = in_turn(REFUSED, REFUSED, REFUSED, PAGE)
    visits = [world.visit() for _ in range(4)]
    await world.clock.settle()

    assert [visit.done_at for visit in visits] == [0.0] * 4
    assert world.sent() == [0]
    assert ended(world.process.events) == [(Outcome.FAILURE, ErrorName.CONNECTION_REFUSED)] * 3 + [
        (Outcome.SERVED, None)
    ]
    assert world.process.rung() == 2


@virtual(row=on_rung(2))
async def test_a_failure_after_the_sending_leaves_a_pace_to_the_next(world: World) -> None:
    world.origin = in_turn(Answer(error=ErrorName.HTTP_PROTOCOL_ERROR, after_s=3.0), PAGE)
    failed = world.visit()
    world.visit()
    await world.finish()

    assert failed.reply == Reply(error=ErrorName.HTTP_PROTOCOL_ERROR)
    assert world.sent() == [0, 5]


@virtual(row=on_rung(1), attempt_timeout=500.0)
async def test_a_slot_that_another_has_taken_since_is_not_given_back(world: World) -> None:
    world.origin = by_path(a=Answer(error=ErrorName.HTTP_PROTOCOL_ERROR, after_s=3.0), b=ENDLESS, c=ENDLESS, d=ENDLESS)
    visits = [world.visit(name) for name in "abcd"]
    await world.pass_until(7)

    assert world.sent() == [0, 2, 4, 6]
    for visit in visits:
        visit.leave()


# When the row goes


@virtual(row=on_rung(1, slot_in=2))
async def test_a_host_just_recovered_is_not_flooded(world: World) -> None:
    world.origin = always(SLOW_PAGE)
    for _ in range(20):
        world.visit()
    await world.finish()

    assert world.sent() == [2] + [3] + [4] * 2 + [5] * 4 + [6] * 8 + [7] * 4


@virtual(row=on_rung(1, slot_in=2))
async def test_newcomers_join_the_line_while_it_exists(world: World) -> None:
    world.origin = always(SLOW_PAGE)
    for _ in range(19):
        world.visit("early")
    await world.pass_until(4.5)
    newcomer = world.visit("newcomer")
    await world.finish()

    assert world.paths()[-1] == "newcomer"
    assert newcomer.done_at == 8.0


@virtual()
async def test_a_host_that_serves_on_is_let_have_as_many_as_it_had(world: World) -> None:
    world.origin = lambda hit: UNAVAILABLE if hit.at == 9 else Answer(after_s=10.0)
    for at in range(6):
        await world.pass_until(at)
        world.visit("early")
    await world.pass_until(9)
    world.visit("stalls", window=300)
    await world.pass_until(9.5)
    for _ in range(9):
        world.visit("late", window=100)
    await world.finish()

    # With the first page, at 10, the row goes. 5 are on their way, and one is the first batch; the others follow
    # as the 5 end, and the next batch is 2.
    assert world.sent("late") == [10, 11, 12, 13, 14, 15, 20, 20, 21]
    assert world.sent("stalls") == [9, 22]


@virtual(row=on_rung(1, slot_in=2))
async def test_a_stall_in_a_batch_ends_the_batches(world: World) -> None:
    world.origin = until(4, SLOW_PAGE, status(503, after_s=1.0))
    for _ in range(20):
        world.visit(window=10)
    await world.finish()

    assert world.sent() == [2, 3, 4, 4, 7, 10]


@virtual(row=HostState(blocked_until=START + 5, stalled_at=START, version=0))
async def test_after_a_block_on_the_bottom_rung_the_first_claim_sets_rung_one(world: World) -> None:
    world.origin = always(ENDLESS)
    visits = [world.visit(), world.visit()]
    await world.pass_until(6)

    assert world.sent() == [5]
    assert world.process.rung() == 1
    await world.pass_until(7)
    assert world.sent() == [5, 7]
    for visit in visits:
        visit.leave()


@virtual(row=HostState(blocked_until=START + 5, stalled_at=START, version=0))
async def test_after_a_block_on_the_bottom_rung_the_row_goes_where_nobody_waits(world: World) -> None:
    await world.pass_until(20)
    assert await world.stored() is None


@virtual(row=HostState(blocked_until=START + 5, stalled_at=START))
async def test_a_block_that_ended_unnoticed_holds_up_nobody(world: World) -> None:
    await world.pass_until(5.5)
    visits = [world.visit() for _ in range(3)]
    await world.finish()

    assert {visit.done_at for visit in visits} == {5.5}
    assert await world.stored() is None


# The livelock


EVEN = (0.0, *(1.0 for _ in range(1_100)))
"""So many rungs with one pace that a thousand pages do not reach the bottom."""


@virtual(ladder=EVEN, row=on_rung(1_100), window=3_600.0)
async def test_a_thousand_requests_drain_at_exactly_one_per_pace(world: World) -> None:
    visits = [world.visit(str(number)) for number in range(1_000)]
    await world.finish()

    assert world.sent() == [float(second) for second in range(1_000)]
    assert world.paths() == [str(number) for number in range(1_000)]
    assert {visit.status for visit in visits} == {200}


# Going down


@virtual(row=on_rung(2, slot_in=5), attempt_timeout=500.0)
async def test_those_whose_slot_comes_within_the_drain_are_sent_and_the_others_refused_at_its_end(
    world: World,
) -> None:
    world.origin = always(ENDLESS)
    visits = [world.visit() for _ in range(5)]
    await world.pass_until(1)
    world.process.engine.drain(11)
    await world.pass_until(11.9)
    assert [visit.done for visit in visits] == [False] * 5
    await world.pass_until(12)

    assert world.sent() == [5, 10]
    refused = [visit for visit in visits if visit.done]
    assert [visit.done_at for visit in refused] == [12.0] * 3
    assert {visit.refusal.reason for visit in refused if visit.refusal} == {Refused.DRAINING}
    for visit in visits:
        visit.leave()


@virtual(attempt_timeout=500.0)
async def test_a_retry_that_rests_is_refused_at_the_end_of_the_drain(world: World) -> None:
    world.origin = always(UNAVAILABLE)
    visit = world.visit()
    await world.pass_until(8)
    world.process.engine.drain(3)
    await world.finish()

    assert world.sent() == [0, 2, 7]
    assert visit.done_at == 11.0
    assert visit.refusal is not None
    assert visit.refusal.reason is Refused.DRAINING
    assert visit.request.last_reply == Reply(status=503)


@virtual(row=on_rung(2, slot_in=5))
async def test_whoever_comes_after_the_drain_is_refused_too(world: World) -> None:
    world.process.engine.drain(0)
    await world.pass_until(1)
    visit = world.visit()
    await world.clock.settle()

    assert visit.done_at == 1.0
    assert visit.refusal is not None
    assert visit.refusal.reason is Refused.DRAINING


# Cancellation


def _after_turns(world: World, turns: int, action: Callable[[], object]) -> asyncio.Task[None]:
    """At 5 s, so many turns of the loop into that moment, do it."""

    async def go() -> None:
        moment = asyncio.Event()
        world.clock.call_at(1_005.0, moment.set)
        await moment.wait()
        for _ in range(turns):
            await asyncio.sleep(0)
        action()

    return asyncio.get_running_loop().create_task(go())


@pytest.mark.parametrize("turns", range(12))
@pytest.mark.parametrize("how", ["leaves", "is cancelled"])
@virtual(row=on_rung(2, slot_in=5), attempt_timeout=500.0)
async def test_a_request_that_goes_in_the_middle_of_its_grant_loses_no_slot(world: World, turns: int, how: str) -> None:
    world.origin = always(ENDLESS)
    first, second, third = (world.visit(name) for name in ("first", "second", "third"))
    task = _after_turns(world, turns, first.leave if how == "leaves" else first.task.cancel)
    await world.pass_until(30)
    await task

    assert world.paths()[-2:] == ["second", "third"]
    assert world.sent() in ([5, 10], [5, 10, 15])
    for visit in (second, third):
        visit.leave()


@pytest.mark.parametrize("turns", range(12))
@virtual(row=on_rung(2, slot_in=5), attempt_timeout=500.0)
async def test_a_lone_request_that_goes_in_the_middle_of_its_grant_gives_the_slot_back(
    world: World, turns: int
) -> None:
    world.origin = always(ENDLESS)
    alone = world.visit("alone")
    task = _after_turns(world, turns, alone.leave)
    await world.pass_until(6)
    await task
    following = world.visit("following")
    await world.pass_until(20)

    assert world.sent() in ([6], [5, 10])
    following.leave()


@virtual(row=on_rung(2, slot_in=5))
async def test_a_request_whose_client_has_left_is_not_held(world: World) -> None:
    engine = world.process.engine
    request = engine.accept("shop.example", method="GET", window_s=600)
    engine.leave(request)

    assert await engine.hold(request) == Refusal(Refused.LEFT, 0)
    engine.close(request)
    world.process.events.clear()
