"""The feed of the status, in virtual time: who is told what, and what it costs."""

import asyncio
import json
from collections.abc import Callable

from proxy_addon.admin.documents import Document
from proxy_addon.admin.events import MAX_READERS, Reader, StatusFeed
from tests.support.clock import FakeClock


class Status:
    """A status that a test changes; it counts how often it is looked at."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.waiting = 0
        self.looks = 0
        self.error: Exception | None = None

    def look(self) -> Document:
        self.looks += 1
        if self.error is not None:
            raise self.error
        at = self._clock.now()
        return {"at": at, "waiting": self.waiting, "hosts": [{"next_slot_in_s": -at}], "recent": {"until": at}}


class Connection:
    """One that can be hung up."""

    hung_up = False

    def hang_up(self) -> None:
        self.hung_up = True


def waiting_in(event: bytes | None) -> object:
    assert event is not None
    kind, data = event.decode().removesuffix("\n\n").split("\n")
    assert kind == "event: status"
    return json.loads(data.removeprefix("data: "))["waiting"]


class Listener:
    """A reader that takes at once whatever there is."""

    def __init__(self, reader: Reader) -> None:
        self.heard: list[bytes | None] = []
        self._task = asyncio.create_task(self._listen(reader))

    async def _listen(self, reader: Reader) -> None:
        while (event := await reader.next()) is not None:
            self.heard.append(event)
        self.heard.append(None)


def joined(feed: StatusFeed, hang_up: Callable[[], None] = lambda: None) -> Reader:
    reader = feed.join(hang_up)
    assert reader is not None
    return reader


def test_a_reader_gets_the_status_at_once_and_then_each_change_within_a_second() -> None:
    clock = FakeClock()
    status = Status(clock)

    async def scenario() -> None:
        feed = StatusFeed(status.look, clock)
        listener = Listener(joined(feed))
        await clock.settle()
        assert list(map(waiting_in, listener.heard)) == [0]
        await clock.advance(5.5)
        assert len(listener.heard) == 1
        for status.waiting in (1, 2, 3):
            pass
        await clock.advance(0.5)
        assert list(map(waiting_in, listener.heard)) == [0, 3]
        await clock.advance(10)
        assert len(listener.heard) == 2
        feed.close()
        await clock.settle()

    clock.run(scenario())


def test_a_reader_that_joins_later_gets_the_status_of_its_own_moment() -> None:
    clock = FakeClock(now=1_000_000.0)
    status = Status(clock)

    async def scenario() -> None:
        feed = StatusFeed(status.look, clock)
        joined(feed)
        await clock.advance(300.5)
        event = await joined(feed).next()
        assert event is not None
        assert json.loads(event.decode().partition("data: ")[2])["at"] == 1_000_300.5
        feed.close()

    clock.run(scenario())


def test_a_word_comes_every_fifteen_seconds_where_nothing_changes() -> None:
    clock = FakeClock()
    status = Status(clock)

    async def scenario() -> None:
        feed = StatusFeed(status.look, clock)
        listener = Listener(joined(feed))
        await clock.advance(14.5)
        assert len(listener.heard) == 1
        await clock.advance(1)
        assert listener.heard[1:] == [b":\n\n"]
        await clock.advance(15)
        assert listener.heard[1:] == [b":\n\n"] * 2
        feed.close()
        await clock.settle()

    clock.run(scenario())


def test_a_slow_reader_gets_the_newest_and_misses_what_lies_between() -> None:
    clock = FakeClock()
    status = Status(clock)

    async def scenario() -> None:
        feed = StatusFeed(status.look, clock)
        slow = joined(feed)
        assert waiting_in(await slow.next()) == 0
        for status.waiting in (1, 2, 3):
            await clock.advance(1)
        assert waiting_in(await slow.next()) == 3
        nothing_more = asyncio.create_task(slow.next())
        await clock.advance(5)
        assert not nothing_more.done()
        feed.close()
        assert await nothing_more is None

    clock.run(scenario())


def test_a_reader_that_takes_nothing_for_a_minute_is_hung_up_and_one_that_is_slow_is_not() -> None:
    clock = FakeClock()
    status = Status(clock)

    async def scenario() -> None:
        feed = StatusFeed(status.look, clock)
        stuck, slow = Connection(), Connection()
        await joined(feed, stuck.hang_up).next()
        reader = joined(feed, slow.hang_up)
        await reader.next()
        status.waiting = 1
        await clock.advance(50)
        await reader.next()
        await clock.advance(10)
        assert not stuck.hung_up
        await clock.advance(1)
        assert stuck.hung_up
        await clock.advance(45)
        assert not slow.hung_up
        feed.close()

    clock.run(scenario())


def test_so_many_readers_and_no_more_and_each_that_leaves_makes_room() -> None:
    clock = FakeClock()

    async def scenario() -> None:
        feed = StatusFeed(Status(clock).look, clock)
        readers = [joined(feed) for _ in range(MAX_READERS)]
        assert feed.join(lambda: None) is None
        feed.leave(readers[0])
        feed.leave(readers[0])
        joined(feed)
        assert feed.join(lambda: None) is None
        feed.close()

    clock.run(scenario())


def test_one_look_a_second_is_enough_for_all_and_none_is_taken_for_nobody() -> None:
    clock = FakeClock()
    status = Status(clock)

    async def scenario() -> None:
        feed = StatusFeed(status.look, clock)
        readers = [joined(feed) for _ in range(10)]
        assert status.looks == 10
        await clock.advance(3.5)
        assert status.looks == 13
        for reader in readers:
            feed.leave(reader)
        await clock.advance(60)
        assert status.looks == 13
        joined(feed)
        await clock.advance(1)
        assert status.looks == 15
        feed.close()

    clock.run(scenario())


def test_the_end_comes_at_once_for_all_and_nobody_joins_after_it() -> None:
    clock = FakeClock()

    async def scenario() -> None:
        feed = StatusFeed(Status(clock).look, clock)
        listener = Listener(joined(feed))
        await clock.settle()
        feed.close()
        await clock.settle()
        assert listener.heard[1:] == [None]
        assert feed.join(lambda: None) is None

    clock.run(scenario())


def test_a_status_that_cannot_be_made_sends_the_readers_away_and_the_next_ones_try_again() -> None:
    clock = FakeClock()
    status = Status(clock)

    async def scenario() -> None:
        feed = StatusFeed(status.look, clock)
        reader = joined(feed)
        listener = Listener(reader)
        status.error = RuntimeError("broken")
        await clock.advance(1)
        assert listener.heard[-1] is None
        status.error = None
        again = Listener(joined(feed))
        await clock.settle()
        feed.leave(reader)
        status.waiting = 1
        await clock.advance(1)
        assert list(map(waiting_in, again.heard)) == [0, 1]
        feed.close()
        await clock.settle()

    clock.run(scenario())
