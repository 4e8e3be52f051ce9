"""What Prometheus scrapes: counts of the engine's events, and what `gauges.py` makes of its snapshot at the scrape.

Counting happens for every request and must cost next to nothing; whatever can be put off is done at the
scrape. That is why the counts are plain numbers here and become prometheus-client's families only in
`collect`: its own Counter and Histogram take a lock for each value and walk the buckets one by one, which
costs four times as much. What the system knows of the process is prometheus-client's own collector's. HTTP does not
belong here (`admin/`), nor does any decision: nothing reads these numbers back.
"""

import platform
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import assert_never

from mitmproxy.version import VERSION as MITMPROXY_VERSION
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from proxy_addon import __version__
from proxy_addon.gauges import gauges
from proxy_addon.model import (
    AttemptEnded,
    ErrorName,
    Event,
    HostPaused,
    Outcome,
    Redialled,
    RequestEnded,
    RetryAfterCapped,
    Snapshot,
    StoreFailed,
    StoreRecovered,
)

BUCKETS_S = (
    # A healthy page: the usual 1-2.5-5 steps of Prometheus. Below 5 ms there is only a loopback origin.
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0),
    # From here on the edges are the default ladder and time-outs, so that "came in time" can be read off
    # exactly: rungs 2, 5, 15, 30, 60; connect_timeout 10; attempt_timeout 30; a person at a spinner 45;
    # pause 120; retry_after_cap 300; window 600. What ran into its limit lies just above that edge.
    *(2.0, 5.0, 10.0, 15.0, 30.0, 45.0, 60.0, 120.0, 300.0, 600.0),
)
"""Upper edges of the histograms' buckets, inclusive. One set for all, so that they can be compared."""

_BUCKET_LABELS = (*map(floatToGoString, BUCKETS_S), "+Inf")

_STALLS = (
    ErrorName.HTTP_RESPONSE_TIMEOUT,
    ErrorName.CONNECTION_TIMEOUT,
    ErrorName.HTTP_STATUS_5XX,
    ErrorName.RATE_LIMITED,
    ErrorName.CONNECTION_TERMINATED,
    ErrorName.HTTP_RESPONSE_INCOMPLETE,
    ErrorName.DNS_TIMEOUT,
    ErrorName.HTTP_REQUEST_TIMEOUT,
    ErrorName.IN_PROGRESS,
    # Only where the setting `stalls` adds them:
    ErrorName.CONNECTION_REFUSED,
    ErrorName.HTTP_STATUS,
)
_FAILURES = (
    ErrorName.CONNECTION_REFUSED,
    ErrorName.DNS_ERROR,
    ErrorName.TLS_CERTIFICATE_ERROR,
    ErrorName.TLS_ALERT_RECEIVED,
    ErrorName.TLS_PROTOCOL_ERROR,
    ErrorName.HTTP_PROTOCOL_ERROR,
    ErrorName.PROXY_INTERNAL_RESPONSE,
    ErrorName.PROXY_LOOP_DETECTED,
    ErrorName.DESTINATION_IP_PROHIBITED,
    # Only where the setting `stalls` leaves them out:
    ErrorName.HTTP_RESPONSE_TIMEOUT,
    ErrorName.CONNECTION_TIMEOUT,
    ErrorName.CONNECTION_TERMINATED,
    ErrorName.HTTP_RESPONSE_INCOMPLETE,
    ErrorName.DNS_TIMEOUT,
)
_ATTEMPTS: tuple[tuple[Outcome, ErrorName | None], ...] = (
    (Outcome.SERVED, None),
    *((Outcome.STALL, error) for error in _STALLS),
    *((Outcome.FAILURE, error) for error in _FAILURES),
    (Outcome.ABANDONED, None),
)
"""What can become of an attempt.

These series exist from the start: a rate over a series that appears with its first event misses that event. A
pair that is not listed is counted all the same.
"""


class _Histogram:
    """Counts of durations by bucket."""

    __slots__ = ("_counts", "_sum_s")

    def __init__(self) -> None:
        self._counts = [0] * len(_BUCKET_LABELS)
        self._sum_s = 0.0

    def observe(self, duration_s: float) -> None:
        # A duration between two Unix times is negative when the machine's clock was set back meanwhile, and
        # Prometheus takes a sum that falls for a restart.
        if duration_s < 0.0:
            duration_s = 0.0
        self._counts[bisect_left(BUCKETS_S, duration_s)] += 1
        self._sum_s += duration_s

    def family(self, name: str, documentation: str) -> HistogramMetricFamily:
        buckets = [(label, float(count)) for label, count in zip(_BUCKET_LABELS, accumulate(self._counts), strict=True)]
        return HistogramMetricFamily(name, documentation, buckets, self._sum_s, unit="seconds")


class Metrics(Collector):
    """Listens to the engine and answers a scrape. All of it on the event loop's thread."""

    def __init__(
        self, snapshot: Callable[[], Snapshot], *, rungs: int, lost_lines: Callable[[], int] = lambda: 0
    ) -> None:
        """`snapshot` and `lost_lines` (of the access log) are asked at each scrape. `rungs` is the length of the
        ladder."""
        self._snapshot = snapshot
        self._lost_lines = lost_lines
        self._rungs = rungs
        self._requests: dict[Outcome, int] = dict.fromkeys(Outcome, 0)
        self._attempts: dict[tuple[Outcome, ErrorName | None], int] = dict.fromkeys(_ATTEMPTS, 0)
        self._request_duration = _Histogram()
        self._wait = _Histogram()
        self._room_wait = _Histogram()
        self._attempt_duration = _Histogram()
        self._loop_lag = _Histogram()
        self._saved = 0
        self._redials = 0
        self._retry_after_capped = 0
        self._store_errors = 0
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        # Under the names that dashboards know: process_cpu_seconds_total, process_resident_memory_bytes and so on.
        ProcessCollector(registry=self._registry)

    def observe(self, event: Event) -> None:
        """Count an event. Never raises and never waits."""
        match event:
            case AttemptEnded():
                pair = event.outcome, event.error
                self._attempts[pair] = self._attempts.get(pair, 0) + 1
                self._attempt_duration.observe(event.duration_s)
            case RequestEnded():
                self._requests[event.outcome] += 1
                self._saved += event.was_saved
                self._request_duration.observe(event.duration_s)
                self._wait.observe(event.waited_s)
                if event.room_s:
                    self._room_wait.observe(event.room_s)
            case Redialled():
                self._redials += 1
            case RetryAfterCapped():
                self._retry_after_capped += 1
            case StoreFailed():
                self._store_errors += 1
            case HostPaused() | StoreRecovered():
                pass  # the gauges tell, from the snapshot
            case _:
                assert_never(event)

    def note_loop_lag(self, lag_s: float) -> None:
        """The event loop came so much too late to what was due."""
        self._loop_lag.observe(lag_s)

    def expose(self, accept: str = "") -> tuple[bytes, str]:
        """The exposition and its media type, in the format that `accept`, the field of the request, prefers.

        What the snapshot raises is passed on.
        """
        try:
            encode, media_type = choose_encoder(accept)
        except TypeError:  # of prometheus-client, which compares the "x" of "version=1.x" with a number
            encode, media_type = choose_encoder("")
        return encode(self._registry), media_type

    def collect(self) -> Iterator[Metric]:
        """All families, as they are now. Called by the registry."""
        yield from self._counted()
        yield from gauges(self._snapshot(), rungs=self._rungs)
        yield InfoMetricFamily(
            "paceproxy_build",
            "What is running: 1, with the versions as labels.",
            {"version": __version__, "python": platform.python_version(), "mitmproxy": MITMPROXY_VERSION},
        )

    def _counted(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "paceproxy_requests",
            "Requests by their final answer: one for each request, however many attempts it took.",
            labels=["outcome"],
        )
        for outcome, count in self._requests.items():
            requests.add_metric([outcome], count)
        yield requests

        attempts = CounterMetricFamily(
            "paceproxy_attempts",
            "Attempts: each sending of a request to the origin. The error is empty where there was none.",
            labels=["outcome", "error"],
        )
        for (outcome, error), count in self._attempts.items():
            attempts.add_metric([outcome, error or ""], count)
        yield attempts

        yield self._request_duration.family(
            "paceproxy_request_duration_seconds",
            "From acceptance of a request to the end of its answer, waits and retries included, in seconds.",
        )
        yield self._wait.family(
            "paceproxy_wait_seconds",
            "How long a request was held before its attempts, all together, in seconds. 0 for most.",
        )
        yield self._room_wait.family(
            "paceproxy_in_flight_wait_seconds",
            "The part of a wait in which nothing but the limit of attempts in flight to its host held the request, in "
            "seconds; only of requests that had such a wait.",
        )
        yield self._attempt_duration.family(
            "paceproxy_attempt_duration_seconds",
            "From the grant of an attempt to the response's head, or to the error, in seconds.",
        )
        yield self._loop_lag.family(
            "paceproxy_loop_lag_seconds",
            "How late the event loop comes to what is due, looked at four times a second, in seconds.",
        )
        yield CounterMetricFamily(
            "paceproxy_requests_saved",
            "Requests that were served although they had stalled: they would have failed without the proxy.",
            value=self._saved,
        )
        yield CounterMetricFamily(
            "paceproxy_redials",
            "Requests sent again at once, since a kept-alive connection had ended. They are no attempts.",
            value=self._redials,
        )
        yield CounterMetricFamily(
            "paceproxy_retry_after_capped",
            "Replies that asked for a longer wait than retry_after_cap.",
            value=self._retry_after_capped,
        )
        yield CounterMetricFamily(
            "paceproxy_access_log_lost_lines",
            "Lines of the access log that there was no room for: it could not be written, or not fast enough.",
            value=self._lost_lines(),
        )
        yield CounterMetricFamily(
            "paceproxy_store_errors",
            "Errors of the store that keeps the hosts' rows.",
            value=self._store_errors,
        )
