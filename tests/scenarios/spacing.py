"""Judging from an origin's own log whether the proxy kept its pace.

The judge knows the contract ("The ladder", "Retry-After") and nothing of the proxy's code. It asks for no more
than the contract promises: where the log leaves a doubt about the rung, it takes the lower one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Entry:
    """One request in the origin's log. Times are seconds of one clock."""

    at: float
    """Its first byte."""
    done_at: float
    """Its reply was sent or, where there was none, the proxy closed the connection."""
    stalled: bool
    """It surely made the host climb."""
    retry_after_s: float = 0.0
    may_lower: bool = True
    """If it did not stall: the host may have been served, and have gone down. False: surely not."""
    may_be_late: bool = False
    """It may have been a late attempt, which is outside of the pace."""
    dialled_at: float | None = None
    """A connection was opened for it then: by that time it had its grant."""

    slack_s: float = 0.0
    """By how much it may have been noticed late, besides the tolerance."""

    @property
    def granted_by(self) -> float:
        return self.at if self.dialled_at is None else self.dialled_at


def too_soon(log: Sequence[Entry], ladder: Sequence[float], *, tolerance_s: float) -> list[str]:
    """Say which requests came too soon.

    Judged are the requests that arrived after the first stall: those that were on their way by then no pace could
    hold back.

    With S stalls and U served replies since some moment, in whatever order, the rung is at least min(S, top) - U.
    Hence two rules for a request that arrives at t:
      1. since the request before it, the pace of the lowest rung that can have been in force has passed;
      2. since each stall before it, the pace of the rung after that stall, and its Retry-After, have passed; but
         a request that had its grant within the tolerance of a stall was let go before the proxy knew of the stall.
    """
    arrivals = sorted((entry for entry in log if not entry.may_be_late), key=lambda entry: entry.at)
    stalls = sorted((entry for entry in log if entry.stalled), key=lambda entry: entry.done_at)

    def lowest_rung(entry: Entry, stalls_until: float) -> int:
        known = [stall for stall in stalls if stall.done_at <= stalls_until]
        lowest = 0
        for number, first in enumerate(known):
            served = sum(
                1
                for e in log
                if not e.stalled
                and e.may_lower
                and e is not entry
                and first.done_at - tolerance_s - first.slack_s < e.done_at <= entry.at
            )
            lowest = max(lowest, min(len(known) - number, len(ladder) - 1) - served)
        return lowest

    faults = []
    for before, entry in pairwise(arrivals):
        since_request_s = entry.at - before.at
        slack_s = tolerance_s + max(before.slack_s, entry.slack_s)
        rung = lowest_rung(entry, min(before.at, entry.granted_by) - slack_s)
        if since_request_s < ladder[rung] - slack_s:
            faults.append(f"{since_request_s:.3f} s after a request, on rung {rung} or above")
        for stall in stalls:
            slack_s = tolerance_s + max(stall.slack_s, entry.slack_s)
            if entry.granted_by - stall.done_at < slack_s:
                continue
            since_stall_s = entry.at - stall.done_at
            rung = lowest_rung(entry, stall.done_at)
            wait_s = max(ladder[rung], stall.retry_after_s)
            if since_stall_s < wait_s - slack_s:
                faults.append(f"{since_stall_s:.3f} s after a stall that asked for {wait_s:.3f} s")
    return faults
