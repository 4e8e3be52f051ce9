"""One accepted request as the engine sees it, the grant it may hold, and the decisions it can get.

Mutable bookkeeping without behaviour; `engine.py` is its only writer. No mitmproxy here.
"""

import asyncio
from dataclasses import dataclass
from enum import StrEnum

from proxy_addon.line import Waiter
from proxy_addon.model import ErrorName, Outcome, Reply


@dataclass(slots=True, eq=False)
class Grant:
    """The right to send one attempt now."""

    granted: float
    """Monotonic seconds."""
    rung: int
    limit_s: float
    """How long to wait for the response head."""
    overdue_s: float | None
    """When, within that, its stall is recorded though the attempt goes on; None: never."""
    wrote: float | None = None
    """The `next_slot_at` that the claim wrote; None where the host had no row, or for a late attempt."""
    late: bool = False
    overdue: bool = False
    """Its stall is recorded already, though it goes on."""
    rare: bool = False
    """It ended with a stall that is a rare one of a host that serves: it tells of no load."""
    sent: float | None = None
    """Monotonic seconds at which its first byte was sent."""
    sent_at: float | None = None
    """The same in Unix seconds."""


class Refused(StrEnum):
    """Why a held request gets no (further) attempt."""

    WINDOW_CLOSED = "window_closed"
    CANNOT_COME_IN_TIME = "cannot_come_in_time"
    """The host is blocked or paused for longer than the request may wait."""
    DRAINING = "draining"
    LEFT = "left"
    """Its client has gone; nobody is to be answered."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """No attempt: the request gets its last reply if it has one, else a 503."""

    reason: Refused
    retry_after_s: float
    """When it would be worth asking again."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """The reply is the request's answer."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The reply is discarded, and the request goes back to the line."""

    fresh: bool = False
    """On a connection that carried nothing before."""


type Decision = Deliver | Retry


@dataclass(slots=True, eq=False)
class Request:
    """From acceptance to the end of the answer. Monotonic seconds, but for the marks that end in `_at`."""

    host: str
    method: str
    keyed: bool
    """It carries an `Idempotency-Key`."""
    window_s: float
    accepted: float
    accepted_at: float
    number: int
    """Unlike any other's in this process."""
    client: str = ""
    """The address that it came from, without the port."""
    url: str = ""
    """What it asks for, without user and password."""
    held: bool = True
    """Its whole body is in memory: it can be sent again."""

    attempts: int = 0
    stalls: int = 0
    counted: int = 0
    """How many of its stalls may have counted towards the pause."""
    redialled: bool = False
    first_stall: float | None = None
    not_before: float = 0.0
    """It does not re-enter the line before then, ..."""
    rests_for_page: float | None = None
    """... or before a page comes that was sent after this moment (monotonic); None: whatever comes."""
    rested: float | None = None
    """It rests since then for any page that comes, whenever it was sent; None: it does not."""
    next_limit_s: float = 0.0
    """The response time-out that its next attempt asks for; 0: the setting."""
    waited_s: float = 0.0
    room_s: float = 0.0
    """The part of it in which nothing but the limit of attempts in flight held it."""
    entered: float = 0.0
    """When it last entered the line; 0: it never had to."""
    keeps_place: bool = False
    """It enters again as of then: what it was granted has not become an attempt."""

    waiter: "Waiter[Request] | None" = None
    """Its place in the line, while it has one."""
    answered: "asyncio.Future[Grant | Refusal] | None" = None
    """What its place in the line came to."""
    grant: Grant | None = None
    began_pause_until: float | None = None
    """The pause that this stall began ends then."""
    last_reply: Reply | None = None
    outcome: Outcome = Outcome.UNSENT
    error: ErrorName | None = None
    rung: int = 0
    sent_at: float | None = None
    first_byte_at: float | None = None
    status: int | None = None
    """Of the response that its client got; None before its head has gone."""
    body_bytes: int = 0
    """How much of that response's body its client was sent."""
    left: bool = False
    gave_up: bool = False
    """Its client left while it waited for its answer."""
    closed: bool = False

    @property
    def closes(self) -> float:
        """When its window closes."""
        return self.accepted + self.window_s
