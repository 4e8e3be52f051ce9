"""The limit of attempts in flight that a host is found to bear, learned from how page times move with it.

Its rule: a page that is slow is no proof of load, since pages differ; that all of them got slower when more were in
flight, and quicker again with less, is. So it works by experiments, in three phases:

1. *trial*: a higher limit is tried. Once it is clear that the pages take no longer (so that more are served), it
   stands, and where more wait the next is tried. Once it is clear that they do, it is taken back: ease.
2. *ease*: the limit was lowered because the host had become slower. Where that brings relief the load was the cause,
   and the host is watched at the lower limit. Where it does not, the load was not, and the limit is given back.
3. *watch*: at one limit, it is looked out for page times that move; with few in flight, those still out count as
   well. When they rise: ease. When they have been steady for some rounds, and more wait: trial of a little more, after
   each failure more rarely.

Here is which attempts count, where a limit begins, and when it begins anew. What follows from a finding is in
`limit_experiments.py`, when a phase has found something in `limit_phases.py`. No timers: everything follows from the
ends of attempts. How a host that stalls is paced is in `ladder.py`.
"""

import math

from proxy_addon.in_flight_limit import Limit
from proxy_addon.limit_attempts import QUICKEST_S, Attempt, Attempts
from proxy_addon.limit_experiments import Experiments
from proxy_addon.limit_phases import Trial
from proxy_addon.model import ErrorName, Outcome
from proxy_addon.request import Grant

START = 2
"""What is in flight at first, and ..."""
START_SHARE = 25
"""... one more for so many that wait: who runs 200 at once has reason to believe that the host bears more than two."""
STALE_S = 300.0
"""A host that got nothing for so long is begun with afresh, at the limit that is remembered."""


class LearnedLimit(Limit):
    """Of one host, in this process. All times monotonic seconds."""

    __slots__ = ("_attempts", "_experiments", "_used")

    def __init__(self) -> None:
        self._attempts = Attempts()
        self._used = 0.0
        """When an attempt was last granted."""
        self._experiments = Experiments(self._attempts, START, remembered=0)

    @property
    def limit(self) -> int:
        return self._experiments.limit

    @property
    def remembered(self) -> int:
        return self._experiments.remembered

    def remember(self, limit: int, *, now: float) -> None:
        self._experiments.remember(limit)

    def room(self, *, now: float, waiting: int) -> bool:
        experiments = self._experiments
        if experiments.reference is None and not experiments.remembered:
            experiments.limit = max(experiments.limit, (len(self._attempts) + waiting) // START_SHARE)
        return len(self._attempts) < experiments.limit

    def granted(self, grant: Grant, *, now: float, waiting: int) -> None:
        if not self._attempts and self._experiments.reference is not None and now - self._used > STALE_S:
            remembered = self._experiments.remembered
            self._experiments = Experiments(self._attempts, remembered or START, remembered)
        self._used = now
        self._attempts[grant] = Attempt()

    def sent(self, grant: Grant, *, now: float) -> None:
        attempt = self._attempts[grant]
        attempt.sent = now
        phase = self._experiments.phase
        if not isinstance(phase, Trial) or len(self._attempts) > phase.level:
            attempt.phase = phase

    def overdue(self, grant: Grant, *, now: float) -> None:
        self._stalled(self._attempts[grant], now, len(self._attempts))

    def ended(
        self,
        grant: Grant,
        *,
        now: float,
        outcome: Outcome,
        error: ErrorName | None,
        given_up: bool,
        waiting: int,
    ) -> None:
        in_flight = len(self._attempts)
        attempt = self._attempts.pop(grant)
        if attempt.sent is None or grant.overdue:
            pass  # It says nothing, or has said so; but somebody may have waited for its end.
        elif outcome is Outcome.STALL and not grant.rare:
            self._stalled(attempt, now, in_flight)
        elif outcome is Outcome.SERVED:
            x = _x(now - attempt.sent)
            self._experiments.served(attempt, x, now, in_flight, waiting)
        self._experiments.settle()

    def _stalled(self, attempt: Attempt, now: float, in_flight: int) -> None:
        if attempt.sent is not None:
            self._experiments.stalled(attempt, _x(now - attempt.sent), now, in_flight)


def _x(seconds: float) -> float:
    return math.log(max(seconds, QUICKEST_S))
