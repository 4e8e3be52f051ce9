"""A crawl of a site on which some pages always fail: the others come at their first attempt, and each bad page ends
with the origin's own reply. One crawl by the real proxy, with times scaled down; each test looks at some of its pages.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.behaviours import late, respond
from tests.support.clients import Answer, RawClient
from tests.support.origin import Origin
from tests.support.proxy import Paceproxy, Samples
from tests.support.visit import Behaviour, Request

CLIENTS = 5
PAGES = 100
BAD = {10: 500, 40: 502, 60: 500, 70: 429}
FLAGS = ("--ladder", "0,0.05,0.1,0.15,0.2,0.3", "--window", "30")


def site(request: Request) -> Behaviour:
    number = int(request.path.strip("/"))
    return late(0.02, respond(BAD.get(number, 200), f"page {number}".encode()))


@dataclass(slots=True)
class Crawl:
    origin: Origin
    answers: dict[int, Answer] = field(default_factory=dict)
    metrics: Samples | None = None
    log: str = ""

    def hits(self, number: int) -> int:
        return self.origin.hits(f"/{number}")


@pytest.fixture(scope="module")
def crawl(confdir: Path) -> Iterator[Crawl]:
    with Origin(site) as origin, Paceproxy(*FLAGS, confdir=confdir) as proxy:
        crawl = Crawl(origin)
        numbers = iter(range(PAGES))

        def client() -> None:
            with RawClient(proxy.port) as client:
                for number in numbers:
                    client.get(origin.url(f"/{number}"), *(["Pace-Window: 2"] if number == 70 else []))
                    crawl.answers[number] = client.answer()

        with ThreadPoolExecutor(CLIENTS) as threads:
            for done in [threads.submit(client) for _ in range(CLIENTS)]:
                done.result()
        # The last to end may be a bad page: a good one more, so that the host is well again.
        with RawClient(proxy.port) as last:
            last.get(origin.url(f"/{PAGES}"))
            crawl.answers[PAGES] = last.answer()
        crawl.metrics = proxy.metrics()
        proxy.assert_idle()
        crawl.log = proxy.log
        yield crawl


def test_every_good_page_comes_at_its_first_attempt(crawl: Crawl) -> None:
    good = [number for number in range(PAGES + 1) if number not in BAD]
    assert {number: crawl.answers[number].body for number in good} == {n: f"page {n}".encode() for n in good}
    assert {crawl.hits(number) for number in good} == {1}


@pytest.mark.parametrize("number", [10, 60])
def test_a_500_comes_as_the_origin_sent_it_after_four_attempts(crawl: Crawl, number: int) -> None:
    answer = crawl.answers[number]
    assert (answer.status, answer.body) == (500, f"page {number}".encode())
    assert "paceproxy;attempts=4;" in answer.proxy_status
    assert crawl.hits(number) == 4


def test_a_502_comes_after_six_attempts(crawl: Crawl) -> None:
    answer = crawl.answers[40]
    assert (answer.status, answer.body) == (502, b"page 40")
    assert "paceproxy;attempts=6;" in answer.proxy_status
    assert crawl.hits(40) == 6


def test_a_429_is_asked_for_until_its_window_closes(crawl: Crawl) -> None:
    answer = crawl.answers[70]
    assert (answer.status, answer.body) == (429, b"page 70")
    assert crawl.hits(70) > 6


def test_the_host_is_well_in_the_end_and_all_is_counted(crawl: Crawl) -> None:
    assert crawl.metrics is not None
    assert crawl.metrics.value("paceproxy_requests_total", outcome="served") == PAGES + 1 - len(BAD)
    assert crawl.metrics.value("paceproxy_requests_total", outcome="stall") == len(BAD)
    assert crawl.metrics.value("paceproxy_attempts_total", outcome="stall") == 4 + 4 + 6 + crawl.hits(70)
    assert crawl.metrics.value("paceproxy_hosts_paused") == 0
    assert crawl.log.count("is slow") == crawl.log.count("is well again") > 0
