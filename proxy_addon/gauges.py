"""What Prometheus is told of the moment: gauges, read from the engine's snapshot when it scrapes.

How many hosts there are must not decide how many series there are: a few have series of their own, the rest share one.
"""

from collections.abc import Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric

from proxy_addon import ladder
from proxy_addon.model import HostView, Snapshot

MAX_HOSTS = 100
"""How many hosts get series of their own. A crawl meets any number, and each series costs Prometheus."""

OTHER = "other"
"""The label value under which the hosts beyond `MAX_HOSTS` are put together."""


def gauges(now: Snapshot, *, rungs: int) -> Iterator[Metric]:
    """All families. `rungs` is the length of the ladder."""
    yield GaugeMetricFamily("paceproxy_waiting_requests", "Requests held now, over all hosts.", now.waiting)
    yield GaugeMetricFamily("paceproxy_attempts_in_flight", "Attempts on their way now, over all hosts.", now.in_flight)

    # A rung above the top: another process writes to the same store with a longer ladder.
    by_rung = dict.fromkeys(range(rungs), 0)
    for view in now.hosts:
        if not view.waiting and not ladder.paces(view.state):
            continue
        by_rung[view.state.rung] = by_rung.get(view.state.rung, 0) + 1
    hosts = GaugeMetricFamily(
        "paceproxy_hosts",
        "Hosts by rung. On rung 0 only those that have waiters, a floor, a block or a pause: "
        "a host that is well is not counted, though a limit of attempts in flight may be known of it.",
        labels=["rung"],
    )
    for rung, count in sorted(by_rung.items()):
        hosts.add_metric([str(rung)], count)
    yield hosts

    yield GaugeMetricFamily(
        "paceproxy_hosts_healthy",
        "Hosts that are not slow and were asked for something in the last 10 minutes, by this process.",
        now.healthy_hosts,
    )
    yield GaugeMetricFamily(
        "paceproxy_hosts_paused",
        "Hosts to which nothing is sent for a while, because they failed too often in a row.",
        sum(view.state.paused_until > now.at for view in now.hosts),
    )
    yield from _by_host(now)
    yield GaugeMetricFamily("paceproxy_store_up", "1 while the store works, 0 while it does not.", now.store_up)


def _by_host(now: Snapshot) -> Iterator[Metric]:
    """The series of single hosts: those that are slow, the worst first.

    Worse is the higher rung, then more waiters, then the name, which only makes the choice the same at each
    scrape. The rest go under `OTHER`: their waiters as a sum, their rungs as the highest, since a sum of
    rungs is no rung and would raise every alert on one; of the rest no more is told. A host whose own name is
    `OTHER` always belongs to the rest: the same labels twice would make Prometheus refuse the whole scrape.
    """
    slow = [view for view in now.hosts if ladder.paces(view.state)]
    slow.sort(key=lambda view: (view.host == OTHER, -view.state.rung, -view.waiting, view.host))
    named = [view for view in slow[:MAX_HOSTS] if view.host != OTHER]
    rest = slow[len(named) :]
    yield from _rungs(named, rest)
    yield from _reasons(named, at=now.at)
    yield _limits(now.hosts)


def _rungs(named: Sequence[HostView], rest: Sequence[HostView]) -> Iterator[Metric]:
    rung = GaugeMetricFamily(
        "paceproxy_host_rung",
        "The rung of a slow host: off the bottom rung, or with a floor, a block or a pause. "
        f"host={OTHER!r}: the highest among those beyond the worst {MAX_HOSTS}.",
        labels=["host"],
    )
    waiting = GaugeMetricFamily(
        "paceproxy_host_waiting",
        f"Requests held now for a slow host. host={OTHER!r}: the sum over those beyond the worst {MAX_HOSTS}.",
        labels=["host"],
    )
    for view in named:
        rung.add_metric([view.host], view.state.rung)
        waiting.add_metric([view.host], view.waiting)
    if rest:
        rung.add_metric([OTHER], max(view.state.rung for view in rest))
        waiting.add_metric([OTHER], sum(view.waiting for view in rest))
    yield rung
    yield waiting


def _reasons(named: Sequence[HostView], *, at: float) -> Iterator[Metric]:
    """Why a host is slow, and how slow. Times and not durations: they can be compared between processes."""
    pace = GaugeMetricFamily(
        "paceproxy_host_pace_seconds", "Seconds between two attempts to a slow host.", labels=["host"]
    )
    stalled = GaugeMetricFamily(
        "paceproxy_host_last_stall_timestamp_seconds",
        "When a slow host last stalled as this process saw it, in Unix seconds, and with which error.",
        labels=["host", "error"],
    )
    held = GaugeMetricFamily(
        "paceproxy_host_held_until_timestamp_seconds",
        "Until when nothing is sent to a host, in Unix seconds: the origin said so (block), "
        "or it is left alone for a while (pause). Only while that lies ahead.",
        labels=["host", "reason"],
    )
    for view in named:
        pace.add_metric([view.host], view.pace_s)
        if view.last_stall is not None:
            stalled.add_metric([view.host, view.last_stall.error], view.last_stall.at)
        for reason, until in (("block", view.state.blocked_until), ("pause", view.state.paused_until)):
            if until > at:
                held.add_metric([view.host, reason], until)
    yield pace
    yield stalled
    yield held


def _limits(hosts: tuple[HostView, ...]) -> Metric:
    """The limits of single hosts, the lowest first; the rest go under `OTHER` with the lowest of theirs."""
    limit = GaugeMetricFamily(
        "paceproxy_in_flight_limit",
        "How many attempts may be in flight to a host now, from this process; only where somebody has waited for that, "
        f"or it is remembered. host={OTHER!r}: the lowest among those beyond the {MAX_HOSTS} lowest.",
        labels=["host"],
    )
    limited = [(view.in_flight_limit, view.host) for view in hosts if view.in_flight_limit is not None]
    limited.sort(key=lambda pair: (pair[1] == OTHER, *pair))
    named = [pair for pair in limited[:MAX_HOSTS] if pair[1] != OTHER]
    for most, host in named:
        limit.add_metric([host], most)
    if rest := limited[len(named) :]:
        limit.add_metric([OTHER], min(most for most, _ in rest))
    return limit
