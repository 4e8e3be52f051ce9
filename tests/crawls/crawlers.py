"""Crawlers of a few lines: plain ones, and those that retry with urllib3 or tenacity.

A crawler asks for every URL and tells the notebook when it first sends a page and what its user finally gets. All its
time constants are multiplied by the time scale. What asks for pages as a framework does is in `frameworks.py`.
"""

import asyncio
import queue
import threading
from collections.abc import Sequence
from dataclasses import replace

from tests.crawls.notebook import Notebook
from tests.simulation.site_model import Scenario

_PATIENCE = 3600.0


def plain(scenario: Scenario, todo: Sequence[str], notebook: Notebook) -> None:
    """aiohttp, so many in flight, one client time-out, no retry."""
    import aiohttp

    async def work(session: aiohttp.ClientSession, waiting: asyncio.Queue[str]) -> None:
        while not waiting.empty():
            url = waiting.get_nowait()
            notebook.begin(url)
            try:
                async with session.get(url, proxy=notebook.proxy) as response:
                    await response.read()
                    notebook.end(url, response.status, tries=1)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                notebook.end(url, error=error, tries=1)

    async def crawl() -> None:
        waiting = _queue(todo)
        timeout = aiohttp.ClientTimeout(total=scenario.timeout * notebook.scale)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            await asyncio.gather(*(work(session, waiting) for _ in range(scenario.parallel)))

    asyncio.run(crawl())


def plain_1(scenario: Scenario, todo: Sequence[str], notebook: Notebook) -> None:
    """The same, with one request in flight per host."""
    plain(replace(scenario, parallel=scenario.hosts), todo, notebook)


def plain_patient(scenario: Scenario, todo: Sequence[str], notebook: Notebook) -> None:
    """The same as `plain`, with a client time-out of an hour."""
    plain(replace(scenario, timeout=_PATIENCE), todo, notebook)


def urllib3_retry(scenario: Scenario, todo: Sequence[str], notebook: Notebook) -> None:
    """Threads with urllib3's Retry."""
    import urllib3

    scale = notebook.scale
    retry = urllib3.Retry(
        total=5,
        backoff_factor=1 * scale,
        backoff_max=120 * scale,
        status_forcelist=[429, 500, 502, 503, 504],
        raise_on_status=False,
        respect_retry_after_header=True,
    )
    timeout = urllib3.Timeout(scenario.timeout * scale)
    pool: urllib3.PoolManager
    if notebook.proxy:
        pool = urllib3.ProxyManager(notebook.proxy, retries=retry, timeout=timeout, maxsize=scenario.parallel)
    else:
        pools = scenario.hosts + 1
        pool = urllib3.PoolManager(pools, retries=retry, timeout=timeout, maxsize=scenario.parallel)
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for url in todo:
        waiting.put(url)

    def work() -> None:
        while True:
            try:
                url = waiting.get_nowait()
            except queue.Empty:
                return
            notebook.begin(url)
            try:
                response = pool.request("GET", url)
                history = response.retries.history if response.retries else ()
                notebook.end(url, response.status, tries=1 + len(history))
            except urllib3.exceptions.HTTPError as error:
                notebook.end(url, error=getattr(error, "reason", None) or error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(scenario.parallel)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def tenacity_httpx(scenario: Scenario, todo: Sequence[str], notebook: Notebook) -> None:
    """httpx, with tenacity's exponential back-off."""
    import httpx
    import tenacity

    scale = notebook.scale

    def is_bad(response: httpx.Response) -> bool:
        return bool(response.status_code == 429 or response.status_code >= 500)

    async def work(client: httpx.AsyncClient, waiting: asyncio.Queue[str]) -> None:
        while not waiting.empty():
            url = waiting.get_nowait()
            notebook.begin(url)
            tries = tenacity.AsyncRetrying(
                stop=tenacity.stop_after_attempt(6),
                wait=tenacity.wait_random_exponential(multiplier=1 * scale, max=60 * scale),
                retry=tenacity.retry_if_exception_type(httpx.TransportError) | tenacity.retry_if_result(is_bad),
                retry_error_callback=lambda state: state.outcome.result(),
            )
            try:
                response = await tries(client.get, url)
                notebook.end(url, response.status_code, tries=tries.statistics.get("attempt_number"))
            except httpx.HTTPError as error:
                notebook.end(url, error=error, tries=tries.statistics.get("attempt_number"))

    async def crawl() -> None:
        waiting = _queue(todo)
        async with httpx.AsyncClient(
            proxy=notebook.proxy,
            trust_env=False,
            timeout=scenario.timeout * scale,
            limits=httpx.Limits(max_connections=None),
        ) as client:
            await asyncio.gather(*(work(client, waiting) for _ in range(scenario.parallel)))

    asyncio.run(crawl())


def _queue(todo: Sequence[str]) -> asyncio.Queue[str]:
    waiting: asyncio.Queue[str] = asyncio.Queue()
    for url in todo:
        waiting.put_nowait(url)
    return waiting
