"""The one module that reads time.

Everything else is handed a `Clock`. Two kinds of time, never mixed: Unix seconds for what is stored and compared
between processes (names end in `_at` or `_until`), and monotonic seconds for waits inside this process.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A pending `Clock.call_at`."""

    def cancel(self) -> None:
        """Undo the timer; harmless after it has fired."""


class Clock(Protocol):
    """Where the rest of the program gets its time from."""

    def now(self) -> float:
        """Unix seconds. May jump, also backwards, when somebody sets the machine's clock."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment. Never runs backwards."""

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` on the event loop once `monotonic()` has reached `when`; at once if it has already."""


class SystemClock:
    """The machine's clocks and the running asyncio loop's timers."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        loop = asyncio.get_running_loop()
        return loop.call_at(loop.time() + (when - time.monotonic()), callback)


async def sleep(clock: Clock, seconds: float) -> None:
    """Wait for `seconds` of that clock."""
    over = asyncio.Event()
    timer = clock.call_at(clock.monotonic() + seconds, over.set)
    try:
        await over.wait()
    finally:
        timer.cancel()
