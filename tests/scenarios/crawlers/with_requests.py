"""Crawl `URL/page/0` to `URL/page/N-1` with requests, in four threads: `with_requests.py URL N`.

The proxy and the CA come from the environment. Prints the same JSON object as `with_scrapy.py`.
"""

import json
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import requests

_THREADS = 4


def crawl(url: str, numbers: Iterable[int]) -> dict[str, Any]:
    """Fetch these pages one after the other in one session."""
    found: dict[str, Any] = {"pages": {}, "errors": []}
    with requests.Session() as session:
        for number in numbers:
            try:
                response = session.get(f"{url}/page/{number}", timeout=120)
                response.raise_for_status()
            except requests.RequestException as error:
                found["errors"].append(repr(error))
            else:
                found["pages"][str(number)] = response.text
    return found


def main() -> None:
    url, pages = sys.argv[1:]
    with ThreadPoolExecutor(_THREADS) as threads:
        parts = list(threads.map(lambda first: crawl(url, range(first, int(pages), _THREADS)), range(_THREADS)))
    pages_found = {number: text for part in parts for number, text in part["pages"].items()}
    json.dump({"pages": pages_found, "errors": [e for part in parts for e in part["errors"]]}, sys.stdout)


if __name__ == "__main__":
    main()
