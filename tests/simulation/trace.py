"""A crawl told event by event, for whoever designs what the engine does: what the site got, and what the engine made
of it.
"""

from collections import deque
from collections.abc import Callable

from proxy_addon.engine import Engine
from proxy_addon.model import HostView
from tests.simulation.crawl import crawl, from_zero
from tests.simulation.judge import Judged
from tests.simulation.origins import Arrival
from tests.simulation.runs import Run, judged

_HEAD = f"{'t':>9} {'host':12} {'page':9} {'event':9} {'latency':>8} {'busy':>5} {'queue':>5} | then, at the engine:\n"
_SETTLED_S = 1e-6
"""So long after an event the engine has made of it what it makes of it."""


def trace(run: Run, write: Callable[[str], object]) -> Judged:
    """Run it, and write a line for every event."""
    clock, pending = from_zero(), deque[str]()
    write(_HEAD)

    def watch(what: str, arrival: Arrival, engine: Engine | None) -> None:
        def tell() -> None:
            write(f"{pending.popleft()} | {_state(engine, arrival.host)}\n")

        pending.append(_told(what, arrival))
        clock.call_at(clock.monotonic() + _SETTLED_S, tell)

    crawled = crawl(run.site, run.seed, run.made_settings, round_trip_s=run.round_trip_s, watch=watch, clock=clock)
    for line in pending:
        write(f"{line} |\n")
    return judged(run, crawled)


def _told(what: str, arrival: Arrival) -> str:
    ended = arrival.left if what == "left" else arrival.finish
    at = arrival.at if what == "sent" or ended is None else ended
    latency = "" if what == "sent" else f"{at - arrival.at:.2f}"
    event = str(arrival.status) if what == "answered" else what
    return f"{at:9.2f} {arrival.host:12} {arrival.path:9} {event:9} {latency:>8} {arrival.busy:5} {arrival.queued:5}"


def _state(engine: Engine | None, host: str) -> str:
    if engine is None:
        return "none"
    snapshot = engine.snapshot()
    view = next((view for view in snapshot.hosts if view.host == host), None)
    if view is None:
        return f"in flight {snapshot.in_flight}, nothing to show"
    return _view(view, snapshot.at)


def _view(view: HostView, now: float) -> str:
    limit = view.in_flight_limit
    said = [f"in flight {view.in_flight}" + ("" if limit is None else f" of {limit}"), f"waiting {view.waiting}"]
    state = view.state
    if state.rung:
        said.append(f"rung {state.rung}, slot in {max(0.0, state.next_slot_at - now):.1f} s")
    if state.blocked_until > now:
        said.append(f"blocked {state.blocked_until - now:.1f} s")
    if state.paused_until:
        said.append(f"paused {state.paused_until - now:.1f} s")
    return ", ".join(said)
