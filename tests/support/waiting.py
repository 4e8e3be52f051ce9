"""Waiting for a condition. The time-out only guards against hanging; nobody waits for time to pass."""

import time
from collections.abc import Callable


def until(condition: Callable[[], object], what: str, timeout: float = 10.0, *, look_every_s: float = 0.01) -> None:
    """Return once `condition` holds; an AssertionError says `what` was waited for in vain."""
    give_up_at = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < give_up_at, f"waited {timeout} s in vain until {what}"
        time.sleep(look_every_s)


STILL_S = 0.3


def until_still(count: Callable[[], int], what: str, timeout: float = 20.0) -> None:
    """Return once a number above 0 has not changed for a while: nothing moves any more."""
    last, since = -1, time.monotonic()

    def stands() -> bool:
        nonlocal last, since
        if count() != last:
            last, since = count(), time.monotonic()
        return last > 0 and time.monotonic() - since > STILL_S

    until(stands, what, timeout)
