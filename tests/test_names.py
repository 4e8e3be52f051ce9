"""Name lookups, with a scripted resolver: who shares them, and who waits for whom."""

import asyncio
import functools
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from proxy_addon.clock import SystemClock
from proxy_addon.model import ErrorName
from proxy_addon.names import Names
from proxy_addon.reach import DialError
from tests.support.resolver import Resolver


def run[T](task: Coroutine[Any, Any, T]) -> T:
    async def guarded() -> T:
        async with asyncio.timeout(20):
            return await task

    return asyncio.run(guarded())


async def comes_true(condition: Callable[[], object]) -> None:
    """Let the loop turn until `condition` holds. `run` guards against hanging."""
    while not condition():  # noqa: ASYNC110 - what is waited for is no event of the loop
        await asyncio.sleep(0)


class AheadClock(SystemClock):
    """The system's, that tests can put forward."""

    ahead_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s


@pytest.mark.parametrize(("host", "address"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("127.1", "127.0.0.1")])
def test_an_address_is_looked_up_without_a_thread(monkeypatch: pytest.MonkeyPatch, host: str, address: str) -> None:
    resolver = Resolver(monkeypatch, {})
    assert run(Names(SystemClock()).addresses(host)) == [address]
    assert resolver.asked == []


def test_a_name_has_all_its_addresses_once_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    Resolver(monkeypatch, {"site": ["10.0.0.2", "10.0.0.1", "10.0.0.2"]})
    assert run(Names(SystemClock()).addresses("site")) == ["10.0.0.2", "10.0.0.1"]


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (socket.gaierror(socket.EAI_AGAIN, "x"), ErrorName.DNS_TIMEOUT),
        (socket.gaierror(socket.EAI_SYSTEM, "x"), ErrorName.DNS_TIMEOUT),
        (socket.gaierror(socket.EAI_MEMORY, "x"), ErrorName.DNS_TIMEOUT),
        (socket.gaierror(socket.EAI_NONAME, "x"), ErrorName.DNS_ERROR),
        (socket.gaierror(socket.EAI_NODATA, "x"), ErrorName.DNS_ERROR),
        (socket.gaierror(socket.EAI_FAIL, "x"), ErrorName.DNS_ERROR),
    ],
)
def test_a_failed_lookup_is_for_the_moment_or_for_good(
    monkeypatch: pytest.MonkeyPatch, failure: Exception, error: ErrorName
) -> None:
    Resolver(monkeypatch, {"site": failure})
    with pytest.raises(DialError) as caught:
        run(Names(SystemClock()).addresses("site"))
    assert (caught.value.reply.error, caught.value.reply.charged) == (error, True)


@pytest.mark.parametrize("host", ["a" * 70 + ".test", "a..test", "a\0b", "", "."])
def test_what_is_no_name_does_not_resolve(host: str) -> None:
    with pytest.raises(DialError) as caught:
        run(Names(SystemClock()).addresses(host))
    assert caught.value.reply.error is ErrorName.DNS_ERROR


def test_one_name_is_looked_up_once_at_a_time_and_a_slow_one_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolver = Resolver(monkeypatch, {"quick": ["10.0.0.1"]})

    async def scenario() -> None:
        names = Names(SystemClock())
        slow = [asyncio.create_task(names.addresses("slow")) for _ in range(10)]
        assert await names.addresses("quick") == ["10.0.0.1"]
        assert not any(task.done() for task in slow)
        slow[0].cancel()
        resolver.go_on.set()
        assert await asyncio.gather(*slow[1:]) == [["127.0.0.9"]] * 9
        assert slow[0].cancelled()
        assert names._pending == {}

    run(scenario())
    assert sorted(resolver.asked) == ["quick", "slow"]


def test_a_lookup_that_nobody_waits_for_any_more_fails_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fails(Resolver):
        def __call__(self, host: str, port: int, *rest: Any, **more: Any) -> list[tuple[Any, ...]]:
            super().__call__(host, port, *rest, **more)
            raise socket.gaierror(socket.EAI_NONAME, "x")

    resolver = Fails(monkeypatch, {})
    complaints: list[dict[str, Any]] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
        names = Names(SystemClock())
        waiting = asyncio.create_task(names.addresses("slow"))
        await comes_true(lambda: resolver.asked)
        waiting.cancel()
        await asyncio.wait([waiting])
        resolver.go_on.set()
        await comes_true(lambda: not names._pending)

    run(scenario())
    assert complaints == []


def test_an_end_of_the_loop_during_a_lookup_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = Resolver(monkeypatch, {})

    async def scenario() -> None:
        waiting = asyncio.create_task(Names(SystemClock()).addresses("slow"))
        await comes_true(lambda: resolver.asked)
        waiting.cancel()

    run(scenario())
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "lookup of slow"]
    resolver.go_on.set()
    thread.join(10)
    assert not thread.is_alive()


def test_case_and_port_make_no_other_name(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = Resolver(monkeypatch, {})

    async def scenario() -> None:
        names = Names(SystemClock())
        lookups = [asyncio.create_task(names.addresses(host)) for host in ("Slow", "slow", "SLOW")]
        await comes_true(lambda: resolver.asked)
        resolver.go_on.set()
        assert await asyncio.gather(*lookups) == [["127.0.0.9"]] * 3

    run(scenario())
    assert resolver.asked == ["slow"]


@pytest.mark.parametrize("how", ["failed for the moment", "took long"])
def test_names_that_were_slow_leave_room_for_others(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    clock = AheadClock()
    slow = [f"slow{number}" for number in range(8)]
    resolver = Resolver(monkeypatch, {"quick": ["10.0.0.1"]})

    async def scenario() -> None:
        names = Names(clock, at_once=4, slow_at_once=2)
        if how == "took long":
            for name in slow:
                lookup = asyncio.create_task(names.addresses(name))
                await comes_true(functools.partial(resolver.asked.__contains__, name))
                clock.ahead_s += 2.0
                resolver.go_on.set()
                await lookup
                resolver.go_on.clear()
        else:
            resolver.table |= dict.fromkeys(slow, socket.gaierror(socket.EAI_AGAIN, "x"))
            await asyncio.gather(*map(names.addresses, slow), return_exceptions=True)
            for name in slow:
                del resolver.table[name]
        resolver.asked.clear()
        lookups = [asyncio.create_task(names.addresses(name)) for name in slow]
        await comes_true(lambda: len(resolver.asked) == 2)
        assert await names.addresses("quick") == ["10.0.0.1"]
        assert resolver.asked == ["slow0", "slow1", "quick"]
        resolver.go_on.set()
        await asyncio.gather(*lookups)

    run(scenario())
    assert sorted(resolver.asked) == ["quick", *slow]


def test_a_name_that_is_quick_again_is_no_longer_taken_for_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = Resolver(monkeypatch, {"site": socket.gaierror(socket.EAI_AGAIN, "x")})

    async def scenario() -> None:
        names = Names(SystemClock(), at_once=2, slow_at_once=1)
        with pytest.raises(DialError):
            await names.addresses("site")
        assert list(names._slow) == ["site"]
        resolver.table["site"] = ["10.0.0.1"]
        assert await names.addresses("site") == ["10.0.0.1"]
        assert list(names._slow) == []

    run(scenario())


def test_a_lookup_that_nobody_waits_for_any_more_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = Resolver(monkeypatch, {"quick": ["10.0.0.1"]})

    async def scenario() -> None:
        names = Names(SystemClock(), at_once=1)
        first = asyncio.create_task(names.addresses("slow"))
        await comes_true(lambda: resolver.asked)
        second = [asyncio.create_task(names.addresses("second")) for _ in range(2)]
        third = asyncio.create_task(names.addresses("quick"))
        await comes_true(lambda: "second" in names._pending and "quick" in names._pending)
        for one in second:
            one.cancel()
        await asyncio.wait(second)
        # Asked for again at once, it is a new one, at the end of the line.
        again = asyncio.create_task(names.addresses("second"))
        await asyncio.sleep(0)
        again.cancel()
        resolver.go_on.set()
        assert await first == ["127.0.0.9"]
        assert await third == ["10.0.0.1"]
        await asyncio.wait([again])
        assert names._pending == {}

    run(scenario())
    assert resolver.asked == ["slow", "quick"]
