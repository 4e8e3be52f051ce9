"""How many pages a host gives in how much time, in literal times; and what a crawl of a host with a quota comes to."""

import pytest

from proxy_addon.model import HostPaused
from proxy_addon.page_rate import PageRate
from tests.support.answers import PAGE, Answer, Hit, status
from tests.support.world import World, virtual


def after(*pages: float) -> PageRate:
    """What is known of a host once pages came at these times, and it has said that this was too fast."""
    rate = PageRate()
    for at in pages:
        rate.page(at=at)
    rate.refused(at=9.0)
    return rate


def test_at_first_three_quarters_of_the_time_since_the_first_page_are_believed() -> None:
    assert after(0.0, 0.5, 1.0, 1.5).measured_s(now=8.0) == 1.5


def test_pages_that_came_after_the_host_has_said_so_count() -> None:
    rate = after(0.0)
    for at in (0.5, 1.0, 1.5):
        rate.page(at=at)

    assert rate.measured_s(now=8.0) == 1.5


@pytest.mark.parametrize("pages", [(), (0.0,), (0.0, 1.0)])
def test_fewer_than_three_pages_tell_nothing(pages: tuple[float, ...]) -> None:
    assert after(*pages).measured_s(now=8.0) is None


def test_nothing_is_measured_unless_the_host_has_said_so() -> None:
    rate = PageRate()
    for at in range(9):
        rate.page(at=at)

    assert rate.measured_s(now=20.0) is None


def test_at_first_only_the_pages_of_the_last_ten_to_twenty_seconds_count() -> None:
    one_a_second = [float(at) for at in range(36)]

    # Since second 22, when the span before the last began.
    assert after(*one_a_second).measured_s(now=36.0) == 0.75


def test_pages_long_before_do_not_count() -> None:
    assert after(0.0, 1.0, 2.0, 1000.0, 1000.5, 1001.0).measured_s(now=1006.0) == 1.5


def test_at_first_no_more_than_two_seconds_are_believed() -> None:
    assert after(0.0, 1.0, 2.0).measured_s(now=302.0) == 2.0


def test_later_it_is_the_whole_time_from_block_to_block() -> None:
    rate = after(0.0, 0.5, 1.0, 1.5)
    rate.start(1.5, now=8.0)
    for at in range(30):
        rate.page(at=8.0 + at)
    rate.refused(at=9.0)

    assert rate.measured_s(now=41.0) == 1.1


def test_it_is_at_most_twice_what_it_was_as_nobody_may_have_asked_for_pages() -> None:
    rate = after(0.0, 0.5, 1.0, 1.5)
    rate.start(1.5, now=8.0)
    for at in (9.0, 10.0, 3000.0):
        rate.page(at=at)
    rate.refused(at=9.0)

    assert rate.measured_s(now=3004.0) == 3.0


def test_what_came_before_it_went_on_does_not_count_again() -> None:
    rate = after(0.0, 0.5, 1.0, 1.5)
    rate.start(1.5, now=8.0)
    for at in (9.0, 10.0):
        rate.page(at=at)
    rate.refused(at=9.0)

    assert rate.measured_s(now=12.0) is None


# In a crawl


class Quota:
    """One page a second, up to five at once; else 429, come back in four seconds."""

    def __init__(self) -> None:
        self.tokens = 5.0
        self.at = 0.0
        self.refused: list[float] = []

    def __call__(self, hit: Hit) -> Answer:
        self.tokens, self.at = min(5.0, self.tokens + hit.at - self.at), hit.at
        if self.tokens < 1:
            self.refused.append(hit.at)
            return status(429, retry_after="4")
        self.tokens -= 1
        return PAGE


@virtual()
async def test_a_crawl_of_a_host_with_a_quota_goes_on_at_its_pace(world: World) -> None:
    world.origin = quota = Quota()
    visits = [world.visit(f"{number}") for number in range(100)]
    await world.finish()

    assert [visit.status for visit in visits] == [200] * 100
    # Nothing was known at first. Later it is once in some eighteen pages, and the quota is used to the full.
    assert [round(at, 1) for at in quota.refused[95:]] == [7.7, 28.6, 45.0, 63.0, 80.6]
    assert round(max(visit.done_at or 0.0 for visit in visits), 1) == 95.6


@virtual()
async def test_a_page_that_is_refused_for_ever_is_measured_by_three_times_at_most(world: World) -> None:
    world.origin = lambda hit: status(429, retry_after="1") if hit.path == "never" else PAGE
    for number in range(3):
        await world.visit(f"first {number}").task
    never = world.visit("never")
    floors = set()
    for at in range(1, 620):
        await world.pass_until(at)
        for number in range(4):
            world.visit(f"{at} {number}")
        await world.clock.settle()
        if (row := await world.stored()) is not None and row.quota_pace_s:
            floors.add(row.quota_pace_s)
    await world.finish()

    assert never.status == 429
    assert max(floors) < 1
    assert await world.stored() is None


@virtual(in_flight="learn")
async def test_a_quota_that_was_used_up_before_the_crawl_began_makes_no_slow_crawl(world: World) -> None:
    world.origin = lambda hit: status(429, retry_after="300") if hit.path == "3" and hit.attempt == 1 else PAGE
    visits = []
    for number in range(100):
        visits.append(world.visit(f"{number}", window=3600.0))
        await world.clock.settle()
    await world.finish()

    assert [visit.status for visit in visits] == [200] * 100
    assert max(visit.done_at or 0.0 for visit in visits) < 300 + 66


@virtual()
async def test_a_429_that_says_when_to_come_back_is_no_climb_where_pages_came(world: World) -> None:
    world.origin = lambda hit: status(429, retry_after="4") if hit.path == "refused" and hit.attempt == 1 else PAGE
    for number in range(3):
        await world.visit(f"{number}").task
    refused = world.visit("refused")
    await world.clock.settle()
    row = await world.stored()

    assert row is not None
    assert (row.rung, row.stalls_in_a_row) == (0, 0)
    await world.finish()
    assert (refused.status, refused.done_at) == (200, 4.0)
    row = await world.stored()
    assert row is not None
    assert (row.rung, round(row.quota_pace_s, 6)) == (0, 0.97)


@virtual()
async def test_a_host_that_gives_no_page_between_its_blocks_climbs(world: World) -> None:
    world.origin = lambda hit: status(429, retry_after="1")
    visit = world.visit()
    await world.pass_until(60)

    assert world.sent() == [0, 2, 7, 22, 52]
    assert world.process.rung() == 5
    visit.leave()


@pytest.mark.parametrize("pages", [1, 2, 3])
@virtual()
async def test_a_host_that_gives_no_page_any_more_climbs_however_few_it_gave_before(world: World, pages: int) -> None:
    world.origin = lambda hit: PAGE if hit.path == "well" else status(429, retry_after="1")
    for _ in range(pages):
        await world.visit("well").task
    visits = [world.visit(f"{number}") for number in range(4)]
    await world.clock.settle()
    assert world.process.rung() == 0, "one burst was too fast, which is no reason to climb"
    await world.pass_until(3600)

    assert world.process.happened(HostPaused)
    for visit in visits:
        visit.leave()


@virtual(climb="stall")
async def test_every_429_climbs_where_that_is_set(world: World) -> None:
    world.origin = lambda hit: status(429, retry_after="4") if hit.path == "refused" and hit.attempt == 1 else PAGE
    for number in range(3):
        await world.visit(f"{number}").task
    world.visit("refused")
    await world.clock.settle()

    assert world.process.rung() == 1
    await world.finish()
    assert await world.stored() is None
