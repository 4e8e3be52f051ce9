"""How many pages a host gives in how much time, for when it says that this was too fast and when to come back.

A quota, of whatever kind, lets so many pages through from the end of one block to the end of the next: that is the
pace which it bears. Pure arithmetic, on this process's own pages; times are handed in, in seconds of one clock. What
the pace does to the host is in `ladder.py`.
"""

from dataclasses import dataclass

_FEWEST = 3
"""Fewer pages tell of no quota: somebody looks at a page now and then, and shall not wait for long."""
_FIRST = 0.75
"""How much of the pace first measured is believed: while the host was blocked, its quota may have been full, and have
let nothing more in. Later ones are right: what is not full comes to as many pages as it lets in."""
_FIRST_MOST_S = 2.0
"""Nor more than that: a quota that was nearly used up before is none to measure by, and what is too slow lasts for as
many pages. A host that is slower says so again, and twice as much is believed each time."""
_LATELY_S = 10.0
"""Before its first block, pages of the last one to two times as long count: a host is not asked evenly for hours."""


@dataclass(slots=True)
class PageRate:
    """Of one host."""

    pages: int = 0
    """That came since `_since`."""
    _since: float | None = None
    _earlier_pages: int = 0
    _earlier_since: float | None = None
    _refused: bool = False
    """The host has said so since its last block ended."""
    _refused_at: float | None = None
    """When it said so last."""
    _page_since: bool = False
    """A page came since then."""
    _measured_s: float | None = None

    def page(self, *, at: float) -> None:
        """A page came."""
        if self._measured_s is None and (self._since is None or at - self._since > _LATELY_S):
            is_next = self._since is not None and at - self._since <= 2 * _LATELY_S
            self._earlier_pages, self._earlier_since = (self.pages, self._since) if is_next else (0, None)
            self.pages, self._since = 0, at
        self.pages += 1
        self._page_since = True

    def refused(self, *, at: float) -> None:
        """The host has said when to come back, and is blocked until then."""
        self._refused, self._refused_at, self._page_since = True, at, False

    def is_stopped(self, *, sent: float) -> bool:
        """Whether no page came since its last block, when it refuses an attempt that was sent at `sent`."""
        after_block = self._refused_at is not None and sent > self._refused_at
        return self.pages == 0 or (after_block and not self._page_since)

    def measured_s(self, *, now: float) -> float | None:
        """Seconds for a page, now that its block has ended; None where there is nothing to tell by.

        At most twice as long as before: in between nobody may have asked for a page.
        """
        pages, since = self.pages + self._earlier_pages, self._earlier_since or self._since
        if not self._refused or pages < _FEWEST or since is None:
            return None
        pace_s = (now - since) / pages
        if self._measured_s is None:
            return min(_FIRST * pace_s, _FIRST_MOST_S)
        return min(pace_s, 2 * self._measured_s)

    def start(self, pace_s: float, *, now: float) -> None:
        """It goes on at this pace: count anew."""
        self._measured_s, self._refused = pace_s, False
        self.pages, self._since = 0, now
        self._earlier_pages, self._earlier_since = 0, None
