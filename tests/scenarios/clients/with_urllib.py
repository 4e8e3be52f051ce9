"""Print pages: `with_urllib.py URL…`."""

import sys
import urllib.request

for url in sys.argv[1:]:
    with urllib.request.urlopen(url, timeout=60) as response:
        sys.stdout.write(response.read().decode())
