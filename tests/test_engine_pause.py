"""A host that is left alone for a while: whatever the origin and the clients do, in virtual time."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy_addon.model import ErrorName, HostPaused, HostState, Outcome
from tests.support.answers import (
    PAGE,
    REFUSED,
    SILENT,
    START,
    UNAVAILABLE,
    UNREACHABLE,
    Answer,
    Hit,
    always,
    by_path,
    in_turn,
    on_rung,
    status,
)
from tests.support.examples import FIXED
from tests.support.world import Visit, World, virtual

_ANSWERS = st.sampled_from(
    [
        PAGE,
        UNAVAILABLE,
        UNAVAILABLE,
        UNAVAILABLE,
        status(429, retry_after="7"),
        status(503, after_s=2.0),
        SILENT,
        REFUSED,
        UNREACHABLE,
        Answer(connect_s=1.5),
        Answer(connect_s=1.0, status=503),
        Answer(after_s=7.0),
        Answer(error=ErrorName.CONNECTION_TERMINATED),
        Answer(error=ErrorName.DNS_TIMEOUT, refused=True),
        Answer(cut=True),
    ]
)
_CLIENTS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.0, 0.5, 3.0, 30.0]),
        st.sampled_from(["GET", "GET", "GET", "POST"]),
        st.sampled_from([0.0, 5.0, 30.0, 300.0, 300.0]),
        st.none() | st.sampled_from([0.0, 0.5, 1.0, 5.0, 10.0, 40.0]),
        st.integers(0, 1),
    ),
    min_size=1,
    max_size=15,
)


@dataclass
class Watch:
    """Looks at each grant, just as it is given."""

    world: World
    answers: list[Answer]
    probes: list[tuple[Visit, int]] = field(default_factory=list)
    """The visits that were granted a probe, and which attempt it was."""

    def __call__(self, hit: Hit) -> Answer:
        visit = self.world.visits[int(hit.path)]
        view = visit.process.view()
        if view is not None:
            state, now = view.state, self.world.clock.now()
            assert state.paused_until <= now, f"{hit} was granted in a pause"
            if state.paused_until > 0:
                out = [other for other, attempt in self.probes if is_out(other, attempt)]
                assert not out, f"{hit} was granted while a probe was out"
                assert hit.late is False
                self.probes.append((visit, hit.attempt))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def is_out(visit: Visit, attempt: int) -> bool:
    """Whether that attempt has no outcome yet."""
    request = visit.request
    return not visit.done and request.attempts == attempt and request.grant is not None and not request.grant.overdue


@given(
    answers=st.lists(_ANSWERS, min_size=1, max_size=20), clients=_CLIENTS, processes=st.sampled_from([1, 1, 1, 1, 1, 2])
)
@settings(FIXED, max_examples=30)
def test_nothing_is_granted_in_a_pause_one_probe_after_it_and_every_pause_ends(
    answers: list[Answer], clients: list[tuple[float, str, float, float | None, int]], processes: int
) -> None:
    @virtual(
        processes=processes,
        ladder=(0.0, 1.0, 2.0),
        pause_after=2,
        pause=20.0,
        pause_max=60.0,
        attempt_timeout=5.0,
        connect_timeout=3.0,
        window=300.0,
    )
    async def scenario(world: World) -> None:
        world.origin = Watch(world, [*answers])
        at, leavings = 0.0, []
        for after_s, method, window_s, leaves_after_s, process in clients:
            at += after_s
            await world.pass_until(at)
            path = str(len(world.visits))
            visit = world.processes[process % processes].visit(path, method=method, window=window_s)
            if leaves_after_s is not None:
                leavings.append(world.clock.call_at(world.clock.monotonic() + leaves_after_s, visit.leave))
        await world.finish()
        for leaving in leavings:
            leaving.cancel()

        world.origin = Watch(world, [PAGE])
        last = world.visit(str(len(world.visits)))
        await world.finish(within=61.0)
        assert last.status == 200

    scenario()


@virtual(row=on_rung(5, paused_in=-1, pauses=1))
async def test_a_probe_that_may_not_be_sent_again_blocks_the_host_no_longer_than_its_stall(world: World) -> None:
    world.origin = in_turn(UNAVAILABLE, PAGE)
    posted = world.visit(method="POST")
    await world.pass_until(1)
    following = world.visit()
    await world.finish()

    assert (posted.status, following.status) == (503, 200)
    assert world.sent() == [0, 240]


@virtual(row=on_rung(5, paused_in=-1, pauses=1))
async def test_a_probe_that_fails_gives_its_slot_back_and_the_host_goes_on_probing(world: World) -> None:
    world.origin = in_turn(REFUSED, PAGE)
    refused, following = world.visit("refused"), world.visit("following")
    await world.finish()

    assert refused.ended.outcome is Outcome.FAILURE
    assert (world.sent(), following.done_at) == ([0], 0)
    assert world.process.happened(HostPaused) == []


@virtual(row=on_rung(5, paused_in=-1, pauses=1))
async def test_a_probe_whose_client_leaves_after_its_sending_is_followed_a_pace_later(world: World) -> None:
    world.origin = by_path(gone=SILENT)
    gone, following = world.visit("gone"), world.visit("following")
    await world.pass_until(3)
    gone.leave()
    await world.finish()

    assert (world.paths(), world.sent()) == (["gone", "following"], [0, 60])
    assert following.status == 200


@virtual(row=on_rung(5, paused_in=-1, pauses=1))
async def test_a_probe_that_its_client_waited_long_for_in_vain_begins_the_next_pause(world: World) -> None:
    world.origin = by_path(gone=SILENT)
    gone, following = world.visit("gone"), world.visit("following")
    await world.pass_until(5)
    gone.leave()
    await world.finish()

    assert [event.until - START for event in world.process.happened(HostPaused)] == [245.0]
    assert (world.sent(), following.status) == ([0, 245], 200)


@virtual(row=on_rung(5, paused_in=-1, pauses=1))
async def test_a_probe_that_is_slow_has_its_time(world: World) -> None:
    world.origin = by_path(slow=Answer(connect_s=9.0, after_s=29.0))
    slow, following = world.visit("slow"), world.visit("following")
    await world.finish()

    assert (slow.done_at, slow.status) == (38, 200)
    # A page: the pace of the top rung from there on, one rung further down after the next.
    assert (world.sent(), following.status) == ([9, 69], 200)


@virtual(row=on_rung(5, paused_in=-1), pause_max=300.0)
async def test_each_pause_is_longer_up_to_the_longest(world: World) -> None:
    world.origin = always(UNAVAILABLE)
    for _ in range(5):
        world.visit(method="POST", window=2_000)
        await world.clock.settle()
    await world.finish()

    assert [event.until - START for event in world.process.happened(HostPaused)] == [120, 360, 660, 960, 1260]
    assert world.sent() == [0, 120, 360, 660, 960]


@virtual(row=HostState(rung=5, stalled_at=START, counted_at=START - 1, stalls_in_a_row=9))
async def test_a_request_whose_stall_began_the_pause_may_be_the_probe_that_ends_it(world: World) -> None:
    world.origin = in_turn(UNAVAILABLE, PAGE)
    visit = world.visit()
    await world.finish()

    assert (visit.status, world.sent()) == (200, [0, 120])
    assert (row := await world.stored())
    assert (row.rung, row.pauses, row.next_slot_at - START) == (5, 1, 180)


@virtual(row=on_rung(1, paused_in=-1, pauses=1), ladder=(0.0, 1.0))
async def test_a_probe_on_a_dead_connection_is_followed_by_another_at_the_next_slot(world: World) -> None:
    world.origin = in_turn(Answer(error=ErrorName.CONNECTION_TERMINATED, reused=True), PAGE)
    visit = world.visit()
    await world.finish()

    assert (visit.status, world.sent()) == (200, [0, 1])


@virtual(row=on_rung(1, paused_in=-1, pauses=1), ladder=(0.0, 1.0))
async def test_whoever_takes_a_probe_over_has_time_for_it(world: World) -> None:
    world.origin = by_path(gone=Answer(connect_s=9.5), slow=Answer(connect_s=9.5, after_s=29.5))
    gone, slow, following = (world.visit(path) for path in ("gone", "slow", "following"))
    await world.pass_until(4)
    gone.leave()
    await world.finish()

    assert (slow.status, slow.done_at) == (200, 43)
    assert (world.sent("following"), following.status) == ([44], 200)
