"""What the engine makes of a quota that is used up, and of other waits that origins ask for, in virtual time."""

import itertools
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy_addon.model import ErrorName, HostState, Outcome, RetryAfterCapped
from proxy_addon.request import Refusal, Refused
from tests.support.answers import (
    HOST,
    PAGE,
    START,
    UNAVAILABLE,
    Answer,
    Hit,
    always,
    by_path,
    in_turn,
    on_rung,
    status,
)
from tests.support.examples import FIXED
from tests.support.world import World, ended, virtual


def used_up(seconds: float, *, code: int = 200, after_s: float = 0.0) -> Answer:
    """A reply that says that the quota is used up for so long."""
    return Answer(code, (("RateLimit", f'"default";r=0;t={seconds:g}'),), after_s=after_s)


LAST_PAGE = used_up(30)
"""A page, and nothing more for 30 s."""


@virtual()
async def test_a_page_that_used_up_the_quota_delays_the_next_without_a_climb(world: World) -> None:
    world.origin = in_turn(LAST_PAGE, PAGE)
    first = world.visit()
    await world.pass_until(1)

    assert (first.status, first.done_at) == (200, 0.0)
    assert ended(world.process.events) == [(Outcome.SERVED, None)]
    row = await world.stored()
    assert row is not None
    assert (row.rung, row.blocked_until, row.stalled_at) == (0, START + 30, 0.0)

    second = world.visit()
    await world.finish()
    assert (second.status, second.ended.waited_s, second.ended.rung) == (200, 29.0, 1)
    assert world.sent() == [0, 30]


@virtual()
async def test_a_page_of_a_host_with_something_left_leaves_it_without_a_row(world: World) -> None:
    world.origin = always(Answer(200, (("RateLimit", '"default";r=1;t=30'), ("X-RateLimit-Remaining", "7"))))
    for _ in range(3):
        world.visit()
    await world.finish()

    assert world.sent() == [0, 0, 0]
    assert await world.stored() is None
    assert world.process.store.swaps == 0


@virtual()
async def test_any_reply_that_is_served_can_tell_of_the_quota(world: World) -> None:
    world.origin = in_turn(used_up(30, code=403), PAGE)
    told = world.visit()
    await world.pass_until(1)
    later = world.visit()
    await world.finish()

    assert (told.status, told.done_at) == (403, 0.0)
    assert (later.status, world.sent()) == (200, [0, 30])


@virtual(attempt_timeout=500.0)
async def test_those_who_waited_for_a_quota_leave_carefully(world: World) -> None:
    world.origin = in_turn(LAST_PAGE, Answer(after_s=0.5))
    world.visit()
    await world.pass_until(1)
    for _ in range(7):
        world.visit()
    await world.finish()

    # From rung 1; once that one is served the row goes, and the rest leaves in batches of 1, 2, 4.
    assert world.sent() == [0, 30, 30.5, 31, 31, 31.5, 31.5, 31.5]
    assert await world.stored() is None


@virtual()
async def test_the_row_of_a_quota_goes_where_nobody_waits(world: World) -> None:
    world.origin = in_turn(LAST_PAGE, PAGE)
    world.visit()
    await world.pass_until(29)
    assert await world.stored() is not None
    await world.pass_until(36)
    assert await world.stored() is None
    for _ in range(3):
        world.visit()
    await world.finish()

    assert world.sent() == [0, 36, 36, 36]


@virtual()
async def test_whoever_comes_right_after_the_end_of_a_quota_goes_at_once(world: World) -> None:
    world.origin = in_turn(LAST_PAGE, PAGE)
    world.visit()
    await world.pass_until(30)
    world.visit()
    world.visit()
    await world.finish()

    assert world.sent() == [0, 30, 30]


@virtual()
async def test_a_quota_of_one_page_a_second_gets_one_page_a_second(world: World) -> None:
    world.origin = always(used_up(1))
    for _ in range(6):
        world.visit()
    await world.finish()

    assert world.sent() == [0, 0, 0, 0, 0, 0], "nobody knew"
    for _ in range(4):
        world.visit()
    await world.finish()
    assert world.sent()[6:] == [1, 2, 3, 4]
    assert ended(world.process.events) == [(Outcome.SERVED, None)] * 10


@virtual()
async def test_a_quota_cannot_end_a_longer_one(world: World) -> None:
    world.origin = by_path(long=used_up(30, after_s=1.0), short=used_up(5, after_s=2.0), other=PAGE)
    world.visit("long")
    world.visit("short")
    await world.pass_until(3)
    world.visit("other")
    await world.finish()

    assert world.sent("other") == [31]


@virtual()
async def test_a_quota_on_a_slow_host_blocks_it_and_takes_its_step_down(world: World) -> None:
    world.origin = in_turn(UNAVAILABLE, UNAVAILABLE, LAST_PAGE, PAGE)
    world.visit()
    await world.pass_until(8)
    row = await world.stored()
    assert row is not None
    assert (row.rung, row.blocked_until) == (1, START + 37)
    world.visit()
    await world.finish()

    assert world.sent() == [0, 2, 7, 37]


@virtual()
async def test_a_long_quota_blocks_for_the_cap_and_is_counted(world: World) -> None:
    world.origin = in_turn(used_up(3_600), PAGE)
    world.visit()
    await world.pass_until(1)
    world.visit()
    await world.finish()

    assert world.sent() == [0, 300]
    assert world.process.happened(RetryAfterCapped) == [RetryAfterCapped(HOST, 3_600.0)]


@virtual()
async def test_who_cannot_wait_for_the_quota_is_told_at_once(world: World) -> None:
    world.origin = in_turn(LAST_PAGE, PAGE)
    world.visit()
    await world.pass_until(1)
    hasty, just, patient, unheld = (world.visit(window=w) for w in (28.9, 29.0, 45.0, 0.0))
    await world.pass_until(2)

    assert (hasty.refusal, hasty.done_at) == (Refusal(Refused.CANNOT_COME_IN_TIME, 29.0), 1.0)
    assert unheld.refusal is not None
    assert unheld.done_at == 1.0
    await world.finish()
    assert (just.status, just.done_at) == (200, 30.0)
    assert (patient.status, patient.done_at) == (200, 30.0)


@virtual(row=on_rung(2, slot_in=5))
async def test_those_in_line_who_cannot_wait_for_the_quota_are_told_when_it_is_used_up(world: World) -> None:
    world.origin = in_turn(LAST_PAGE, PAGE)
    first, hasty, patient = (world.visit(window=w) for w in (20.0, 34.0, 45.0))
    await world.finish()

    assert (first.status, first.done_at) == (200, 5.0)
    assert (hasty.refusal, hasty.done_at) == (Refusal(Refused.CANNOT_COME_IN_TIME, 30.0), 5.0)
    assert (patient.status, patient.done_at) == (200, 35.0)


@virtual()
async def test_who_waits_for_its_own_short_block_is_told_when_anothers_is_too_long(world: World) -> None:
    world.origin = by_path(short=status(429, retry_after="5"), long=status(429, retry_after="100", after_s=1.0))
    hasty, patient = world.visit("short", window=45), world.visit("long", window=150)
    await world.pass_until(2)

    assert (hasty.refusal, hasty.done_at) == (Refusal(Refused.CANNOT_COME_IN_TIME, 100.0), 1.0)
    assert hasty.request.last_reply is not None
    assert hasty.request.last_reply.fields == (("Retry-After", "5"),)
    assert not patient.done
    world.origin = always(PAGE)
    await world.finish()
    assert world.sent() == [0, 0, 101]


@virtual()
async def test_a_429_whose_quota_ends_after_its_window_is_the_answer(world: World) -> None:
    limited = Answer(429, (("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", "3600")))
    world.origin = in_turn(limited, PAGE)
    told = world.visit()
    await world.finish()

    assert (told.status, told.done_at) == (429, 0.0)
    assert told.reply is not None
    assert told.reply.fields == limited.fields
    assert world.process.happened(RetryAfterCapped) == [RetryAfterCapped(HOST, 3_600.0)]


@pytest.mark.parametrize(
    ("code", "fields", "second_at"),
    [
        (429, (("RateLimit", '"default";r=0;t=30'),), 30.0),
        (429, (("X-RateLimit-Reset", "30"),), 30.0),
        (429, (("X-RateLimit-Remaining", "3"), ("X-RateLimit-Reset", "30")), 2.0),
        (429, (("Retry-After", "7"), ("RateLimit", '"default";r=0;t=30')), 7.0),
        (429, (("Retry-After", "soon"), ("RateLimit", '"default";r=0;t=30')), 30.0),
        (503, (("RateLimit", '"default";r=0;t=30'),), 30.0),
        (503, (("X-RateLimit-Reset", "30"),), 2.0),
        (503, (("RateLimit", '"default";r=0;t=1'),), 2.0),
    ],
)
@virtual()
async def test_a_stall_waits_for_its_quota_where_that_is_what_stopped_it(
    world: World, code: int, fields: tuple[tuple[str, str], ...], second_at: float
) -> None:
    world.origin = in_turn(Answer(code, fields), PAGE)
    world.visit()
    await world.finish()

    assert world.sent() == [0, second_at]


@virtual(processes=2)
async def test_a_quota_that_one_process_hears_of_holds_for_the_others(world: World) -> None:
    world.origin = in_turn(LAST_PAGE, PAGE)
    one, other = world.processes
    one.visit()
    await world.pass_until(0.1)
    here, there = one.visit(), other.visit()
    hasty = other.visit(window=10)
    await world.finish()

    assert hasty.done_at == 0.1
    assert (here.status, there.status) == (200, 200)
    # One claims the slot; once it is served the row goes, of which the other hears within 0.1 s.
    assert world.sent() == [0, 30, 30.1]


@virtual(processes=2)
async def test_two_processes_that_hear_of_a_quota_at_once_keep_the_longer(world: World) -> None:
    world.origin = by_path(short=used_up(5), long=used_up(30))
    one, other = world.processes
    one.visit("long")
    other.visit("short")
    await world.pass_until(1)
    row = await world.stored()

    assert row is not None
    assert row.blocked_until == START + 30


@virtual(processes=2)
async def test_a_process_that_starts_anew_knows_of_the_quota(world: World) -> None:
    world.origin = in_turn(LAST_PAGE, PAGE)
    world.visit()
    await world.pass_until(1)
    anew = await world.start_process()
    visit = anew.visit()
    await world.finish()

    assert (visit.status, visit.done_at) == (200, 30.0)


@virtual(row=HostState(rung=0, blocked_until=START + 300.0), window=3_600.0)
async def test_a_row_that_a_quota_began_is_not_forgiven_before_its_block_ends(world: World) -> None:
    visit = world.visit()
    await world.finish()

    assert (visit.status, world.sent()) == (200, [300])


# An attempt that is on its way when its host gets blocked


@virtual(attempt_timeout=30.0)
async def test_a_retry_after_holds_also_where_its_stall_was_recorded_long_before(world: World) -> None:
    world.origin = in_turn(status(429, retry_after="100", after_s=40.0), PAGE)
    slow = world.visit(method="POST")
    await world.pass_until(41)
    other = world.visit()
    await world.finish()

    assert (slow.status, slow.done_at) == (429, 40.0)
    assert ended(world.process.events)[0] == (Outcome.STALL, ErrorName.HTTP_RESPONSE_TIMEOUT)
    assert world.sent() == [0, 140]
    assert (other.status, other.ended.rung) == (200, 1)


@virtual(row=on_rung(1), abandon_stall_after=0.0)
async def test_a_grant_is_not_passed_on_once_its_host_is_blocked(world: World) -> None:
    world.origin = by_path(limited=status(429, retry_after="60", after_s=2.5), slow=Answer(connect_s=5.0), next=PAGE)
    world.visit("limited", window=0.5)
    await world.pass_until(1)
    leaving, waiting = world.visit("slow"), world.visit("next")
    await world.pass_until(3)
    assert world.sent() == [0]
    leaving.leave()
    await world.finish()

    assert world.sent() == [0, 62.5]
    assert waiting.status == 200


@virtual(row=on_rung(1), abandon_stall_after=0.0)
async def test_a_grant_is_not_passed_on_in_the_moment_in_which_its_host_gets_blocked(world: World) -> None:
    world.origin = by_path(limited=status(429, retry_after="60", after_s=2.5), slow=Answer(connect_s=5.0), next=PAGE)
    limited = world.visit("limited", window=0.5)
    await world.pass_until(1)
    leaving, waiting = world.visit("slow"), world.visit("next")
    limited.task.add_done_callback(lambda _: leaving.leave())
    await world.finish()

    assert world.sent() == [0, 62.5]
    assert waiting.status == 200


# Whatever is asked, and by whatever reply

_ASKING = st.tuples(
    st.sampled_from([200, 200, 403, 429, 503]),
    st.sampled_from([0.0, 0.0, 0.5, 3.0, 9.0, 3_600.0]),
    st.sampled_from(["RateLimit", "Retry-After"]),
    st.sampled_from([0.0, 1.0]),
)
"""Status, for how long it asks, how, and after how long the reply comes."""


@given(
    asking=st.lists(_ASKING, min_size=1, max_size=12),
    clients=st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.0, 0.2, 2.0, 11.0]),
            st.integers(0, 1),
            st.sampled_from([0.0, 5.0, 30.0]),
            st.sampled_from(["GET", "POST"]),
        ),
        min_size=1,
        max_size=12,
    ),
    processes=st.integers(1, 2),
)
@settings(FIXED, max_examples=60)
def test_nothing_is_sent_to_a_host_before_the_time_that_it_asked_for(
    asking: list[tuple[int, float, str, float]],
    clients: list[tuple[float, int, float, str]],
    processes: int,
) -> None:
    replies = itertools.cycle(asking)
    blocks: list[tuple[float, float]] = []
    """From when to when each reply forbids to send, in seconds since the world began."""

    def origin(hit: Hit) -> Answer:
        code, asked_s, how, after_s = next(replies)
        fields = ("RateLimit", f'"default";r=0;t={asked_s}') if how == "RateLimit" else ("Retry-After", str(asked_s))
        if how == "RateLimit" or code in (429, 503):
            blocks.append((hit.at + after_s, hit.at + after_s + min(asked_s, 10.0)))
        return Answer(code, (fields,), after_s=after_s)

    @virtual(processes=processes, pause_after=0, retry_after_cap=10.0)
    async def scenario(world: World) -> None:
        world.origin, at = origin, 0.0
        for after_s, process, window_s, method in clients:
            at += after_s
            await world.pass_until(at)
            world.processes[process % processes].visit(method=method, window=window_s)
        await world.finish()
        # Another process hears of a block after at most 0.1 s.
        known_after_s = 0.1 if processes > 1 else 0.0
        for sent in world.sent():
            for begins, ends in blocks:
                assert not begins + known_after_s < sent < ends - 1e-6, (sent, begins, ends)
        assert all(visit.ended.attempts or visit.refusal for visit in world.visits)

    scenario()


# The log


@virtual()
async def test_the_log_says_once_that_a_host_is_blocked(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.origin = always(used_up(10))
    with caplog.at_level(logging.INFO, "proxy_addon"):
        for _ in range(10):
            world.visit()
        await world.finish()
        for _ in range(8):
            world.visit()
        await world.finish()

    assert world.sent()[10:] == [10, 20, 30, 40, 50, 60, 70, 80]
    assert caplog.messages == [
        "shop.example is blocked for 10 s, as it asked; 0 waiting.",
        "shop.example is blocked for 10 s, as it asked; 2 waiting.",
    ]


@virtual()
async def test_the_log_says_of_a_429_that_the_host_is_slow_and_blocked(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.origin = in_turn(status(429, retry_after="7.5"), PAGE)
    with caplog.at_level(logging.INFO, "proxy_addon"):
        world.visit()
        await world.finish()

    assert caplog.messages == [
        "shop.example is blocked for 7.5 s, as it asked; 1 waiting.",
        "shop.example is slow (rate_limited): one attempt in 2 s, 1 waiting.",
        "shop.example is well again.",
    ]


@virtual()
async def test_the_log_says_once_in_a_while_that_a_host_stumbles_and_always_that_it_falls(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    slow = "shop.example is slow (http_status_5xx): one attempt in {} s, 1 waiting."
    with caplog.at_level(logging.INFO, "proxy_addon"):
        for _ in range(9):  # Each for two seconds on the first rung, and the 8th of them a minute after the first.
            world.origin = in_turn(status(503), PAGE)
            world.visit()
            await world.finish()
            await world.clock.advance(7.0)
        world.origin = in_turn(status(503), status(503), PAGE)
        world.visit()
        await world.finish()

    assert caplog.messages == [
        *(slow.format(2), "shop.example is well again."),
        *(slow.format(2), "shop.example is well again."),
        slow.format(5),
    ]
