"""Happy Eyeballs (RFC 8305): several ways to connect are tried side by side, and the first that works is taken.

It knows tasks and time, not sockets: what is tried is in `reach.py`. asyncio's own and aiohappyeyeballs' keep only the
texts of several errors, and we need to know what each of them was.
"""

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterable, Sequence
from ipaddress import ip_address
from itertools import chain, zip_longest
from typing import Any

from proxy_addon.clock import Clock

ATTEMPT_DELAY_S = 0.25
"""How long the newest attempt has for itself before the next one begins (RFC 8305 §8)."""


class NoneWorkedError(Exception):
    """Every attempt failed. `errors`, at least one: in the order in which they came."""

    def __init__(self, errors: Sequence[OSError]) -> None:
        super().__init__(errors)
        self.errors = errors


async def first_to_work[T](
    attempts: Iterable[Callable[[], Coroutine[Any, Any, T]]], *, clock: Clock, discard: Callable[[T], None]
) -> T:
    """Begin the attempts one after the other, the next as soon as one fails or `ATTEMPT_DELAY_S` has passed.

    The result of the first that works; the others are cancelled, and what one of them brings all the same is given to
    `discard`. An attempt fails by OSError. Raises `NoneWorkedError`. There is no time limit but the caller's.
    """
    ahead = iter(attempts)
    running: list[asyncio.Task[T]] = []
    errors: list[OSError] = []
    winner: asyncio.Task[T] | None = None
    try:
        while winner is None:
            begin = next(ahead, None)
            if begin is not None:
                running.append(asyncio.create_task(begin()))
            elif not running:
                raise NoneWorkedError(errors)
            for task in await _some_done(running, None if begin is None else ATTEMPT_DELAY_S, clock):
                error = task.exception()
                if error is None:
                    winner = winner or task
                elif isinstance(error, OSError):
                    running.remove(task)
                    errors.append(error)
                else:
                    raise error
        return winner.result()
    finally:
        for task in running:
            if task is not winner:
                task.cancel()
                task.add_done_callback(functools.partial(_throw_away, discard))


async def _some_done[T](tasks: list[asyncio.Task[T]], at_most_s: float | None, clock: Clock) -> list[asyncio.Task[T]]:
    """Those that are done, once there is one or the time is over; in order."""
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = None if at_most_s is None else clock.call_at(clock.monotonic() + at_most_s, lambda: _finish(over))
    try:
        waited: set[asyncio.Future[Any]] = {*tasks, over}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    finally:
        over.cancel()
        if timer is not None:
            timer.cancel()
    return [task for task in tasks if task.done()]


def _finish(over: "asyncio.Future[None]") -> None:
    if not over.done():
        over.set_result(None)


def _throw_away[T](discard: Callable[[T], None], task: asyncio.Task[T]) -> None:
    if not task.cancelled() and task.exception() is None:
        discard(task.result())


def interleaved(addresses: Iterable[str]) -> list[str]:
    """Numeric addresses with their families in turn, beginning with that of the first (RFC 8305 §4)."""
    families: dict[int, list[str]] = {}
    for address in addresses:
        families.setdefault(ip_address(address.partition("%")[0]).version, []).append(address)
    return [address for address in chain.from_iterable(zip_longest(*families.values())) if address is not None]
