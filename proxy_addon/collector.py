"""When Python's garbage collector may look at everything there is.

Each held request is some hundred long-lived objects, and a full collection visits all of them: with 10,000 held it
stops the event loop for seconds, and by itself it comes just while they are let go. So here it comes only when it is
cheap, or when enough has been left behind to be worth it; the collections of young objects go on as ever. For the
embedded runner: in somebody else's process this is theirs to decide.
"""

import gc
from collections.abc import Callable

from proxy_addon.clock import Clock, sleep

LOOK_S = 5.0
"""How often to look whether it is time."""
YOUNG_LOOKS = 20
"""How often in that time the youngest objects are looked at, if requests have ended: each takes a few milliseconds."""
CHEAP_BELOW = 200
"""With fewer requests held a full collection takes some 10 ms."""
QUIET_BELOW = 50
"""With fewer requests ended since the last look, a pause is hardly noticed."""
DUE_AFTER = 2_000
"""Ended requests after which it is due. Most are freed at once; what is left of each is a few kilobytes."""
OVERDUE_AFTER = 100_000
"""Ended requests after which it comes at any price: some hundred megabytes may have been left behind."""

_YOUNG = (1_000, 5)
"""New objects before the youngest are looked at, and how often those are before the second generation is: that one
then has some 5,000 objects, and takes a few milliseconds."""
_NEVER = 2**30


class Collector:
    """Tells the collector when. `held` and `ended`: how many requests are held now, and have ended so far."""

    def __init__(self, clock: Clock, *, held: Callable[[], int], ended: Callable[[], int]) -> None:
        self._clock = clock
        self._held = held
        self._ended = ended
        self._ended_before = 0
        self._ended_at_last_look = 0
        self._ended_at_young_look = 0
        self._most_held = 0

    async def run(self) -> None:
        """Until cancelled; then everything is as it was before."""
        thresholds = gc.get_threshold()
        gc.collect()
        gc.freeze()  # What is there at the start stays: it need not be looked at again.
        gc.set_threshold(*_YOUNG, _NEVER)
        try:
            while True:
                for _ in range(YOUNG_LOOKS):
                    await sleep(self._clock, LOOK_S / YOUNG_LOOKS)
                    self._collect_youngest()
                self.look()
        finally:
            gc.set_threshold(*thresholds)
            gc.unfreeze()

    def _collect_youngest(self) -> None:
        # Python counts what is made less what is freed: while a crowd is let go that hardly grows, and what each
        # request leaves behind would pile up.
        if self._ended() != self._ended_at_young_look:
            self._ended_at_young_look = self._ended()
            gc.collect(0)

    def look(self) -> bool:
        """Collect if it is time. True if it was.

        Where many were held since the last time, what they left is many objects, and time only once nobody is served.
        """
        held, ended = self._held(), self._ended()
        lately, self._ended_at_last_look = ended - self._ended_at_last_look, ended
        self._most_held = max(self._most_held, held)
        due = ended - self._ended_before
        cheap = self._most_held < CHEAP_BELOW or (held < CHEAP_BELOW and lately < QUIET_BELOW)
        if due < DUE_AFTER or (not cheap and due < OVERDUE_AFTER):
            return False
        self._ended_before, self._most_held = ended, held
        gc.collect()
        return True
