"""Print pages: `with_requests.py URL…`."""

import sys

import requests

for url in sys.argv[1:]:
    sys.stdout.write(requests.get(url, timeout=60).text)
