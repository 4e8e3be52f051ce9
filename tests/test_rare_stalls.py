"""A host that fails a few requests at random, in virtual time: they are asked for again, and nobody else is held up."""

import pytest

from proxy_addon.model import ErrorName
from tests.support.answers import PAGE, SLOW_PAGE, Answer, Hit, by_path, status
from tests.support.world import World, virtual

RESET = Answer(error=ErrorName.CONNECTION_TERMINATED)
CUT = Answer(cut=True)


async def serve(world: World, pages: int) -> None:
    """The host serves so many pages, one by one; no time passes."""
    for number in range(pages):
        await world.visit(f"well {number}").task


@pytest.mark.parametrize("answer", [status(503), status(500), RESET], ids=["503", "500", "reset"])
@virtual()
async def test_a_rare_error_does_not_make_the_host_climb(world: World, answer: Answer) -> None:
    world.origin = lambda hit: answer if hit.path == "flaky" and hit.attempt == 1 else PAGE
    await serve(world, 6)
    visit = world.visit("flaky")
    await world.clock.settle()

    assert world.process.rung() == 0
    await world.finish()
    assert (visit.status, visit.done_at) == (200, 2.0)


@virtual()
async def test_a_body_that_breaks_off_once_does_not_make_the_host_climb(world: World) -> None:
    world.origin = by_path(broken=CUT)
    await serve(world, 6)
    await world.visit("broken").task
    await world.clock.settle()

    assert world.process.rung() == 0


@virtual()
async def test_what_is_known_of_a_host_has_to_be_three_pages_at_least(world: World) -> None:
    world.origin = by_path(flaky=status(503))
    await serve(world, 2)
    visit = world.visit("flaky")
    await world.clock.settle()

    assert world.process.rung() == 1
    visit.leave()


@virtual()
async def test_after_three_pages_three_errors_are_rare_whatever_was_before(world: World) -> None:
    world.origin = by_path(flaky=status(503))
    visits, rungs = [world.visit("flaky")], []
    await world.clock.settle()
    world.visit("well 1")  # In the slot of rung 1.
    await world.pass_until(2)
    assert world.process.rung() == 0
    await serve(world, 2)
    for _ in range(4):
        visits.append(world.visit("flaky"))
        await world.clock.settle()
        rungs.append(world.process.rung())

    assert rungs == [0, 0, 0, 1]
    for visit in visits:
        visit.leave()


@virtual()
async def test_the_third_error_in_eight_attempts_is_not_rare_if_there_were_two_just_before(world: World) -> None:
    world.origin = by_path(flaky=status(503))
    await serve(world, 8)
    visits, rungs = [], []
    for _ in range(4):
        visits.append(world.visit("flaky"))
        await world.clock.settle()
        rungs.append(world.process.rung())

    assert rungs == [0, 0, 0, 1]
    for visit in visits:
        visit.leave()


@pytest.mark.parametrize(
    "answer", [status(429), status(503, retry_after="1"), Answer(error=ErrorName.HTTP_RESPONSE_TIMEOUT)]
)
@virtual()
async def test_a_429_a_wait_asked_for_and_a_time_out_tell_of_load_however_rare(world: World, answer: Answer) -> None:
    world.origin = by_path(loaded=answer)
    await serve(world, 8)
    visit = world.visit("loaded")
    await world.clock.settle()

    assert world.process.rung() == 1
    visit.leave()


@virtual(climb="stall")
async def test_every_error_climbs_where_that_is_set_however_rare(world: World) -> None:
    world.origin = lambda hit: status(503) if hit.path == "flaky" and hit.attempt == 1 else PAGE
    await serve(world, 8)
    visit = world.visit("flaky")
    await world.pass_until(1)
    world.visit("other")
    await world.finish()

    assert world.sent("flaky") == [0, 2]
    assert visit.status == 200


@virtual()
async def test_others_go_on_and_the_retry_takes_the_place_of_the_next_page(world: World) -> None:
    await serve(world, 6)
    world.origin = lambda hit: status(503) if hit.path == "flaky" and hit.attempt == 1 else SLOW_PAGE
    world.visit("before")
    await world.pass_until(0.5)
    flaky = world.visit("flaky")
    await world.pass_until(0.7)
    world.visit("meanwhile")
    await world.finish()

    assert world.sent("meanwhile") == [0.7]
    assert world.sent("flaky") == [0.5, 1.0]
    assert flaky.status == 200


@virtual()
async def test_a_page_of_the_very_moment_before_the_error_does_not_end_its_rest(world: World) -> None:
    world.origin = lambda hit: status(503, after_s=1.0) if hit.path == "flaky" and hit.attempt == 1 else PAGE
    await serve(world, 6)
    world.visit("flaky")
    await world.pass_until(0.5)
    world.visit("during")
    await world.finish()

    assert world.sent("flaky") == [0, 3]


@virtual()
async def test_from_its_third_stall_on_a_request_rests_by_the_ladder(world: World) -> None:
    """A part of the host may be down, and be up again in a while."""

    def origin(hit: Hit) -> Answer:
        return status(503) if hit.path == "flaky" else PAGE

    world.origin = origin
    await serve(world, 8)
    flaky = world.visit("flaky")
    for number in range(1, 400):
        await world.pass_until(number / 10)
        world.visit(f"other {number}")
    await world.finish()

    assert world.sent("flaky") == [0, 0.1, 0.2, 2.2, 7.2, 22.2]
    assert (flaky.status, flaky.done_at) == (503, 22.2)
    assert world.process.rung() == 0


@virtual()
async def test_rare_errors_never_add_up_to_a_pause(world: World) -> None:
    world.origin = lambda hit: status(503) if hit.path.startswith("flaky") and hit.attempt == 1 else PAGE
    await serve(world, 8)
    for number in range(30):
        world.visit(f"flaky {number}")
        for other in range(6):
            await world.visit(f"{number} {other}").task
    await world.finish()

    assert await world.stored() is None
    assert all(visit.status == 200 for visit in world.visits)
