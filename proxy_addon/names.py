"""Name lookups: the system's resolver, in threads, so that no name holds up another.

getaddrinfo blocks, for half a minute where a name server is dead, and cannot be stopped. So each name has at most one
lookup at a time, which all who want it share; and names that are known to be slow have but a part of the threads.
What is done with the addresses is in `dial.py`.
"""

import asyncio
import contextlib
import functools
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy_addon.clock import Clock
from proxy_addon.model import ErrorName
from proxy_addon.reach import DialError

AT_ONCE = 256
"""Threads that may be in the resolver at a time. A thread that waits there costs some 100 kB. A crawl of many sites
that meets three dead name servers in a second has about 90 of them."""
SLOW_AT_ONCE = 64
"""How many of these may look up names that were slow the last time: dead ones are asked for again and again."""
SLOW_S = 2.0
"""A lookup that takes longer is slow: the resolver asks a second time only after 5 s."""
REMEMBERED = 4096
"""How many slow names are remembered."""

_FOR_THE_MOMENT = frozenset({socket.EAI_AGAIN, socket.EAI_MEMORY, socket.EAI_SYSTEM})


@dataclass(slots=True, eq=False)
class _Lookup:
    task: asyncio.Task[list[str]] = field(init=False)
    waiting: int = 0
    """How many want the result."""
    begun: bool = False
    """A thread is at it."""


class Names:
    """See the module's text. One for the whole process."""

    def __init__(self, clock: Clock, *, at_once: int = AT_ONCE, slow_at_once: int = SLOW_AT_ONCE) -> None:
        self._clock = clock
        self._room = asyncio.Semaphore(at_once)
        self._slow_room = asyncio.Semaphore(slow_at_once)
        self._pending: dict[str, _Lookup] = {}
        self._slow: OrderedDict[str, None] = OrderedDict()

    async def addresses(self, host: str) -> list[str]:
        """The numeric addresses of a name, in the system's order, without duplicates.

        A numeric `host` is itself its address and needs no thread. Raises `DialError`. Cancelling it leaves the
        lookup running for whoever else waits for it.
        """
        with contextlib.suppress(OSError, ValueError):
            return _numeric(socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
        lookup = self._lookup(host.lower())
        lookup.waiting += 1
        try:
            await asyncio.wait([lookup.task])
        finally:
            lookup.waiting -= 1
            if not lookup.waiting and not lookup.begun:
                lookup.task.cancel()  # It has no thread yet, and needs none any more.
        try:
            return lookup.task.result()
        except socket.gaierror as error:
            raise _lookup_error(error) from error
        except ValueError as error:  # No label may be longer than 63 bytes, and so on.
            raise DialError(ErrorName.DNS_ERROR, "the name is not a valid host name") from error

    def _lookup(self, host: str) -> _Lookup:
        lookup = self._pending.get(host)
        if lookup is None or lookup.task.cancelling():
            lookup = self._pending[host] = _Lookup()
            lookup.task = asyncio.create_task(self._look_up(host, lookup))
            lookup.task.add_done_callback(functools.partial(self._forget, host, lookup))
        return lookup

    async def _look_up(self, host: str, lookup: _Lookup) -> list[str]:
        slow = host in self._slow
        async with self._slow_room if slow else contextlib.nullcontext(), self._room:
            lookup.begun = True
            since = self._clock.monotonic()
            try:
                return await _in_a_thread(host)
            except socket.gaierror as error:
                if error.errno in _FOR_THE_MOMENT:
                    since -= SLOW_S
                raise
            finally:
                self._remember(host, slow=self._clock.monotonic() - since >= SLOW_S)

    def _remember(self, host: str, *, slow: bool) -> None:
        self._slow.pop(host, None)
        if slow:
            self._slow[host] = None
            while len(self._slow) > REMEMBERED:
                self._slow.popitem(last=False)

    def _forget(self, host: str, lookup: _Lookup, task: asyncio.Task[list[str]]) -> None:
        if self._pending.get(host) is lookup:
            del self._pending[host]
        if not task.cancelled():
            task.exception()  # Marks it as seen: everybody who waited may have left.


async def _in_a_thread(host: str) -> list[str]:
    loop = asyncio.get_running_loop()
    found: asyncio.Future[list[str]] = loop.create_future()
    # A daemon: a resolver that hangs must not keep the process from ending.
    threading.Thread(target=_ask_system, args=(loop, found, host), name=f"lookup of {host}", daemon=True).start()
    return await found


def _ask_system(loop: asyncio.AbstractEventLoop, found: "asyncio.Future[list[str]]", host: str) -> None:
    """In a thread: look a name up, and hand the result or the exception to the loop."""
    answer: Callable[[], None]
    try:
        addresses = _numeric(socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM))
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


def _lookup_error(error: socket.gaierror) -> DialError:
    if error.errno in _FOR_THE_MOMENT:
        return DialError(ErrorName.DNS_TIMEOUT, "the name lookup failed for the moment")
    return DialError(ErrorName.DNS_ERROR, "the name does not resolve")
