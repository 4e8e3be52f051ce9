"""The status page of the real proxy, in a real Chromium: hosts that are really slow, and an operator at the keyboard.

The hosts have names of their own, which a scripted parent proxy answers for. How the page draws what it is told is in
`tests/test_status_page.py`.
"""

import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.support.behaviours import Gate, chain, respond
from tests.support.browser import Chromium, chromium
from tests.support.clients import RawClient
from tests.support.origin import Origin
from tests.support.proxy import Paceproxy
from tests.support.visit import Behaviour, Request

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "status-page.png"
FLAGS = ("--climb", "stall", "--pause-after", "0", "--in-flight", "off")
HELD_FOR_LONG = ("--ladder", "0,60,90,120")
"""What climbs stays where it is for as long as a test takes."""


class SlowHosts:
    """A parent proxy behind which every host is well, until the test lets it stall."""

    def __init__(self) -> None:
        self.origin = Origin(self._behave)
        self._stalls = Gate()

    def stall(self, proxy: Paceproxy, host: str, times: int = 1) -> None:
        """So many requests that are not asked for again fail at once: the host climbs as many rungs."""
        self._stalls.opened = False
        before = self.origin.hits("/stall")
        with ExitStack() as stack:
            clients = [stack.enter_context(RawClient(proxy.port)) for _ in range(times)]
            for client in clients:
                head = f"POST http://{host}/stall HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n"
                client.send(head.encode())
            self.origin.wait_for(lambda origin: origin.hits("/stall") == before + times)
            self._stalls.opened = True
            assert [client.answer().status for client in clients] == [503] * times

    def wait(self, proxy: Paceproxy, stack: ExitStack, host: str, number: int) -> list[RawClient]:
        """So many clients that wait in the host's line."""
        clients = [stack.enter_context(RawClient(proxy.port)) for _ in range(number)]
        for client in clients:
            client.get(f"http://{host}/page")
        proxy.wait_for_metric("paceproxy_host_waiting", number, host=host)
        return clients

    def save(self, proxy: Paceproxy, host: str, path: str) -> None:
        """A page that fails once."""
        with RawClient(proxy.port) as client:
            client.get(f"http://{host}/once{path}")
            assert client.answer().status == 200

    def serve(self, proxy: Paceproxy, host: str, number: int = 1) -> None:
        """So many pages, at once."""
        for _ in range(number):
            with RawClient(proxy.port) as client:
                client.get(f"http://{host}/page")
                assert client.answer().status == 200

    def _behave(self, request: Request) -> Behaviour:
        if request.path == "/stall":
            return chain(self._stalls, respond(503))
        return respond(503) if request.path.startswith("/once") and self.origin.hits(request.path) == 1 else respond()


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def hosts() -> Iterator[SlowHosts]:
    slow = SlowHosts()
    with slow.origin:
        yield slow


@pytest.fixture(scope="module")
def proxy(hosts: SlowHosts, confdir: Path) -> Iterator[Paceproxy]:
    with Paceproxy(*FLAGS, *HELD_FOR_LONG, "--upstream", hosts.origin.url(""), confdir=confdir) as running:
        yield running


def address(proxy: Paceproxy) -> str:
    return f"http://127.0.0.1:{proxy.admin_port}/"


def show(page: Page, proxy: Paceproxy) -> None:
    page.goto(address(proxy))
    expect(page.locator("#connection")).to_have_text("Live")


def card(page: Page, host: str) -> Locator:
    return page.locator(".host", has=page.get_by_text(host, exact=True))


def tab_to(page: Page, name: str) -> None:
    """Press Tab until the control of this accessible name has the focus."""
    wanted = page.get_by_role("button", name=name, exact=True)
    for _ in range(30):
        page.keyboard.press("Tab")
        if wanted.evaluate("node => node === document.activeElement"):
            return
    raise AssertionError(f"30 times Tab did not lead to {name!r}")


def test_the_page_shows_a_host_that_stalls_and_its_operator_needs_no_mouse(
    browser: Chromium, proxy: Paceproxy, hosts: SlowHosts
) -> None:
    with ExitStack() as stack, browser.page() as page:
        show(page, proxy)
        hosts.stall(proxy, "shop.example", 2)
        waiting = hosts.wait(proxy, stack, "shop.example", 3)
        shop = card(page, "shop.example")
        expect(shop.locator(".waiting")).to_have_text("3 waiting")
        expect(shop.locator(".reason")).to_have_text(re.compile("^It answered with a server error (just now|.* ago)$"))
        expect(shop.locator(".next")).to_have_text(re.compile(r"^next in \d+\ss$"))
        expect(page.locator(".rung", has=shop).locator(".pace")).to_have_text("90 s, 1 host")
        expect(page.get_by_role("heading", level=1)).to_have_text("1 host is being paced; 3 requests wait.")
        expect(page.locator("#because")).to_have_text(
            re.compile(r"^shop\.example is asked once every 90\ss since it answered .*; next request in \d+\ss\.$")
        )

        tab_to(page, "Change shop.example")
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog", name="shop.example")
        expect(dialog).to_be_visible()
        tab_to(page, "Pause")
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("ControlOrMeta+a")
        page.keyboard.type("480")
        page.keyboard.press("Enter")
        expect(dialog.get_by_role("status")).to_have_text(
            re.compile(r"^shop\.example is paused until \d\d:\d\d:\d\d\.$")
        )
        expect(shop.locator(".tags")).to_have_text(re.compile(r"^paused until \d\d:\d\d:\d\d$"))
        browser.keep(page, "paused")
        page.keyboard.press("Escape")
        expect(page.get_by_role("button", name="Change shop.example")).to_be_focused()

        page.keyboard.press("Enter")
        tab_to(page, "Resume")
        page.keyboard.press("Enter")
        expect(dialog.get_by_role("status")).to_have_text("shop.example is resumed: its requests go out again.")
        assert [client.answer().status for client in waiting] == [200, 200, 200]
        expect(shop).to_have_count(0)
        page.keyboard.press("Escape")
        # Its button has gone with it.
        expect(page.locator("#ladder-title")).to_be_focused()
        expect(page.get_by_role("heading", level=1)).to_have_text("Nothing is slow.")
        expect(page.locator("#served")).to_have_text("3")
        expect(page.locator("#failed")).to_have_text("2")


def test_a_host_that_is_well_can_be_looked_up_and_given_a_floor(
    browser: Chromium, proxy: Paceproxy, hosts: SlowHosts
) -> None:
    with browser.page() as page:
        hosts.serve(proxy, "well.example")
        show(page, proxy)
        page.get_by_label("Find a host").fill("nobody.example")
        page.get_by_label("Find a host").press("Enter")
        expect(page.locator("#found")).to_contain_text("nobody.example")
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.get_by_label("Find a host").fill("Well.example")
        page.get_by_label("Find a host").press("Enter")
        dialog = page.get_by_role("dialog", name="well.example")
        dialog.get_by_label("At least").fill("1e9")
        dialog.get_by_role("button", name="Set floor").click()
        expect(dialog.get_by_role("alert")).to_contain_text("1000000000")
        browser.keep(page, "refused")
        dialog.get_by_label("At least").fill("7.5")
        dialog.get_by_role("button", name="Set floor").click()
        said = dialog.get_by_role("status")
        expect(said).to_have_text("well.example is asked at most once every 7.5 s from now on.")
        expect(page.locator("#operator-error")).to_have_text("")
        expect(card(page, "well.example").locator(".tags")).to_have_text("floor 7.5 s")
        dialog.get_by_label("At least").fill("0")
        dialog.get_by_role("button", name="Set floor").click()
        expect(said).to_have_text("well.example has no floor any more.")
        expect(card(page, "well.example")).to_have_count(0)


def test_the_page_asks_for_the_token_once_and_comes_back_after_a_restart(
    browser: Chromium, hosts: SlowHosts, confdir: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "token"
    secret.write_text("a-token-that-is-long-enough-for-anybody\n")
    secret.chmod(0o600)
    flags = (*FLAGS, *HELD_FOR_LONG, "--upstream", hosts.origin.url(""), "--admin-token-file", str(secret))
    with ExitStack() as stack:
        page = stack.enter_context(browser.page())
        with Paceproxy(*flags, confdir=confdir) as first:
            hosts.stall(first, "shop.example")
            show(page, first)
            page.get_by_role("button", name="Change shop.example").click()
            dialog = page.get_by_role("dialog")
            dialog.get_by_role("button", name="Pause").click()
            token = dialog.get_by_label("Token")
            expect(token).to_be_focused()
            token.fill("wrong")
            token.press("Enter")
            expect(dialog.get_by_role("alert")).not_to_have_text("")
            expect(token).to_have_value("")
            browser.keep(page, "token")
            token.fill("a-token-that-is-long-enough-for-anybody")
            token.press("Enter")
            expect(dialog.get_by_role("status")).to_contain_text("shop.example is paused until")
            expect(token).to_be_hidden()
            dialog.get_by_role("button", name="Resume").click()
            expect(dialog.get_by_role("status")).to_contain_text("shop.example is resumed")
            kept = "[localStorage.length, sessionStorage.length, document.cookie]"
            assert page.evaluate(kept) == [0, 0, ""]
            page.keyboard.press("Escape")
            admin = f"127.0.0.1:{first.admin_port}"
            first.kill()
            expect(page.locator("#connection")).to_have_text("Connection lost")
            expect(page.locator("#lost")).to_contain_text("The connection to the proxy is lost. What you see is from")
            browser.keep(page, "lost")
        with Paceproxy(*flags, "--admin", admin, confdir=confdir):
            expect(page.locator("#connection")).to_have_text("Live", timeout=15_000)
            expect(page.locator("#lost")).to_be_hidden()


def test_nothing_is_asked_for_from_elsewhere(browser: Chromium, proxy: Paceproxy, hosts: SlowHosts) -> None:
    with browser.page() as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        show(page, proxy)
        base = address(proxy)
        assert {url.removeprefix(base) for url in asked if url != f"{base}icon.svg"} == {
            *("", "page.css", "page.js", "asking.js", "chart.js", "elements.js", "ladder.js", "operator.js"),
            *("words.js", "api/events"),
        }
        # All that the browser sent to anywhere but loopback, in all tests of this file, would have come here.
        assert {request.target for request in browser.trap.requests} == set()
        page.goto("http://elsewhere.example/")
        # Its icon may come next.
        assert browser.trap.requests[0].target == "http://elsewhere.example/"


@pytest.mark.skipif("PACEPROXY_PICTURE_S" not in os.environ, reason="makes the picture of the documentation anew")
def test_the_picture_of_the_documentation(browser: Chromium, hosts: SlowHosts, confdir: Path) -> None:
    lines = {"images.archive.example": (5, 34), "shop.example": (3, 12), "news.example": (1, 2)}
    with ExitStack() as stack, browser.page(viewport={"width": 1200, "height": 860}) as page:
        proxy = stack.enter_context(Paceproxy(*FLAGS, "--upstream", hosts.origin.url(""), confdir=confdir))
        # So many seconds of a crawl, for the chart.
        ready_at = time.monotonic() + float(os.environ["PACEPROXY_PICTURE_S"])
        number = 0
        while time.monotonic() < ready_at:
            number += 1
            hosts.serve(proxy, f"host-{number % 40}.example", 1 + number * number % 13)
            if number % 11 == 0:
                hosts.save(proxy, "slow.example", f"/{number}")
            time.sleep(0.3)
        for host, (rung, waiting) in lines.items():
            hosts.stall(proxy, host, rung)
            hosts.wait(proxy, stack, host, waiting)
        show(page, proxy)
        expect(page.locator(".host")).to_have_count(3)
        PICTURE.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=PICTURE, full_page=True)
