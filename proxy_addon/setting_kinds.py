"""The kinds of values that a setting can have: how each is read from text or YAML, and written again.

A kind refuses with `BadValue`, which knows what is wrong but not which setting it is; `settings.py` adds that. Pure
functions of the value. Addresses, URLs and files are in `setting_places.py`.
"""

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

LONGEST_S = 1e9
"""No duration is longer: 30 years, and a sum of such times is still a date that can be printed."""

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_SIZE = re.compile(r"([+-]?[0-9]{1,15})([kmg]?)b?", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_SWITCH = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


class BadValue(Exception):
    """What a value must be; `remedy` is empty where the kind's own will do."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy


class Kind[T](ABC):
    """How a setting's value is read and written."""

    metavar: ClassVar[str]
    """What stands for the value in `--flag METAVAR`; empty for a switch."""
    remedy: ClassVar[str]
    """What to do about a bad value; `{default}` is put in."""

    @abstractmethod
    def parse(self, value: object) -> T:
        """The value meant by text, by what YAML made of it, or by a value of type T. Raises `BadValue`."""

    def show(self, value: T) -> str:
        """The text that `parse` reads as `value`."""
        return str(value)

    def yaml(self, value: T) -> str:
        """The same as it is written in the YAML file."""
        return self.show(value)

    def mask(self, text: str) -> str:
        """What may be printed of a value, good or bad: everything but credentials."""
        return text


@dataclass(frozen=True, slots=True)
class Seconds(Kind[float]):
    """A duration in decimal seconds."""

    metavar = "SECONDS"
    remedy = "give seconds such as {default}"

    zero: bool = False
    """Whether 0 is allowed."""

    def parse(self, value: object) -> float:
        number = decimal(value)
        if number is None:
            raise BadValue("must be decimal seconds")
        if number < 0 or (number == 0 and not self.zero):
            raise BadValue(f"must be {'>=' if self.zero else '>'} 0 seconds")
        if number > LONGEST_S:
            raise BadValue(f"must be <= {LONGEST_S:.0f} seconds")
        return number

    def show(self, value: float) -> str:
        return plain(value)


@dataclass(frozen=True, slots=True)
class Count(Kind[int]):
    """A whole number."""

    metavar = "N"
    remedy = "give a whole number such as {default}"

    zero: bool = False
    """Whether 0 is allowed."""

    def parse(self, value: object) -> int:
        match value:
            case bool():
                number = None
            case int():
                number = int(value)
            case str() if _WHOLE.fullmatch(value.strip()):
                number = int(value.strip())
            case _:
                number = None
        if number is None:
            raise BadValue("must be a whole number")
        if number < 0 or (number == 0 and not self.zero):
            raise BadValue(f"must be {'>=' if self.zero else '>'} 0")
        return number


@dataclass(frozen=True, slots=True)
class CountOrWord(Kind[int | str]):
    """A whole number from 1 on, or one of a few words, which are lower case."""

    metavar = "LIMIT"
    remedy = "give a whole number, or {default}"

    words: tuple[str, ...]
    most: int
    """The greatest number."""

    def parse(self, value: object) -> int | str:
        # YAML 1.1 reads a bare `off` as false.
        word = "off" if value is False else value.strip().lower() if isinstance(value, str) else ""
        if word in self.words:
            return word
        try:
            number = Count().parse(value)
        except BadValue:
            number = 0
        if not 1 <= number <= self.most:
            raise BadValue(f"must be {', '.join(self.words)} or a whole number from 1 to {self.most}")
        return number


@dataclass(frozen=True, slots=True)
class Size(Kind[int]):
    """A number of bytes, also with the suffix k, m or g, as mitmproxy counts them: 1k = 1024."""

    metavar = "BYTES"
    remedy = "give bytes such as 65536 or 64k"

    def parse(self, value: object) -> int:
        found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
        if found is not None:
            number = int(found[1]) * _SIZE_UNITS[found[2].lower()]
        elif isinstance(value, int) and not isinstance(value, bool):
            number = int(value)
        else:
            raise BadValue("must be a number of bytes")
        if number < 0:
            raise BadValue("must be >= 0 bytes")
        return number


@dataclass(frozen=True, slots=True)
class Switch(Kind[bool]):
    """On or off."""

    metavar = ""
    remedy = "give true or false"

    def parse(self, value: object) -> bool:
        if isinstance(value, bool):
            return value
        found = _SWITCH.get(str(value).strip().lower()) if isinstance(value, str | int) else None
        if found is None:
            raise BadValue("must be one of 1, 0, true, false, yes, no, on, off")
        return found

    def show(self, value: bool) -> str:
        return "true" if value else "false"


@dataclass(frozen=True, slots=True)
class Choice(Kind[str]):
    """One of a few words."""

    metavar = "NAME"
    remedy = "give one of them, such as {default}"

    names: tuple[str, ...]

    def parse(self, value: object) -> str:
        if isinstance(value, str) and (name := value.strip().lower()) in self.names:
            return name
        raise BadValue(f"must be one of {', '.join(self.names)}")


def items(value: object) -> list[object]:
    """The members of a comma list, or of a list that YAML has read already. Empty text is an empty list."""
    match value:
        case str():
            return [item.strip() for item in value.split(",")] if value.strip() else []
        case list() | tuple():
            return list(value)
        case set() | frozenset():
            return sorted(value, key=str)
        case _:
            return [value]


def to_text(value: object) -> str:
    """A value as it was given, for people."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case "":
            return "''"
        case list() | tuple() | set() | frozenset():
            return ",".join(str(item) for item in items(value))
        case _:
            return str(value)


def decimal(value: object) -> float | None:
    """The number, perhaps beyond all bounds; None for what is none: `nan`, `1m`, `true`."""
    match value:
        case bool():
            return None
        case int():
            # An int beyond the range of floats would raise.
            return float(max(-2 * int(LONGEST_S), min(value, 2 * int(LONGEST_S))))
        case float():
            return None if math.isnan(value) else float(value) + 0.0
        case str() if _DECIMAL.fullmatch(value.strip()):
            # Adding 0 turns -0.0 into 0.0.
            return float(value.strip()) + 0.0
        case _:
            return None


def plain(seconds: float) -> str:
    """Exact, and never with an exponent: 600, 0.05, 0.00001."""
    text = format(Decimal(repr(float(seconds))), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
