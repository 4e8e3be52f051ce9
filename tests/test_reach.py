"""Names, addresses, and what it means that they cannot be reached. Sockets are real; the resolver is scripted."""

import asyncio
import errno
import os
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from proxy_addon.model import ErrorName
from proxy_addon.reach import DialError, Names, connect_error, dial
from tests.support.silence import closed_port


def run[T](task: Coroutine[Any, Any, T]) -> T:
    async def guarded() -> T:
        async with asyncio.timeout(20):
            return await task

    return asyncio.run(guarded())


async def comes_true(condition: Callable[[], object]) -> None:
    """Let the loop turn until `condition` holds. `run` guards against hanging."""
    while not condition():  # noqa: ASYNC110 - what is waited for is no event of the loop
        await asyncio.sleep(0)


class Resolver:
    """In place of the system's: answers from a table; a name that is not in it waits until it is told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, table: dict[str, list[str] | Exception]) -> None:
        self._table = table
        self.asked: list[str] = []
        self.go_on = threading.Event()
        self._system = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self)

    def __call__(self, host: str, port: int, *, type: int, flags: int = 0) -> list[tuple[Any, ...]]:
        if flags & socket.AI_NUMERICHOST:
            return self._system(host, port, type=type, flags=flags)
        self.asked.append(host)
        if host not in self._table:
            self.go_on.wait(20)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.9", port))]
        found = self._table[host]
        if isinstance(found, Exception):
            raise found
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]


@pytest.mark.parametrize(("host", "address"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("127.1", "127.0.0.1")])
def test_an_address_is_looked_up_without_a_thread(monkeypatch: pytest.MonkeyPatch, host: str, address: str) -> None:
    resolver = Resolver(monkeypatch, {})
    assert run(Names().addresses(host, 80)) == [address]
    assert resolver.asked == []


def test_a_name_has_all_its_addresses_once_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    Resolver(monkeypatch, {"site": ["10.0.0.2", "10.0.0.1", "10.0.0.2"]})
    assert run(Names().addresses("site", 80)) == ["10.0.0.2", "10.0.0.1"]


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
        run(Names().addresses("site", 80))
    assert (caught.value.reply.error, caught.value.reply.charged) == (error, True)


@pytest.mark.parametrize("host", ["a" * 70 + ".test", "a..test", "a\0b", "", "."])
def test_what_is_no_name_does_not_resolve(host: str) -> None:
    with pytest.raises(DialError) as caught:
        run(Names().addresses(host, 80))
    assert caught.value.reply.error is ErrorName.DNS_ERROR


def test_one_name_is_looked_up_once_at_a_time_and_a_slow_one_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolver = Resolver(monkeypatch, {"quick": ["10.0.0.1"]})

    async def scenario() -> None:
        names = Names()
        slow = [asyncio.create_task(names.addresses("slow", 80)) for _ in range(10)]
        assert await names.addresses("quick", 80) == ["10.0.0.1"]
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
        def __call__(self, host: str, port: int, *, type: int, flags: int = 0) -> list[tuple[Any, ...]]:
            super().__call__(host, port, type=type, flags=flags)
            raise socket.gaierror(socket.EAI_NONAME, "x")

    resolver = Fails(monkeypatch, {})
    complaints: list[dict[str, Any]] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
        names = Names()
        waiting = asyncio.create_task(names.addresses("slow", 80))
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
        waiting = asyncio.create_task(Names().addresses("slow", 80))
        await comes_true(lambda: resolver.asked)
        waiting.cancel()

    run(scenario())
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "lookup of slow"]
    resolver.go_on.set()
    thread.join(10)
    assert not thread.is_alive()


def _os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("numbers", "error", "charged"),
    [
        ([errno.ECONNREFUSED], ErrorName.CONNECTION_REFUSED, True),
        ([errno.ETIMEDOUT], ErrorName.CONNECTION_TIMEOUT, True),
        ([errno.ECONNRESET], ErrorName.CONNECTION_TERMINATED, True),
        ([errno.EHOSTUNREACH], ErrorName.DESTINATION_IP_UNROUTABLE, True),
        ([errno.ENETUNREACH], ErrorName.DESTINATION_IP_UNROUTABLE, True),
        ([errno.ENETUNREACH, errno.ECONNREFUSED], ErrorName.CONNECTION_REFUSED, True),
        ([errno.ETIMEDOUT, errno.ENETUNREACH], ErrorName.CONNECTION_TIMEOUT, True),
        ([errno.EMFILE], ErrorName.PROXY_INTERNAL_ERROR, False),
        ([errno.EADDRNOTAVAIL], ErrorName.PROXY_INTERNAL_ERROR, False),
        ([errno.EMFILE, errno.ECONNREFUSED], ErrorName.CONNECTION_REFUSED, True),
    ],
)
def test_an_error_of_the_system_has_a_name(numbers: list[int], error: ErrorName, charged: bool) -> None:
    found = connect_error([_os_error(number) for number in numbers])
    assert (found.reply.error, found.reply.charged) == (error, charged)


def test_the_next_address_is_dialled_where_the_first_refuses() -> None:
    async def scenario() -> tuple[str, int]:
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.2", 0)
        port = server.sockets[0].getsockname()[1]
        _, writer = await dial(["127.0.0.1", "127.0.0.2"], port, None)
        peer: tuple[str, int] = writer.get_extra_info("peername")
        writer.close()
        server.close()
        return peer

    assert run(scenario())[0] == "127.0.0.2"


def test_a_refused_connection_has_its_name() -> None:
    with pytest.raises(DialError) as caught:
        run(dial(["127.0.0.1"], closed_port(), None))
    assert caught.value.reply.error is ErrorName.CONNECTION_REFUSED
    assert "127.0.0.1" not in caught.value.reply.details


def test_what_came_before_a_reset_is_read_and_then_the_end() -> None:
    """The peer writes, does not read, and closes: RST. We notice by writing, before anything was read."""

    async def scenario() -> tuple[bytes, bool]:
        listener = socket.create_server(("127.0.0.1", 0))
        reader, writer = await dial(["127.0.0.1"], listener.getsockname()[1], None)
        peer, _ = listener.accept()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"unread")
        await asyncio.sleep(0)
        await comes_true(lambda: _readable(peer))
        peer.sendall(b"answer")
        peer.close()
        listener.close()

        def is_broken() -> bool:
            writer.write(b"more")
            return writer.transport.is_closing()

        await comes_true(is_broken)
        read = await reader.read(100), await reader.read(100) == b""
        writer.close()
        return read

    assert run(scenario()) == (b"answer", True)


def _readable(peer: socket.socket) -> bool:
    try:
        return bool(peer.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return False
