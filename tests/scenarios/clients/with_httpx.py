"""Print pages: `with_httpx.py URL…`."""

import sys

import httpx

for url in sys.argv[1:]:
    sys.stdout.write(httpx.get(url, timeout=60).text)
