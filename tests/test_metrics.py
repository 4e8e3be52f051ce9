"""The exposition after literal events and a literal snapshot, read back by prometheus-client's own parser."""

import dataclasses
import platform

import mitmproxy.version
import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

import proxy_addon
from proxy_addon.metrics import Metrics
from proxy_addon.model import (
    AttemptEnded,
    ErrorName,
    Event,
    HostPaused,
    HostState,
    HostView,
    LastStall,
    Outcome,
    Redialled,
    RequestEnded,
    RetryAfterCapped,
    Snapshot,
    StoreFailed,
    StoreRecovered,
)
from tests.support import promtool, requests_ended

NOW = 1_800_000_000.0
IDLE = Snapshot(hosts=(), waiting=0, in_flight=0, store_up=True, at=NOW)

SEVERAL_EVENTS: list[Event] = [
    AttemptEnded("a.example", Outcome.SERVED, None, 0.005),
    AttemptEnded("a.example", Outcome.SERVED, None, 0.02),
    AttemptEnded("b.example", Outcome.STALL, ErrorName.HTTP_RESPONSE_TIMEOUT, 30.01),
    AttemptEnded("b.example", Outcome.STALL, ErrorName.RATE_LIMITED, 0.3),
    AttemptEnded("c.example", Outcome.FAILURE, ErrorName.DNS_ERROR, 0.001),
    AttemptEnded("d.example", Outcome.ABANDONED, None, 3.0),
]


def ended(outcome: Outcome, *, duration_s: float, waited_s: float = 0.0, room_s: float = 0.0) -> RequestEnded:
    return requests_ended.ended(outcome=outcome, duration_s=duration_s, waited_s=waited_s, room_s=room_s, stalls=0)


def view(
    host: str, *, rung: int = 0, waiting: int = 0, paused_until: float = 0.0, limit: int | None = None
) -> HostView:
    return HostView(
        host=host,
        state=HostState(rung=rung, paused_until=paused_until, version=1),
        in_flight_limit=limit,
        pace_s=2.0,
        waiting=waiting,
        in_flight=0,
        last_stall=LastStall(ErrorName.RATE_LIMITED, NOW - 1),
    )


def of_hosts(*hosts: HostView) -> Snapshot:
    return Snapshot(hosts=hosts, waiting=0, in_flight=0, store_up=True, at=NOW)


def after(*events: Event, snapshot: Snapshot = IDLE) -> Metrics:
    metrics = Metrics(lambda: snapshot, rungs=6)
    for event in events:
        metrics.observe(event)
    return metrics


def families(metrics: Metrics) -> dict[str, Metric]:
    body, _ = metrics.expose()
    return {family.name: family for family in parse_text(body.decode())}


def samples(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """The samples called `name`, by their label values in the order of the labels' names."""
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in families(metrics).values()
        for sample in family.samples
        if sample.name == name
    }


def test_every_metric_has_its_name_and_kind_and_says_what_it_is() -> None:
    found = families(after())
    found = {name: family for name, family in found.items() if not name.startswith("process_")}

    assert {name: family.type for name, family in found.items()} == {
        "paceproxy_requests": "counter",
        "paceproxy_attempts": "counter",
        "paceproxy_request_duration_seconds": "histogram",
        "paceproxy_wait_seconds": "histogram",
        "paceproxy_in_flight_wait_seconds": "histogram",
        "paceproxy_attempt_duration_seconds": "histogram",
        "paceproxy_waiting_requests": "gauge",
        "paceproxy_attempts_in_flight": "gauge",
        "paceproxy_hosts": "gauge",
        "paceproxy_hosts_healthy": "gauge",
        "paceproxy_hosts_paused": "gauge",
        "paceproxy_host_rung": "gauge",
        "paceproxy_host_waiting": "gauge",
        "paceproxy_host_pace_seconds": "gauge",
        "paceproxy_host_last_stall_timestamp_seconds": "gauge",
        "paceproxy_host_held_until_timestamp_seconds": "gauge",
        "paceproxy_loop_lag_seconds": "histogram",
        "paceproxy_in_flight_limit": "gauge",
        "paceproxy_requests_saved": "counter",
        "paceproxy_redials": "counter",
        "paceproxy_retry_after_capped": "counter",
        "paceproxy_store_up": "gauge",
        "paceproxy_store_errors": "counter",
        "paceproxy_access_log_lost_lines": "counter",
        "paceproxy_build_info": "gauge",
    }
    assert all(family.documentation.endswith(".") for family in found.values())
    durations = [family for family in found.values() if family.type == "histogram"]
    assert all("in seconds" in family.documentation for family in durations)
    moments = [family for name, family in found.items() if name.endswith("_timestamp_seconds")]
    assert all("in Unix seconds" in family.documentation for family in moments)


def test_requests_are_counted_by_their_final_answer() -> None:
    metrics = after(
        ended(Outcome.SERVED, duration_s=0.1),
        ended(Outcome.SERVED, duration_s=0.1),
        ended(Outcome.STALL, duration_s=600.0),
        ended(Outcome.FAILURE, duration_s=0.1),
        ended(Outcome.ABANDONED, duration_s=0.1),
        ended(Outcome.UNSENT, duration_s=0.1),
    )

    assert samples(metrics, "paceproxy_requests_total") == {
        ("served",): 2,
        ("stall",): 1,
        ("failure",): 1,
        ("abandoned",): 1,
        ("unsent",): 1,
    }


def test_attempts_are_counted_by_outcome_and_error() -> None:
    counts = samples(after(*SEVERAL_EVENTS), "paceproxy_attempts_total")

    assert {labels: count for labels, count in counts.items() if count} == {
        ("", "served"): 2,
        ("http_response_timeout", "stall"): 1,
        ("rate_limited", "stall"): 1,
        ("dns_error", "failure"): 1,
        ("", "abandoned"): 1,
    }


def test_what_never_happened_is_0_and_not_absent() -> None:
    metrics = after()

    assert samples(metrics, "paceproxy_requests_total") == {
        ("served",): 0,
        ("stall",): 0,
        ("failure",): 0,
        ("abandoned",): 0,
        ("unsent",): 0,
    }
    assert samples(metrics, "paceproxy_attempts_total") == {
        ("", "served"): 0,
        ("http_response_timeout", "stall"): 0,
        ("connection_timeout", "stall"): 0,
        ("http_status_5xx", "stall"): 0,
        ("rate_limited", "stall"): 0,
        ("connection_terminated", "stall"): 0,
        ("http_response_incomplete", "stall"): 0,
        ("dns_timeout", "stall"): 0,
        ("http_request_timeout", "stall"): 0,
        ("in_progress", "stall"): 0,
        ("connection_refused", "stall"): 0,
        ("http_status", "stall"): 0,
        ("connection_refused", "failure"): 0,
        ("dns_error", "failure"): 0,
        ("tls_certificate_error", "failure"): 0,
        ("tls_alert_received", "failure"): 0,
        ("tls_protocol_error", "failure"): 0,
        ("http_protocol_error", "failure"): 0,
        ("proxy_internal_response", "failure"): 0,
        ("proxy_loop_detected", "failure"): 0,
        ("destination_ip_prohibited", "failure"): 0,
        ("http_response_timeout", "failure"): 0,
        ("connection_timeout", "failure"): 0,
        ("connection_terminated", "failure"): 0,
        ("http_response_incomplete", "failure"): 0,
        ("dns_timeout", "failure"): 0,
        ("", "abandoned"): 0,
    }
    assert samples(metrics, "paceproxy_requests_saved_total") == {(): 0}
    assert samples(metrics, "paceproxy_redials_total") == {(): 0}
    assert samples(metrics, "paceproxy_retry_after_capped_total") == {(): 0}
    assert samples(metrics, "paceproxy_store_errors_total") == {(): 0}
    assert samples(metrics, "paceproxy_access_log_lost_lines_total") == {(): 0}
    assert samples(metrics, "paceproxy_request_duration_seconds_count") == {(): 0}
    assert samples(metrics, "paceproxy_wait_seconds_count") == {(): 0}
    assert samples(metrics, "paceproxy_attempt_duration_seconds_count") == {(): 0}


def test_an_attempt_that_ends_as_none_was_expected_to_is_counted_all_the_same() -> None:
    unheard_of = AttemptEnded("a.example", Outcome.FAILURE, ErrorName.PROXY_INTERNAL_ERROR, 0.1)

    counts = samples(after(unheard_of, unheard_of), "paceproxy_attempts_total")

    assert counts["proxy_internal_error", "failure"] == 2


def test_attempts_fall_into_the_buckets_of_their_duration_edges_included() -> None:
    metrics = after(*SEVERAL_EVENTS)

    assert samples(metrics, "paceproxy_attempt_duration_seconds_bucket") == {
        ("0.005",): 2,
        ("0.01",): 2,
        ("0.025",): 3,
        ("0.05",): 3,
        ("0.1",): 3,
        ("0.25",): 3,
        ("0.5",): 4,
        ("1.0",): 4,
        ("2.0",): 4,
        ("5.0",): 5,
        ("10.0",): 5,
        ("15.0",): 5,
        ("30.0",): 5,
        ("45.0",): 6,
        ("60.0",): 6,
        ("120.0",): 6,
        ("300.0",): 6,
        ("600.0",): 6,
        ("+Inf",): 6,
    }
    assert samples(metrics, "paceproxy_attempt_duration_seconds_count") == {(): 6}
    assert samples(metrics, "paceproxy_attempt_duration_seconds_sum") == {(): pytest.approx(33.336)}


def test_a_requests_whole_duration_and_its_wait_are_measured_apart() -> None:
    metrics = after(
        ended(Outcome.SERVED, duration_s=12.5, waited_s=12.0),
        ended(Outcome.STALL, duration_s=601.0, waited_s=0.0),
    )

    durations = samples(metrics, "paceproxy_request_duration_seconds_bucket")
    waits = samples(metrics, "paceproxy_wait_seconds_bucket")
    assert (durations["10.0",], durations["15.0",], durations["600.0",], durations["+Inf",]) == (0, 1, 1, 2)
    assert (waits["0.005",], waits["10.0",], waits["15.0",], waits["+Inf",]) == (1, 1, 2, 2)
    assert samples(metrics, "paceproxy_request_duration_seconds_sum") == {(): 613.5}
    assert samples(metrics, "paceproxy_wait_seconds_sum") == {(): 12.0}


def test_what_only_the_limit_held_is_measured_for_those_whom_it_held() -> None:
    metrics = after(
        ended(Outcome.SERVED, duration_s=9.0, waited_s=7.0, room_s=4.0),
        ended(Outcome.SERVED, duration_s=9.0, waited_s=7.0),
    )

    assert samples(metrics, "paceproxy_in_flight_wait_seconds_count") == {(): 1}
    assert samples(metrics, "paceproxy_in_flight_wait_seconds_sum") == {(): 4.0}
    assert samples(metrics, "paceproxy_wait_seconds_sum") == {(): 14.0}


def test_a_clock_that_was_set_back_never_lowers_a_sum() -> None:
    metrics = after(
        ended(Outcome.SERVED, duration_s=4.0, waited_s=1.0),
        ended(Outcome.SERVED, duration_s=-3600.0, waited_s=-1.0),
    )

    assert samples(metrics, "paceproxy_request_duration_seconds_sum") == {(): 4.0}
    assert samples(metrics, "paceproxy_request_duration_seconds_bucket")["0.005",] == 1
    assert samples(metrics, "paceproxy_wait_seconds_sum") == {(): 1.0}


def test_saved_is_who_was_served_although_it_stalled() -> None:
    metrics = Metrics(lambda: IDLE, rungs=6)
    metrics.observe(ended(Outcome.SERVED, duration_s=2.5))
    metrics.observe(dataclasses.replace(ended(Outcome.SERVED, duration_s=2.5), stalls=2))
    metrics.observe(dataclasses.replace(ended(Outcome.STALL, duration_s=2.5), stalls=4))
    assert samples(metrics, "paceproxy_requests_saved_total") == {(): 1}


def test_redials_capped_waits_and_errors_of_the_store_are_counted() -> None:
    metrics = after(
        Redialled("a.example"),
        Redialled("b.example"),
        RetryAfterCapped("a.example", 3600.0),
        StoreFailed("database is locked", first=True),
        StoreFailed("database is locked", first=False),
        StoreRecovered(12.0),
    )

    assert samples(metrics, "paceproxy_redials_total") == {(): 2}
    assert samples(metrics, "paceproxy_retry_after_capped_total") == {(): 1}
    assert samples(metrics, "paceproxy_store_errors_total") == {(): 2}


def test_a_pause_counts_by_what_the_snapshot_says_and_not_by_its_event() -> None:
    metrics = after(HostPaused("a.example", NOW + 120, 10, ErrorName.RATE_LIMITED))

    assert samples(metrics, "paceproxy_hosts_paused") == {(): 0}


def test_a_host_is_paused_until_its_pause_ends_and_not_while_it_probes() -> None:
    metrics = after(
        snapshot=of_hosts(
            view("paused.example", rung=5, paused_until=NOW + 120),
            view("paused-still.example", rung=5, paused_until=NOW + 0.1),
            view("probing.example", rung=5, paused_until=NOW),
            view("paced.example", rung=5),
        )
    )

    assert samples(metrics, "paceproxy_hosts_paused") == {(): 2}


def test_the_gauges_are_those_of_the_moment_of_the_scrape() -> None:
    moments = [
        Snapshot(hosts=(), waiting=7, in_flight=3, store_up=False, at=NOW),
        Snapshot(hosts=(), waiting=0, in_flight=1, store_up=True, at=NOW + 15),
    ]
    metrics = Metrics(lambda: moments.pop(0), rungs=6)

    first, second = families(metrics), families(metrics)

    assert first["paceproxy_waiting_requests"].samples[0].value == 7
    assert first["paceproxy_attempts_in_flight"].samples[0].value == 3
    assert first["paceproxy_store_up"].samples[0].value == 0
    assert second["paceproxy_waiting_requests"].samples[0].value == 0
    assert second["paceproxy_attempts_in_flight"].samples[0].value == 1
    assert second["paceproxy_store_up"].samples[0].value == 1


def test_every_rung_of_the_ladder_has_its_number_of_hosts() -> None:
    metrics = after(
        snapshot=of_hosts(
            view("a.example", rung=0, waiting=1),
            view("b.example", rung=1),
            view("c.example", rung=1),
            view("d.example", rung=5),
        )
    )

    assert samples(metrics, "paceproxy_hosts") == {
        ("0",): 1,
        ("1",): 2,
        ("2",): 0,
        ("3",): 0,
        ("4",): 0,
        ("5",): 1,
    }


def test_a_rung_above_the_ladder_is_counted_where_it_is() -> None:
    metrics = Metrics(lambda: of_hosts(view("a.example", rung=5)), rungs=2)

    assert samples(metrics, "paceproxy_hosts") == {("0",): 0, ("1",): 0, ("5",): 1}


def test_a_host_of_which_only_a_limit_is_known_is_well() -> None:
    known = dataclasses.replace(view("a.example", limit=6), state=HostState(in_flight_limit=6, limited_at=NOW))
    metrics = after(snapshot=of_hosts(known, dataclasses.replace(known, host="b.example", waiting=1)))

    assert samples(metrics, "paceproxy_hosts")[("0",)] == 1
    assert samples(metrics, "paceproxy_host_rung") == {}


def test_a_limit_is_shown_where_there_is_one_to_show() -> None:
    metrics = after(
        snapshot=of_hosts(view("a.example", limit=6), view("b.example", rung=2), view("c.example", limit=1))
    )

    assert samples(metrics, "paceproxy_in_flight_limit") == {("a.example",): 6, ("c.example",): 1}


def test_of_more_than_100_limits_the_lowest_keep_their_names_and_the_rest_are_one() -> None:
    limits = {f"{number:03}.example": 5 + number for number in range(150)} | {"other": 1}
    metrics = after(snapshot=of_hosts(*(view(host, limit=limit) for host, limit in limits.items())))

    shown = samples(metrics, "paceproxy_in_flight_limit")
    assert len(shown) == 101
    assert shown[("000.example",)] == 5
    assert shown[("099.example",)] == 104
    # A host that is called so belongs to the rest.
    assert shown[("other",)] == 1


def test_exactly_100_limits_leave_nothing_to_put_together() -> None:
    metrics = after(snapshot=of_hosts(*(view(f"{number:03}.example", limit=2) for number in range(100))))

    assert len(samples(metrics, "paceproxy_in_flight_limit")) == 100


def test_the_hosts_that_are_well_are_a_number() -> None:
    metrics = after(snapshot=dataclasses.replace(IDLE, healthy_hosts=7))

    assert samples(metrics, "paceproxy_hosts_healthy") == {(): 7}


def test_a_slow_host_says_how_slow_and_why() -> None:
    blocked = dataclasses.replace(
        view("blocked.example", waiting=2),
        state=HostState(blocked_until=NOW + 60, paused_until=NOW - 60, version=1),
        last_stall=LastStall(ErrorName.RATE_LIMITED, NOW - 3),
    )
    paused = dataclasses.replace(
        view("paused.example", rung=5, paused_until=NOW + 120),
        pace_s=60.0,
        last_stall=LastStall(ErrorName.CONNECTION_TIMEOUT, NOW - 9),
    )
    met_elsewhere = dataclasses.replace(view("elsewhere.example", rung=1), last_stall=None)
    well = dataclasses.replace(view("well.example", waiting=5), last_stall=LastStall(ErrorName.RATE_LIMITED, NOW - 900))
    metrics = after(snapshot=of_hosts(blocked, paused, met_elsewhere, well))

    assert samples(metrics, "paceproxy_host_rung") == {
        ("blocked.example",): 0,
        ("paused.example",): 5,
        ("elsewhere.example",): 1,
    }
    assert samples(metrics, "paceproxy_host_pace_seconds") == {
        ("blocked.example",): 2,
        ("paused.example",): 60,
        ("elsewhere.example",): 2,
    }
    assert samples(metrics, "paceproxy_host_last_stall_timestamp_seconds") == {
        ("rate_limited", "blocked.example"): NOW - 3,
        ("connection_timeout", "paused.example"): NOW - 9,
    }
    assert samples(metrics, "paceproxy_host_held_until_timestamp_seconds") == {
        ("blocked.example", "block"): NOW + 60,
        ("paused.example", "pause"): NOW + 120,
    }


def test_of_the_hosts_beyond_100_no_reasons_are_told() -> None:
    metrics = after(snapshot=of_hosts(*(view(f"h{i}.example", rung=1, paused_until=NOW + 9) for i in range(150))))

    assert len(samples(metrics, "paceproxy_host_pace_seconds")) == 100
    assert len(samples(metrics, "paceproxy_host_last_stall_timestamp_seconds")) == 100
    assert len(samples(metrics, "paceproxy_host_held_until_timestamp_seconds")) == 100


def test_the_lag_of_the_event_loop_is_measured() -> None:
    metrics = after()
    for lag_s in (0.0001, 0.02, 0.3):
        metrics.note_loop_lag(lag_s)

    lags = samples(metrics, "paceproxy_loop_lag_seconds_bucket")
    assert (lags["0.005",], lags["0.025",], lags["0.25",], lags["0.5",]) == (1, 2, 2, 3)


def test_what_the_system_knows_of_the_process_is_told_under_the_usual_names() -> None:
    found = families(after())

    assert found["process_cpu_seconds"].samples[0].value > 0
    assert found["process_resident_memory_bytes"].samples[0].value > 1_000_000
    assert found["process_open_fds"].samples[0].value > 0
    assert found["process_start_time_seconds"].samples[0].value > 1_700_000_000


def test_a_host_has_series_of_its_own_only_while_it_is_slow() -> None:
    moments = [
        of_hosts(view("ill.example", rung=3, waiting=4), view("well.example", rung=0, waiting=2)),
        of_hosts(view("ill.example", rung=0, waiting=4)),
    ]
    metrics = Metrics(lambda: moments.pop(0), rungs=6)

    first, second = families(metrics), families(metrics)

    assert [sample.labels for sample in first["paceproxy_host_rung"].samples] == [{"host": "ill.example"}]
    assert [sample.value for sample in first["paceproxy_host_rung"].samples] == [3]
    assert [sample.labels for sample in first["paceproxy_host_waiting"].samples] == [{"host": "ill.example"}]
    assert [sample.value for sample in first["paceproxy_host_waiting"].samples] == [4]
    assert second["paceproxy_host_rung"].samples == []
    assert second["paceproxy_host_waiting"].samples == []


def test_beyond_100_hosts_the_worst_keep_their_names_and_the_rest_are_one() -> None:
    worst = [view(f"top{i}.example", rung=5, waiting=0) for i in range(60)]
    crowded = [view(f"zz-crowded{i}.example", rung=3, waiting=9) for i in range(39)]
    rest = [view("z.example", rung=3, waiting=8), view("y.example", rung=3, waiting=8)]
    rest += [view(f"low{i}.example", rung=2, waiting=1000) for i in range(50)]
    metrics = after(snapshot=of_hosts(*rest, *crowded, *worst))

    rungs = samples(metrics, "paceproxy_host_rung")
    waiting = samples(metrics, "paceproxy_host_waiting")

    assert len(rungs) == 101
    assert waiting.keys() == rungs.keys()
    assert all((f"top{i}.example",) in rungs for i in range(60))
    assert all((f"zz-crowded{i}.example",) in rungs for i in range(39))
    assert (rungs["y.example",], waiting["y.example",]) == (3, 8)
    assert (rungs["other",], waiting["other",]) == (3, 50_008)


def test_exactly_100_hosts_leave_nothing_to_put_together() -> None:
    metrics = after(snapshot=of_hosts(*(view(f"h{i}.example", rung=1) for i in range(100))))

    assert len(samples(metrics, "paceproxy_host_rung")) == 100
    assert ("other",) not in samples(metrics, "paceproxy_host_rung")


def test_ten_thousand_stalled_hosts_make_no_more_series_than_a_hundred_and_one() -> None:
    metrics = after(snapshot=of_hosts(*(view(f"h{i}.example", rung=1) for i in range(10_000))))

    assert len(samples(metrics, "paceproxy_host_rung")) == 101
    assert len(samples(metrics, "paceproxy_host_waiting")) == 101


def test_a_host_named_other_is_put_with_the_rest_so_that_no_series_is_there_twice() -> None:
    alone = after(snapshot=of_hosts(view("other", rung=5, waiting=3), view("a.example", rung=1)))
    crowd = [view(f"h{i}.example", rung=1, waiting=1) for i in range(102)]
    among_many = after(snapshot=of_hosts(view("other", rung=5, waiting=3), *crowd))

    assert samples(alone, "paceproxy_host_rung") == {("other",): 5, ("a.example",): 1}
    assert samples(alone, "paceproxy_host_waiting") == {("other",): 3, ("a.example",): 0}
    body, _ = among_many.expose()
    assert body.count(b'paceproxy_host_rung{host="other"} 5.0\n') == 1
    assert body.count(b'host="other"') == 2
    assert samples(among_many, "paceproxy_host_waiting")["other",] == 5


@pytest.mark.parametrize("host", ['quo"te', "back\\slash", "new\nline", "{a=b}, # HELP", "[2001:db8::1]:8080"])
def test_no_host_name_breaks_the_exposition(host: str) -> None:
    metrics = after(snapshot=of_hosts(view(host, rung=2, waiting=1)))

    assert samples(metrics, "paceproxy_host_rung") == {(host,): 2}
    assert samples(metrics, "paceproxy_store_up") == {(): 1}


def test_the_build_is_named() -> None:
    (sample,) = families(after())["paceproxy_build_info"].samples

    assert sample.value == 1
    assert sample.labels == {
        "version": proxy_addon.__version__,
        "python": platform.python_version(),
        "mitmproxy": mitmproxy.version.VERSION,
    }


def test_two_instances_share_nothing() -> None:
    one, other = after(), after()

    one.observe(ended(Outcome.SERVED, duration_s=0.1))

    assert samples(one, "paceproxy_requests_total")["served",] == 1
    assert samples(other, "paceproxy_requests_total")["served",] == 0


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "text/html, */*;q=0.1",
        "application/openmetrics-text;version=1.x",
        "text/plain;version=a",
        ";;=,",
    ],
)
def test_whoever_asks_for_nothing_known_gets_the_text_format(accept: str) -> None:
    body, media_type = after().expose(accept)

    assert media_type == "text/plain; version=0.0.4; charset=utf-8"
    assert b'paceproxy_requests_total{outcome="served"} 0.0\n' in body


def test_openmetrics_is_spoken_to_those_who_ask_for_it() -> None:
    metrics = after(*SEVERAL_EVENTS, snapshot=of_hosts(view("a.example", rung=1)))

    body, media_type = metrics.expose("application/openmetrics-text;version=1.0.0;q=0.9, text/plain;q=0.1")

    assert media_type.startswith("application/openmetrics-text; version=1.0.0; charset=utf-8")
    found = {family.name: family for family in parse_openmetrics(body.decode())}  # type: ignore[no-untyped-call]
    assert found["paceproxy_build"].type == "info"
    assert found["paceproxy_wait_seconds"].unit == "seconds"
    assert found["paceproxy_host_rung"].samples[0].value == 1
    assert sum(sample.value for sample in found["paceproxy_attempts"].samples) == 6


def test_an_engine_that_cannot_tell_its_state_fails_the_scrape() -> None:
    def broken() -> Snapshot:
        raise RuntimeError("no snapshot")

    with pytest.raises(RuntimeError, match="no snapshot"):
        Metrics(broken, rungs=6).expose()


def test_promtool_finds_no_fault() -> None:
    body, _ = after(*SEVERAL_EVENTS, snapshot=of_hosts(view('a"b', rung=1))).expose()

    result = promtool.run("check", "metrics", given=body)

    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
