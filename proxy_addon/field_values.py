"""What header fields say, as values: decimals, dates and structured fields.

Pure functions from text to values. Fields come from strangers: what is not valid is None, never an error, and nothing
here takes more than linear time. What the values mean is in `rate_limits.py` and `window.py`.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from email.utils import parsedate_to_datetime
from typing import cast

import http_sf
from http_sf.types import BareItemType, StructuredType

type Fields = Iterable[tuple[str, str]]
"""Header fields in order; names in any case."""

type Item = tuple[object, dict[str, BareItemType]]
"""A member of a structured field, which is a bare item or an inner list, and its parameters."""

_LARGEST = 1e30
"""Larger decimals are not told apart: keeps sums finite."""

_DECIMAL = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_OWS = " \t"
"""Optional whitespace, RFC 9110 §5.6.3. `str.strip()` would take much more for it."""

_TIME = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_DAY_FIRST = (
    r"(?:[a-z]{3,9} +)?(?P<day>[0-9]{1,2})[ -](?P<month>[a-z]{3})[ -](?P<year>[1-9][0-9]{3}|[0-9]{2}) +" + _TIME
)
_ASCTIME = r"[a-z]{3} +(?P<month>[a-z]{3}) +(?P<day>[0-9]{1,2}) +" + _TIME + r" +(?P<year>[1-9][0-9]{3})"
_ZONE = r"(?: +(?P<zone>[a-z]{1,5}|[+-][0-9]{4}))?"
_DATES = tuple(re.compile(form + _ZONE, re.IGNORECASE | re.ASCII) for form in (_DAY_FIRST, _ASCTIME))
"""The forms of RFC 9110 §5.6.7, the first two without their comma and what is before it."""


def decimal(text: str) -> float | None:
    """ASCII digits, with a fraction or without: finite and not negative. No sign, no exponent, no unit."""
    text = text.strip(_OWS)
    return min(float(text), _LARGEST) if _DECIMAL.fullmatch(text) else None


def members(lines: Iterable[str]) -> list[str]:
    """What stands between the commas, over all lines of a field: lines are often joined on the way (RFC 9110 §5.3).

    An HTTP-date has a comma, too: the name of the day before it becomes a member that says nothing, and
    `http_date` does not need it.
    """
    return [member for line in lines for member in line.split(",")]


def http_date(text: str, *, now: float) -> float | None:
    """Unix seconds of an HTTP-date in any of its three forms, without the comma and what is before it.

    Without a zone it is GMT. A year of two digits is at most 50 years after `now` (RFC 9110 §5.6.7).
    """
    text = text.strip(_OWS)
    match = next((match for form in _DATES if (match := form.fullmatch(text))), None)
    if match is None:
        return None
    date, year = match.groupdict(), match["year"]
    date["year"] = str(_full_year(int(year), now=now)) if len(year) == 2 else year
    date["second"] = "59" if match["second"] == "60" else match["second"]  # a leap second
    date["zone"] = match["zone"] or "GMT"
    try:
        parsed = parsedate_to_datetime("{day} {month} {year} {hour}:{minute}:{second} {zone}".format(**date))
    except ValueError:
        return None
    # A zone that the standard library does not know leaves the date without one.
    return parsed.timestamp() if parsed.tzinfo is not None else None


def rfc3339_date(text: str) -> float | None:
    """Unix seconds of a date such as `2026-01-01T00:00:05.25Z`; without a zone it is UTC."""
    text = text.strip(_OWS)
    if not text.isascii() or "T" not in text:
        return None
    try:
        parsed = datetime.fromisoformat(text)
        return (parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def structured_list(lines: Iterable[str]) -> list[Item] | None:
    """The members of a structured List (RFC 9651 §3.1), None where it is not valid."""
    return cast(list[Item] | None, _structured(lines, "list"))


def structured_dictionary(lines: Iterable[str]) -> dict[str, Item] | None:
    """The members of a structured Dictionary (RFC 9651 §3.2), None where it is not valid."""
    return cast(dict[str, Item] | None, _structured(lines, "dictionary"))


def structured_number(value: object) -> float | None:
    """The value of an Integer or a Decimal that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or value < 0:
        return None
    return float(value)


def _structured(lines: Iterable[str], kind: str) -> StructuredType | None:
    try:
        return http_sf.parse(", ".join(lines).encode("utf-8", "surrogateescape"), tltype=kind)
    except http_sf.StructuredFieldError:
        return None


def _full_year(year: int, *, now: float) -> int:
    """The latest year that ends in these two digits and is at most 50 years after `now`."""
    latest = datetime.fromtimestamp(now, UTC).year + 50
    return latest - (latest - year) % 100
