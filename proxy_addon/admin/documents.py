"""The JSON documents of the admin address, made from the engine's snapshot. Pure: values in, values out.

Times are Unix seconds, durations seconds, both to the millisecond. A host is worth showing while something holds its
requests back, or somebody waits for it; those that are well are only a number.
"""

from collections.abc import Mapping, Sequence

from proxy_addon import ladder
from proxy_addon.model import HostView, Snapshot

type Document = dict[str, object]


def host_document(view: HostView, *, at: float) -> Document:
    """One host as it was `at`.

    `next_slot_at` may lie in the past, or be 0: then nothing has to be waited for but those who came before.
    """
    row = view.state
    next_slot_at = max(row.next_slot_at, row.blocked_until, view.paused_until)
    return {
        "host": view.host,
        "rung": row.rung,
        "pace_s": _rounded(view.pace_s),
        "floor_s": _rounded(view.floor_s),
        "waiting": view.waiting,
        "in_flight": view.in_flight,
        "in_flight_limit": view.in_flight_limit,
        "next_slot_in_s": _rounded(max(0.0, next_slot_at - at)),
        "next_slot_at": _rounded(next_slot_at),
        "blocked_until": _ahead(row.blocked_until, at),
        "paused_until": _ahead(view.paused_until, at),
        "stalls_in_a_row": row.stalls_in_a_row,
        "last_stall": view.last_stall and {"error": view.last_stall.error, "at": _rounded(view.last_stall.at)},
    }


def host_documents(now: Snapshot) -> list[Document]:
    """The hosts that are worth showing, the worst first.

    Worse is a paused one, then a blocked one, then the higher rung, the longer line, the slower pace; the name makes
    the order the same each time.
    """
    shown = [view for view in now.hosts if _is_worth_showing(view)]
    shown.sort(
        key=lambda view: (
            view.paused_until <= now.at,
            view.state.blocked_until <= now.at,
            -view.state.rung,
            -view.waiting,
            -view.pace_s,
            view.host,
        )
    )
    return [host_document(view, at=now.at) for view in shown]


def status_document(now: Snapshot, *, about: Mapping[str, object], recent: Document) -> Document:
    """Everything. `about` is what there is to say of the process, `recent` of the last minutes."""
    return {
        **about,
        "at": _rounded(now.at),
        "hosts": host_documents(now),
        "healthy_hosts": now.healthy_hosts,
        "waiting": now.waiting,
        "in_flight": now.in_flight,
        "store_up": now.store_up,
        "recent": recent,
    }


def lasting(status: Mapping[str, object]) -> Document:
    """The status without what changes by itself as time goes by: only if this differs, something has happened."""
    hosts, recent = status["hosts"], status["recent"]
    assert isinstance(hosts, Sequence)
    assert isinstance(recent, Mapping)
    return {
        **status,
        "at": None,
        "hosts": [{**host, "next_slot_in_s": None} for host in hosts],
        "recent": {**recent, "until": None},
    }


def _is_worth_showing(view: HostView) -> bool:
    return view.waiting > 0 or view.floor_s > 0 or ladder.paces(view.state)


def _ahead(moment: float, at: float) -> float | None:
    return _rounded(moment) if moment > at else None


def _rounded(seconds: float) -> float:
    return round(seconds, 3)
