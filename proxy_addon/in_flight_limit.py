"""What a limit of attempts in flight to one host is: what it is asked, and what it is told.

Pure policy: it is told what happens to the attempts of one host in this process, in order, and says whether there is
room for one more. No I/O, no clock, no timer: times are monotonic seconds, handed in, and room comes only with one of
these calls. Who waits for it, and whose turn it is, is in `dispatch.py`.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

from proxy_addon.model import ErrorName, Outcome
from proxy_addon.request import Grant


class Limit(ABC):
    """The limit of one host. It counts its attempts itself: each is granted once and ended once.

    More may be in flight than it says: what was on its way when it shrank, and late attempts unless it is `hard`.
    """

    hard: ClassVar[bool] = False
    """It holds for late attempts too: somebody has said so, it is no guess."""

    @abstractmethod
    def room(self, *, now: float, waiting: int) -> bool:
        """Whether one more attempt may be granted. `waiting`: as for `granted`, whoever it is for included."""

    @abstractmethod
    def granted(self, grant: Grant, *, now: float, waiting: int) -> None:
        """An attempt is granted. `waiting`: how many others are in line, held by nothing but this limit."""

    def sent(self, grant: Grant, *, now: float) -> None:  # noqa: B027
        """Its first byte goes out. An attempt that never gets so far is only ended."""

    def overdue(self, grant: Grant, *, now: float) -> None:  # noqa: B027
        """It has no head after `attempt_timeout`, which is its stall; it goes on, and is ended like any other."""

    @abstractmethod
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
        """An attempt is over, and no longer in flight. `given_up`: nobody waited for what it would bring.

        One that is sent again on another connection, since its own had ended, is `abandoned` and not given up.
        """

    @property
    @abstractmethod
    def limit(self) -> int:
        """How many may be in flight now; at least 1."""

    @property
    def remembered(self) -> int:
        """What the host could take at most, worth keeping in its row; 0: nothing found so far."""
        return 0

    def remember(self, limit: int, *, now: float) -> None:  # noqa: B027
        """What its row says, as `remembered` was before a restart, or in another process; 0: it is forgotten."""
