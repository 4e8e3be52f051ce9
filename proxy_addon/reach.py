"""From a name to a connection: the lookup, the dialling, and why it failed.

Sockets and asyncio only, no mitmproxy: which name is wanted, and who is told, is in `dial.py`. The errors are decided
here, where the exceptions are at hand.
"""

import asyncio
import contextlib
import errno
import functools
import os
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

from proxy_addon.model import ErrorName, Reply

LOOKUPS_AT_ONCE = 64
"""Threads that may be in the system's resolver at a time. A dead name server keeps one for up to half a minute, so
there must be far more of them than names that are dead at the same time."""


class DialError(Exception):
    """No connection. `reply` says why."""

    def __init__(self, error: ErrorName, details: str, *, charged: bool = True) -> None:
        super().__init__(details)
        self.reply = Reply(error=error, details=details, charged=charged)


class Names:
    """Looks up names in threads of its own, one at a time per name, so that a slow name holds up no other."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(LOOKUPS_AT_ONCE)
        self._pending: dict[tuple[str, int], asyncio.Task[list[str]]] = {}

    async def addresses(self, host: str, port: int) -> list[str]:
        """The numeric addresses of a name, in the system's order, without duplicates.

        A numeric `host` is itself its address and needs no thread. Raises `DialError`. Cancelling it leaves the
        lookup running for whoever else waits for it.
        """
        with contextlib.suppress(OSError, ValueError):
            return _numeric(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
        lookup = self._pending.get((host, port))
        if lookup is None:
            lookup = asyncio.create_task(self._look_up(host, port))
            if not lookup.done():
                self._pending[host, port] = lookup
                lookup.add_done_callback(functools.partial(self._forget, (host, port)))
        await asyncio.wait([lookup])
        try:
            return lookup.result()
        except socket.gaierror as error:
            raise _lookup_error(error) from error
        except ValueError as error:  # No label may be longer than 63 bytes, and so on.
            raise DialError(ErrorName.DNS_ERROR, "the name is not a valid host name") from error

    async def _look_up(self, host: str, port: int) -> list[str]:
        async with self._room:
            loop = asyncio.get_running_loop()
            found: asyncio.Future[list[str]] = loop.create_future()
            # A daemon: a resolver that hangs must not keep the process from ending.
            threading.Thread(
                target=_ask_system, args=(loop, found, host, port), name=f"lookup of {host}", daemon=True
            ).start()
            return await found

    def _forget(self, name: tuple[str, int], lookup: asyncio.Task[list[str]]) -> None:
        del self._pending[name]
        if not lookup.cancelled():
            lookup.exception()  # Marks it as seen: everybody who waited may have left.


def _ask_system(loop: asyncio.AbstractEventLoop, found: "asyncio.Future[list[str]]", host: str, port: int) -> None:
    """In a thread: look a name up, and hand the result or the exception to the loop."""
    answer: Callable[[], None]
    try:
        addresses = _numeric(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        answer = functools.partial(found.set_result, addresses)
    except Exception as error:
        answer = functools.partial(found.set_exception, error)
    with contextlib.suppress(RuntimeError):  # The loop has been closed meanwhile.
        loop.call_soon_threadsafe(_unless_done, found, answer)


def _unless_done(found: "asyncio.Future[list[str]]", answer: Callable[[], None]) -> None:
    if not found.done():
        answer()


def _numeric(found: Sequence[tuple[Any, ...]]) -> list[str]:
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


_FOR_THE_MOMENT = frozenset({socket.EAI_AGAIN, socket.EAI_MEMORY, socket.EAI_SYSTEM})


def _lookup_error(error: socket.gaierror) -> DialError:
    if error.errno in _FOR_THE_MOMENT:
        return DialError(ErrorName.DNS_TIMEOUT, "the name lookup failed for the moment")
    return DialError(ErrorName.DNS_ERROR, "the name does not resolve")


_BY_ERRNO: dict[int | None, tuple[ErrorName, str]] = {
    errno.ECONNREFUSED: (ErrorName.CONNECTION_REFUSED, "connection refused"),
    errno.ETIMEDOUT: (ErrorName.CONNECTION_TIMEOUT, "no answer to the connection attempt"),
    errno.ECONNRESET: (ErrorName.CONNECTION_TERMINATED, "connection reset while connecting"),
    errno.ECONNABORTED: (ErrorName.CONNECTION_TERMINATED, "connection reset while connecting"),
    errno.EPIPE: (ErrorName.CONNECTION_TERMINATED, "connection reset while connecting"),
    errno.EHOSTUNREACH: (ErrorName.DESTINATION_IP_UNROUTABLE, "no route to the host"),
    errno.ENETUNREACH: (ErrorName.DESTINATION_IP_UNROUTABLE, "no route to the host"),
    errno.EACCES: (ErrorName.DESTINATION_IP_UNROUTABLE, "this machine does not let us connect there"),
    errno.EPERM: (ErrorName.DESTINATION_IP_UNROUTABLE, "this machine does not let us connect there"),
    errno.EAFNOSUPPORT: (ErrorName.DESTINATION_IP_UNROUTABLE, "this machine has no such network"),
    errno.EINVAL: (ErrorName.DESTINATION_IP_UNROUTABLE, "not an address that can be dialled"),
}


def connect_error(errors: Sequence[OSError]) -> DialError:
    """What it means that every address of a host failed, each with one of `errors` (at least one).

    With several, one that came from the host itself says more than "no route": a machine without IPv6 fails on
    every IPv6 address in that way. An errno that is not in the table (too many open files, no free port) is a fault
    of this machine.
    """
    known = [found for error in errors if (found := _BY_ERRNO.get(error.errno)) is not None]
    if not known:
        return DialError(
            ErrorName.PROXY_INTERNAL_ERROR,
            f"cannot connect: {errno.errorcode.get(errors[-1].errno or 0, 'unknown error')}",
            charged=False,
        )
    telling = [found for found in known if found[0] is not ErrorName.DESTINATION_IP_UNROUTABLE]
    name, details = (telling or known)[0]
    return DialError(name, details)


class Reader(asyncio.StreamReader):
    """Gives what came before a reset, and then the end. Asyncio's forgets it."""

    was_reset = False
    ended = False

    def feed_eof(self) -> None:
        self.ended = True
        super().feed_eof()

    def set_exception(self, exc: Exception) -> None:
        self.was_reset = True
        self.feed_eof()


class _Protocol(asyncio.StreamReaderProtocol):
    """Reads what is left in the socket where writing to it has failed: an origin's answer, perhaps."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._reader = reader
        self._made: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made = transport
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None and self._made is not None and not self._reader.ended:
            descriptor = self._made.get_extra_info("socket").fileno()
            with contextlib.suppress(OSError):
                while data := os.read(descriptor, 65536):
                    self._reader.feed_data(data)
        self._made = None
        super().connection_lost(exc)


async def dial(
    addresses: Sequence[str], port: int, local: tuple[str, int] | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the first of these addresses that takes one."""
    errors: list[OSError] = []
    for address in addresses:
        try:
            return await _connect(address, port, local)
        except OSError as error:
            errors.append(error)
    raise connect_error(errors) from errors[0]


async def _connect(
    address: str, port: int, local: tuple[str, int] | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = Reader(loop=loop)
    protocol = _Protocol(reader)
    transport, _ = await loop.create_connection(lambda: protocol, address, port, local_addr=local)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
