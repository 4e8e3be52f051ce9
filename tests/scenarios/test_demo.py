"""The crawl that is brought along, alone and through the proxy."""

import os
import subprocess
import sys

DEMO = [sys.executable, "-m", "proxy_addon.demo", "--pages=30", "--outage=1"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}


def test_alone_it_loses_what_it_asks_for_in_the_outage() -> None:
    done = subprocess.run(DEMO, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("10 of 30 pages in ")
    assert done.stdout.endswith(" s, 20 answered 503\n")


def test_through_the_proxy_it_gets_all() -> None:
    command = [sys.executable, "-m", "proxy_addon", "--store=memory:", "--ladder=0,0.5,1", "run", "--", *DEMO]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("30 of 30 pages in ")
    assert "would have failed without it" in done.stderr
