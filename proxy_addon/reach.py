"""From addresses to a connection: the dialling, and why it failed.

Sockets and asyncio only, no mitmproxy: who wants the connection, and who is told, is in `dial.py`. The errors are
decided here, where the exceptions are at hand. Where the addresses come from is in `names.py`.
"""

import asyncio
import contextlib
import errno
import functools
import os
import socket
from collections.abc import Sequence

from proxy_addon.clock import Clock
from proxy_addon.model import ErrorName, Reply
from proxy_addon.race import NoneWorkedError, first_to_work, interleaved


class DialError(Exception):
    """No connection. `reply` says why."""

    def __init__(self, error: ErrorName, details: str, *, charged: bool = True) -> None:
        super().__init__(details)
        self.reply = Reply(error=error, details=details, charged=charged)


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


_MOST_TELLING = (
    ErrorName.CONNECTION_TIMEOUT,
    ErrorName.CONNECTION_TERMINATED,
    ErrorName.CONNECTION_REFUSED,
    ErrorName.DESTINATION_IP_UNROUTABLE,
)
"""Which of several errors is told. First what is worth waiting out: a host with one address that is overloaded and one
that refuses is overloaded. Last what says nothing of the host: a machine without IPv6 fails so on every IPv6 address.
"""


def connect_error(errors: Sequence[OSError]) -> DialError:
    """What it means that every address of a host failed, each with one of `errors` (at least one).

    An errno that is not in the table (too many open files, no free port) is a fault of this machine.
    """
    known = [found for error in errors if (found := _BY_ERRNO.get(error.errno)) is not None]
    if not known:
        return DialError(
            ErrorName.PROXY_INTERNAL_ERROR,
            f"cannot connect: {errno.errorcode.get(errors[-1].errno or 0, 'unknown error')}",
            charged=False,
        )
    return DialError(*min(known, key=lambda found: _MOST_TELLING.index(found[0])))


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
    addresses: Sequence[str], port: int, local: tuple[str, int] | None, *, clock: Clock
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the first of these addresses that takes one; by Happy Eyeballs, where there are several.

    `local` is the address to connect from, if that matters.
    """
    made = await _first_connected(addresses, port, local, clock)
    loop = asyncio.get_running_loop()
    reader = Reader(loop=loop)
    protocol = _Protocol(reader)
    try:
        transport, _ = await loop.create_connection(lambda: protocol, sock=made)
    except BaseException:
        made.close()
        raise
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def _first_connected(
    addresses: Sequence[str], port: int, local: tuple[str, int] | None, clock: Clock
) -> socket.socket:
    try:
        if len(addresses) == 1:
            return await _connect(addresses[0], port, local)
        attempts = [functools.partial(_connect, address, port, local) for address in interleaved(addresses)]
        return await first_to_work(attempts, clock=clock, discard=socket.socket.close)
    except NoneWorkedError as error:
        raise connect_error(error.errors) from error.errors[0]
    except OSError as error:
        raise connect_error([error]) from error


async def _connect(address: str, port: int, local: tuple[str, int] | None) -> socket.socket:
    try:
        found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror as error:  # The zone of an IPv6 address names no interface.
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL)) from error
    family, kind, protocol, _, target = found[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setblocking(False)
        if local is not None:
            made.bind(local)
        await asyncio.get_running_loop().sock_connect(made, target)
    except BaseException:
        made.close()
        raise
    return made
