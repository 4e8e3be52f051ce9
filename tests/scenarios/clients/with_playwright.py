"""Print pages, as Chromium shows them: `with_playwright.py CHROMIUM URL…`.

The proxy is taken from the environment. The authority is not: it is for this browser alone that certificates are not
looked at, since the proxy does that.
"""

import sys

from playwright.sync_api import sync_playwright

_QUIET = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]

with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=sys.argv[1], args=_QUIET)
    page = browser.new_page(ignore_https_errors=True)
    for url in sys.argv[2:]:
        page.goto(url)
        sys.stdout.write(page.inner_text("body"))
    browser.close()
