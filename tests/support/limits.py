"""A limit of attempts in flight that does what the test says, and keeps what it is told."""

from dataclasses import dataclass, field

from proxy_addon.in_flight_limit import Limit
from proxy_addon.model import ErrorName, Outcome
from proxy_addon.request import Grant


@dataclass
class Told(Limit):
    """Has room for so many as the test says, finds out what the test says, and keeps what it is told."""

    most: int = 100
    found: int = 0
    in_row: list[int] = field(default_factory=list)
    """What it was told to remember, in order."""
    calls: list[tuple[str, Grant]] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    """At each grant and each end."""
    ends: list[tuple[Outcome, ErrorName | None, bool]] = field(default_factory=list)

    def room(self, *, now: float, waiting: int) -> bool:
        return len(self.in_flight) < self.most

    def granted(self, grant: Grant, *, now: float, waiting: int) -> None:
        self.calls.append(("granted", grant))
        self.waiting.append(waiting)

    def sent(self, grant: Grant, *, now: float) -> None:
        self.calls.append(("sent", grant))

    def overdue(self, grant: Grant, *, now: float) -> None:
        self.calls.append(("overdue", grant))

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
        self.calls.append(("ended", grant))
        self.waiting.append(waiting)
        self.ends.append((outcome, error, given_up))

    @property
    def in_flight(self) -> set[Grant]:
        return {grant for name, grant in self.calls if name == "granted"} - {
            grant for name, grant in self.calls if name == "ended"
        }

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    @property
    def limit(self) -> int:
        return self.most

    @property
    def remembered(self) -> int:
        return self.found

    def remember(self, limit: int, *, now: float) -> None:
        self.in_row.append(limit)
        self.found = limit
