"""The limit of attempts in flight to one host, in virtual time: who waits for room, and who gets it when there is some.

What a limit learns is in `test_learned_limit.py`; here it is mostly a number, so that every moment can be written out.
"""

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy_addon.model import ErrorName, HostState, Outcome
from proxy_addon.request import Grant, Refusal, Refused
from tests.support.answers import (
    ENDLESS,
    PAGE,
    REFUSED,
    SILENT,
    SLOW_PAGE,
    START,
    UNAVAILABLE,
    Answer,
    Hit,
    Script,
    always,
    by_path,
    in_turn,
    on_rung,
    status,
)
from tests.support.limits import Told
from tests.support.world import Visit, World, ended, virtual

TERMINATED = Answer(error=ErrorName.CONNECTION_TERMINATED, reused=True)
"""A kept-alive connection had ended."""


def refused(visit: Visit) -> Refused | None:
    return None if visit.refusal is None else visit.refusal.reason


def crowded(world: World, script: Script) -> list[int]:
    """Let the usual host answer by `script`; how many attempts are in flight whenever it is dialled."""
    seen: list[int] = []

    def answer(hit: Hit) -> Answer:
        view = world.process.view()
        seen.append(view.in_flight if view is not None else world.process.engine.snapshot().in_flight)
        return script(hit)

    world.origin = answer
    return seen


# Room


@virtual(in_flight=2)
async def test_who_finds_no_room_goes_when_an_attempt_ends(world: World) -> None:
    world.origin = by_path(a=Answer(after_s=1.0), b=Answer(after_s=1.5))
    visits = [world.visit(name) for name in "abcd"]
    await world.finish()

    assert [(hit.path, hit.at) for hit in world.hits["shop.example"]] == [("a", 0), ("b", 0), ("c", 1), ("d", 1)]
    assert [visit.done_at for visit in visits] == [1.0, 1.5, 1.0, 1.0]


@virtual(in_flight=2)
async def test_the_time_without_room_is_time_waited(world: World) -> None:
    world.origin = always(SLOW_PAGE)
    visits = [world.visit() for _ in range(6)]
    await world.finish()

    assert [visit.ended.waited_s for visit in visits] == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]
    assert [visit.ended.room_s for visit in visits] == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]
    assert [visit.ended.attempts for visit in visits] == [1] * 6


@virtual(in_flight=1)
async def test_a_rest_before_a_retry_is_no_wait_for_room(world: World) -> None:
    answers = {"bad": [status(500)], "slow": [Answer(after_s=8.0)]}
    world.origin = lambda hit: answers[hit.path].pop(0) if answers.get(hit.path) else PAGE
    bad = world.visit("bad")
    await world.pass_until(1)
    world.visit("slow")
    await world.finish()

    # A stall at 0 s; it rests until 2 s. "slow" has the slot at 2 s, and its page at 10 s takes the row away.
    assert (bad.done_at, bad.ended.waited_s, bad.ended.room_s) == (10.0, 10.0, 0.0)


@virtual(row=on_rung(1, slot_in=2), in_flight=1)
async def test_the_wait_for_a_slot_is_no_wait_for_room(world: World) -> None:
    world.origin = always(SLOW_PAGE)
    visits = [world.visit() for _ in range(4)]
    await world.finish()

    assert [visit.ended.waited_s for visit in visits] == [2.0, 3.0, 4.0, 5.0]
    # From 3 s on, when the row has gone, nothing but the limit holds them.
    assert [visit.ended.room_s for visit in visits] == [0.0, 0.0, 1.0, 2.0]


@virtual()
async def test_without_a_limit_nobody_waits_for_room(world: World) -> None:
    world.origin = in_turn(Answer(error=ErrorName.DNS_TIMEOUT), PAGE)
    visit = world.visit()
    await world.finish()

    assert (visit.ended.waited_s, visit.ended.room_s) == (2.0, 0.0)
    assert world.process.view() is None


@virtual(in_flight=1)
async def test_a_limit_is_shown_once_somebody_has_waited_for_it(world: World) -> None:
    world.origin = always(SLOW_PAGE)
    world.visit()
    await world.pass_until(0.5)
    assert world.process.view() is None
    world.visit()
    await world.pass_until(0.5)
    waited_for = world.process.view()
    await world.finish()
    afterwards = world.process.view()

    assert waited_for is not None
    assert (waited_for.in_flight, waited_for.waiting, waited_for.in_flight_limit) == (1, 1, 1)
    assert afterwards is not None
    assert (afterwards.in_flight, afterwards.waiting, afterwards.in_flight_limit) == (0, 0, 1)


@virtual(in_flight="off")
async def test_without_a_limit_all_go_at_once(world: World) -> None:
    world.origin = always(SLOW_PAGE)
    for _ in range(100):
        world.visit()
    await world.finish()

    assert world.sent() == [0.0] * 100


@virtual(in_flight=2)
async def test_each_host_has_room_of_its_own(world: World) -> None:
    for host in ("one.example", "two.example"):
        world.origins[host] = always(SLOW_PAGE)
        for _ in range(3):
            world.visit(host=host)
    await world.finish()

    assert world.sent(host="one.example") == world.sent(host="two.example") == [0, 0, 1]


@virtual(in_flight=1)
async def test_a_thousand_that_wait_for_room_go_one_by_one_in_order(world: World) -> None:
    seen = crowded(world, always(SLOW_PAGE))
    for number in range(1_000):
        world.visit(str(number), window=5_000)
    await world.finish()

    assert world.paths() == [str(number) for number in range(1_000)]
    assert world.sent() == [float(second) for second in range(1_000)]
    assert set(seen) == {1}
    assert world.process.store.swaps == 0


@virtual(in_flight=1)
async def test_a_newcomer_does_not_overtake_those_who_wait_for_room(world: World) -> None:
    world.origin = always(SLOW_PAGE)
    world.visit("first")
    world.visit("second")
    await world.pass_until(1.0)
    world.visit("third")
    await world.finish()

    assert world.paths() == ["first", "second", "third"]


@virtual(in_flight=1)
async def test_a_newcomer_of_the_very_moment_at_which_room_comes_does_not_overtake(world: World) -> None:
    newcomers: list[Visit] = []

    def answer(hit: Hit) -> Answer:
        if hit.path == "first":
            # Fires together with the end of the first attempt, before the host's task has looked.
            moment = world.clock.monotonic() + 1.0
            world.clock.call_at(moment, lambda: newcomers.append(world.visit("newcomer")))
        return SLOW_PAGE

    world.origin = answer
    world.visit("first")
    await world.pass_until(0.5)
    world.visit("second")
    await world.pass_until(1.5)
    await world.finish()

    assert world.paths() == ["first", "second", "newcomer"]


@virtual(in_flight=1)
async def test_someone_at_a_spinner_gets_room_before_a_batch(world: World) -> None:
    world.origin = always(SLOW_PAGE)
    for name in ("first", "batch"):
        world.visit(name, window=600)
    await world.pass_until(0.5)
    world.visit("spinner", window=45)
    await world.finish()

    assert world.paths() == ["first", "spinner", "batch"]


# Those who leave, those whose time is over


@virtual(in_flight=1)
async def test_one_that_leaves_in_flight_makes_room_at_once(world: World) -> None:
    world.origin = by_path(first=SILENT)
    first, second = world.visit("first"), world.visit("second")
    await world.pass_until(3.0)
    first.leave()
    await world.finish()

    assert second.done_at == 3.0


@virtual(in_flight=1)
async def test_one_that_leaves_while_it_connects_makes_room_at_once(world: World) -> None:
    world.origin = by_path(first=Answer(connect_s=9.0))
    first, second = world.visit("first"), world.visit("second")
    await world.pass_until(3.0)
    first.leave()
    await world.finish()

    assert second.done_at == 3.0
    assert world.paths() == ["second"]


@virtual(in_flight=1)
async def test_one_that_leaves_the_line_takes_no_room(world: World) -> None:
    world.origin = always(SLOW_PAGE)
    visits = [world.visit(name) for name in "abc"]
    await world.pass_until(0.5)
    visits[1].leave()
    await world.finish()

    assert [(hit.path, hit.at) for hit in world.hits["shop.example"]] == [("a", 0), ("c", 1)]
    assert visits[1].ended.outcome is Outcome.ABANDONED


@virtual(in_flight=1, attempt_timeout=500.0)
async def test_a_window_that_closes_without_room_is_an_error_at_that_moment(world: World) -> None:
    world.origin = always(ENDLESS)
    first, second = world.visit(window=700), world.visit(window=45)
    await world.pass_until(60)

    assert (refused(second), second.done_at) == (Refused.WINDOW_CLOSED, 45.0)
    assert (second.ended.waited_s, second.ended.room_s) == (45.0, 45.0)
    assert second.ended.outcome is Outcome.UNSENT
    first.leave()


@virtual(in_flight=1, attempt_timeout=500.0)
async def test_a_limit_that_somebody_has_set_holds_for_late_attempts_too(world: World) -> None:
    seen = crowded(world, always(ENDLESS))
    visits = [world.visit(window=45) for _ in range(3)]
    await world.pass_until(100)

    assert seen == [1]
    visits[0].leave()


@virtual(in_flight="learn", attempt_timeout=500.0)
async def test_a_limit_that_is_a_guess_lets_late_attempts_go(world: World) -> None:
    world.origin = always(ENDLESS)
    visits = [world.visit(window=45) for _ in range(40)]
    await world.pass_until(100)

    late = [hit.at for hit in world.hits["shop.example"] if hit.late]
    assert late == [45.0]
    for visit in visits:
        visit.leave()


@virtual(in_flight=1)
async def test_a_request_without_a_window_is_refused_at_once_where_there_is_no_room(world: World) -> None:
    world.origin = always(SLOW_PAGE)
    world.visit()
    await world.pass_until(0.5)
    impatient = world.visit(window=0)
    await world.pass_until(0.5)

    assert (refused(impatient), impatient.done_at) == (Refused.WINDOW_CLOSED, 0.5)
    await world.finish()
    assert world.sent() == [0.0]


@virtual(in_flight=2)
async def test_a_request_without_a_window_goes_where_there_is_room(world: World) -> None:
    world.origin = always(SLOW_PAGE)
    visits = [world.visit(window=0) for _ in range(2)]
    await world.finish()

    assert [visit.status for visit in visits] == [200, 200]


@virtual(in_flight=1)
async def test_while_draining_those_go_on_for_whom_room_comes_in_time(world: World) -> None:
    world.origin = always(Answer(after_s=10.0))
    visits = [world.visit() for _ in range(5)]
    await world.pass_until(5)
    world.process.engine.drain(25)
    await world.finish()

    assert [visit.status for visit in visits] == [200, 200, 200, None, None]
    assert [refused(visit) for visit in visits[3:]] == [Refused.DRAINING] * 2
    assert [visit.done_at for visit in visits] == [10, 20, 30, 30, 30]


# What an attempt came to


@virtual(in_flight=1)
@pytest.mark.parametrize("answer", [REFUSED, status(404), Answer(cut=True), Answer(connect_s=11.0)])
async def test_room_comes_whatever_an_attempt_came_to(world: World, answer: Answer) -> None:
    world.origin = by_path(first=answer)
    world.visit("first", method="POST")
    second = world.visit("second")
    await world.finish()

    assert second.status == 200


@virtual(in_flight=1)
async def test_a_retry_waits_for_room_like_anybody(world: World) -> None:
    answers = {"bad": [status(500)], "slow": [Answer(after_s=8.0)]}
    world.origin = lambda hit: answers[hit.path].pop(0) if answers.get(hit.path) else PAGE
    seen = crowded(world, world.origin)
    world.visit("bad")
    world.visit("slow")
    await world.finish()

    assert [(hit.path, hit.at) for hit in world.hits["shop.example"]] == [("bad", 0), ("slow", 2), ("bad", 10)]
    assert set(seen) == {1}


@virtual(in_flight=1)
async def test_what_is_sent_again_on_another_connection_keeps_its_place(world: World) -> None:
    first = [TERMINATED]
    world.origin = lambda hit: first.pop() if hit.path == "first" and first else SLOW_PAGE
    visits = [world.visit(name) for name in ("first", "second", "third")]
    await world.finish()

    assert world.paths() == ["first", "first", "second", "third"]
    assert visits[0].ended.waited_s == 0.0


@virtual(in_flight=1)
async def test_what_waited_and_is_sent_again_on_another_connection_keeps_its_place(world: World) -> None:
    second = [TERMINATED]
    world.origin = lambda hit: second.pop() if hit.path == "second" and second else SLOW_PAGE
    for name in ("first", "second", "third"):
        world.visit(name)
    await world.finish()

    assert world.paths() == ["first", "second", "second", "third"]


@virtual(row=on_rung(1, slot_in=2), in_flight=1)
async def test_what_is_sent_again_to_a_paced_host_has_the_next_slot(world: World) -> None:
    first = [TERMINATED]
    world.origin = lambda hit: first.pop() if hit.path == "first" and first else status(404)
    for moment, name in enumerate(("first", "second", "third")):
        await world.pass_until(0.1 * moment)
        world.visit(name)
    await world.finish()

    assert [(hit.path, hit.at) for hit in world.hits["shop.example"]] == [
        ("first", 2),
        ("first", 4),
        ("second", 4),
        ("third", 4),
    ]


@virtual(in_flight=2)
async def test_what_was_sent_again_has_no_place_to_keep_once_it_has_stalled(world: World) -> None:
    bad = [TERMINATED, status(500, after_s=3.0)]
    world.origin = lambda hit: bad.pop(0) if hit.path == "bad" and bad else SLOW_PAGE
    world.visit("bad")
    for number in range(6):
        world.visit(str(number))
    await world.finish()

    # Pages that were sent after it have come: it does not rest, and still they all go before it.
    assert world.paths() == ["bad", "0", "bad", "1", "2", "3", "4", "5", "bad"]


@virtual(in_flight=1)
async def test_who_leaves_while_it_rests_has_not_waited_for_room(world: World) -> None:
    world.origin = always(Answer(error=ErrorName.DNS_TIMEOUT))
    visit = world.visit()
    await world.pass_until(1)
    visit.leave()
    await world.finish()

    assert (visit.ended.waited_s, visit.ended.room_s) == (1.0, 0.0)


@virtual(in_flight=1)
async def test_what_is_overdue_is_still_in_flight(world: World) -> None:
    seen = crowded(world, by_path(post=Answer(after_s=40.0)))
    world.visit("post", method="POST")
    await world.pass_until(1)
    page = world.visit("page")
    await world.finish()

    assert ended(world.process.events) == [(Outcome.STALL, ErrorName.HTTP_RESPONSE_TIMEOUT), (Outcome.SERVED, None)]
    assert page.done_at == 40.0
    assert seen == [1, 1]


# Who goes soon


@virtual(in_flight=2)
async def test_those_go_soon_before_whom_fewer_wait_for_room_than_the_limit(world: World) -> None:
    world.origin = always(SLOW_PAGE)
    newcomer = world.process.engine.accept("shop.example", method="GET", window_s=600)
    soon = []
    for _ in range(6):
        world.visit()
        await world.clock.settle()
        soon.append(world.process.engine.goes_soon(newcomer))
    world.process.engine.close(newcomer)
    world.process.events.pop()
    await world.finish()

    # Two are in flight; then one, two, three and four wait.
    assert soon == [True, True, True, False, False, False]


@pytest.mark.parametrize("row", [on_rung(1, slot_in=2), HostState(blocked_until=START + 9)])
def test_nobody_goes_soon_to_a_paced_host(row: HostState) -> None:
    @virtual(row=row, in_flight=2)
    async def crawl(world: World) -> None:
        visit = world.visit()
        assert not world.process.engine.goes_soon(visit.request)
        await world.finish()

    crawl()


@virtual()
async def test_without_a_limit_nobody_waits_and_goes_soon(world: World) -> None:
    visit = world.visit()
    assert not world.process.engine.goes_soon(visit.request)
    await world.finish()


# Hosts that have a row


@virtual(row=on_rung(1, slot_in=2), in_flight=1)
async def test_a_slot_alone_is_not_enough_at_a_paced_host(world: World) -> None:
    world.origin = by_path(a=Answer(after_s=7.0))
    for name in "abc":
        world.visit(name)
    await world.finish()

    # The page of "a" takes the row away; two are left, and one of them at a time.
    assert [(hit.path, hit.at) for hit in world.hits["shop.example"]] == [("a", 2), ("b", 9), ("c", 9)]


@virtual(row=on_rung(1, slot_in=2), in_flight=1)
async def test_room_alone_is_not_enough_at_a_paced_host(world: World) -> None:
    world.origin = always(status(503))
    for name in "abc":
        world.visit(name, method="POST")
    await world.finish()

    assert world.gaps() == [5.0, 15.0]


@virtual(row=HostState(rung=5, stalled_at=START, paused_until=START + 100, pauses=1), in_flight=1)
async def test_the_probe_goes_when_nothing_is_in_flight(world: World) -> None:
    world.origin = always(SLOW_PAGE)
    world.visit("probe")
    await world.finish()

    assert world.sent() == [100.0]


@virtual(in_flight=1, pause_after=1)
async def test_the_probe_waits_for_what_is_in_flight_and_not_for_ever(world: World) -> None:
    seen = crowded(world, by_path(post=Answer(after_s=300.0)))
    world.visit("post", method="POST")
    await world.pass_until(1)
    probe = world.visit("probe")
    await world.finish()

    # It began the pause at 30 s; the pause is over at 150 s.
    assert seen == [1, 1]
    assert probe.done_at == 300.0


@virtual(row=on_rung(1, slot_in=2), in_flight=2)
async def test_batches_that_double_keep_to_the_limit(world: World) -> None:
    seen = crowded(world, always(SLOW_PAGE))
    for _ in range(12):
        world.visit()
    await world.finish()

    # One in its slot, whose page takes the row away; then batches of 1, 2, 4 and 4, the last two in two halves.
    assert world.sent() == [2, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8]
    assert max(seen) == 2


@virtual(row=on_rung(1, slot_in=2), in_flight=2)
async def test_after_a_batch_of_one_a_limit_of_two_is_all_that_holds_them(world: World) -> None:
    world.origin = by_path(slow=Answer(after_s=4.0), quick=SLOW_PAGE)
    for name in ("quick", "quick", "slow", "quick", "quick", "quick"):
        world.visit(name)
    await world.finish()

    # One in its slot, one by itself; then two at a time, and the slow one keeps nobody waiting.
    assert world.sent("slow") == [4]
    assert world.sent("quick") == [2, 3, 4, 5, 6]


@virtual(row=on_rung(1, slot_in=2), in_flight=5)
async def test_an_unused_grant_is_passed_on_with_its_room(world: World) -> None:
    world.origin = by_path(first=Answer(connect_s=9.0))
    first = world.visit("first")
    second = world.visit("second")
    await world.pass_until(4.0)
    first.leave()
    await world.finish()

    assert second.done_at == 4.0


# All together


FATES = st.sampled_from(
    [
        PAGE,
        SLOW_PAGE,
        SILENT,
        REFUSED,
        UNAVAILABLE,
        TERMINATED,
        status(500),
        status(429, retry_after="3"),
        Answer(connect_s=3.0),
        Answer(connect_s=20.0),
        Answer(after_s=12.0),
        Answer(after_s=40.0),
        Answer(cut=True),
    ]
)
REQUESTS = st.lists(
    st.tuples(
        st.floats(0, 60).map(lambda moment: round(moment, 1)),
        st.sampled_from(["GET", "POST"]),
        st.sampled_from([0.0, 5.0, 45.0, 300.0]),
        st.lists(FATES, min_size=1, max_size=4),
        st.none() | st.floats(0, 60).map(lambda moment: round(moment, 1)),
    ),
    max_size=25,
)


type Requests = list[tuple[float, str, float, list[Answer], float | None]]


async def play(world: World, requests: Requests) -> list[int]:
    """Let them come, be answered, and some leave. How many attempts were in flight whenever the host was dialled."""
    fates = {str(number): in_turn(*request[3]) for number, request in enumerate(requests)}
    seen = crowded(world, lambda hit: fates[hit.path](hit))

    def begin(number: int) -> None:
        _, method, window_s, _, stays_s = requests[number]
        visit = world.visit(str(number), method=method, window=window_s)
        if stays_s is not None:
            world.clock.call_at(world.clock.monotonic() + stays_s, visit.leave)

    for number, request in enumerate(requests):
        world.clock.call_at(world.clock.monotonic() + request[0], functools.partial(begin, number))
    await world.pass_until(61)
    await world.finish()
    assert len(world.visits) == len(requests)
    await world.pass_until(2_000)
    return seen


@settings(max_examples=100, deadline=None)
@given(most=st.integers(1, 4), requests=REQUESTS)
def test_a_limit_is_told_the_whole_life_of_every_attempt(most: int, requests: Requests) -> None:
    @virtual(limit=lambda: Told(most=most), pause_after=3)
    async def crawl(world: World) -> None:
        await play(world, requests)
        if not world.process.limits:
            return
        (limit,) = world.process.limits
        assert isinstance(limit, Told)
        lives: dict[Grant, list[str]] = {}
        for name, grant in limit.calls:
            lives.setdefault(grant, []).append(name)
        assert limit.in_flight == set()
        for life in lives.values():
            assert life in (
                ["granted", "ended"],
                ["granted", "sent", "ended"],
                ["granted", "sent", "overdue", "ended"],
            )

    crawl()


@settings(max_examples=100, deadline=None)
@given(most=st.integers(1, 4), requests=REQUESTS)
def test_never_more_are_in_flight_than_the_limit_says_and_every_request_ends(most: int, requests: Requests) -> None:
    @virtual(in_flight=most, pause_after=3)
    async def crawl(world: World) -> None:
        seen = await play(world, requests)
        assert all(count <= most for count in seen)
        # Nothing has leaked: there is room for as many as before.
        world.origin = always(SLOW_PAGE)
        world.hits.clear()
        last = [world.visit(host="shop.example", window=3_600) for _ in range(most)]
        await world.finish()
        assert [visit.refusal for visit in last] == [None] * most

    crawl()


def test_a_refusal_says_when_to_come_again() -> None:
    @virtual(in_flight=1)
    async def crawl(world: World) -> None:
        world.origin = always(SLOW_PAGE)
        world.visit()
        impatient = world.visit(window=0)
        await world.finish()
        assert impatient.refusal == Refusal(Refused.WINDOW_CLOSED, 1.0)

    crawl()
