"""The experiments of a learned limit, trial, ease and watch: what follows from what a phase has found.

They go on with each page time that comes, and set the limit. Which of the attempts count, where a limit begins, and
what it forgets is in `learned_limit.py`; when a phase has found something is in `limit_phases.py`.
"""

import math

from proxy_addon.limit_attempts import Attempt, Attempts
from proxy_addon.limit_phases import WELL_KNOWN, WIDE, Ease, Eased, Failure, First, Found, Phase, Seen, Trial, Watch
from proxy_addon.slowdown import Comparison, Reference, Spread, middle

FACTOR, LARGE_FACTOR, LARGE = 2, 3, 16
"""A trial doubles the limit, from a limit of `LARGE` on it triples it: what it overshoots costs a small host most."""
STEADY_ROUNDS, MOST_STEADY_ROUNDS = 4, 64
"""How often the limit has to be filled anew before a trial of a little more; doubled with each that failed."""
LITTLE_MORE, TWICE = 0.22, 0.7
"""A little more is by 25 % (as logarithms), up to twice as many where page times differ much: less would not show."""
MEASURED = 8
"""Page times that a reference is measured again by."""
SOON = 0.5
"""Of those sent first, some come when more are in flight already: by so much later than the first they count."""
DISTRUST = 4.0
"""How much more evidence an alarm needs for each one before that was none."""
FEW = 5
"""In flight: as many as an alarm takes."""
FEW_LEFT = 0.7
"""With fewer in flight than this share of what was, and nobody waiting, the slow pages of a crawl are left over."""


class Experiments:
    """With one host, since it was met."""

    __slots__ = (
        "_attempts",
        "_distrust",
        "_failure",
        "_first",
        "_most_in_flight",
        "_spread",
        "_steady_rounds",
        "_step",
        "limit",
        "phase",
        "reference",
        "remembered",
    )

    def __init__(self, attempts: Attempts, limit: int, remembered: int) -> None:
        self._attempts = attempts
        self.remembered = remembered
        self.limit = limit
        self._spread = Spread()
        self.reference: Reference | None = None
        self._first: First | None = First(self._spread)
        """Whose page times still make the reference; None: later ones have settled it."""
        self.phase: Phase = self._first
        self._failure: Failure | None = None
        """The trial that failed last."""
        self._step: int | None = None
        """How much a trial adds; None: it multiplies."""
        self._steady_rounds = STEADY_ROUNDS
        self._distrust = 0.0
        self._most_in_flight = 0.0
        """Lately."""

    def remember(self, limit: int) -> None:
        """Its row says so; 0: it is forgotten."""
        self.remembered = limit
        if limit and self.reference is None:
            self.limit = limit
        elif limit and self.reference is not None and limit < self.limit:
            self.limit = limit
            self._watch(self.reference)

    def settle(self) -> None:
        """An attempt is over: of a doubt, the others that are out decide."""
        if isinstance(self.phase, Trial) and not self._attempts.any_out(self.phase):
            self.limit = self.phase.to  # Nobody is out any more who could settle a doubt.

    def stalled(self, attempt: Attempt, x: float, now: float, in_flight: int) -> None:
        """`x`: how long it was out, as a logarithm."""
        phase, reference = self.phase, self.reference
        if attempt.phase is not phase or reference is None:
            return
        if isinstance(phase, Trial):
            phase.add_stall()
            self._judge(phase, reference, now, wanted=0)
        elif isinstance(phase, Watch):
            attempt.phase = None  # However much longer it is out, it has said all it can say.
            phase.add_stall(x)
            in_use = min(self.limit, in_flight)
            if in_use > 1 and phase.is_slower(self._silent(phase, now, in_flight), distrust=self._distrust):
                self._slower(phase, reference, in_use)
        elif isinstance(phase, Ease) and self.limit > 1:
            self._lower_again(phase, reference, phase.alarm, phase.known)

    def served(self, attempt: Attempt, x: float, now: float, in_flight: int, waiting: int) -> None:
        """`x`: the page time, as a logarithm."""
        self._spread.learn(x)
        self._most_in_flight = max(in_flight, 0.98 * self._most_in_flight)
        phase, wanted = self.phase, in_flight + waiting if waiting else 0
        if self._first is not None and attempt.phase is self._first and not self._first.complete:
            self._of_first(self._first, x, in_flight, wanted)
            return
        reference = self.reference
        if reference is None:
            return
        if isinstance(phase, Watch) and phase.skip:
            phase.skip -= 1
        elif isinstance(phase, Ease) and attempt.phase is not phase:
            phase.add_late(x)
        elif attempt.phase is phase and (waiting or in_flight >= FEW_LEFT * self._most_in_flight):
            match phase:
                case Trial():
                    phase.comparison.add(x)
                    self._judge(phase, reference, now, wanted)
                case Ease():
                    phase.comparison.add(x)
                    self._judge_ease(phase, reference, now)
                case Watch():
                    self._look(phase, x, now, in_flight, wanted)
                case First():
                    pass

    def _of_first(self, first: First, x: float, in_flight: int, wanted: int) -> None:
        if self.phase is not first:
            x = min(x, first.xs[0] + SOON)  # Later it was under another load.
        self.reference = reference = first.reference(x, in_flight)
        if isinstance(self.phase, Trial):
            self.phase.comparison.center = reference.center
        elif self.phase is first and wanted:
            self._try(reference, wanted)
        elif self.phase is first:
            self._watch(reference)

    # trial

    def _try(self, reference: Reference, wanted: int, to: int | None = None) -> None:
        """Try a higher limit. `wanted`: in flight and waiting, all together."""
        level = self.limit
        if to is None and self._step is not None:
            to = level + self._step
        elif to is None and 2 * wanted < 3 * level:
            self.limit = 2 * level  # Nobody asks for so much more that it could show.
            self._watch(reference)
            return
        elif to is None:
            to = level * (FACTOR if level < LARGE else LARGE_FACTOR)
        to = self.limit = min(to, max(level + 1, wanted))
        self.reference = reference
        self.phase = Trial(level, to, Comparison(self._spread, reference.center))
        self._spread.interrupt()

    def _judge(self, trial: Trial, reference: Reference, now: float, wanted: int) -> None:
        ages = self._attempts.ages(trial, now)
        found = trial.judge(reference, ages)
        self.limit = trial.level if found is Found.DOUBT else trial.to
        if found in (Found.NOTHING, Found.DOUBT):
            return
        self._first = None
        if found is Found.BEARS_IT:
            self._keep(trial.merged(reference, self._spread), wanted)
        elif found is Found.TOO_MUCH:
            self._failure = trial.failure(reference, ages) if trial.comparison.xs else None
            if self._step is not None:
                self._steady_rounds = min(MOST_STEADY_ROUNDS, 2 * self._steady_rounds)
            lower = max(1, -(-trial.to // 4), min(trial.to - 1, trial.bears), math.ceil(0.75 * trial.level))
            alarm = reference.center + trial.estimate.mean
            self._ease(reference, alarm, trial.comparison.count, trial.to, lower, give_back=trial.to)
        elif (
            reference.count < WELL_KNOWN and self._spread.variance / (reference.count + 8) < (trial.all_of_it / 6) ** 2
        ):
            # It is not the trial that is too short, but the reference that is not known well enough.
            self.limit = trial.level
            self._watch(reference, page_times=MEASURED, then=trial.to)
        else:
            slower = reference.center + trial.estimate.mean
            self._keep(Reference(self._spread, slower, trial.comparison.count), wanted)

    def _keep(self, reference: Reference, wanted: int) -> None:
        """The limit on trial stands."""
        if self.remembered and self.limit > self.remembered:
            self.remembered = self.limit
        if self._failure is not None and self.limit < self._failure.to:
            self._watch(reference)  # Not over the edge again: that is near.
            return
        self._failure, self._steady_rounds = None, STEADY_ROUNDS
        if self._step is not None:
            self._step = 2 * self._step if 2 * self._step < self.limit else None
        if wanted:
            self._try(reference, wanted)
        elif self._step is None:
            self._watch(reference, page_times=self.limit, then=FACTOR * self.limit)
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
        self.reference, self.limit = reference, lower
        comparison = Comparison(self._spread, alarm)
        self.phase = Ease(self._spread, comparison, known, before, lower, give_back, hoped_for, again)
        self._spread.interrupt()

    def _judge_ease(self, ease: Ease, reference: Reference, now: float) -> None:
        eased = ease.judge(reference, self._attempts.ages(ease, now))
        alarm, mean, count = ease.alarm, ease.estimate.mean, ease.comparison.count
        lower_still = self.limit > 1 and not ease.again
        if eased is Eased.RELIEF or (eased is Eased.SOME_RELIEF and not lower_still):
            bears = math.sqrt(self.limit * ease.before * math.exp(reference.center - alarm))
            self.limit = self.remembered = max(self.limit, min(ease.before - 1, int(bears)))
            self._watch(reference)
        elif eased is Eased.SHARPLY_WORSE:
            self._lower_again(ease, reference, alarm + mean, count)
        elif eased is Eased.SOME_RELIEF or (eased is Eased.NO_RELIEF and lower_still and self._spread.variance < WIDE):
            # A host that thrashes may need less than it can bear to get well again.
            self._lower_again(ease, reference, alarm, ease.known)
        elif eased is Eased.NO_RELIEF:
            self.limit = ease.give_back
            self._failure = None
            self._distrust += DISTRUST
            slower = Reference(self._spread, alarm + mean / 2, ease.known + count)
            self._watch(slower, page_times=self.limit, then=2 * self.limit)

    def _lower_again(self, ease: Ease, reference: Reference, alarm: float, known: int) -> None:
        half = max(1, self.limit // 2)
        self._ease(reference, alarm, known, self.limit, half, give_back=ease.give_back, again=True)

    # watch

    def _watch(self, reference: Reference, *, page_times: int | None = None, then: int | None = None) -> None:
        self.reference = reference
        left = self._steady_rounds * self.limit if page_times is None else page_times
        self.phase = Watch(self._spread, reference, skip=len(self._attempts), left=left, then=then)
        self._spread.interrupt()

    def _look(self, watch: Watch, x: float, now: float, in_flight: int, wanted: int) -> None:
        reference, seen = watch.reference, watch.look(x, self._silent(watch, now, in_flight), distrust=self._distrust)
        in_use = min(self.limit, in_flight)
        if seen is Seen.QUICKER:
            # It is better than it was, whatever was too much for it then.
            self._failure, self._steady_rounds = None, STEADY_ROUNDS
            self._watch(Reference(self._spread, middle(watch.down.recent), len(watch.down.recent)))
        elif seen is Seen.CREPT and in_use > 1:
            self._alarm(Reference(self._spread, watch.anchor, reference.count), reference.center, 8, in_use)
        elif seen is Seen.SLOWER and in_use > 1:
            self._slower(watch, reference, in_use)
        elif seen is not Seen.STEADY and in_use == 1 and len(watch.up.recent) >= WELL_KNOWN:
            # Less load there is none: it is the host that takes so long now, and more may be tried as before.
            slower = Reference(self._spread, middle(watch.recent), len(watch.recent))
            self._watch(slower, page_times=watch.left, then=watch.then)
        else:
            watch.learn(x)
            if wanted:
                self._maybe_try(watch, reference, wanted)

    def _silent(self, watch: Watch, now: float, in_flight: int) -> list[float]:
        """How long others are out, where that is waited for: with many in flight enough of them come soon."""
        return self._attempts.ages(watch, now) if in_flight <= FEW else []

    def _slower(self, watch: Watch, reference: Reference, in_use: int) -> None:
        recent = watch.recent or [reference.center]
        self._alarm(reference, middle(recent), len(recent), in_use)

    def _alarm(self, reference: Reference, alarm: float, known: int, in_use: int) -> None:
        """Lower the limit to what the host would bear if the load were the cause."""
        bears = round(in_use * math.exp(reference.center - alarm))
        lower = max(1, -(-in_use // 3), min(in_use - 1, bears))
        self._failure = None
        self._ease(reference, alarm, known, in_use, lower, give_back=self.limit)

    def _maybe_try(self, watch: Watch, reference: Reference, wanted: int) -> None:
        """Try more where it is time to, or where the last trial turns out to have failed by chance."""
        if self._failure is not None and not self._failure.holds(reference, self._spread):
            to, self._failure, self._step = min(self._failure.to, 2 * self.limit), None, None
            self._try(reference, wanted, to)
        elif watch.left <= 0 and watch.then is not None:
            self._try(reference, wanted, watch.then)
        elif watch.left <= 0 and watch.calm:
            more = min(TWICE, max(LITTLE_MORE, TWICE * math.sqrt(self._spread.variance)))
            step = max(1, round(self.limit * (math.exp(more) - 1)))
            if self._failure is not None:
                step = min(step, max(1, self._failure.to - self.limit))  # Not beyond where it was too much.
            self._step = step
            self._try(reference, wanted)
