"""A real Chromium, headless, that can reach nothing but loopback: whatever it sends elsewhere arrives at a trap.

Debian's own program, driven by Playwright, which must not bring one along. What a page shows belongs to the tests.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.origin import Origin
from tests.support.programs import find

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
"""For people to look at; git ignores them."""

_QUIET = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-features=AutofillServerCommunication,NetworkTimeServiceQuerying,OptimizationHints,MediaRouter,Translate",
    "--disable-sync",
    "--no-first-run",
    "--no-pings",
    # Some of it cannot be switched off, only be sent to where nobody listens.
    "--component-updater=url-source=http://127.0.0.1:9/",
    "--gaia-url=http://127.0.0.1:9",
)
"""Against what a browser does by itself."""


@dataclass(frozen=True, slots=True)
class Chromium:
    """The running browser, and where its traffic to anything but loopback ends."""

    browser: Browser
    trap: Origin

    @contextmanager
    def page(self, **options: object) -> Iterator[Page]:
        """A page of a profile of its own. Errors in the page, and what it does against its policy, fail the test."""
        context = self.browser.new_context(**options)  # type: ignore[arg-type]
        try:
            page = context.new_page()
            page.set_default_timeout(10_000)
            complaints: list[str] = []
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("console", lambda said: complaints.append(said.text) if _is_complaint(said.text) else None)
            yield page
            assert complaints == []
        finally:
            context.close()

    def keep(self, page: Page, name: str) -> None:
        """Keep a picture of the whole page."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


@contextmanager
def chromium() -> Iterator[Chromium]:
    """Run it. Where there is none the test is skipped, but in CI it fails."""
    program = find("chromium", package="chromium")
    # Chromium refuses to run as root in its sandbox, and the page under test is our own.
    sandbox = () if os.geteuid() else ("--no-sandbox",)
    with Origin() as trap, sync_playwright() as playwright:
        elsewhere = f"--proxy-server=http://127.0.0.1:{trap.port}"
        browser = playwright.chromium.launch(executable_path=program, args=[*sandbox, *_QUIET, elsewhere])
        try:
            yield Chromium(browser, trap)
        finally:
            browser.close()


def _is_complaint(text: str) -> bool:
    # That an answer was a 4xx, or a connection refused, is what some tests are about, and not the page's fault.
    return not text.startswith("Failed to load resource")
