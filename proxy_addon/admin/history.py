"""What became of the requests of the last ten minutes, in steps of ten seconds; for people who look at it now.

It listens to the engine. Time comes with the events and with the question; a clock that is set back loses what is
then in the future. Counts for ever, and by host, belong to `metrics.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from proxy_addon.model import Event, Outcome, RequestEnded

STEP_S = 10
STEPS = 60
"""A bar each in a chart that a phone can show."""


@dataclass(slots=True)
class Step:
    """What ended within one step."""

    served: int = 0
    """Requests that got a page, however long it took."""
    failed: int = 0
    """Requests that got an error, of ours or of the origin. Those whose client left are not in here."""
    saved: int = 0
    """The served ones that stalled at least once: without us they would have failed."""
    waited_s: float = 0.0
    """How long all that ended had been held, together."""


class History:
    """Bounded: so many steps and no more."""

    def __init__(self) -> None:
        self._steps: dict[int, Step] = {}

    def observe(self, event: Event) -> None:
        """Count an event. Never raises and never waits."""
        if not isinstance(event, RequestEnded):
            return
        number = int(event.done_at // STEP_S)
        step = self._steps.get(number)
        if step is None:
            # The only moment at which it grows.
            self._steps = {n: kept for n, kept in self._steps.items() if abs(n - number) < STEPS}
            step = self._steps[number] = Step()
        step.waited_s += event.waited_s
        match event.outcome:
            case Outcome.SERVED:
                step.served += 1
                step.saved += event.was_saved
            case Outcome.STALL | Outcome.FAILURE | Outcome.UNSENT:
                step.failed += 1
            case Outcome.ABANDONED:
                pass

    def steps(self, *, now: float) -> Iterator[Step]:
        """`STEPS` of them, the oldest first; the last is the one that is running."""
        last = int(now // STEP_S)
        for number in range(last - STEPS + 1, last + 1):
            yield self._steps.get(number) or Step()

    def document(self, *, now: float) -> dict[str, object]:
        """The steps as lists of numbers, for JSON."""
        steps = list(self.steps(now=now))
        return {
            "step_s": STEP_S,
            "until": (int(now // STEP_S) + 1) * STEP_S,
            "served": [step.served for step in steps],
            "failed": [step.failed for step in steps],
            "saved": [step.saved for step in steps],
            "waited_s": [round(step.waited_s, 3) for step in steps],
        }
