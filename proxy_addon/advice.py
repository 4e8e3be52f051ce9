"""Advice for clients that are less patient than the proxy: told in the log, once for each address.

A client whose own time-out is shorter than the wait gets nothing, and each time it comes back it begins anew. One line
says who it is and which time-out to set. It listens to the engine's events and decides nothing; how often it happens
is counted in `metrics.py`.
"""

import logging
import math
from collections import OrderedDict
from dataclasses import dataclass

from proxy_addon.logs import clean
from proxy_addon.model import Event, RequestEnded
from proxy_addon.settings import Settings

logger = logging.getLogger(__name__)

TIMES = 3
"""How often a client gives up before it is told of: anybody may change their mind once or twice."""
REMEMBERED = 1024
"""Addresses. A crawl comes from a handful; the longest unheard of is forgotten first."""


@dataclass(slots=True)
class _Client:
    times: int = 0
    counted_at: float = -math.inf
    """When it last gave up (Unix seconds)."""


class Advice:
    """A listener; all of it on the event loop's thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._clients: OrderedDict[str, _Client] = OrderedDict()

    def observe(self, event: Event) -> None:
        """Take note of a client that gave up waiting.

        Only if its request was accepted after it had last given up: who is stopped in the middle of a crawl takes
        all its requests back at once, and that says nothing of time-outs.
        """
        if not isinstance(event, RequestEnded) or not event.gave_up:
            return
        client = self._clients.setdefault(event.client, _Client())
        self._clients.move_to_end(event.client)
        if len(self._clients) > REMEMBERED:
            self._clients.popitem(last=False)
        if event.accepted_at <= client.counted_at:
            return
        client.times += 1
        client.counted_at = event.done_at
        if client.times == TIMES:
            self._tell(event)

    def _tell(self, event: RequestEnded) -> None:
        settings = self._settings
        attempt_s = settings.connect_timeout + settings.attempt_timeout + settings.hold_time
        logger.warning(
            "The client at %s has given up waiting %d times, the last time after %.1f s, for %s. "
            "An answer may take %d s (the window of %g s and a last attempt): set the client's time-out to more "
            "(Scrapy: DOWNLOAD_TIMEOUT; curl: --max-time; requests, httpx, Playwright: timeout), "
            "or have it ask for less with Pace-Window. This is said once for each address.",
            clean(event.client),
            TIMES,
            event.duration_s,
            clean(event.host),
            math.ceil(event.window_s + attempt_s),
            event.window_s,
        )
