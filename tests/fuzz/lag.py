"""How late things come on this machine just now: what the judge of the pace must add to its tolerance.

Asked is the proxy, from outside, for the cheapest thing that it has, again and again. The longest that it took, or
that this thread overslept, is by how much any other event may have come late at the proxy or at the origins.
"""

import http.client
import threading
import time
from contextlib import closing
from types import TracebackType
from typing import Self

_LOOK_EVERY_S = 0.02
_NEAR_S = 0.1
"""What is late at one moment delays what comes soon after."""


class Lag:
    """Watches while the context lasts."""

    def __init__(self, admin_port: int) -> None:
        self._looks: list[tuple[float, float]] = []
        """From when to when each took."""
        self._port = admin_port
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="lag", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)) as connection:
            before = time.monotonic()
            while not self._over.wait(_LOOK_EVERY_S):
                connection.request("GET", "/healthz")
                connection.getresponse().read()
                now = time.monotonic()
                self._looks.append((before, now))
                before = now

    @property
    def worst_s(self) -> float:
        return max((_late_s(look) for look in self._looks), default=0.0)

    def around(self, at: float) -> float:
        """The worst around this moment (monotonic)."""
        near = (look for look in self._looks if look[0] - _NEAR_S < at < look[1] + _NEAR_S)
        return max(map(_late_s, near), default=0.0)


def _late_s(look: tuple[float, float]) -> float:
    return max(0.0, look[1] - look[0] - _LOOK_EVERY_S)
