"""The limit of attempts in flight that a host is found to bear, learned from how page times move with it.

Its rule: a page that is slow is no proof of load, since pages differ; that all of them got slower when more were in
flight, and quicker again with less, is. So it works by experiments, in three phases:

1. *trial*: a higher limit is tried. Once it is clear that the pages take no longer (so that more are served), it
   stands, and where more wait the next is tried. Once it is clear that they do, it is taken back: ease.
2. *ease*: the limit was lowered because the host had become slower. Where that brings relief the load was the cause,
   and the host is watched at the lower limit. Where it does not, the load was not, and the limit is given back.
3. *watch*: at one limit, it is looked out for page times that move. When they rise: ease. When they have been steady
   for some rounds, and more wait: trial of a little more, after each failure more rarely.

When a phase has found something is in `limit_phases.py`. No timers: everything follows from the ends of attempts. How
a host that stalls is paced is in `ladder.py`.
"""

import math
from dataclasses import dataclass

from proxy_addon.in_flight_limit import Limit
from proxy_addon.limit_phases import WELL_KNOWN, WIDE, Ease, Eased, Failure, First, Found, Phase, Seen, Trial, Watch
from proxy_addon.model import ErrorName, Outcome
from proxy_addon.request import Grant
from proxy_addon.slowdown import Comparison, Reference, Spread, middle

START = 2
"""What is in flight at first, and ..."""
START_SHARE = 25
"""... one more for so many that wait: who runs 200 at once has reason to believe that the host bears more than two."""
FACTOR, LARGE_FACTOR, LARGE = 2, 3, 16
"""A trial doubles the limit, from a limit of `LARGE` on it triples it: what it overshoots costs a small host most."""
STEADY_ROUNDS, MOST_STEADY_ROUNDS = 4, 64
"""How often the limit has to be filled anew before a trial of a little more; doubled with each that failed."""
LITTLE_MORE, TWICE = 0.22, 0.7
"""A little more is by 25 % (as logarithms), up to twice as many where page times differ much: less would not show."""
SOON = 0.5
"""Of those sent first, some come when more are in flight already: by so much later than the first they count."""
MEASURED = 8
"""Page times that a reference is measured again by."""
DISTRUST = 4.0
"""How much more evidence an alarm needs for each one before that was none."""
FEW_LEFT = 0.7
"""With fewer in flight than this share of what was, and nobody waiting, the slow pages of a crawl are left over."""
MOST_AGES = 24
"""So many of those that are out are looked at: with them all is said."""
QUICKEST_S = 1e-3
"""Shorter page times are taken for this long: what they differ by is not the host's."""
STALE_S = 300.0
"""A host that got nothing for so long is begun with afresh, at the limit that is remembered."""


@dataclass(slots=True, eq=False)
class _Attempt:
    phase: Phase | None = None
    """In which it was sent, so that it says something of it."""
    sent: float | None = None


class LearnedLimit(Limit):
    """Of one host, in this process. All times monotonic seconds."""

    __slots__ = (
        "_attempts",
        "_distrust",
        "_failure",
        "_first",
        "_limit",
        "_most_in_flight",
        "_phase",
        "_reference",
        "_remembered",
        "_spread",
        "_steady_rounds",
        "_step",
        "_used",
    )

    def __init__(self) -> None:
        self._attempts: dict[Grant, _Attempt] = {}
        self._remembered = 0
        self._used = 0.0
        """When an attempt was last granted."""
        self._begin(START)

    def _begin(self, limit: int) -> None:
        self._limit = limit
        self._spread = Spread()
        self._reference: Reference | None = None
        self._first: First | None = First(self._spread)
        """Whose page times still make the reference; None: later ones have settled it."""
        self._phase: Phase = self._first
        self._failure: Failure | None = None
        """The trial that failed last."""
        self._step: int | None = None
        """How much a trial adds; None: it multiplies."""
        self._steady_rounds = STEADY_ROUNDS
        self._distrust = 0.0
        self._most_in_flight = 0.0
        """Lately."""

    # --- what it is asked and told -----------------------------------------------------------------------------

    @property
    def limit(self) -> int:
        return self._limit

    @property
    def remembered(self) -> int:
        return self._remembered

    def remember(self, limit: int, *, now: float) -> None:
        self._remembered = limit
        if limit and self._reference is None:
            self._limit = limit
        elif limit and self._reference is not None and limit < self._limit:
            self._limit = limit
            self._watch(self._reference)

    def room(self, *, now: float, waiting: int) -> bool:
        if self._reference is None and not self._remembered:
            self._limit = max(self._limit, (len(self._attempts) + waiting) // START_SHARE)
        return len(self._attempts) < self._limit

    def granted(self, grant: Grant, *, now: float, waiting: int) -> None:
        if not self._attempts and self._reference is not None and now - self._used > STALE_S:
            self._begin(self._remembered or START)
        self._used = now
        self._attempts[grant] = _Attempt()

    def sent(self, grant: Grant, *, now: float) -> None:
        attempt = self._attempts[grant]
        attempt.sent = now
        if not isinstance(self._phase, Trial) or len(self._attempts) > self._phase.level:
            attempt.phase = self._phase

    def overdue(self, grant: Grant, *, now: float) -> None:
        self._stalled(self._attempts[grant], now)

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
            return
        if outcome is Outcome.STALL and not grant.rare:
            self._stalled(attempt, now)
        elif outcome is Outcome.SERVED:
            x = math.log(max(now - attempt.sent, QUICKEST_S))
            self._spread.learn(x)
            self._most_in_flight = max(in_flight, 0.98 * self._most_in_flight)
            self._served(attempt, x, now, in_flight, waiting)
        if isinstance(self._phase, Trial) and not self._ages(self._phase, now):
            self._limit = self._phase.to  # Nobody is out any more who could settle a doubt.

    # --- what follows from it ----------------------------------------------------------------------------------

    def _stalled(self, attempt: _Attempt, now: float) -> None:
        phase, reference = self._phase, self._reference
        if attempt.phase is not phase or reference is None:
            return
        if isinstance(phase, Trial):
            phase.add_stall()
            self._judge(phase, reference, now, wanted=0)
        elif isinstance(phase, Watch):
            phase.up.add_stall()
        elif isinstance(phase, Ease) and self._limit > 1:
            self._lower_again(phase, reference, phase.alarm, phase.known)

    def _served(self, attempt: _Attempt, x: float, now: float, in_flight: int, waiting: int) -> None:
        """`x`: the page time, as a logarithm."""
        phase, wanted = self._phase, in_flight + waiting if waiting else 0
        if self._first is not None and attempt.phase is self._first and not self._first.complete:
            self._of_first(self._first, x, in_flight, wanted)
            return
        reference = self._reference
        if reference is None:
            return
        if isinstance(phase, Watch) and phase.skip:
            phase.skip -= 1
        elif isinstance(phase, Ease) and attempt.phase is not phase:
            phase.add_late(x)
        elif attempt.phase is phase and (waiting or in_flight >= FEW_LEFT * self._most_in_flight):
            match phase:
                case Trial():
                    phase.add(x)
                    self._judge(phase, reference, now, wanted)
                case Ease():
                    phase.add(x)
                    self._judge_ease(phase, reference, now)
                case Watch():
                    self._look(phase, x, in_flight, wanted)
                case First():
                    pass

    def _of_first(self, first: First, x: float, in_flight: int, wanted: int) -> None:
        if self._phase is not first:
            x = min(x, first.xs[0] + SOON)  # Later it was under another load.
        self._reference = reference = first.reference(x, in_flight)
        if isinstance(self._phase, Trial):
            self._phase.comparison.center = reference.center
        elif self._phase is first and wanted:
            self._try(reference, wanted)
        elif self._phase is first:
            self._watch(reference)

    # trial

    def _try(self, reference: Reference, wanted: int, to: int | None = None) -> None:
        """Try a higher limit. `wanted`: in flight and waiting, all together."""
        level = self._limit
        if to is None and self._step is not None:
            to = level + self._step
        elif to is None and 2 * wanted < 3 * level:
            self._limit = 2 * level  # Nobody asks for so much more that it could show.
            self._watch(reference)
            return
        elif to is None:
            to = level * (FACTOR if level < LARGE else LARGE_FACTOR)
        to = self._limit = min(to, max(level + 1, wanted))
        self._reference = reference
        self._phase = Trial(level, to, Comparison(self._spread, reference.center))
        self._spread.interrupt()

    def _judge(self, trial: Trial, reference: Reference, now: float, wanted: int) -> None:
        ages = self._ages(trial, now)
        found = trial.judge(reference, ages)
        self._limit = trial.level if found is Found.DOUBT else trial.to
        if found in (Found.NOTHING, Found.DOUBT):
            return
        self._first = None
        if found is Found.BEARS_IT:
            self._keep(trial.merged(reference, self._spread), wanted)
        elif found is Found.TOO_MUCH:
            self._failure = trial.failure(reference, ages) if trial.xs else None
            if self._step is not None:
                self._steady_rounds = min(MOST_STEADY_ROUNDS, 2 * self._steady_rounds)
            lower = max(1, -(-trial.to // 4), min(trial.to - 1, trial.bears), math.ceil(0.75 * trial.level))
            alarm = reference.center + trial.estimate.mean
            self._ease(reference, alarm, trial.comparison.count, trial.to, lower, give_back=trial.to)
        elif (
            reference.count < WELL_KNOWN and self._spread.variance / (reference.count + 8) < (trial.all_of_it / 6) ** 2
        ):
            # It is not the trial that is too short, but the reference that is not known well enough.
            self._limit = trial.level
            self._watch(reference, page_times=MEASURED, then=trial.to)
        else:
            slower = reference.center + trial.estimate.mean
            self._keep(Reference(self._spread, slower, trial.comparison.count), wanted)

    def _keep(self, reference: Reference, wanted: int) -> None:
        """The limit on trial stands."""
        if self._remembered and self._limit > self._remembered:
            self._remembered = self._limit
        if self._failure is not None and self._limit < self._failure.to:
            self._watch(reference)  # Not over the edge again: that is near.
            return
        self._failure, self._steady_rounds = None, STEADY_ROUNDS
        if self._step is not None:
            self._step = 2 * self._step if 2 * self._step < self._limit else None
        if wanted:
            self._try(reference, wanted)
        elif self._step is None:
            self._watch(reference, page_times=self._limit, then=FACTOR * self._limit)
        else:
            self._watch(reference)

    # ease

    def _ease(
        self,
        reference: Reference,
        alarm: float,
        known: int,
        before: int,
        lower: int,
        *,
        give_back: int,
        again: bool = False,
    ) -> None:
        """Lower the limit. `alarm`: what page times were with `before` in flight, known from so many."""
        less = math.log(before / lower) if lower < before else 0.3
        hoped_for = min(less, max(0.3, alarm - reference.center))
        self._reference, self._limit = reference, lower
        comparison = Comparison(self._spread, alarm)
        self._phase = Ease(self._spread, comparison, known, before, lower, give_back, hoped_for, again)
        self._spread.interrupt()

    def _judge_ease(self, ease: Ease, reference: Reference, now: float) -> None:
        eased = ease.judge(reference, self._ages(ease, now))
        alarm, mean, count = ease.alarm, ease.estimate.mean, ease.comparison.count
        lower_still = self._limit > 1 and not ease.again
        if eased is Eased.RELIEF or (eased is Eased.SOME_RELIEF and not lower_still):
            bears = math.sqrt(self._limit * ease.before * math.exp(reference.center - alarm))
            self._limit = self._remembered = max(self._limit, min(ease.before - 1, int(bears)))
            self._watch(reference)
        elif eased is Eased.SHARPLY_WORSE:
            self._lower_again(ease, reference, alarm + mean, count)
        elif eased is Eased.SOME_RELIEF or (eased is Eased.NO_RELIEF and lower_still and self._spread.variance < WIDE):
            # A host that thrashes may need less than it can bear to get well again.
            self._lower_again(ease, reference, alarm, ease.known)
        elif eased is Eased.NO_RELIEF:
            self._limit = ease.give_back
            self._failure = None
            self._distrust += DISTRUST
            slower = Reference(self._spread, alarm + mean / 2, ease.known + count)
            self._watch(slower, page_times=self._limit, then=2 * self._limit)

    def _lower_again(self, ease: Ease, reference: Reference, alarm: float, known: int) -> None:
        half = max(1, self._limit // 2)
        self._ease(reference, alarm, known, self._limit, half, give_back=ease.give_back, again=True)

    # watch

    def _watch(self, reference: Reference, *, page_times: int | None = None, then: int | None = None) -> None:
        self._reference = reference
        left = self._steady_rounds * self._limit if page_times is None else page_times
        self._phase = Watch(self._spread, reference, skip=len(self._attempts), left=left, then=then)
        self._spread.interrupt()

    def _look(self, watch: Watch, x: float, in_flight: int, wanted: int) -> None:
        reference, seen = watch.reference, watch.look(x, distrust=self._distrust)
        in_use = min(self._limit, in_flight)
        if seen is Seen.QUICKER:
            self._watch(Reference(self._spread, middle(watch.down.recent), len(watch.down.recent)))
        elif seen is Seen.CREPT and in_use > 1:
            self._alarm(Reference(self._spread, watch.anchor, reference.count), reference.center, 8, in_use)
        elif seen is Seen.SLOWER and in_use > 1:
            recent = watch.recent or [reference.center]
            self._alarm(reference, middle(recent), len(recent), in_use)
        else:
            watch.learn(x)
            if wanted:
                self._maybe_try(watch, reference, wanted)

    def _alarm(self, reference: Reference, alarm: float, known: int, in_use: int) -> None:
        """Lower the limit to what the host would bear if the load were the cause."""
        bears = round(in_use * math.exp(reference.center - alarm))
        lower = max(1, -(-in_use // 3), min(in_use - 1, bears))
        self._failure = None
        self._ease(reference, alarm, known, in_use, lower, give_back=self._limit)

    def _maybe_try(self, watch: Watch, reference: Reference, wanted: int) -> None:
        """Try more where it is time to, or where the last trial turns out to have failed by chance."""
        if self._failure is not None and not self._failure.holds(reference, self._spread):
            to, self._failure, self._step = min(self._failure.to, 2 * self._limit), None, None
            self._try(reference, wanted, to)
        elif watch.left <= 0 and watch.then is not None:
            self._try(reference, wanted, watch.then)
        elif watch.left <= 0 and watch.calm:
            more = min(TWICE, max(LITTLE_MORE, TWICE * math.sqrt(self._spread.variance)))
            step = max(1, round(self._limit * (math.exp(more) - 1)))
            if self._failure is not None:
                step = min(step, max(1, self._failure.to - self._limit))  # Not beyond where it was too much.
            self._step = step
            self._try(reference, wanted)

    def _ages(self, phase: Phase, now: float) -> list[float]:
        """Of those sent in a phase that are still out, oldest first: the logarithms of how long they have been so."""
        ages = []
        for attempt in self._attempts.values():
            if attempt.phase is phase and attempt.sent is not None:
                ages.append(math.log(max(now - attempt.sent, QUICKEST_S)))
                if len(ages) == MOST_AGES:
                    break
        return ages
