"""How many attempts may be on their way to one host at a time, as the setting `in_flight` asks for it."""

from proxy_addon.in_flight_limit import Limit
from proxy_addon.learned_limit import LearnedLimit
from proxy_addon.model import ErrorName, Outcome
from proxy_addon.request import Grant


class FixedLimit(Limit):
    """The same for ever."""

    __slots__ = ("_in_flight", "_limit")

    hard = True

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._in_flight = 0

    def room(self, *, now: float, waiting: int) -> bool:
        return self._in_flight < self._limit

    def granted(self, grant: Grant, *, now: float, waiting: int) -> None:
        self._in_flight += 1

    def ended(
        self,
        grant: Grant,
        *,
        now: float,
        outcome: Outcome,
        error: ErrorName | None,
        given_up: bool,
        waiting: int,
    ) -> None:
        self._in_flight -= 1

    @property
    def limit(self) -> int:
        return self._limit


def make_limit(in_flight: int | str) -> Limit | None:
    """What the setting `in_flight` asks for one host: `learn`, `off` (None), or a number."""
    match in_flight:
        case int():
            return FixedLimit(in_flight)
        case "learn":
            return LearnedLimit()
        case _:
            return None
