"""What a crawl came to: figures from what was seen, the promises, and the tables."""

from dataclasses import replace

import pytest

from tests.simulation.crawl import Crawl, Seen
from tests.simulation.judge import Judged, judge
from tests.simulation.origins import Arrival
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.table import summary, table
from tests.simulation.targets import missed


def seen(number: int, ended: float, status: int | None, *, host: str = "127.0.0.1") -> Seen:
    return Seen(host, f"/p/{number}", 0.0, ended, status)


def arrival(
    at: float, *, status: int | None = 200, left: float | None = None, saturated: bool = False, host: str = "127.0.0.1"
) -> Arrival:
    return Arrival(host, "/p/0", at, 0, 0, 1, saturated=saturated, status=status, left=left)


def crawled(pages: list[Seen], log: list[Arrival]) -> Crawl:
    return Crawl(seen=pages, log=log, most_in_flight=3)


SMALL = replace(SCENARIOS["healthy"], pages=6, parallel=2, jitter=0.0)
"""Six pages of 0.1 s, two at a time."""


def test_the_figures_of_a_crawl_come_from_what_was_seen_and_from_the_log() -> None:
    pages = [seen(0, 1.0, 200), seen(1, 2.0, 503), seen(2, 3.0, None), seen(3, 4.0, 200), seen(4, 5.0, 503)]
    log = [arrival(0.0), arrival(0.25, status=503), arrival(1.25, status=None, left=3.0, saturated=True), arrival(3.0)]
    found = judge(SMALL, "plain", 3, crawled([*pages, seen(5, 6.0, 200)], log))
    assert (found.asked, found.can, found.got, found.failed, found.streak, found.cut) == (6, 6, 3, 3, 2, 0)
    assert (found.makespan, found.last_page, round(found.oracle, 3)) == (6.0, 6.0, 0.3)
    assert (found.received, found.in_vain, found.abandoned, found.errored, found.saturated) == (4, 1, 1, 1, 1)
    assert (found.least_gap, found.median_gap, found.most_in_flight, found.in_vain_share) == (0.25, 1.0, 3, 0.25)
    assert found.also == "2x 503; 1x time-out"
    assert found.is_failure


def test_pages_without_an_outcome_make_a_crawl_as_long_as_it_may_be() -> None:
    found = judge(SMALL, "plain", 3, crawled([seen(0, 1.0, 200)], [arrival(0.0)]))
    assert (found.cut, found.makespan, found.last_page) == (5, 120.0, 1.0)
    assert found.also == "5 pages still open when stopped"


def test_a_crawl_without_a_proxy_is_the_measure_where_it_is_given() -> None:
    direct = crawled([seen(number, 1.0, 200) for number in range(6)], [])
    found = judge(SMALL, "plain", 3, crawled([seen(number, 1.5, 200) for number in range(6)], []), direct=direct)
    assert (found.direct, found.to_direct) == (1.0, 1.5)
    assert found.later_pages is not None
    assert round(found.later_pages, 1) == 5.0


def test_the_healthy_hosts_of_a_fleet_are_judged_apart() -> None:
    fleet = replace(SCENARIOS["mixed-fleet"], hosts=2, sick=2, pages=1, jitter=0.0)
    pages = [seen(0, 3.0, 200, host="127.0.1.1"), seen(0, 93.0, 200, host="127.0.1.2")]
    log = [arrival(0.0, host="127.0.1.1"), arrival(0.0, host="127.0.1.2")]
    found = judge(fleet, "plain", 3, crawled(pages, log), direct=crawled([seen(0, 2.0, 200, host="127.0.1.1")], []))
    assert (found.healthy_asked, found.healthy_got, found.healthy_makespan, found.healthy_to_direct) == (1, 1, 3.0, 1.5)
    assert (found.direct, found.least_gap) == (None, None)
    assert found.also == "healthy hosts 1/1 in 3.0 s (x1.00)"


def judged(scenario: str, **figures: object) -> Judged:
    """A crawl in which everything went well, but for these."""
    good = judge(
        SMALL, "plain-patient", 3, crawled([seen(number, 1.0, 200) for number in range(6)], [arrival(0.0)] * 6)
    )
    well = {"scenario": scenario, "asked": 200, "got": 200, "can": 200, "parallel": 5, "received": 200, "cut": 0}
    times = {"makespan": 100.0, "oracle": 100.0, "last_page": 100.0, "direct": 100.0, "later_pages": 0.0}
    fleet = {"healthy_asked": 190, "healthy_got": 190, "healthy_makespan": 10.0, "healthy_direct": 10.0}
    return replace(good, **{**well, **times, **fleet, **figures})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [*SCENARIOS, "shop-8", "cdn"])
def test_a_crawl_in_which_everything_goes_well_misses_nothing(name: str) -> None:
    assert missed(judged(name)) == []


@pytest.mark.parametrize(
    ("name", "figures", "words"),
    [
        ("shop-pool", {"got": 199, "received": 199}, ["pages"]),
        ("shop-503", {"makespan": 125.5}, ["time"]),
        ("shop-8", {"makespan": 124.5}, []),
        ("slow-start", {"received": 205}, ["vain"]),
        ("slow-start", {"received": 204}, []),
        ("slow-start", {"client": "plain", "got": 150, "makespan": 130.0}, ["pages", "time", "vain"]),
        ("outage", {"makespan": 189.0}, []),
        ("outage-small", {"makespan": 191.0}, ["time"]),
        ("rate-limit", {"makespan": 131.0, "got": 199}, ["pages", "time"]),
        ("flaky", {"makespan": 129.0, "received": 300}, []),
        ("flaky", {"makespan": 500.0, "got": 100, "client": "plain"}, []),
        ("poison", {"last_page": 111.0, "makespan": 111.0}, ["time"]),
        ("poison", {"last_page": 109.0, "makespan": 139.0}, []),
        ("poison", {"last_page": 109.0, "makespan": 141.0}, ["time"]),
        ("poison", {"got": 199}, ["pages"]),
        ("blackhole", {"cut": 1}, ["end"]),
        ("mixed-fleet", {"got": 190, "healthy_makespan": 10.4}, []),
        ("mixed-fleet", {"healthy_makespan": 10.6}, ["healthy hosts"]),
        ("mixed-fleet", {"healthy_got": 189}, ["healthy hosts"]),
        ("cdn", {"makespan": 106.0}, ["time"]),
        ("cdn", {"makespan": 104.0, "later_pages": 99.0}, []),
        ("cdn", {"makespan": 104.0, "got": 199}, ["pages"]),
        ("cdn", {"parallel": 6, "makespan": 150.0, "later_pages": 3.9}, []),
        ("cdn", {"parallel": 6, "makespan": 104.0, "later_pages": 4.1}, ["time"]),
    ],
)
def test_what_was_promised_and_not_kept_is_named(name: str, figures: dict[str, object], words: list[str]) -> None:
    assert missed(judged(name, **figures)) == words


def cells(text: str) -> dict[str, str]:
    """The last row of a table, by its heads."""
    heads, *_, last = ([cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines())
    return dict(zip(heads, last, strict=True))


def test_a_table_has_a_row_for_each_crawl() -> None:
    found = cells(table([judged("shop-pool"), judged("shop-pool", got=150, makespan=1800.0, cut=3)]))
    assert (found["got"], found["failed"], found["makespan s"], found["÷ oracle"]) == (
        "150",
        "50",
        ">1800.0",
        "(>18.00)",
    )
    assert (found["in vain"], found["misses"]) == ("50", "pages, time, vain")


def test_over_several_seeds_the_median_and_the_worst_are_shown() -> None:
    crawls = [judged("shop-pool", seed=seed, makespan=100.0 + 10 * seed) for seed in (1, 2, 3)]
    crawls.append(judged("shop-pool", seed=4, got=190))
    found = cells(summary(crawls))
    assert (found["seeds"], found["seeds that fail"], found["got, least of"]) == ("4", "1 (4)", "190/200")
    assert (found["÷ oracle"], found["in vain %"]) == ("1.15/1.30", "0.0/5.0")
    assert found["misses"] == "time 1, pages 1, vain 1"


def test_crawls_under_other_settings_have_rows_of_their_own() -> None:
    lines = summary([judged("cdn", policy=policy) for policy in ("", "window=5", "")]).splitlines()
    assert len(lines) == 4
    assert cells("\n".join(lines))["settings"] == "window=5"


def test_of_no_crawls_there_is_no_table() -> None:
    assert table([]) == ""
