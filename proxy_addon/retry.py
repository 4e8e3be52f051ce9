"""What a reply means: its outcome, and whether the request may be sent again.

Pure functions from values to values: no I/O, no clock, no logging. What an outcome does to the host is in
`ladder.py`, what the origin asked for in `rate_limits.py`; when a retry goes out is in `engine.py`.
"""

from dataclasses import dataclass

from proxy_addon.model import IDEMPOTENT_METHODS, ErrorName, Outcome, Reply
from proxy_addon.settings import Settings

_NOT_ABOUT_LOAD = frozenset({501, 505, 508, 511})
"""Not Implemented, Version Not Supported, Loop Detected, Network Authentication Required: they speak of the request."""

_UNREACHED = frozenset({ErrorName.CONNECTION_TIMEOUT, ErrorName.DNS_TIMEOUT, ErrorName.CONNECTION_REFUSED})
"""With these nothing of the request can have reached the origin."""

_LINGERING = frozenset({ErrorName.HTTP_RESPONSE_TIMEOUT, ErrorName.CONNECTION_TIMEOUT, ErrorName.HTTP_REQUEST_TIMEOUT})
"""With these the host has not said that it is done with the request."""

_MAY_BE_RARE = frozenset(
    {
        ErrorName.HTTP_STATUS_5XX,
        ErrorName.HTTP_STATUS,
        ErrorName.CONNECTION_TERMINATED,
        ErrorName.HTTP_RESPONSE_INCOMPLETE,
    }
)
"""With these it may be one request in ten, at random, while the host is well."""

_STALLS_AT_ONCE = 2
"""A host that fails one request in ten fails one in a thousand three times. What fails more often is to be waited for:
part of the host may be down."""


@dataclass(frozen=True, slots=True)
class Classified:
    """A reply's outcome. `error` is None only where it was served."""

    outcome: Outcome
    error: ErrorName | None = None
    climbs: bool = False
    """Whether the host climbs: only ever for a stall."""

    @property
    def lingers(self) -> bool:
        """Whether what was sent may still be a burden to the host."""
        return self.error in _LINGERING

    @property
    def may_be_rare(self) -> bool:
        """Whether it may be one of the few failures of a host that is well, if most others are served."""
        return self.climbs and self.error in _MAY_BE_RARE


_SERVED = Classified(Outcome.SERVED)


def classify(reply: Reply, *, keyed: bool, stalls: frozenset[str]) -> Classified:
    """The outcome of a reply.

    `keyed`: the request carries an `Idempotency-Key`. `stalls`: the setting of that name; a status taken out of it
    is served, anything else a failure.
    """
    if reply.status is not None:
        return _classify_status(reply.status, keyed=keyed, stalls=stalls)
    error = reply.error or ErrorName.PROXY_INTERNAL_ERROR
    if not reply.charged:
        return Classified(Outcome.FAILURE, error)
    if error is ErrorName.HTTP_REQUEST_TIMEOUT or error.value in stalls:
        return Classified(Outcome.STALL, error, climbs=error is not ErrorName.DNS_TIMEOUT)
    return Classified(Outcome.FAILURE, error)


def _classify_status(status: int, *, keyed: bool, stalls: frozenset[str]) -> Classified:
    if status < 400:
        return _SERVED
    if status == 429:
        return Classified(Outcome.STALL, ErrorName.RATE_LIMITED, climbs=True) if "429" in stalls else _SERVED
    if str(status) in stalls:
        return Classified(Outcome.STALL, ErrorName.HTTP_STATUS, climbs=True)
    if 500 <= status <= 599 and status not in _NOT_ABOUT_LOAD and "5xx" in stalls:
        return Classified(Outcome.STALL, ErrorName.HTTP_STATUS_5XX, climbs=True)
    if status == 409 and keyed:
        return Classified(Outcome.STALL, ErrorName.IN_PROGRESS, climbs=False)
    return _SERVED


def may_send_again(method: str, *, keyed: bool, held: bool, error: ErrorName | None) -> bool:
    """Whether a request that stalled may be sent a second time.

    `method` as it came: `put` is not PUT, but a method that nobody knows (RFC 9110 §9.1). `held`: its whole body is in
    memory. `error`: why it stalled; None asks whether it may be whatever happens.
    """
    if not held:
        return False
    return method in IDEMPOTENT_METHODS or keyed or error in _UNREACHED


def fault_reply_due(*, stalls: int, status: int | None, settings: Settings) -> bool:
    """Whether a page that is at fault itself is answered with its own reply now, at its `stalls`-th stall.

    Asked only where there is evidence that the host serves others. A 429 is never given early.
    """
    if not settings.page_fault_after or status == 429:
        return False
    return stalls >= (settings.page_fault_after if status == 500 else settings.page_fault_after_other)


def rest_s(*, stalls: int, rare: bool, asked: bool, ladder: tuple[float, ...]) -> float:
    """How long a request rests, at most, after its `stalls`-th stall. `asked`: the host has said when to come back,
    and nothing is sent to it before."""
    steps = stalls
    if rare or asked:
        steps = max(1 if rare else 0, stalls - _STALLS_AT_ONCE)
    return ladder[min(steps, len(ladder) - 1)]


def rests_for_any_page(*, stalls: int, rare: bool) -> bool:
    """Whether that rest ends with the next page of the host, whenever it was asked for: the retry takes its place, so
    that the host has no more to do than when it stalled."""
    return rare and stalls <= _STALLS_AT_ONCE
