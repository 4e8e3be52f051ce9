"""Who is judged: crawlers by themselves, and through proxies; what each is set to."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tests.crawls.crawl import DRIVERS
from tests.crawls.peer_proxies import PEER_PROXIES
from tests.crawls.proxies import Peer, Proxy


@dataclass(frozen=True, slots=True)
class Contender:
    """A row of the tables."""

    label: str
    driver: str
    proxy: Proxy | None = None


PEERS: Mapping[str, Contender] = MappingProxyType(
    {driver: Contender(driver, driver) for driver in DRIVERS}
    | {proxy: Contender(proxy, "plain", Peer(proxy)) for proxy in PEER_PROXIES}
)
"""What people use today, and what to compare it with; by label."""

NOTES: Mapping[str, str] = MappingProxyType(
    {
        "plain": "aiohttp, P requests in flight, one client timeout, no retry",
        "plain-1": "the same, 1 request in flight per host (a polite person)",
        "plain-patient": "the same as plain, with a client timeout of an hour",
        "urllib3": "P threads, Retry(total=5, backoff_factor=1, 429+5xx, Retry-After respected)",
        "tenacity": "httpx, P in flight, 6 attempts, wait_random_exponential(1, max 60), on errors, 429, 5xx",
        "scrapy": "AutoThrottle on with its defaults (target 1.0, start 5 s, max 60 s), RetryMiddleware defaults "
        "(2 retries), CONCURRENT_REQUESTS_PER_DOMAIN = P",
        "scrapy-tuned": "AutoThrottle on, 1 request per domain, DOWNLOAD_DELAY 1 s (the values of scrapy's project "
        "template), RETRY_TIMES 10",
        "crawlee": "HttpCrawler, default retries (3) and session rotation, max_concurrency = P; the gates on the load "
        "of its own machine are opened, since scaled time would close them",
        "crawlee-tuned": "the same with a ThrottlingRequestManager for the hosts (back-off 2 s to 60 s on 429, "
        "Retry-After respected)",
        "mitmdump": "plain forward proxy, defaults (no retry, no pacing)",
        "squid": "plain forward proxy, cache off, its timeouts scaled (whole seconds, at least 1)",
        "envoy": "dynamic forward proxy; route retries: 5xx, reset, 429; num_retries 3, back-off 1 s to 30 s, "
        "Retry-After (seconds form) respected, 1000 retries at a time instead of 3",
        "envoy-ac": "the same plus the adaptive concurrency filter with the values of Envoy's documentation (p90, "
        "minRTT of 50 requests each 60 s, update each 0.1 s)",
        "gate-2": "at most 2 in flight per host, nothing else; tuned by hand, since 2 is what the shop can take",
        "paceproxy-plain": "plain through Paceproxy with its default settings",
        "paceproxy-plain-patient": "plain-patient through Paceproxy with its default settings",
    }
)
"""What each is set to. Proxies are asked by `plain`."""
