"""A page's own fault in virtual time: which page has it, what that does to the others, and when it gets its answer."""

import asyncio
import math
import random
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy_addon import host_local
from proxy_addon.engine import Engine
from proxy_addon.model import ErrorName, Reply
from proxy_addon.request import Deliver, Grant, Retry
from proxy_addon.settings import Settings
from proxy_addon.store.memory import MemoryStore
from tests.support.answers import HOST, PAGE, SLOW_PAGE, START, UNAVAILABLE, Answer, Hit, always, by_path, status
from tests.support.clock import FakeClock
from tests.support.examples import FIXED
from tests.support.world import Visit, World, check_the_pace, virtual

# When it gets its answer


@virtual()
async def test_a_500_is_given_at_its_fourth_stall_while_the_host_serves_others(world: World) -> None:
    world.origin = by_path(bad=status(500))
    bad = world.visit("bad")
    await world.pass_until(1)
    world.visit("good")
    await world.finish()

    assert world.sent("bad") == [0, 2, 7, 22]
    assert (bad.status, bad.done_at) == (500, 22.0)
    assert await world.stored() is None


@virtual()
async def test_a_500_is_asked_again_as_soon_as_a_page_comes_that_was_sent_after_it(world: World) -> None:
    world.origin = by_path(bad=status(500, after_s=1.0), good=SLOW_PAGE)
    bad = world.visit("bad")
    for at in (0.5, 2.0, 3.5):
        await world.pass_until(at)
        world.visit("good")
    await world.finish()

    assert world.sent("bad") == [0, 1.5, 3.0, 4.5]
    assert (bad.status, bad.done_at) == (500, 5.5)
    assert await world.stored() is None


@virtual(climb="stall")
async def test_a_500_does_not_rest_where_such_a_page_came_before_it(world: World) -> None:
    # Where every stall counts: after its third page the host would be one that stalls rarely, and rests otherwise.
    world.origin = by_path(bad=status(500, after_s=2.0), quick=Answer(after_s=0.5))
    bad = world.visit("bad")
    for at in (0.5, 1.8, 3.0, 5.0, 7.0):
        await world.pass_until(at)
        world.visit("quick")
    await world.finish()

    assert world.sent("bad") == [0, 2.3, 4.3, 6.3]
    assert bad.done_at == 8.3


@virtual()
async def test_a_500_whose_rest_is_over_already_is_not_answered_for_its_window(world: World) -> None:
    world.origin = by_path(bad=status(500, after_s=1.0), long=Answer(after_s=1.2), quick=Answer(after_s=0.5))
    bad = world.visit("bad", window=5)
    for at, page in ((0.5, "long"), (2.0, "quick"), (3.0, "quick")):
        await world.pass_until(at)
        world.visit(page)
    await world.finish()

    assert world.sent("bad") == [0, 1.7, 2.7, 3.7]
    assert bad.done_at == 4.7


@virtual()
async def test_a_page_that_was_sent_before_the_500_says_nothing_about_it(world: World) -> None:
    world.origin = by_path(bad=status(500, after_s=1.0), slow=Answer(after_s=7.0))
    world.visit("slow")
    await world.pass_until(1)
    world.visit("bad", window=30)
    await world.finish()

    assert world.sent("bad") == [1, 4, 10, 26]


@virtual(climb="stall")
async def test_pages_that_all_fail_for_a_moment_rest_until_it_is_over(world: World) -> None:
    world.origin = lambda hit: status(500) if 1 <= hit.at < 12 else PAGE
    world.visit("before")
    await world.pass_until(1)
    pages = [world.visit(f"page {number}") for number in range(3)]
    await world.finish()

    assert world.sent() == [0, 1, 1, 1, 16, 21, 23]
    assert [page.status for page in pages] == [200, 200, 200]


@virtual()
async def test_who_leaves_while_it_rests_is_not_asked_for_by_a_page(world: World) -> None:
    world.origin = by_path(bad=status(500))
    bad = world.visit("bad")
    await world.pass_until(1)
    bad.leave()
    world.visit("good")
    await world.finish()

    assert world.paths() == ["bad", "good"]


def test_a_page_that_comes_just_before_the_500_takes_its_place_counts() -> None:
    """Between the two calls the layer has a turn of its own."""

    async def scenario() -> None:
        engine = Engine(Settings(in_flight="off"), MemoryStore(), clock)
        await engine.start()
        bad, good = (engine.accept(HOST, method="GET", window_s=600) for _ in range(2))
        for request in (bad, good):
            assert engine.grant(request) is not None
            await clock.advance(1)
            engine.sending(request)
        assert engine.settle(bad, Reply(status=500)) == Retry()
        assert engine.settle(good, Reply(status=200)) == Deliver()
        holding = asyncio.ensure_future(engine.hold(bad))
        await clock.settle()
        assert isinstance(holding.result(), Grant)
        for request in (bad, good):
            engine.close(request)
        await engine.stop()

    clock = FakeClock()
    clock.run(scenario())


@virtual()
async def test_a_429_is_never_given_early(world: World) -> None:
    world.origin = by_path(api=status(429))
    api = world.visit("api")
    await world.pass_until(1)
    world.visit("good")
    await world.finish()

    assert world.sent("api") == [0, 2, 7, 22, 52, 112, 172, 232, 292, 352, 412, 472, 532, 592]
    assert (api.status, api.done_at) == (429, 592.0)


@virtual()
async def test_the_last_500_of_a_crawl_has_evidence_in_the_pages_before_it(world: World) -> None:
    world.origin = by_path(bad=status(500))
    world.visit("good")
    await world.pass_until(1)
    bad = world.visit("bad")
    await world.pass_until(20)

    assert world.process.rung() == 1, "its first stall climbs, its others do not"
    await world.finish()
    assert world.sent("bad") == [1, 3, 8, 23]
    assert bad.status == 500


@virtual()
async def test_a_host_that_never_served_has_no_bad_pages(world: World) -> None:
    world.origin = always(status(500))
    visit = world.visit()
    await world.finish()

    assert len(world.sent()) == 14
    assert visit.done_at == 592.0


@virtual()
async def test_a_lone_503_after_pages_is_no_evidence(world: World) -> None:
    world.origin = by_path(bad=UNAVAILABLE)
    world.visit("good")
    await world.pass_until(1)
    bad = world.visit("bad")
    await world.finish()

    assert world.sent("bad")[:6] == [1, 3, 8, 23, 53, 113]
    assert bad.done_at == 593.0


@virtual(climb="stall")
async def test_three_500s_since_the_last_page_are_the_pages_fault(world: World) -> None:
    world.origin = lambda hit: status(500) if hit.path.startswith("bad") else PAGE
    world.visit("good")
    await world.pass_until(1)
    bad = [world.visit(f"bad {number}") for number in range(3)]
    await world.finish()

    assert world.sent()[4:] == [16, 31, 46, 61, 76, 91, 106, 121, 136]
    assert [visit.request.attempts for visit in bad] == [4, 4, 4]
    assert [visit.status for visit in bad] == [500, 500, 500]


@virtual()
async def test_a_page_wipes_the_slate_of_500s_clean(world: World) -> None:
    world.origin = lambda hit: status(500) if hit.path.startswith("bad") else PAGE
    bad = []
    for at in (0, 300):
        await world.pass_until(at)
        world.visit("good")
        await world.pass_until(at + 200)
        bad += [world.visit(f"bad {number}") for number in range(2)]
    await world.finish()

    assert [visit.request.attempts for visit in bad] == [4, 4, 4, 4]
    assert [visit.status for visit in bad] == [500, 500, 500, 500]


@virtual(climb="stall")
async def test_four_500s_since_the_last_page_are_the_hosts_fault(world: World) -> None:
    world.origin = lambda hit: status(500) if hit.path.startswith("bad") else PAGE
    world.visit("good")
    await world.pass_until(1)
    bad = [world.visit(f"bad {number}") for number in range(4)]
    await world.finish()

    assert world.sent()[5:] == [31, 91, 151, 211, 271, 331, 391, 451, 511, 571]
    assert [visit.done_at for visit in bad] == [601, 571, 601, 601]
    assert {visit.request.last_reply for visit in bad} == {Reply(status=500)}


def test_rows_of_others_do_not_push_what_is_known_of_a_hosts_pages_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_local, "HOSTS_REMEMBERED", 3)

    @virtual()
    async def scenario(world: World) -> None:
        for number in range(5):
            world.origins[f"{number}.example"] = always(status(503))
            await world.visit(host=f"{number}.example", method="POST").task
        await world.visit("good").task
        await world.pass_until(6)
        world.origin = always(status(500))
        bad = world.visit("bad")
        await world.finish()

        assert (bad.status, world.sent("bad")) == (500, [6, 8, 13, 28])

    scenario()


@virtual(page_fault_after=0, climb="stall")
async def test_no_page_is_at_fault_where_that_is_switched_off(world: World) -> None:
    world.origin = by_path(bad=status(500))
    bad = world.visit("bad")
    for at in range(1, 120):
        await world.pass_until(at)
        world.visit("good")
    await world.finish()

    assert world.sent("bad") == [0, 2, 7, 22, 52, 112, 172, 232, 292, 352, 412, 472, 532, 592]
    assert bad.status == 500


@virtual()
async def test_a_retry_after_of_a_500_holds_though_pages_come(world: World) -> None:
    world.origin = by_path(bad=status(500, after_s=1.0, retry_after="30"), good=SLOW_PAGE)
    bad = world.visit("bad")
    await world.pass_until(0.5)
    world.visit("good")
    await world.pass_until(40)
    world.visit("good")
    await world.finish()

    assert world.sent("bad") == [0, 31, 62, 94]
    assert world.sent("good") == [0.5, 93]
    assert bad.status == 500


@virtual()
async def test_a_retry_after_of_a_page_at_fault_holds_all_the_same(world: World) -> None:
    world.origin = by_path(bad=status(503, retry_after="30"))
    bad = world.visit("bad")
    await world.pass_until(1)
    world.visit("good")
    await world.pass_until(31)
    world.visit("later")
    await world.finish()

    assert world.sent("good") == [30]
    assert world.sent("later") == [60]
    assert world.sent("bad") == [0, 30, 60, 90, 120, 180]
    assert bad.done_at == 180.0


# The other pages


async def crawl(world: World, paths: Iterable[str], *, parallel: int, window: float = 600.0) -> list[Visit]:
    """So many clients that each ask for the next page when they have got one."""
    visits: list[Visit] = []

    async def client() -> None:
        for path in left:
            visit = world.visit(path, window=window)
            visits.append(visit)
            await visit.task

    left = iter(paths)
    clients = [asyncio.ensure_future(client()) for _ in range(parallel)]
    await world.clock.run_until(lambda: all(client.done() for client in clients))
    for ended in clients:
        ended.result()
    return visits


def a_second_each(hit: Hit) -> Answer:
    """Pages that take 0.8 to 1.2 s, each a little longer than the one before; those named bad always fail."""
    number, _, kind = hit.path.partition(" ")
    return status(500 if kind == "bad" else 200, after_s=0.8 + 0.04 * (int(number) * 7 % 11))


@pytest.mark.parametrize(
    ("parallel", "without_s", "with_s"),
    [
        (5, 60.3, 64.7),
        (10, 30.4, 32.3),
        (20, 15.5, 16.4),
    ],
)
def test_two_in_a_hundred_pages_that_always_fail_slow_the_others_by_less_than_a_tenth(
    parallel: int, without_s: float, with_s: float
) -> None:
    def last_good_page_s(bad: range) -> float:
        last_s = 0.0

        @virtual()
        async def scenario(world: World) -> None:
            nonlocal last_s
            world.origin = a_second_each
            paths = [f"{number} bad" if number in bad else f"{number}" for number in range(300)]
            visits = await crawl(world, paths, parallel=parallel)

            good = [visit for visit in visits if visit.status == 200]
            assert len(good) == 300 - len(bad)
            assert {visit.request.attempts for visit in visits if visit.path.endswith("bad")} <= {4}
            last_s = max(visit.done_at or 0.0 for visit in good)

        scenario()
        return round(last_s, 1)

    assert last_good_page_s(range(0)) == without_s
    assert last_good_page_s(range(25, 300, 50)) == with_s
    assert with_s <= 1.1 * without_s


# Whatever pages are bad


@dataclass(frozen=True, slots=True)
class Try:
    """One attempt as the origin saw it. Seconds since the world began."""

    path: str
    sent: float
    came: float
    status: int | None
    """None: it never answered."""


@dataclass(slots=True)
class Shop:
    """A host on which some pages are always bad, and the others sometimes, at random."""

    seed: int
    rate: float
    """Of its attempts, how many fail at random; but never more than three of one page."""
    fails_with: int | None
    tries: list[Try] = field(default_factory=list)

    def __call__(self, hit: Hit) -> Answer:
        always_with, _, number = hit.path.partition(" ")
        chance = random.Random(f"{self.seed} {number} {hit.attempt}")
        code = _CODES[always_with]
        if code == 200 and hit.attempt <= 3 and chance.random() < self.rate:
            code = self.fails_with
        took_s = round(chance.uniform(0.2, 2.0), 4)
        self.tries.append(Try(hit.path, hit.at, hit.at + took_s, code))
        if code is None:
            return Answer(error=ErrorName.HTTP_RESPONSE_TIMEOUT, after_s=took_s)
        return status(code, after_s=took_s)

    def of(self, path: str) -> list[Try]:
        return [one for one in self.tries if one.path == path]

    def evidence(self, stall: Try) -> bool:
        """Whether the origin's log shows, when it sent this reply, that the page is at fault and not the host."""
        first_stall = self.of(stall.path)[0].came
        pages = [one for one in self.tries if one.status == 200 and one.came <= stall.came]
        if any(page.sent > first_stall for page in pages):
            return True
        last_page = max((page.came for page in pages), default=math.inf)
        since = {one.path for one in self.tries if one.status != 200 and last_page < one.came <= stall.came}
        return stall.status == 500 and bool(pages) and len(since) <= 3

    def rung(self) -> int:
        """Where the host is after all that: a page steps down, a stall that is not the page's own fault climbs."""
        rung = 0
        for one in sorted(self.tries, key=lambda one: one.came):
            if one.status == 200:
                rung = max(0, rung - 1)
            elif one is self.of(one.path)[0] or not self.evidence(one):
                rung = min(5, rung + 1)
        return rung


_CODES = {"good": 200, "500": 500, "502": 502, "503": 503, "504": 504, "silent": None, "429": 429}
_GIVEN_AT = {500: 4, 429: math.inf}
"""At which stall a page at fault gets its reply; with any other at the sixth."""
_RESTS_S = (0, 2, 5, 15, 30, 60)


@given(
    seed=st.integers(0, 1000),
    rate=st.sampled_from([0.0, 0.1, 0.4]),
    fails_with=st.sampled_from([500, 503, 429, None]),
    good=st.integers(1, 60),
    bad=st.lists(st.tuples(st.integers(0, 60), st.sampled_from(sorted(_CODES))), max_size=6),
    parallel=st.integers(1, 8),
    window=st.sampled_from([40.0, 1_800.0]),
)
@settings(FIXED, max_examples=60)
def test_whichever_pages_are_bad_the_good_ones_come_and_the_bad_ones_end_when_it_is_plain(
    seed: int,
    rate: float,
    fails_with: int | None,
    good: int,
    bad: list[tuple[int, str]],
    parallel: int,
    window: float,
) -> None:
    # Without the pause and forgiveness, the rung is what pages and stalls have made of it.
    @virtual(window=1_800.0, pause_after=0, forgive_after=0.0, climb="stall")
    async def scenario(world: World) -> None:
        world.origin = shop = Shop(seed, rate, fails_with)
        paths = [f"good {number}" for number in range(good)]
        for number, (place, kind) in enumerate(bad):
            paths.insert(place, f"{kind} {number + 100}")
        visits = await crawl(world, paths, parallel=parallel, window=window)

        assert world.process.rung() == shop.rung()
        for visit in visits:
            if shop.of(visit.path):
                check(shop, visit)
        if window > 600:
            assert all(visit.status == 200 for visit in visits if visit.path.startswith("good"))
        check_the_pace(world.hits[HOST])

        shop.rate = 0.0
        await crawl(world, [f"good {number}" for number in range(1000, 1010)], parallel=1)
        assert await world.stored() is None

    def check(shop: Shop, visit: Visit) -> None:
        *stalls, last = shop.of(visit.path)
        for number, stall in enumerate(stalls, 1):
            assert stall.status != 200
            assert number < _GIVEN_AT.get(stall.status or 0, 6) or not shop.evidence(stall), (number, stall)
        if last.status == 200:
            assert visit.status == 200
            return
        assert visit.request.last_reply is not None
        assert visit.request.last_reply.status == last.status
        number = len(stalls) + 1
        given = number >= _GIVEN_AT.get(last.status or 0, 6) and shop.evidence(last)
        ends = visit.request.accepted - START + window
        too_late = last.came + _RESTS_S[min(number, 5)] >= ends - 1e-3
        assert given or too_late or (visit.done_at or 0.0) >= ends - 1e-3, (number, last)

    scenario()
