"""The main job: real crawlers fetch every page of sites that fall silent, answer 503, then 429, and recover.

Three crawlers (Scrapy, curl, requests) crawl three sites each way (HTTP, HTTPS) through one proxy, at the same time
and with times scaled down. Each test then looks at one site.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.scenarios.spacing import Entry, too_soon
from tests.support.behaviours import respond, silent
from tests.support.origin import Origin
from tests.support.proxy import REAL_COMMAND, Paceproxy, Samples
from tests.support.visit import Behaviour, Request

type Phase = Literal["well at first", "silent", "503", "429", "well again"]

PAGES = 200
LADDER = (0, 0.1, 0.25, 0.5)
FLAGS = ("--ladder", "0,0.1,0.25,0.5", "--climb", "stall", "--attempt-timeout", "1")
TOLERANCE_S = 0.02
RETRY_AFTER_S = 1
CRAWL_TIMEOUT_S = 100
CRAWLERS = ("with_scrapy", "with_requests", "with_curl")
HERE = Path(__file__).parent


@dataclass(slots=True, eq=False)
class Site:
    """A site of numbered pages that is well for 60 requests, then sick, then well for good."""

    origin: Origin = field(init=False)
    phases: list[tuple[Request, Phase]] = field(default_factory=list)
    """What became of each request, in the order of the origin's own list."""

    def __call__(self, request: Request) -> Behaviour:
        phase = self._phase(request)
        self.phases.append((request, phase))
        if phase == "silent":
            return silent()
        if phase == "503":
            return respond(503, b"busy")
        if phase == "429":
            return respond(429, b"slow down", [("Retry-After", str(RETRY_AFTER_S))])
        return respond(200, f"page {request.path.rsplit('/', 1)[1]}".encode())

    def count(self, phase: Phase) -> int:
        return sum(1 for _, past in self.phases if past == phase)

    def _phase(self, request: Request) -> Phase:
        if self.count("well at first") < 60:
            return "well at first"
        # By time, since one time-out lasts as long as many refusals: here the first one ends, and a second begins.
        silences = [past.at for past, phase in self.phases if phase == "silent"]
        if not silences or (request.at < silences[0] + 1.6 and not self.count("503")):
            return "silent"
        if self.count("503") < 5:
            return "503"
        if self.count("429") < 2:
            return "429"
        return "well again"

    def log(self) -> list[Entry]:
        """The spell of sickness and what followed, as the judge of spacing wants it."""
        entries = []
        for request, phase in self.phases:
            assert request.done_at is not None
            stalled = phase in ("silent", "503", "429")
            wait_s = RETRY_AFTER_S if phase == "429" else 0
            entries.append(Entry(request.at, request.done_at, stalled=stalled, retry_after_s=wait_s))
        return entries


@dataclass(frozen=True, slots=True)
class Crawl:
    site: Site
    found: dict[str, Any]
    """What the crawler printed: `pages` and `errors`."""
    metrics: Samples
    """The proxy's, when all crawls were over."""


@pytest.fixture(scope="module", params=["http", "https"])
def crawls(
    request: pytest.FixtureRequest, confdir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Crawl]]:
    """The crawls over HTTP or over HTTPS, by crawler, when all are over."""
    with ExitStack() as stack:
        sites = {}
        for crawler in CRAWLERS:
            site = Site()
            site.origin = stack.enter_context(Origin(site, tls=request.param == "https"))
            sites[crawler] = site
        trust = []
        if request.param == "https":
            bundle = tmp_path_factory.mktemp("origins") / "ca.pem"
            bundle.write_bytes(b"".join(site.origin.ca.read_bytes() for site in sites.values()))
            trust = ["--upstream-ca", str(bundle)]
        proxy = stack.enter_context(Paceproxy(*FLAGS, *trust, confdir=confdir, command=REAL_COMMAND))
        running = {crawler: start(crawler, sites[crawler].origin.url(""), proxy) for crawler in CRAWLERS}
        for process in running.values():
            stack.callback(end, process)
        printed = {name: process.communicate(timeout=CRAWL_TIMEOUT_S) for name, process in running.items()}
        assert [errors for _, errors in printed.values()] == ["", "", ""]
        proxy.assert_idle()
        metrics = proxy.metrics()
        yield {name: Crawl(sites[name], json.loads(output), metrics) for name, (output, _) in printed.items()}


def start(crawler: str, url: str, proxy: Paceproxy) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), proxy.url)
    trust = {"REQUESTS_CA_BUNDLE": str(proxy.ca), "CURL_CA_BUNDLE": str(proxy.ca)}
    return subprocess.Popen(
        [sys.executable, str(HERE / "crawlers" / f"{crawler}.py"), url, str(PAGES)],
        env=environment | proxies | trust,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@pytest.mark.parametrize("crawler", CRAWLERS)
def test_every_page_arrives_and_no_client_sees_an_error(crawls: dict[str, Crawl], crawler: str) -> None:
    found = crawls[crawler].found
    assert found["errors"] == []
    assert found["pages"] == {str(number): f"page {number}" for number in range(200)}


@pytest.mark.parametrize("crawler", CRAWLERS)
def test_the_site_was_sick_in_every_way(crawls: dict[str, Crawl], crawler: str) -> None:
    site = crawls[crawler].site
    assert site.count("silent") >= 2
    assert site.count("503") == 5
    assert site.count("429") == 2


@pytest.mark.parametrize("crawler", CRAWLERS)
def test_no_request_comes_closer_than_the_pace(crawls: dict[str, Crawl], crawler: str) -> None:
    assert too_soon(crawls[crawler].site.log(), LADDER, tolerance_s=TOLERANCE_S) == []


def test_every_page_is_served_and_counted_once(crawls: dict[str, Crawl]) -> None:
    metrics = crawls["with_curl"].metrics
    assert metrics.value("paceproxy_requests_total") == 600
    assert metrics.value("paceproxy_requests_total", outcome="served") == 600
    assert metrics.value("paceproxy_attempts_total", outcome="served") == 600
    assert metrics.value("paceproxy_attempts_total", outcome="failure") == 0
