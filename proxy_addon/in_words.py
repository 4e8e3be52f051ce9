"""Numbers as people say them: durations, times of day, counts."""

from datetime import UTC, datetime


def duration(seconds: float) -> str:
    """Not more exact than a person wants: `0.4 s`, `12 s`, `3 min 5 s`, `2 h 4 min`."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s".replace(".0 ", " ")
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest_s = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest_s} s" if rest_s else f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"


def time_of_day(at: float) -> str:
    """Of this moment (Unix seconds), here: `14:31:07`."""
    return f"{datetime.fromtimestamp(at, UTC).astimezone():%H:%M:%S}"


def count(number: int, what: str) -> str:
    """`1 host`, `2 hosts`."""
    return f"{number} {what}{'' if number == 1 else 's'}"
