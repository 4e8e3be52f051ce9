"""A shop that breaks down for a while, and a crawler that knows nothing of it: to see what the proxy does.

    python -m proxy_addon.demo                        the crawl alone
    paceproxy run -- python -m proxy_addon.demo       the same crawl through the proxy

The shop is a server of this process on loopback, the crawler asks it as the environment says. The proxy uses nothing of
this.
"""

import itertools
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import click

from proxy_addon.clock import SystemClock

_PARALLEL = 5
_PAGE_S = 0.2
_PATIENCE_S = 660.0
"""How long the crawler waits for a page: longer than the proxy tries."""

_clock = SystemClock()


class Shop(ThreadingHTTPServer):
    """Serves `/page/N`; after `good_pages` of them 503 to all who ask, for `outage_s`; then it is well again."""

    daemon_threads = True

    def __init__(self, good_pages: int, outage_s: float) -> None:
        super().__init__(("127.0.0.1", 0), _Page)
        self._good_pages = good_pages
        self._outage_s = outage_s
        self._asked = itertools.count(1)
        self._broke_down: float | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def is_down(self, now: float) -> bool:
        """Asked once for each request. `now`: monotonic seconds."""
        if next(self._asked) > self._good_pages and self._broke_down is None:
            self._broke_down = now
        return self._broke_down is not None and now < self._broke_down + self._outage_s


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        shop = self.server
        assert isinstance(shop, Shop)
        if shop.is_down(_clock.monotonic()):
            self.send_error(503)
            return
        threading.Event().wait(_PAGE_S)
        text = f"This is {self.path}.\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: the crawler tells what came."""


def crawl(url: str, pages: int) -> Counter[str]:
    """Ask for every page once, several at a time; how many came to what."""

    def get(number: int) -> str:
        try:
            with urllib.request.urlopen(f"{url}/page/{number}", timeout=_PATIENCE_S) as response:
                response.read()
                return "got"
        except urllib.error.HTTPError as error:
            error.close()
            return f"answered {error.code}"
        except OSError as error:
            return f"lost ({error})"

    with ThreadPoolExecutor(_PARALLEL) as threads:
        found: Counter[str] = Counter()
        for result in threads.map(get, range(1, pages + 1)):
            found[result] += 1
            if sys.stderr.isatty() or found.total() % 20 == 0:
                click.echo(f"{found['got']} of {pages} pages", err=True)
        return found


@click.command()
@click.option("--pages", default=100, show_default=True, help="How many are asked for.")
@click.option("--outage", "outage_s", default=20.0, show_default=True, help="For how many seconds the shop is down.")
def main(pages: int, outage_s: float) -> None:
    """Crawl a shop on this machine that is down for a while after a third of its pages."""
    shop = Shop(pages // 3, outage_s)
    threading.Thread(target=shop.serve_forever, daemon=True).start()
    began = _clock.monotonic()
    found = crawl(shop.url, pages)
    shop.shutdown()
    others = "".join(f", {count} {what}" for what, count in sorted(found.items()) if what != "got")
    click.echo(f"{found['got']} of {pages} pages in {_clock.monotonic() - began:.0f} s{others}")


if __name__ == "__main__":
    main()
