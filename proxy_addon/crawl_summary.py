"""What is told of a crawl when it is over, and while it runs: in words, from the engine's events and snapshots.

Where the words go is not decided here.
"""

from collections import Counter, defaultdict

from proxy_addon.in_words import count, duration, time_of_day
from proxy_addon.model import Event, HostView, Outcome, RequestEnded, Snapshot

_HOSTS_SHOWN = 5
"""What fits on a screen beside the command's own output; the worst come first."""
_WORTH_TELLING_S = 1.0
"""A host for which nobody noticed a wait is not named."""

_ENDED = {
    Outcome.SERVED: "served",
    Outcome.STALL: "not served in time",
    Outcome.FAILURE: "failed",
    Outcome.UNSENT: "never sent",
    Outcome.ABANDONED: "given up by the command",
}


class Tally:
    """Counts the requests of a crawl. `observe` is a listener to the engine's events."""

    def __init__(self) -> None:
        self.requests = 0
        self.saved = 0
        """Served although they had stalled."""
        self._outcomes: Counter[Outcome] = Counter()
        self._waited_s: defaultdict[str, float] = defaultdict(float)

    def observe(self, event: Event) -> None:
        if not isinstance(event, RequestEnded):
            return
        self.requests += 1
        self._outcomes[event.outcome] += 1
        self._waited_s[event.host] += event.waited_s
        self.saved += event.was_saved

    def lines(self, snapshot: Snapshot, *, forgive_after_s: float) -> list[str]:
        """The whole crawl, a line for each thing that there is to say."""
        if not self.requests:
            return ["no request came through the proxy"]
        ended = [f"{self._outcomes[outcome]} {words}" for outcome, words in _ENDED.items() if self._outcomes[outcome]]
        lines = [f"{count(self.requests, 'request')}: {', '.join(ended)}"]
        if self.saved:
            lines.append(f"{self.saved} of them would have failed without it")
        if waits := self._waits():
            lines.append(waits)
        slow = slow_hosts(snapshot)
        lines += [f"still slow: {_still_slow(view, snapshot.at, forgive_after_s)}" for view in slow[:_HOSTS_SHOWN]]
        if more := len(slow) - _HOSTS_SHOWN:
            lines += [f"still slow: {count(more, 'more host')}"] if more > 0 else []
        return lines

    def _waits(self) -> str:
        waits = sorted(self._waited_s.items(), key=lambda item: -item[1])
        named = [(host, waited_s) for host, waited_s in waits if waited_s >= _WORTH_TELLING_S]
        if not named:
            return ""
        parts = [f"{host} {duration(waited_s)}" for host, waited_s in named[:_HOSTS_SHOWN]]
        if rest := named[_HOSTS_SHOWN:]:
            parts.append(f"{count(len(rest), 'more host')} {duration(sum(waited_s for _, waited_s in rest))}")
        total_s = sum(waited_s for _, waited_s in waits)
        return f"waited {duration(total_s)}, all requests together: {', '.join(parts)}"


def slow_hosts(snapshot: Snapshot) -> list[HostView]:
    """The hosts that are held back, worst first."""
    return sorted(
        (view for view in snapshot.hosts if view.pace_s > 0 or _held_until(view) > snapshot.at),
        key=lambda view: (-max(view.pace_s, _held_until(view) - snapshot.at), -view.waiting, view.host),
    )


def progress(snapshot: Snapshot) -> str:
    """What is slow at this moment, worst first; empty where nothing is."""
    slow = slow_hosts(snapshot)
    if not slow:
        return ""
    parts = [f"paceproxy: {count(len(slow), 'slow host')}, {snapshot.waiting} waiting"]
    return " | ".join([*parts, *(_now(view, snapshot.at) for view in slow)])


def _now(view: HostView, at: float) -> str:
    held_s = _held_until(view) - at
    if held_s > 0:
        kind = "paused" if view.paused_until >= view.state.blocked_until else "blocked"
        return f"{view.host} {kind} for {duration(held_s)}, {view.waiting} waiting"
    text = f"{view.host} rung {view.state.rung} ({duration(view.pace_s)}), {view.waiting} waiting"
    next_s = view.state.next_slot_at - at
    return f"{text}, next slot in {duration(next_s)}" if view.waiting and next_s > 0 else text


def _still_slow(view: HostView, at: float, forgive_after_s: float) -> str:
    text = f"{view.host}, rung {view.state.rung}, a request every {duration(view.pace_s)}"
    if view.pace_s == 0:
        text = view.host
    if view.paused_until > at:
        return f"{text}, paused until {time_of_day(view.paused_until)}"
    if view.state.blocked_until > at:
        return f"{text}, blocked until {time_of_day(view.state.blocked_until)}"
    if view.floor_s > 0:
        return f"{text}, until an operator takes the floor away"
    if view.state.stalled_at > 0 and forgive_after_s > 0:
        return f"{text}, until {time_of_day(view.state.stalled_at + forgive_after_s)} if it serves nothing before"
    return text


def _held_until(view: HostView) -> float:
    return max(view.state.blocked_until, view.paused_until)
