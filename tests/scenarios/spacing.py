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
    retry_after_s: float = 0.0


def too_soon(log: Sequence[Entry], ladder: Sequence[float], *, tolerance_s: float) -> list[str]:
    """Say which requests came too soon, for one spell of sickness: well, sick, well.

    Judged are the requests that arrived after the first stall: those that were on their way by then no pace could
    hold back.

    With S stalls and U served replies since the host was on the bottom rung, in whatever order, the rung is at
    least min(S, top) - U. Hence two rules for a request that arrives at t:
      1. since the request before it, the pace of the lowest rung that can have been in force has passed;
      2. since each stall before it, the pace of the rung after that stall, and its Retry-After, have passed; but
         a request that arrives within the tolerance of a stall was let go before the proxy knew of the stall.
    """
    arrivals = sorted(log, key=lambda entry: entry.at)
    first_stall_at = min(entry.done_at for entry in log if entry.stalled)

    def lowest_rung(entry: Entry, stalls_until: float) -> int:
        stalls = sum(1 for e in log if e.stalled and e.done_at <= stalls_until)
        served = sum(
            1 for e in log if not e.stalled and e is not entry and first_stall_at - tolerance_s < e.done_at <= entry.at
        )
        return max(0, min(stalls, len(ladder) - 1) - served)

    faults = []
    for before, entry in pairwise(arrivals):
        if entry.at <= first_stall_at:
            continue
        since_request_s = entry.at - before.at
        rung = lowest_rung(entry, before.at - tolerance_s)
        if since_request_s < ladder[rung] - tolerance_s:
            faults.append(f"{since_request_s:.3f} s after a request, on rung {rung} or above")
        for stall in log:
            since_stall_s = entry.at - stall.done_at
            if not stall.stalled or not tolerance_s <= since_stall_s:
                continue
            rung = lowest_rung(entry, stall.done_at)
            wait_s = max(ladder[rung], stall.retry_after_s)
            if since_stall_s < wait_s - tolerance_s:
                faults.append(f"{since_stall_s:.3f} s after a stall that asked for {wait_s:.3f} s")
    return faults
