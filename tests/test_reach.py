"""Addresses, and what it means that they cannot be reached. The sockets are real."""

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from proxy_addon.clock import SystemClock
from proxy_addon.model import ErrorName
from proxy_addon.reach import DialError, connect_error, dial
from tests.support.silence import closed_port, full_backlog, mute_server


def run[T](task: Coroutine[Any, Any, T]) -> T:
    async def guarded() -> T:
        async with asyncio.timeout(20):
            return await task

    return asyncio.run(guarded())


async def comes_true(condition: Callable[[], object]) -> None:
    """Let the loop turn until `condition` holds. `run` guards against hanging."""
    while not condition():  # noqa: ASYNC110 - what is waited for is no event of the loop
        await asyncio.sleep(0)


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
        ([errno.ECONNREFUSED, errno.ETIMEDOUT], ErrorName.CONNECTION_TIMEOUT, True),
        ([errno.ECONNREFUSED, errno.ECONNRESET], ErrorName.CONNECTION_TERMINATED, True),
        ([errno.ECONNRESET, errno.ETIMEDOUT, errno.ECONNREFUSED], ErrorName.CONNECTION_TIMEOUT, True),
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
        _, writer = await dial(["127.0.0.1", "127.0.0.2"], port, None, clock=SystemClock())
        peer: tuple[str, int] = writer.get_extra_info("peername")
        writer.close()
        server.close()
        return peer

    assert run(scenario())[0] == "127.0.0.2"


def test_a_connection_sends_short_requests_at_once() -> None:
    """Nagle's algorithm would keep the second of two short writes back; asyncio looks at how the socket was made."""

    async def no_delay(port: int) -> int:
        _, writer = await dial(["127.0.0.1"], port, None, clock=SystemClock())
        try:
            connection: socket.socket = writer.get_extra_info("socket")
            return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        finally:
            writer.close()

    with mute_server() as port:
        assert run(no_delay(port)) != 0


def test_an_address_that_does_not_answer_does_not_cost_the_connect_time_out() -> None:
    """The system itself would give up after two minutes; the guard of this test is 20 s."""

    async def scenario() -> str:
        with full_backlog("::1") as port:
            server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", port)
            before = open_files()
            _, writer = await dial(["::1", "::1", "127.0.0.1"], port, None, clock=SystemClock())
            peer: str = writer.get_extra_info("peername")[0]
            # One more: the connection. That to ::1 is closed.
            await comes_true(lambda: open_files() <= before + 2)
            writer.close()
            await writer.wait_closed()
            server.close()
        return peer

    assert run(scenario()) == "127.0.0.1"


def test_the_end_of_a_dial_ends_all_its_attempts() -> None:
    async def scenario() -> None:
        with full_backlog("::1") as port, full_backlog("127.0.0.1", port):
            before = open_files()
            dialling = asyncio.create_task(dial(["::1", "127.0.0.1"], port, None, clock=SystemClock()))
            await comes_true(lambda: open_files() == before + 2)
            dialling.cancel()
            await comes_true(lambda: open_files() == before)
            assert dialling.cancelled()

    run(scenario())


def open_files() -> int:
    """How many this process has; looking at them opens one, always."""
    return len(os.listdir("/proc/self/fd"))


def test_a_zone_that_names_no_interface_is_no_route() -> None:
    with pytest.raises(DialError) as caught:
        run(dial(["fe80::1%nowhere"], 80, None, clock=SystemClock()))
    assert caught.value.reply.error is ErrorName.DESTINATION_IP_UNROUTABLE


def test_a_refused_connection_has_its_name() -> None:
    with pytest.raises(DialError) as caught:
        run(dial(["127.0.0.1"], closed_port(), None, clock=SystemClock()))
    assert caught.value.reply.error is ErrorName.CONNECTION_REFUSED
    assert "127.0.0.1" not in caught.value.reply.details


def test_what_came_before_a_reset_is_read_and_then_the_end() -> None:
    """The peer writes, does not read, and closes: RST. We notice by writing, before anything was read."""

    async def scenario() -> tuple[bytes, bool]:
        listener = socket.create_server(("127.0.0.1", 0))
        reader, writer = await dial(["127.0.0.1"], listener.getsockname()[1], None, clock=SystemClock())
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
