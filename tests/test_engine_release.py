"""How those who wait are let go when their host's row goes, in virtual time: a host just recovered is not flooded."""

from collections import Counter

from tests.support.answers import PAGE, SILENT, SLOW_PAGE, Answer, in_turn, on_rung, status
from tests.support.world import World, virtual


def by_second(world: World, *, since: float = 0.0) -> dict[int, int]:
    """How many attempts were sent in each second, from that moment on."""
    return dict(sorted(Counter(int(at) for at in world.sent() if at >= since).items()))


def some_served_and_most_not(failure: int) -> tuple[list[str], dict[str, Answer]]:
    """50 requests at once: 45 fail, one every 10 ms; the last 5 are served after 0.9 s, and take the row away."""
    paths = [str(number) for number in range(50)]
    first = {path: status(failure, after_s=0.01 * number) for number, path in enumerate(paths[:45])}
    first |= {path: Answer(after_s=0.9 + 0.01 * number) for number, path in enumerate(paths[45:])}
    return paths, first


@virtual()
async def test_those_who_rest_while_the_row_goes_come_back_in_batches(world: World) -> None:
    paths, first = some_served_and_most_not(503)
    world.origin = lambda hit: first.pop(hit.path, SLOW_PAGE)
    for path in paths:
        world.visit(path)
    await world.pass_until(1.5)
    assert await world.stored() is None
    await world.finish()

    # The rests end one by one, 10 ms apart.
    assert by_second(world) == {0: 50, 2: 1, 3: 2, 4: 4, 5: 8, 6: 16, 7: 14}


@virtual()
async def test_bad_pages_whose_rest_a_page_ends_come_back_in_batches(world: World) -> None:
    paths, first = some_served_and_most_not(500)
    world.origin = lambda hit: first.pop(hit.path, PAGE if hit.path == "newcomer" else SLOW_PAGE)
    for path in paths:
        world.visit(path)
    await world.pass_until(1.5)
    assert await world.stored() is None
    newcomer = world.visit("newcomer")
    await world.finish()

    assert newcomer.done_at == 1.5
    assert by_second(world, since=1.0) == {1: 2, 2: 2, 3: 4, 4: 8, 5: 16, 6: 14}


@virtual()
async def test_attempts_that_are_overdue_are_nothing_that_the_host_bears(world: World) -> None:
    world.origin = lambda hit: SILENT if hit.path == "post" else SLOW_PAGE
    posts = [world.visit("post", method="POST") for _ in range(40)]
    await world.pass_until(31)
    for _ in range(40):
        world.visit("get", window=5_000)
    await world.pass_until(148.5)
    assert await world.stored() is None
    for post in posts:
        post.leave()
    await world.finish()

    assert by_second(world, since=140) == {143: 1, 146: 1, 147: 1, 148: 2, 149: 4, 150: 8, 151: 16, 152: 4}


@virtual()
async def test_attempts_that_were_given_up_are_nothing_that_the_host_bears(world: World) -> None:
    first = {"gone": SILENT, "stalls": status(503, after_s=0.5)}
    world.origin = lambda hit: first.get(hit.path, SLOW_PAGE)
    gone = [world.visit("gone") for _ in range(6)]
    world.visit("stalls", method="POST")
    world.visit("early")
    await world.pass_until(0.7)
    for _ in range(20):
        world.visit("later")
    await world.pass_until(1.5)
    for visit in gone:
        visit.leave()
    await world.finish()

    # The row goes at 1, with the page of the early one.
    assert by_second(world) == {0: 8, 1: 1, 2: 2, 3: 4, 4: 8, 5: 5}


@virtual(row=on_rung(1, slot_in=2))
async def test_a_batch_that_was_given_up_does_not_double_the_next(world: World) -> None:
    world.origin = in_turn(PAGE, SILENT)
    visits = [world.visit(str(number)) for number in range(9)]
    for number in range(1, 5):
        await world.pass_until(2 + number)
        visits[number].leave()
    await world.pass_until(6.5)

    assert world.sent() == [2, 2, 3, 4, 5, 6]
    for visit in visits:
        visit.leave()
