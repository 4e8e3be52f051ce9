"""The attempts in flight to one host, as a learned limit sees them: in which phase each was sent, and when.

Bookkeeping only. What they say of the host is in `limit_phases.py`.
"""

import math
from dataclasses import dataclass

from proxy_addon.limit_phases import Phase
from proxy_addon.request import Grant

MOST_AGES = 24
"""So many of those that are out are looked at: with them all is said."""
QUICKEST_S = 0.02
"""Shorter page times are taken for this long: a host that answers so soon is not overloaded, and what they differ by is
rather how busy we are ourselves."""


@dataclass(slots=True, eq=False)
class Attempt:
    phase: Phase | None = None
    """In which it was sent, so that it says something of it."""
    sent: float | None = None


class Attempts(dict[Grant, Attempt]):
    """In the order in which they were granted."""

    def any_out(self, phase: Phase) -> bool:
        """Whether one that was sent in a phase is still out."""
        return any(attempt.phase is phase for attempt in self.values())

    def ages(self, phase: Phase, now: float) -> list[float]:
        """Of those sent in a phase that are still out, oldest first: the logarithms of how long they have been so."""
        ages = []
        for attempt in self.values():
            if attempt.phase is phase and attempt.sent is not None:
                ages.append(math.log(max(now - attempt.sent, QUICKEST_S)))
                if len(ages) == MOST_AGES:
                    break
        return ages
