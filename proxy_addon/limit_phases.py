"""The phases of a learned limit: what page times have shown so far, and what follows from it with enough certainty.

A phase takes the page times of the attempts that were sent in it, and gives a finding; it changes no limit. What is
done about a finding is in `limit_experiments.py`, how page times are compared in `slowdown.py`. Page times are
logarithms of seconds, and how far apart two are is a difference of logarithms: 0.7 is twice as long.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

from proxy_addon.slowdown import Comparison, Drift, Estimate, Reference, Spread, middle

FEWEST = 2
"""Page times without which nothing is found."""
UNDECIDED_ROUNDS = 3
"""How often a limit on trial is filled anew before finding out is given up."""
SURE_OF_NONE, SURE_OF_SOME, DOUBTFUL, RATHER = 0.7, 1.6, 0.5, 1.0
"""How many standard deviations an estimate is away from the middle between "no slowdown" and "all of it": to be sure
of none, or of some; to doubt; to believe in some where nothing is out any more. No slowdown is what most hosts show,
and what is found wrongly is found out soon; so it needs less, and the less the longer a trial takes: what limits what
can be known may be the reference, which a longer trial makes no better, and each page time of waiting costs."""
SURE_OF_EASE = 1.0
"""The same for whether a lower limit brings relief."""
SYSTEMATIC = 0.05
"""Standard deviation of what no number of page times makes any smaller."""
RELIEF = 0.3
"""The share of what a lower limit should bring that counts as relief."""
SHARPLY = 0.35
"""A host that gets so much slower at a lower limit is in trouble."""
WIDE = 0.25
"""Variance of page times beyond which a few of them do not show that a host thrashes."""
SOME_KNOWN = 3
"""Page times after which a host that is better, but not well, is not waited for."""
FAR_OFF = 1.0
"""A host that is so much slower than it was is not waited for until it is quite certain."""
LATE_KNOWN = 3
"""So many page times that come late after an alarm say more than those that gave it."""
ALARM = 12.0
"""The evidence of a drift that ends a watch: five page times at least."""
DRIFT = 0.4
"""The smallest drift that matters: by half."""
CALM = 1.5
"""More evidence of a drift than this, and no trial is begun."""
LATELY = 8
"""Page times that count as lately."""
CREEPING = 0.3
"""A reference that has crept up by more since the phase began is not trusted."""
WELL_KNOWN = 16
"""Page times after which a reference moves because the host does, and not because it becomes known."""
DISTURBED = 0.8
"""A failed trial is no more believed in once it is fewer standard deviations from the middle than this."""


@dataclass(slots=True, eq=False)
class First:
    """The first that are sent, which make the reference."""

    spread: Spread
    out_of: int = 0
    """How many there are."""
    xs: list[float] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return 0 < self.out_of <= len(self.xs)

    def reference(self, x: float, in_flight: int) -> Reference:
        """What they say, with `x` the newest."""
        self.out_of = self.out_of or in_flight
        self.xs.append(x)
        return Reference.of_first(self.spread, self.xs, self.out_of)


class Found(Enum):
    """What a trial has shown."""

    NOTHING = auto()
    DOUBT = auto()
    """It may well be too much."""
    BEARS_IT = auto()
    TOO_MUCH = auto()
    UNDECIDED = auto()
    """It has taken long enough."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A trial that has failed, with what it was judged by."""

    to: int
    xs: tuple[float, ...]
    all_of_it: float

    def holds(self, reference: Reference, spread: Spread) -> bool:
        """Whether it still looks like one, with what is known of page times by now."""
        variance = spread.variance / len(self.xs) + reference.variance + SYSTEMATIC**2
        return middle(self.xs) - reference.center - self.all_of_it / 2 >= DISTURBED * math.sqrt(variance)


@dataclass(slots=True, eq=False)
class Trial:
    """A higher limit is tried."""

    level: int
    """The limit before."""
    to: int
    comparison: Comparison
    """With the reference."""
    estimate: Estimate = field(default_factory=lambda: Estimate(0.0, 0.0))
    """Of the slowdown, when it was judged last."""

    @property
    def all_of_it(self) -> float:
        """The slowdown of a host that serves no more than before."""
        return math.log(self.to / self.level)

    def add_stall(self) -> None:
        self.comparison.add_stall(self.all_of_it / 2)

    def judge(self, reference: Reference, ages: list[float]) -> Found:
        """`ages`: of those that are still out, oldest first."""
        self.estimate = estimate = self.comparison.estimate(ages)
        deviation = math.sqrt(estimate.variance + reference.variance + SYSTEMATIC**2)
        sure = (self.all_of_it / 2 - estimate.mean) / deviation
        count = self.comparison.count
        patience = max(0.0, 1 - count / (UNDECIDED_ROUNDS * max(4, self.to)))
        if sure > SURE_OF_NONE * patience and count >= FEWEST:
            return Found.BEARS_IT
        if sure < -SURE_OF_SOME or (sure < -RATHER and count > FEWEST and not ages):
            return Found.TOO_MUCH
        if not patience:
            return Found.UNDECIDED
        return Found.DOUBT if sure < -DOUBTFUL and ages else Found.NOTHING

    def merged(self, reference: Reference, spread: Spread) -> Reference:
        """The reference with what this trial adds, where the host has borne it."""
        both = reference.count + self.comparison.count
        center = reference.center + self.estimate.mean * self.comparison.count / both
        return Reference(spread, center, both)

    def failure(self, reference: Reference, ages: Iterable[float]) -> Failure:
        return Failure(self.to, (*self.comparison.xs, *(age for age in ages if age > reference.center)), self.all_of_it)

    @property
    def bears(self) -> int:
        """What the host bears, by how much slower it became."""
        return round(self.to * math.exp(-max(self.estimate.mean, 0.1)))


class Eased(Enum):
    """What a lower limit has brought."""

    NOTHING_YET = auto()
    RELIEF = auto()
    SOME_RELIEF = auto()
    """But it is not well."""
    SHARPLY_WORSE = auto()
    NO_RELIEF = auto()


@dataclass(slots=True, eq=False)
class Ease:
    """The limit was lowered."""

    spread: Spread
    comparison: Comparison
    """With the page times that gave the alarm."""
    known: int
    """How many those were."""
    before: int
    """How many were in flight when it was given."""
    limit: int
    """The lower one."""
    give_back: int
    """The limit before the alarm."""
    hoped_for: float
    """By how much page times should fall."""
    again: bool = False
    """It has been lowered a second time."""
    estimate: Estimate = field(default_factory=lambda: Estimate(0.0, 0.0))
    late: list[float] = field(default_factory=list)
    """Page times of those that were in flight already: what it takes at the higher limit, after all."""

    @property
    def alarm(self) -> float:
        """The page time at the higher limit."""
        return self.comparison.center

    def add_late(self, x: float) -> None:
        """The alarm knew only the first to show it, and a host may have become still slower meanwhile.

        Slow pages are in flight for longer, so more of those that are in flight at a moment are slow: where the
        logarithms of page times have a variance, by just as much.
        """
        if len(self.late) < 8 * LATE_KNOWN:
            self.late.append(x)
        if LATE_KNOWN <= len(self.late) < 8 * LATE_KNOWN:
            self.known = len(self.late)
            self.comparison = self.comparison.moved(middle(self.late) - self.spread.variance)

    def judge(self, reference: Reference, ages: list[float]) -> Eased:
        self.estimate = estimate = self.comparison.estimate(ages)
        deviation = math.sqrt(estimate.variance + self.spread.variance / max(1, self.known) + SYSTEMATIC**2)
        sure = (estimate.mean + RELIEF * self.hoped_for) / deviation
        count = self.comparison.count
        if sure < -SURE_OF_EASE:
            well = self.alarm + estimate.mean < reference.center + DRIFT or self.spread.variance > WIDE
            return Eased.RELIEF if well else Eased.SOME_RELIEF if count >= SOME_KNOWN else Eased.NOTHING_YET
        if estimate.mean > SHARPLY and count >= FEWEST:
            return Eased.SHARPLY_WORSE
        far_off = count >= FEWEST and sure > 0 and self.alarm + estimate.mean > reference.center + FAR_OFF
        # With a single one in flight nothing is left that could help: the host is given time to get over what it had.
        known = self.limit > 1 or count >= FEWEST
        if far_off or (sure > SURE_OF_EASE and known) or count >= 2 * self.limit + 4:
            return Eased.NO_RELIEF
        return Eased.NOTHING_YET


class Seen(Enum):
    """What a watch has seen."""

    STEADY = auto()
    QUICKER = auto()
    SLOWER = auto()
    CREPT = auto()
    """The reference has followed page times up."""


@dataclass(slots=True, eq=False)
class Watch:
    """One limit, until something moves."""

    spread: Spread
    reference: Reference
    skip: int
    """The next ends that say nothing: those that were in flight as it began, and the quickest of those after."""
    left: int
    """Page times until a trial."""
    then: int | None = None
    """What the trial is to try; None: a little more."""
    up: Drift = field(default_factory=lambda: Drift(1))
    down: Drift = field(default_factory=lambda: Drift(-1))
    lately: float = 0.0
    """How far from the reference page times were lately."""
    anchor: float = math.inf
    """The lowest that the reference has been."""

    def look(self, x: float, ages: list[float], *, distrust: float) -> Seen:
        """`ages`: of those that are still out; `distrust`: how much more evidence an alarm needs."""
        reference, variance = self.reference, self.spread.variance
        if reference.count >= WELL_KNOWN:
            self.anchor = min(self.anchor, reference.center)
        self.up.add(x, reference, step=self._step, variance=variance)
        self.down.add(x, reference, step=self._step, variance=variance)
        if self.down.evidence > ALARM:
            return Seen.QUICKER
        if reference.center > self.anchor + CREEPING + 2 * math.sqrt(reference.variance):
            return Seen.CREPT
        return Seen.SLOWER if self.is_slower(ages, distrust=distrust) else Seen.STEADY

    def add_stall(self, at_least: float) -> None:
        """`at_least`: how long it was out, as a logarithm."""
        self.up.add_stall(at_least, self.reference)

    def is_slower(self, ages: list[float], *, distrust: float) -> bool:
        """Whether what has come, and how long the others are out, is enough for an alarm."""
        evidence = self.up.evidence_with(ages, self.reference, step=self._step, variance=self.spread.variance)
        return evidence > ALARM + distrust

    @property
    def _step(self) -> float:
        """The smallest move that matters."""
        return max(DRIFT, 2.5 * math.sqrt(self.reference.variance))

    def learn(self, x: float) -> None:
        """A page time that gave no alarm."""
        self.lately += (max(-1.0, min(1.0, x - self.reference.center)) - self.lately) / LATELY
        self.reference.learn(x)
        self.left -= 1

    @property
    def calm(self) -> bool:
        """Whether a trial may begin."""
        return self.up.evidence < CALM and self.lately < math.sqrt(self.spread.variance / LATELY)

    @property
    def recent(self) -> list[float]:
        """The newest of the page times that gave the alarm."""
        return list(self.up.recent)[-max(4, len(self.up.recent) // 3) :]


type Phase = First | Trial | Ease | Watch
