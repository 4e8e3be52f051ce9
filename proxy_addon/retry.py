"""What a reply means: its outcome, whether the request may be sent again, and what the origin asked for.

Pure functions from values to values: no I/O, no clock, no logging. What an outcome does to the host is in
`ladder.py`; when a retry goes out is in `engine.py`.
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from proxy_addon.model import IDEMPOTENT_METHODS, ErrorName, Outcome, Reply
from proxy_addon.settings import Settings

_NOT_ABOUT_LOAD = frozenset({501, 505, 508, 511})
"""Not Implemented, Version Not Supported, Loop Detected, Network Authentication Required: they speak of the request."""

_UNREACHED = frozenset({ErrorName.CONNECTION_TIMEOUT, ErrorName.DNS_TIMEOUT, ErrorName.CONNECTION_REFUSED})
"""With these nothing of the request can have reached the origin."""

_LONGEST_S = 1e10
"""Longer waits are not told apart (300 years): keeps sums finite."""

_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_PREFERENCE = re.compile(r'\s*([!#$%&\'*+.^_`|~0-9A-Za-z-]+)(?:\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;,"]*))?')

type Fields = Iterable[tuple[str, str]]
"""Header fields in order; names in any case."""


@dataclass(frozen=True, slots=True)
class Classified:
    """A reply's outcome. `error` is None only where it was served."""

    outcome: Outcome
    error: ErrorName | None = None
    climbs: bool = False
    """Whether the host climbs: only ever for a stall."""


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

    `held`: its whole body is in memory. `error`: why it stalled; None asks whether it may be whatever happens.
    """
    if not held:
        return False
    return method.upper() in IDEMPOTENT_METHODS or keyed or error in _UNREACHED


def fault_reply_due(*, stalls: int, status: int | None, settings: Settings) -> bool:
    """Whether a page that is at fault itself is answered with its own reply now, at its `stalls`-th stall.

    Asked only where there is evidence that the host serves others. A 429 is never given early.
    """
    if not settings.page_fault_after or status == 429:
        return False
    return stalls >= (settings.page_fault_after if status == 500 else settings.page_fault_after_other)


def retry_after_s(fields: Fields, *, now: float) -> float | None:
    """How many seconds the origin asks to wait, at least 0 and uncapped; None where it does not say, or says nonsense.

    `Retry-After` (RFC 9110 §10.2.3): decimal seconds, or an HTTP-date (§5.6.7) relative to the reply's own `Date`,
    or to `now` (Unix seconds) where that is missing. Of two fields the longer valid one.
    """
    fields = tuple(fields)
    waits: list[float] = []
    sent_at: float | None = None
    for name, value in fields:
        lowered = name.lower()
        if lowered == "retry-after":
            if _SECONDS.fullmatch(value.strip()):
                waits.append(min(float(value), _LONGEST_S))
            elif (at := _http_date(value)) is not None:
                if sent_at is None:
                    sent_at = _date_of(fields, default=now)
                waits.append(max(0.0, at - sent_at))
    return max(waits, default=None)


def _date_of(fields: Fields, *, default: float) -> float:
    for name, value in fields:
        if name.lower() == "date" and (at := _http_date(value)) is not None:
            return at
    return default


def _http_date(value: str) -> float | None:
    """Unix seconds of an HTTP-date in any of its three forms; a date without a zone is GMT."""
    if not value.isascii() or ":" not in value:
        return None
    try:
        parsed: datetime = parsedate_to_datetime(value)
        if parsed.tzinfo is None:
            parsed = parsed.replace(tzinfo=UTC)
        return parsed.timestamp()
    except (ValueError, OverflowError, TypeError, IndexError):
        return None


def window_s(fields: Fields, *, settings: Settings) -> float:
    """How long a request may keep trying, in seconds: never more than the setting `window`.

    `Pace-Window: N` counts before `Prefer: wait=N` (RFC 7240 §4.3); an invalid one is ignored.
    """
    fields = tuple(fields)
    asked = _pace_window(fields)
    if asked is None:
        asked = _prefer_wait(fields)
    return settings.window if asked is None else min(asked, settings.window)


def _pace_window(fields: Fields) -> float | None:
    for name, value in fields:
        if name.lower() == "pace-window" and _SECONDS.fullmatch(value.strip()):
            return min(float(value), _LONGEST_S)
    return None


def _prefer_wait(fields: Fields) -> float | None:
    """The first `wait` preference, over all `Prefer` field lines."""
    for name, value in fields:
        if name.lower() != "prefer":
            continue
        for preference, argument in _preferences(value):
            if preference == "wait":
                valid = argument.isascii() and argument.isdecimal()
                return min(float(argument), _LONGEST_S) if valid else None
    return None


def _preferences(value: str) -> Iterator[tuple[str, str]]:
    """The preferences of one field line, names in lower case, arguments unquoted, their parameters dropped."""
    for part in re.findall(r'(?:[^,"]|"(?:[^"\\]|\\.)*")+', value):
        if match := _PREFERENCE.match(part):
            argument = match[2] or ""
            if argument.startswith('"'):
                argument = re.sub(r"\\(.)", r"\1", argument[1:-1])
            yield match[1].lower(), argument


def retry_after_text(seconds: float) -> str:
    """A `Retry-After` of our own: whole seconds (RFC 9110 §10.2.3), rounded up, at least 1."""
    return str(max(1, math.ceil(seconds)))
