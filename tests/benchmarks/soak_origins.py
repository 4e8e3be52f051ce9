"""Origins for the soak: `soak_origins.py PER_CENT`. So many of their replies are faulty, in one of many ways.

One without TLS and one with, on all of 127.0.0.0/8: the crowd asks for many hosts. It prints both ports, and ends when
its standard input does.
"""

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.behaviours import (
    Drip,
    chain,
    close,
    garbage,
    informational,
    partial_head,
    reset,
    respond,
    silent,
    truncated,
)
from tests.support.origin import Origin
from tests.support.visit import Behaviour, Request

_PAGES: tuple[Behaviour, ...] = (
    respond(200, b"x" * 1024),
    respond(200, b"x" * 1024),
    respond(200, b"x" * 20_000, chunked=True),
    respond(200, b"x" * 400_000),
    respond(200, b"x" * 1024, until_close=True),
    respond(304),
    respond(404, b"no such page"),
)
_FAULTS: tuple[Behaviour, ...] = (
    silent(),
    close(),
    reset(),
    garbage(),
    partial_head(),
    truncated(b"x" * 100, 1000),
    truncated(b"x" * 300_000, 400_000),
    Drip((b"x" * 100,) * 3, 0.3),
    respond(500, b"a fault"),
    respond(503, b"busy"),
    respond(503, b"x" * 100_000),
    respond(429, b"slowly", fields=[("Retry-After", "1")]),
    respond(503, b"busy", fields=[("Retry-After", "soon")]),
    respond(200, b"fine", chunked=True, trailers=[("X-Sum", "1")]),
    chain(informational(103), respond(200, b"fine")),
    chain(respond(200, b"fine"), close()),
)


def main() -> None:
    share = float(sys.argv[1]) / 100
    dice = random.Random(1)

    def choose(request: Request) -> Behaviour:
        return dice.choice(_FAULTS if dice.random() < share else _PAGES)

    with Origin(choose, address="0.0.0.0") as plain, Origin(choose, address="0.0.0.0", tls=True) as secure:
        sys.stdout.write(f"{plain.port} {secure.port}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
