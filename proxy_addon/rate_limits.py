"""When an origin wants to be asked again: `Retry-After`, and the fields that tell of a quota.

Pure functions from a reply to seconds, which are at least 0 and uncapped; None where it does not say, or says
nonsense. What the wait does to the host is in `ladder.py`, how values are read in `field_values.py`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from proxy_addon.field_values import (
    Item,
    decimal,
    http_date,
    members,
    rfc3339_date,
    structured_dictionary,
    structured_list,
    structured_number,
)
from proxy_addon.model import Reply

_LONGEST_S = 1e10
"""Longer waits are not told apart (300 years)."""

_LONGEST_FIELD = 4096
"""Characters, over all lines. What is longer is no such field, and must not keep everybody waiting while it is read."""

_SEPARATE = ("ratelimit", "x-ratelimit", "x-rate-limit")
"""What the names of a dialect with a field for each value begin with."""

ASKING = frozenset(
    {"retry-after", "ratelimit", "ratelimit-policy"}
    | {f"{prefix}-{what}" for prefix in _SEPARATE for what in ("limit", "remaining", "reset", "reset-after")}
)
"""The fields that tell when to ask again, by lower-case name."""

_EPOCHS = ((1e9, 1e11, 1.0), (1e11, 1e14, 1e3), (1e14, 1e17, 1e6), (1e17, 1e20, 1e9))
"""From, below, per second: Unix time in s, ms, µs or ns. What is smaller is a wait: 1e9 s are 31 years, and were
2001 as a date. Each range ends long before the next unit's 2001."""

type _Said = Mapping[str, list[str]]
"""The lines of the fields that are read here, by lower-case name."""


@dataclass(frozen=True, slots=True)
class _Quota:
    """What a reply says of one quota; None where it does not."""

    remaining: float | None
    reset_s: float | None


def asked_s(reply: Reply, *, now: float) -> float | None:
    """How long an attempt that stalled asks to wait. Cases, in order:

    1. a valid `Retry-After` (RFC 9110 §10.2.3): of several the longest;
    2. quotas that are used up: the longest;
    3. a 429 that says when a quota ends, and of none that something is left: the longest. Another status says by this
       only that there are quotas;
    4. else it does not say: no quota is what stopped us.
    """
    said = _said(reply.fields)
    if not said:
        return None
    after_s = _longest(_retry_afters(said, now=now))
    if after_s is not None:
        return after_s
    quotas = _quotas(said, now=now)
    if reply.status == 429 and all(quota.remaining is None for quota in quotas):
        return _longest(quota.reset_s for quota in quotas)
    return _used_up_s(quotas)


def quota_s(reply: Reply, *, now: float) -> float | None:
    """How long the next attempt has to wait, by a reply that was served: until the quotas that it used up end."""
    said = _said(reply.fields)
    return _used_up_s(_quotas(said, now=now)) if said else None


def retry_after_text(seconds: float) -> str:
    """A `Retry-After` of our own: whole seconds (RFC 9110 §10.2.3), rounded up, at least 1."""
    return str(max(1, math.ceil(seconds)))


def _said(fields: Sequence[tuple[str, str]]) -> _Said:
    """Empty for nearly every reply: this is asked for each page of a healthy host, and must cost next to nothing."""
    said: dict[str, list[str]] = {}
    for name, value in fields:
        if (lowered := name.lower()) in ASKING:
            said.setdefault(lowered, []).append(value)
    if said:
        said["date"] = [value for name, value in fields if name.lower() == "date"]
    return {name: lines for name, lines in said.items() if sum(map(len, lines)) <= _LONGEST_FIELD}


def _sent_at(said: _Said, *, now: float) -> float:
    """The reply's own `Date`, by which its dates count, or `now`. Of two the earlier, as it makes the longer wait."""
    return min(_dates(said.get("date", ()), now=now), default=now)


def _dates(lines: Iterable[str], *, now: float) -> list[float]:
    return [at for member in members(lines) if (at := http_date(member, now=now)) is not None]


def _retry_afters(said: _Said, *, now: float) -> list[float]:
    waits = _decimals(said, "retry-after")
    if dates := _dates(said.get("retry-after", ()), now=now):
        waits.append(max(0.0, max(dates) - _sent_at(said, now=now)))
    return waits


def _used_up_s(quotas: Iterable[_Quota]) -> float | None:
    return _longest(quota.reset_s for quota in quotas if quota.remaining == 0)


def _longest(waits: Iterable[float | None]) -> float | None:
    return max((min(wait_s, _LONGEST_S) for wait_s in waits if wait_s is not None), default=None)


def _quotas(said: _Said, *, now: float) -> list[_Quota]:
    """What the reply says of quotas, in every dialect that it speaks.

    1. `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers): `"default";r=0;t=30`, and up to its
       seventh version `limit=10, remaining=0, reset=30`;
    2. `RateLimit-Remaining` and `RateLimit-Reset`, up to its sixth version;
    3. the same with `X-RateLimit-` or `X-Rate-Limit-`, where the reset may be a date of any kind.
    """
    lines = said.get("ratelimit", ())
    quotas = _dictionary(lines) if (items := structured_list(lines)) is None else _listed(items, said)
    for prefix in _SEPARATE:
        quotas += _separate(said, prefix, now=now)
    return quotas


def _listed(items: Iterable[Item], said: _Said) -> list[_Quota]:
    """A quota that is used up and has no `t` ends with its window at the latest: the `w` of the policy of its name."""
    policies = structured_list(said.get("ratelimit-policy", ())) or ()
    windows_s = {str(name): structured_number(parameters.get("w")) for name, parameters in policies}
    quotas = []
    for name, parameters in items:
        reset_s = structured_number(parameters.get("t"))
        remaining = structured_number(parameters.get("r"))
        if reset_s is None and remaining == 0:
            reset_s = windows_s.get(str(name))
        quotas.append(_Quota(remaining, reset_s))
    return quotas


def _dictionary(lines: Iterable[str]) -> list[_Quota]:
    values = structured_dictionary(lines) or {}
    remaining, reset = (values.get(key, (None,))[0] for key in ("remaining", "reset"))
    return [_Quota(structured_number(remaining), structured_number(reset))]


def _separate(said: _Said, prefix: str, *, now: float) -> list[_Quota]:
    """Two gateways in a row say everything twice, in the same order. Where that cannot be, the worse of each counts."""
    remaining = _decimals(said, f"{prefix}-remaining")
    resets = _decimals(said, f"{prefix}-reset-after") or _resets(said, f"{prefix}-reset", now=now)
    if len(remaining) == len(resets):
        return [_Quota(*both) for both in zip(remaining, resets, strict=True)]
    return [_Quota(min(remaining, default=None), max(resets, default=None))]


def _decimals(said: _Said, name: str) -> list[float]:
    return [value for member in members(said.get(name, ())) if (value := decimal(member)) is not None]


def _resets(said: _Said, name: str, *, now: float) -> list[float]:
    resets = []
    for member in members(said.get(name, ())):
        number = decimal(member)
        if number is None:
            at = http_date(member, now=now)
            at = rfc3339_date(member) if at is None else at
        elif number < _EPOCHS[0][0]:
            resets.append(number)
            continue
        else:
            at = next((number / per_s for least, below, per_s in _EPOCHS if least <= number < below), None)
        if at is not None:
            resets.append(max(0.0, at - _sent_at(said, now=now)))
    return resets
