"""What origins answer in the world of virtual time, and what their logs hold.

Values and small scripts only: who plays them is in `world.py`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from proxy_addon.model import ErrorName, HostState, Reply

HOST = "shop.example"
CLIENT = "192.0.2.7"
START = 1_000_000.0
"""When every world begins, in Unix seconds."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What becomes of one attempt at the origin. Seconds; `math.inf` is never."""

    status: int | None = 200
    fields: tuple[tuple[str, str], ...] = ()
    error: ErrorName | None = None
    """Instead of a status."""
    after_s: float = 0.0
    """From the sending to the reply."""
    connect_s: float = 0.0
    """From the grant to the sending."""
    refused: bool = False
    """The connection fails with `error` after `connect_s`, and nothing is sent."""
    reused: bool = False
    """It went over a connection that was used before."""
    cut: bool = False
    """Its body breaks off on the way to the client."""

    def reply(self) -> Reply:
        status = None if self.error else self.status
        return Reply(status=status, fields=self.fields, error=self.error, reused=self.reused)


PAGE = Answer()
SLOW_PAGE = Answer(after_s=1.0)
ENDLESS = Answer(after_s=500.0)
"""Nothing comes back while a test looks on; a page in the end, where `attempt_timeout` is 500 s."""
SILENT = Answer(after_s=math.inf)
UNREACHABLE = Answer(connect_s=math.inf)
REFUSED = Answer(error=ErrorName.CONNECTION_REFUSED, refused=True)
UNAVAILABLE = Answer(status=503)


def status(code: int, *, retry_after: str | None = None, after_s: float = 0.0) -> Answer:
    """A reply with this status."""
    fields = () if retry_after is None else (("Retry-After", retry_after),)
    return Answer(status=code, fields=fields, after_s=after_s)


@dataclass(frozen=True, slots=True)
class Hit:
    """One line of an origin's log."""

    at: float
    """Seconds since the world began."""
    path: str
    attempt: int
    """Of its request, from 1."""
    pace_s: float = 0.0
    """What the host's pace was when it was granted; 0 where the host was healthy."""
    late: bool = False
    """It was sent at the end of a window, outside of the pace."""


type Script = Callable[[Hit], Answer]


def always(answer: Answer) -> Script:
    """Every attempt gets this answer."""
    return lambda hit: answer


def in_turn(*answers: Answer) -> Script:
    """The attempts get these answers one after the other, and the last of them for ever."""
    left = list(answers)
    return lambda hit: left.pop(0) if len(left) > 1 else left[0]


def by_path(**answers: Answer) -> Script:
    """The paths named get these answers, all others a page."""
    return lambda hit: answers.get(hit.path, PAGE)


def until(moment: float, before: Answer, after: Answer = PAGE) -> Script:
    """The one answer before that moment, the other from then on."""
    return lambda hit: before if hit.at < moment else after


def on_rung(
    rung: int,
    *,
    slot_in: float = 0.0,
    blocked_in: float | None = None,
    paused_in: float | None = None,
    pauses: int = 0,
) -> HostState:
    """A row that has just stalled when the world begins; times in seconds from then."""
    return HostState(
        rung=rung,
        next_slot_at=START + slot_in,
        blocked_until=0.0 if blocked_in is None else START + blocked_in,
        stalled_at=START,
        counted_at=START,
        paused_until=0.0 if paused_in is None else START + paused_in,
        pauses=pauses,
    )
