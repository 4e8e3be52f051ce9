"""What can happen to a host's row, as frozen values: an attempt was sent, it got its outcome, and so on.

What each of them makes of a row is in `ladder.py`. Times are Unix seconds.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sent:
    """An attempt began to be sent."""

    at: float


@dataclass(frozen=True, slots=True)
class Served:
    """An attempt brought a page."""

    at: float
    sent_at: float
    quota_s: float | None = None
    """The reply said that the quota is used up for so many seconds."""
    began_pause_until: float | None = None
    """The same attempt was recorded as a stall before, and that stall began the pause which ends then."""


@dataclass(frozen=True, slots=True)
class Stalled:
    """An attempt stalled."""

    at: float
    sent_at: float
    climbs: bool = True
    """False: a stall that does not climb, or a page's own fault."""
    counts: bool = True
    """Whether it may count towards the pause."""
    lingers: bool = False
    """It was a time-out: what was sent may still be a burden to the host. Else the host is done with it."""
    retry_after_s: float | None = None
    """What the origin asked for, uncapped."""


@dataclass(frozen=True, slots=True)
class GivenBack:
    """An attempt failed or was abandoned: its slot is given back."""

    at: float
    sent_at: float | None
    """None: nothing was sent."""
    wrote: float | None
    """The `next_slot_at` that the grant wrote, None where it wrote none."""


@dataclass(frozen=True, slots=True)
class Limited:
    """A process has found out how many attempts in flight the host bears. The latest to do so is right."""

    at: float
    limit: int
    """0: nothing that is worth keeping."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Nobody waits for the host: what no longer says anything may go."""

    at: float


@dataclass(frozen=True, slots=True)
class Resumed:
    """An operator says that the host's trouble is over."""

    at: float


@dataclass(frozen=True, slots=True)
class PausedByOperator:
    """An operator wants nothing sent to the host for a while."""

    at: float
    until: float


@dataclass(frozen=True, slots=True)
class FloorSet:
    """An operator wants the host paced at least so."""

    at: float
    floor_s: float
    """0: no floor any more."""


type Operated = Resumed | PausedByOperator | FloorSet
type Change = Sent | Served | Stalled | GivenBack | Limited | Checked
