"""Waiting for a condition. The time-out only guards against hanging; nobody waits for time to pass."""

import time
from collections.abc import Callable

_LOOK_EVERY_S = 0.01


def until(condition: Callable[[], object], what: str, timeout: float = 10.0) -> None:
    """Return once `condition` holds; an AssertionError says `what` was waited for in vain."""
    give_up_at = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < give_up_at, f"waited {timeout} s in vain until {what}"
        time.sleep(_LOOK_EVERY_S)
