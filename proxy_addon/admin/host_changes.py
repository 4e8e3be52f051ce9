"""What an operator asks for a host, read from JSON. Pure. Which values are sensible is the engine's to say.

{"action": "resume"}
{"action": "pause", "seconds": 600}
{"action": "floor", "seconds": 5}
"""

import json
import math
from dataclasses import dataclass
from typing import NoReturn

_FORMS = '{"action": "resume"}, {"action": "pause", "seconds": 600} or {"action": "floor", "seconds": 5}'


@dataclass(frozen=True, slots=True)
class Resume:
    """Its trouble is forgotten."""

    def __str__(self) -> str:
        return "resumed"


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing is sent to it for so long."""

    seconds: float

    def __str__(self) -> str:
        return f"paused for {self.seconds:g} s"


@dataclass(frozen=True, slots=True)
class Floor:
    """Its pace is never shorter; 0: it may be any."""

    seconds: float

    def __str__(self) -> str:
        return f"given a floor of {self.seconds:g} s" if self.seconds else "given no floor any more"


type HostChange = Resume | Pause | Floor


class BadChange(Exception):
    """What was sent is no change. The message says what to send."""


def parse_change(body: bytes) -> HostChange:
    """Read a request's body. Raises `BadChange`."""
    asked = _parse_json(body)
    if not isinstance(asked, dict):
        raise BadChange(f"The body must be a JSON object: {_FORMS}.")
    action = asked.get("action")
    names = {"resume": {"action"}, "pause": {"action", "seconds"}, "floor": {"action", "seconds"}}
    if not isinstance(action, str) or action not in names:
        raise BadChange(f"action must be resume, pause or floor, as in {_FORMS}.")
    if unknown := sorted(asked.keys() - names[action]):
        raise BadChange(f"{_shown(unknown[0])} is nothing that {action} has; send {_FORMS}.")
    if action == "resume":
        return Resume()
    seconds = asked.get("seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise BadChange(f"seconds must be a number, got {_shown(seconds)}; send {_FORMS}.")
    try:
        number = float(seconds)
    except OverflowError:
        number = math.inf if seconds > 0 else -math.inf
    return Pause(number) if action == "pause" else Floor(number)


def _parse_json(body: bytes) -> object:
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise BadChange("The body must be JSON in UTF-8.") from None
    except json.JSONDecodeError as error:
        raise BadChange(f"The body must be JSON: {error.msg} at line {error.lineno}, column {error.colno}.") from None
    except ValueError as error:  # a whole number of thousands of digits
        raise BadChange("The body must have shorter numbers.") from error
    except RecursionError:
        raise BadChange("The body must not be nested so deeply.") from None


def _refuse_constant(name: str) -> NoReturn:
    raise BadChange(f"{name} is no number in JSON; send a decimal number of seconds.")


def _shown(value: object) -> str:
    """In one line, and not longer than a person reads."""
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
