"""How long a request may keep trying: what its client asks for, within the setting `window`.

Pure functions over the request's fields. When the window closes is in `request.py`, what happens then in `dispatch.py`.
"""

import re
from collections.abc import Iterator

from proxy_addon.field_values import Fields, decimal
from proxy_addon.settings import Settings

_PIECE = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[^",]++|,', re.DOTALL)
"""Of a `Prefer` line: a quoted string (one that is not closed goes to the end), a comma, or what is between.

Possessive, so that each character is looked at once."""
_PREFERENCE = re.compile(r'\s*([!#$%&\'*+.^_`|~0-9A-Za-z-]+)(?:\s*=\s*("(?:[^"\\]|\\.)*+"|[^\s;,"]*))?', re.DOTALL)


def window_s(fields: Fields, *, settings: Settings) -> float:
    """How long a request may keep trying, in seconds: never more than the setting `window`.

    `Pace-Window: N` counts before `Prefer: wait=N` (RFC 7240 §4.3); an invalid one is ignored.
    """
    fields = tuple(fields)
    asked_s = _pace_window(fields)
    if asked_s is None:
        asked_s = _prefer_wait(fields)
    return settings.window if asked_s is None else min(asked_s, settings.window)


def _pace_window(fields: Fields) -> float | None:
    for name, value in fields:
        if name.lower() == "pace-window" and (seconds := decimal(value)) is not None:
            return seconds
    return None


def _prefer_wait(fields: Fields) -> float | None:
    """The first `wait` preference, over all `Prefer` field lines."""
    for name, value in fields:
        if name.lower() != "prefer":
            continue
        for preference, argument in _preferences(value):
            if preference == "wait":
                return float(argument) if argument.isascii() and argument.isdecimal() else None
    return None


def _preferences(value: str) -> Iterator[tuple[str, str]]:
    """The preferences of one field line, names in lower case, arguments unquoted, their parameters dropped."""
    for part in _parts(value):
        if match := _PREFERENCE.match(part):
            argument = match[2] or ""
            if argument.startswith('"'):
                argument = re.sub(r"\\(.)", r"\1", argument[1:-1])
            yield match[1].lower(), argument


def _parts(value: str) -> Iterator[str]:
    """What stands between the commas that are in no quoted string."""
    part: list[str] = []
    for piece in _PIECE.findall(value):
        if piece == ",":
            yield "".join(part)
            part.clear()
        else:
            part.append(piece)
    yield "".join(part)
