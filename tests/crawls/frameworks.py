"""Scrapy and Crawlee as crawlers; see `crawlers.py` for what a crawler does here.

What they derive from measured latencies scales by itself; their time constants are multiplied by the time scale.
"""

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

from tests.crawls.notebook import Notebook
from tests.simulation.site_model import Scenario


def scrapy_throttled(scenario: Scenario, todo: Sequence[str], notebook: Notebook, **more: Any) -> None:
    """Scrapy with AutoThrottle and its other defaults; `more` settings."""
    import scrapy
    from scrapy import signals
    from scrapy.crawler import Crawler, CrawlerProcess
    from scrapy.http import Response
    from twisted.python.failure import Failure

    def tell_first(request: scrapy.Request, spider: scrapy.Spider) -> None:
        notebook.begin(request.url)

    class Pages(scrapy.Spider):
        name = "pages"

        async def start(self) -> AsyncIterator[scrapy.Request]:
            meta = {"proxy": notebook.proxy} if notebook.proxy else {}
            for url in todo:
                yield scrapy.Request(url, self.parse, errback=self.fail, dont_filter=True, meta=dict(meta))

        def parse(self, response: Response, **kwargs: Any) -> None:
            assert response.request is not None
            notebook.end(response.request.url, response.status, tries=1 + response.meta.get("retry_times", 0))

        def fail(self, failure: Failure) -> None:
            request: scrapy.Request = failure.request  # type: ignore[attr-defined]  # Scrapy puts it there
            notebook.end(request.url, error=failure.value, tries=1 + request.meta.get("retry_times", 0))

    scale = notebook.scale
    settings = {
        "AUTOTHROTTLE_ENABLED": True,
        "AUTOTHROTTLE_START_DELAY": 5 * scale,
        "AUTOTHROTTLE_MAX_DELAY": 60 * scale,
        "CONCURRENT_REQUESTS": max(16, scenario.parallel),
        "CONCURRENT_REQUESTS_PER_DOMAIN": max(1, scenario.parallel // scenario.hosts),
        "DOWNLOAD_DELAY": 0,
        "DOWNLOAD_TIMEOUT": scenario.timeout * scale,
        "HTTPERROR_ALLOW_ALL": True,
        "TELNETCONSOLE_ENABLED": False,
        "LOG_LEVEL": "CRITICAL",
        **more,
    }
    process = CrawlerProcess(settings)
    crawler: Crawler = process.create_crawler(Pages)
    crawler.signals.connect(tell_first, signals.request_reached_downloader, weak=False)
    process.crawl(crawler)
    process.start()


def scrapy_tuned(scenario: Scenario, todo: Sequence[str], notebook: Notebook) -> None:
    """Scrapy as its project template sets it, with more retries."""
    scrapy_throttled(
        scenario, todo, notebook, CONCURRENT_REQUESTS_PER_DOMAIN=1, DOWNLOAD_DELAY=1 * notebook.scale, RETRY_TIMES=10
    )


def crawlee(scenario: Scenario, todo: Sequence[str], notebook: Notebook) -> None:
    """Crawlee's HttpCrawler with its defaults."""
    _crawlee(scenario, todo, notebook, throttling=False)


def crawlee_tuned(scenario: Scenario, todo: Sequence[str], notebook: Notebook) -> None:
    """The same, with a manager that throttles its requests to the hosts."""
    _crawlee(scenario, todo, notebook, throttling=True)


def _crawlee(scenario: Scenario, todo: Sequence[str], notebook: Notebook, *, throttling: bool) -> None:
    from crawlee import ConcurrencySettings, service_locator
    from crawlee._autoscaling.autoscaled_pool import AutoscaledPool
    from crawlee.configuration import Configuration
    from crawlee.crawlers import HttpCrawler
    from crawlee.http_clients import HttpxHttpClient
    from crawlee.proxy_configuration import ProxyConfiguration
    from crawlee.request_loaders import ThrottlingRequestManager
    from crawlee.storage_clients import MemoryStorageClient
    from crawlee.storages import RequestQueue

    def scaled(seconds: float) -> timedelta:
        return timedelta(seconds=seconds * notebook.scale)

    AutoscaledPool._AUTOSCALE_INTERVAL = scaled(10)
    service_locator.set_storage_client(MemoryStorageClient())
    # It slows down when its *own* machine is busy, too, which a run in scaled time always is.
    service_locator.set_configuration(Configuration(max_used_cpu_ratio=1.0, max_event_loop_delay=timedelta(seconds=60)))
    client = HttpxHttpClient()
    send = client.crawl

    async def tell_first(request: Any, **options: Any) -> Any:
        notebook.begin(request.url)
        return await send(request, **options)

    client.crawl = tell_first

    async def got(context: Any) -> None:
        notebook.end(context.request.url, context.http_response.status_code, tries=1 + context.request.retry_count)

    async def fail(context: Any, error: Exception) -> None:
        notebook.end(context.request.url, error=error, tries=1 + context.request.retry_count)

    async def crawl() -> None:
        manager = None
        if throttling:
            manager = ThrottlingRequestManager(
                inner=await RequestQueue.open(),
                domains=sorted({url.split("/")[2].split(":")[0] for url in todo}),
                request_manager_opener=RequestQueue.open,
                base_delay=scaled(2),
                max_delay=scaled(60),
                max_domain_stall=scaled(900),
            )
        crawler = HttpCrawler(
            http_client=client,
            configure_logging=False,
            request_manager=manager,
            navigation_timeout=scaled(scenario.timeout),
            request_handler_timeout=scaled(60),
            proxy_configuration=ProxyConfiguration(proxy_urls=[notebook.proxy]) if notebook.proxy else None,
            concurrency_settings=ConcurrencySettings(
                max_concurrency=scenario.parallel, desired_concurrency=min(10, scenario.parallel)
            ),
        )
        crawler.router.default_handler(got)
        crawler.failed_request_handler(fail)
        await crawler.run(list(todo))

    logging.disable(logging.CRITICAL)
    # It writes files where it stands.
    with tempfile.TemporaryDirectory(prefix="crawlee-") as folder, contextlib.chdir(folder):
        asyncio.run(crawl())
