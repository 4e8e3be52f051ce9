"""How late the event loop is: everything that the proxy does runs on it, and what blocks it delays every request.

A look asks to be woken after a while, and sees how much later that happens. What becomes of the number is the
caller's (`metrics.py`).
"""

from collections.abc import Callable

from proxy_addon.clock import Clock, sleep

LOOK_S = 0.25
"""How often to look. What blocks the loop for longer is always noticed, what blocks it for less now and then."""


async def watch(clock: Clock, note: Callable[[float], None]) -> None:
    """Tell `note` at each look how many seconds late it came. Until cancelled."""
    while True:
        due = clock.monotonic() + LOOK_S
        await sleep(clock, LOOK_S)
        note(clock.monotonic() - due)
