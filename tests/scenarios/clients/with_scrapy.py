"""Print pages: `with_scrapy.py URL…`."""

import sys

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response


class Pages(scrapy.Spider):
    name = "pages"
    start_urls = sys.argv[1:]

    def parse(self, response: Response) -> None:
        sys.stdout.write(response.text)


process = CrawlerProcess({"LOG_LEVEL": "ERROR", "TELNETCONSOLE_ENABLED": False, "RETRY_ENABLED": False})
process.crawl(Pages)
process.start()
