"""The status of a proxy in words and as a table, for a terminal. Pure: the moment is handed in.

The status page says the same in `admin/page/`.
"""

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from proxy_addon.admin_client import HostShown, StatusShown
from proxy_addon.in_words import count, duration, time_of_day
from proxy_addon.model import ErrorName
from proxy_addon.terminal_text import printable

_REASONS: dict[str, str] = {
    ErrorName.HTTP_RESPONSE_TIMEOUT: "no answer in time",
    ErrorName.CONNECTION_TIMEOUT: "no connection in time",
    ErrorName.CONNECTION_TERMINATED: "connection broken off",
    ErrorName.CONNECTION_REFUSED: "connection refused",
    ErrorName.HTTP_RESPONSE_INCOMPLETE: "answer broken off",
    ErrorName.DNS_TIMEOUT: "name lookup failed for the moment",
    ErrorName.HTTP_REQUEST_TIMEOUT: "upload not taken",
    ErrorName.HTTP_STATUS_5XX: "server error (5xx)",
    ErrorName.RATE_LIMITED: "too many requests (429)",
    ErrorName.HTTP_STATUS: "a status that counts as a stall",
    ErrorName.IN_PROGRESS: "the same request is in progress (409)",
}


def status_view(status: StatusShown, *, now: float) -> RenderableType:
    """The slow hosts, the worst first, and what there is to say of all others."""
    lines = [Text(line) for line in _summary(status)]
    if not status.hosts:
        return Group(*lines)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("host", overflow="fold")
    for title in ("rung, pace", "waiting", "next slot", "last stall", "held until"):
        table.add_column(title, justify="right" if title == "waiting" else "left")
    for host in status.hosts:
        table.add_row(
            Text(printable(host.host)),
            Text(_pace(host)),
            Text(str(host.waiting)),
            Text(_next_slot(host, now)),
            Text(_last_stall(host, now)),
            Text(_held(host, now)),
        )
    return Group(table, *lines)


def host_line(host: HostShown, *, now: float) -> str:
    """How one host is, in a line."""
    parts = [_pace(host)]
    if held := _held(host, now):
        parts.append(held)
    parts.append(f"{host.waiting} waiting")
    if host.waiting:
        parts.append(f"next slot {_next_slot(host, now)}")
    return f"{printable(host.host)}: {', '.join(parts)}"


def host_reason(host: HostShown, *, now: float) -> str:
    """The same, with what went wrong last."""
    last = _last_stall(host, now)
    return f"{host_line(host, now=now)}{f'; last stall: {last}' if last else ''}"


def plain_console(console: Console) -> Console:
    """The same output, as wide as it needs: what is no terminal has no width, and nobody wants lines broken there."""
    return console if console.is_terminal else Console(file=console.file, width=1000, highlight=False)


def _summary(status: StatusShown) -> list[str]:
    slow = len(status.hosts)
    told = "No host is slow" if not slow else f"{count(slow, 'host')} {'is' if slow == 1 else 'are'} slow or held"
    lines = [
        f"{told}; {count(status.healthy_hosts, 'healthy host')} asked in the last 10 minutes. "
        f"{count(status.waiting, 'request')} waiting, {count(status.in_flight, 'attempt')} in flight."
    ]
    if not status.store_up:
        lines.append("The store does not answer: the proxy goes on by itself, and slower, until it does.")
    return lines


def _pace(host: HostShown) -> str:
    pace = f"every {duration(host.pace_s)}" if host.pace_s else "no pace"
    floor = f" (floor {duration(host.floor_s)})" if host.floor_s else ""
    return f"rung {host.rung}, {pace}{floor}"


def _next_slot(host: HostShown, now: float) -> str:
    wait_s = host.next_slot_at - now
    return "now" if wait_s <= 0 else f"in {duration(wait_s)}"


def _last_stall(host: HostShown, now: float) -> str:
    stall = host.last_stall
    if stall is None:
        return ""
    return f"{_REASONS.get(stall.error, printable(stall.error))}, {duration(max(0.0, now - stall.at))} ago"


def _held(host: HostShown, now: float) -> str:
    held = [("paused", host.paused_until), ("blocked by the site", host.blocked_until)]
    return ", ".join(f"{why} until {time_of_day(until)}" for why, until in held if until is not None and until > now)
