"""Crawl `URL/page/0` to `URL/page/N-1` with Scrapy: `with_scrapy.py URL N`. The proxy comes from the environment.

Prints one JSON object: each page's text by its number, and the errors that the spider saw. Scrapy is told not to
retry and not to throttle: what arrives, the proxy made arrive.
"""

import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response
from twisted.python.failure import Failure

_SETTINGS = {
    "AUTOTHROTTLE_ENABLED": False,
    "CONCURRENT_REQUESTS": 8,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 8,
    "DOWNLOAD_DELAY": 0,
    "DOWNLOAD_TIMEOUT": 120,
    "HTTPERROR_ALLOW_ALL": True,
    "LOG_LEVEL": "ERROR",
    "RETRY_ENABLED": False,
    "ROBOTSTXT_OBEY": False,
    "TELNETCONSOLE_ENABLED": False,
}


class PageSpider(scrapy.Spider):
    name = "pages"

    def __init__(self, url: str, pages: int, found: dict[str, Any]) -> None:
        super().__init__()
        self.url = url
        self.pages = pages
        self.found = found

    async def start(self) -> AsyncIterator[scrapy.Request]:
        for number in range(self.pages):
            yield scrapy.Request(f"{self.url}/page/{number}", callback=self.parse, errback=self.fail)

    def parse(self, response: Response, **kwargs: Any) -> None:
        if response.status == 200:
            self.found["pages"][response.url.rsplit("/", 1)[1]] = response.body.decode()
        else:
            self.found["errors"].append(f"{response.status} {response.url}")

    def fail(self, failure: Failure) -> None:
        self.found["errors"].append(repr(failure.value))


def main() -> None:
    url, pages = sys.argv[1:]
    found: dict[str, Any] = {"pages": {}, "errors": []}
    process = CrawlerProcess(_SETTINGS)
    process.crawl(PageSpider, url=url, pages=int(pages), found=found)
    process.start()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
