"""Crawl `URL/page/0` to `URL/page/N-1` with one curl, one page after the other: `with_curl.py URL N`.

The proxy and the CA come from the environment. Prints the same JSON object as `with_scrapy.py`.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path


def main() -> None:
    url, pages = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [
                *("curl", "-q", "-sS", "--fail", "--max-time", "120", "--output", f"{folder}/#1"),
                f"{url}/page/[0-{int(pages) - 1}]",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        found = {path.name: path.read_text() for path in Path(folder).iterdir()}
    errors = [] if done.returncode == 0 else [f"exit code {done.returncode}: {done.stderr}"]
    json.dump({"pages": found, "errors": errors}, sys.stdout)


if __name__ == "__main__":
    main()
