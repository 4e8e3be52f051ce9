"""The line: the waiters of one host in this process, in order, and what each of them is waiting for.

A plain data structure: no asyncio, no policy, no clock. Times are monotonic seconds, handed in. Every operation costs
at most O(log n); a waiter that leaves is only marked, and dropped when it comes up.

A waiter is either *resting* (a retry that may not re-enter the line yet) or *in line*, ordered by its virtual
deadline: the moment it entered plus the full length of its window. With equal windows that is first come, first
served. A rest is over at its time; some end sooner, with a page of the host.
"""

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count


@dataclass(slots=True, eq=False)
class Waiter[T]:
    """One place in the line."""

    item: T
    window_s: float
    """The full length of the request's window, for the order."""
    closes: float
    """When its window closes."""
    rests_for_page: float | None = None
    """While it rests: a page sent after this moment ends its rest."""
    since: float = 0.0
    """Since when it is in line."""
    gone: bool = False
    resting: bool = False


@dataclass(slots=True, eq=False)
class Line[T]:
    """The waiters of one host."""

    _order: list[tuple[float, int, Waiter[T]]] = field(default_factory=list)
    _resting: list[tuple[float, int, Waiter[T]]] = field(default_factory=list)
    _for_page: list[tuple[float, int, Waiter[T]]] = field(default_factory=list)
    _closing: list[tuple[float, int, Waiter[T]]] = field(default_factory=list)
    _numbers: "count[int]" = field(default_factory=count)
    _in_line: int = 0
    _present: int = 0

    def __len__(self) -> int:
        """How many wait, the resting included."""
        return self._present

    @property
    def in_line(self) -> int:
        """How many are in line: not resting."""
        return self._in_line

    def enter(self, waiter: Waiter[T], *, now: float, not_before: float) -> None:
        """Add a waiter: in line at once, or resting until `not_before`."""
        number = next(self._numbers)
        self._present += 1
        heappush(self._closing, (waiter.closes, number, waiter))
        if not_before > now:
            waiter.resting = True
            heappush(self._resting, (not_before, number, waiter))
            if waiter.rests_for_page is not None:
                heappush(self._for_page, (waiter.rests_for_page, number, waiter))
        else:
            self._in_line += 1
            heappush(self._order, (now + waiter.window_s, number, waiter))

    def leave(self, waiter: Waiter[T]) -> None:
        """Take a waiter out, wherever it is. Harmless when it is gone already."""
        if waiter.gone:
            return
        waiter.gone = True
        self._present -= 1
        if not waiter.resting:
            self._in_line -= 1
        for heap in (self._order, self._resting, self._for_page, self._closing):
            if len(heap) > 64 and len(heap) > 4 * self._present:
                heap[:] = [entry for entry in heap if not entry[2].gone]
                heapify(heap)

    def wake_rested(self, *, now: float) -> None:
        """Let those into the line whose rest is over, each as of the moment at which it was."""
        while (entry := _first(self._resting, resting=True)) and entry[0] <= now:
            until, number, waiter = heappop(self._resting)
            self._end_rest(until, number, waiter)

    def end_rests(self, *, now: float, page_sent: float) -> bool:
        """A page has come that was sent at `page_sent`: let those into the line whose rest ends with it, the one
        whose attempt was sent first before the others. False: there were none."""
        any_ended = False
        while (entry := _first(self._for_page, resting=True)) and entry[0] < page_sent:
            _, number, waiter = heappop(self._for_page)
            self._end_rest(now, number, waiter)
            any_ended = True
        return any_ended

    def end_all_rests(self, *, now: float) -> None:
        """Let all of them into the line."""
        while _first(self._resting, resting=True) is not None:
            _, number, waiter = heappop(self._resting)
            self._end_rest(now, number, waiter)

    def _end_rest(self, at: float, number: int, waiter: Waiter[T]) -> None:
        waiter.resting, waiter.since = False, at
        self._in_line += 1
        heappush(self._order, (at + waiter.window_s, number, waiter))

    def head(self) -> Waiter[T] | None:
        """The next in line; it stays there."""
        entry = _first(self._order)
        return entry[2] if entry else None

    def closed(self, *, now: float) -> Waiter[T] | None:
        """A waiter whose window has closed, earliest first; it stays there."""
        entry = _first(self._closing)
        return entry[2] if entry and entry[0] <= now else None

    def rests_until(self) -> float | None:
        """When the next resting waiter may enter the line."""
        entry = _first(self._resting, resting=True)
        return entry[0] if entry else None

    def closes_at(self) -> float | None:
        """When the next window closes."""
        entry = _first(self._closing)
        return entry[0] if entry else None


def _first[T](
    heap: list[tuple[float, int, Waiter[T]]], *, resting: bool = False
) -> tuple[float, int, Waiter[T]] | None:
    """The first entry whose waiter is still here, and still rests where only those are meant; others are dropped."""
    while heap and (heap[0][2].gone or (resting and not heap[0][2].resting)):
        heappop(heap)
    return heap[0] if heap else None
