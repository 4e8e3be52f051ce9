"""How much slower a host has become: attempts compared with a reference, those that are still out included.

Pure statistics on the logarithms of page times (seconds from sending to the outcome): a host that shares its power
among what it has to do makes every page slower by the same factor, which is the same distance between logarithms
whatever the page costs. Page times differ from page to page, some are a hundred times the others: no single one says
anything, and outliers must not count for more than a little. What follows from a slowdown is in `limit_phases.py`.
"""

import math
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

_SLOWDOWNS = tuple(0.25 * step for step in range(-12, 13))
"""The slowdowns that are compared, as differences of logarithms: up to a factor of twenty to either side."""
_OUTLIERS = 0.08
"""The share of page times that say nothing about the others."""
_OUTLIER_DENSITY = 0.1
"""They may be anywhere in a range of a factor of e ** 10."""
_TILT = 1.5
"""How much an attempt that stalled speaks for a slowdown, as a difference of logarithms of likelihood."""
_NARROWEST, _WIDEST = 0.1, 1.5
"""Limits of the standard deviation of the logarithm of page times."""
_FIRST_GUESS, _FIRST_WEIGHT = 0.3, 4.0
"""Its standard deviation before anything is known, and how many page times that guess is worth."""
_NEAR = 2.0
"""Standard deviations: a page time further from the reference moves it no more than that."""
_LONGEST_MEMORY = 64
"""Page times that the averages remember."""
_EXACT_ENOUGH = 0.003
"""A reference with less variance than this follows slowly: else one that creeps up would be taken for normal."""
_CREEP = 128
_SQRT_2, _SQRT_2_PI = math.sqrt(2.0), math.sqrt(2.0 * math.pi)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A slowdown, as a difference of logarithms."""

    mean: float
    variance: float


class Spread:
    """How much page times differ from page to page, at the same load.

    From the differences between one and the next: the load is nearly the same for both.
    """

    __slots__ = ("_last", "_weight", "variance")

    def __init__(self) -> None:
        self.variance = _FIRST_GUESS**2
        self._weight = _FIRST_WEIGHT
        self._last: float | None = None

    def learn(self, x: float) -> None:
        if self._last is not None:
            seen = min((x - self._last) ** 2 / 2, 6 * self.variance)
            self._weight = min(self._weight + 1, _LONGEST_MEMORY)
            variance = self.variance + (1.1 * seen - self.variance) / self._weight  # 1.1: for what was cut off above
            self.variance = min(max(variance, _NARROWEST**2), _WIDEST**2)
        self._last = x

    def interrupt(self) -> None:
        """The load has changed: the next page time is not compared with the last."""
        self._last = None


class Reference:
    """The logarithm of the page time of a host that is not slowed down, as far as it is known."""

    __slots__ = ("_spread", "center", "count")

    def __init__(self, spread: Spread, center: float, count: float) -> None:
        self._spread = spread
        self.center = center
        self.count = max(1.0, min(count, _LONGEST_MEMORY))

    @classmethod
    def of_first(cls, spread: Spread, xs: Sequence[float], out_of: int) -> "Reference":
        """From the first that came back of `out_of` sent together, which are the quickest of them."""
        ranks = (NormalDist().inv_cdf((rank + 0.625) / (out_of + 0.25)) for rank in range(len(xs)))
        center = (sum(xs) - math.sqrt(spread.variance) * sum(ranks)) / len(xs)
        return cls(spread, center, len(xs))

    @property
    def variance(self) -> float:
        """Of the center, for not being known any better."""
        return self._spread.variance / self.count

    def learn(self, x: float) -> None:
        near = _NEAR * math.sqrt(self._spread.variance)
        self.count = min(self.count + 1, _LONGEST_MEMORY)
        rate = 1 / self.count if self.variance >= _EXACT_ENOUGH else min(1 / self.count, 1 / _CREEP)
        self.center += rate * max(-near, min(near, x - self.center))


class Comparison:
    """Attempts sent under one load, compared with a center.

    For each slowdown the likelihood of what has come back; of what is still out, that it took so long already.
    """

    __slots__ = ("_likelihoods", "_spread", "center", "count", "xs")

    def __init__(self, spread: Spread, center: float) -> None:
        self._spread = spread
        self.center = center
        self.count = 0
        """Attempts, those that stalled included."""
        self.xs: list[float] = []
        """The page times of those that came back."""
        self._likelihoods = [0.0] * len(_SLOWDOWNS)

    def moved(self, center: float) -> "Comparison":
        """The same page times, compared with another center."""
        other = Comparison(self._spread, center)
        for x in self.xs:
            other.add(x)
        return other

    def add(self, x: float) -> None:
        """One has come back."""
        self.xs.append(x)
        deviation = math.sqrt(self._spread.variance)
        peak = (1 - _OUTLIERS) / (deviation * _SQRT_2_PI)
        x = min(max(x, self.center + _SLOWDOWNS[0]), self.center + _SLOWDOWNS[-1])
        for at, slowdown in enumerate(_SLOWDOWNS):
            z = (x - self.center - slowdown) / deviation
            self._likelihoods[at] += math.log(peak * math.exp(-z * z / 2) + _OUTLIERS * _OUTLIER_DENSITY)
        self.count += 1

    def add_stall(self, more_than: float) -> None:
        """One stalled: that speaks for a slowdown of `more_than`, and says nothing about how much more."""
        for at, slowdown in enumerate(_SLOWDOWNS):
            if slowdown > more_than:
                self._likelihoods[at] += _TILT
        self.count += 1

    def estimate(self, ages: Iterable[float]) -> Estimate:
        """The slowdown. `ages`: the logarithms of how long those that are out have been so, oldest first."""
        deviation = math.sqrt(self._spread.variance)
        likelihoods = list(self._likelihoods)
        for age in ages:
            if age < self.center - 2 * deviation:
                break
            for at, slowdown in enumerate(_SLOWDOWNS):
                longer = math.erfc((age - self.center - slowdown) / (deviation * _SQRT_2)) / 2
                likelihoods[at] += math.log((1 - _OUTLIERS) * longer + _OUTLIERS / 2)
        highest = max(likelihoods)
        weights = [math.exp(likelihood - highest) for likelihood in likelihoods]
        total = sum(weights)
        mean = sum(slowdown * weight for slowdown, weight in zip(_SLOWDOWNS, weights, strict=True)) / total
        variance = sum((s - mean) ** 2 * weight for s, weight in zip(_SLOWDOWNS, weights, strict=True)) / total
        return Estimate(mean, variance)


class Drift:
    """A cumulative sum that shows when page times have moved to one side of the reference (Page's CUSUM test)."""

    __slots__ = ("_side", "evidence", "recent")

    _MOST = 2.5
    """What one page time may add at most."""
    _KEPT = 256

    def __init__(self, side: int) -> None:
        self._side = side
        """1: slower, -1: quicker."""
        self.evidence = 0.0
        self.recent: deque[float] = deque(maxlen=self._KEPT)
        """The page times since there has been any evidence, the newest of them."""

    def add(self, x: float, reference: Reference, *, step: float, variance: float) -> None:
        """`step`: the smallest move that matters."""
        self._add(self._says(x, reference, step, variance))
        if not self.evidence:
            self.recent.clear()
        else:
            self.recent.append(x)

    def add_stall(self, at_least: float, reference: Reference) -> None:
        """One stalled after so long, as a logarithm. A quick error says nothing of how long pages take."""
        self._add(self._MOST)
        if at_least > reference.center:
            self.recent.append(at_least)

    def evidence_with(self, ages: Iterable[float], reference: Reference, *, step: float, variance: float) -> float:
        """With those that are out, as if they came now, which they have not: at most as much again as what has come.

        `ages`: the logarithms of how long they are out. Slow pages are so for longer, so more of those that are out at
        a moment are slow: where the logarithms of page times have a variance, by just as much.
        """
        out = sum(max(0.0, self._says(age - variance, reference, step, variance)) for age in ages)
        return self.evidence + min(out, self.evidence)

    def _says(self, x: float, reference: Reference, step: float, variance: float) -> float:
        away = self._side * (x - reference.center)
        return max(-self._MOST, min(self._MOST, step * (2 * away - step) / (2 * variance)))

    def _add(self, evidence: float) -> None:
        self.evidence = max(0.0, self.evidence + evidence)


def middle(xs: Collection[float]) -> float:
    """The mean of the middle half: outliers do not move it, and it is steadier than the median."""
    cut = len(xs) // 4
    inner = sorted(xs)[cut : len(xs) - cut]
    return sum(inner) / len(inner)
