"""What Prometheus is told of the moment: gauges, read from the engine's snapshot when it scrapes.

How many hosts there are must not decide how many series there are: a few have series of their own, the rest share one.
"""

from collections.abc import Iterator

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
        "paceproxy_hosts_paused",
        "Hosts to which nothing is sent for a while, because they failed too often in a row.",
        sum(view.state.paused_until > now.at for view in now.hosts),
    )
    yield from _by_host(now.hosts)
    yield GaugeMetricFamily("paceproxy_store_up", "1 while the store works, 0 while it does not.", now.store_up)


def _by_host(hosts: tuple[HostView, ...]) -> Iterator[Metric]:
    """The series of single hosts: those off the bottom rung, the worst first.

    Worse is the higher rung, then more waiters, then the name, which only makes the choice the same at each
    scrape. The rest go under `OTHER`: their waiters as a sum, their rungs as the highest, since a sum of
    rungs is no rung and would raise every alert on one. A host whose own name is `OTHER` always belongs to
    the rest: the same labels twice would make Prometheus refuse the whole scrape.
    """
    rung = GaugeMetricFamily(
        "paceproxy_host_rung",
        "The rung of a host off the bottom rung. "
        f"host={OTHER!r}: the highest among those beyond the worst {MAX_HOSTS}.",
        labels=["host"],
    )
    waiting = GaugeMetricFamily(
        "paceproxy_host_waiting",
        "Requests held now for a host off the bottom rung. "
        f"host={OTHER!r}: the sum over those beyond the worst {MAX_HOSTS}.",
        labels=["host"],
    )
    climbed = [view for view in hosts if view.state.rung > 0]
    climbed.sort(key=lambda view: (view.host == OTHER, -view.state.rung, -view.waiting, view.host))
    named = [view for view in climbed[:MAX_HOSTS] if view.host != OTHER]
    rest = climbed[len(named) :]
    for view in named:
        rung.add_metric([view.host], view.state.rung)
        waiting.add_metric([view.host], view.waiting)
    if rest:
        rung.add_metric([OTHER], max(view.state.rung for view in rest))
        waiting.add_metric([OTHER], sum(view.waiting for view in rest))
    yield rung
    yield waiting
    yield _limits(hosts)


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
