"""The origin: the hosts of a simulated site on real sockets, in scaled time, with a log of every request.

    python -m tests.crawls.shop --scenario shop-pool --log shop.jsonl --set workers=4

What a host does with a request is in `tests/simulation/origins.py`, which runs in virtual time as well; here are its
sockets and its clock. Scenario time begins when the first request arrives, so that an outage "from 30 s on" does not
depend on how long a client takes to start.
"""

import argparse
import asyncio
import math
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from email.utils import formatdate
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from proxy_addon.clock import Timer
from tests.crawls.records import write_lines
from tests.simulation.origins import Asked, Fields, Host, Site
from tests.simulation.scenarios import ALL, SEED, override

LISTENING = "shop listening at port "
"""The beginning of the line that says that all hosts listen, and where."""

_PORT_TRIES = 20
_BODY_BYTES = 2000


class ScaledClock:
    """A `proxy_addon.clock.Clock` whose seconds are simulated ones: `scale` real seconds each."""

    def __init__(self, scale: float) -> None:
        self._scale = scale

    def now(self) -> float:
        """Unix seconds are real ones: they are for dates that real clients read."""
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic() / self._scale

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        loop = asyncio.get_running_loop()
        return loop.call_later((when - self.monotonic()) * self._scale, callback)


class RealSite(Site):
    """A site whose clients take the seconds of HTTP for real ones."""

    def retry_after(self, *, as_date: bool) -> Fields:
        """Whole *real* seconds, as HTTP wants them, rounded up; a date is rounded up once more."""
        seconds = math.ceil(self.scenario.retry_after * self.scenario.scale)
        if not as_date:
            return (("Retry-After", str(seconds)),)
        return (("Retry-After", formatdate(math.ceil(self.clock.now()) + seconds, usegmt=True)),)


class Connection(asyncio.Protocol):
    """Just enough HTTP/1.1: GET and HEAD, keep-alive, one request at a time."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._unread = b""
        self._asked: Asked | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._unread += data
        self._serve_next()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._asked is not None:
            self._asked.leave()

    def _serve_next(self) -> None:
        if self._asked is not None or self._transport is None or b"\r\n\r\n" not in self._unread:
            return
        head, _, self._unread = self._unread.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        method, target, _ = lines[0].split(" ", 2)
        path = "/" + target.split("/", 3)[3] if "://" in target else target
        is_last = any(line.lower().replace(" ", "") == "connection:close" for line in lines)
        self._asked = self._host.ask(path, partial(self._answer, method, path, is_last))

    def _answer(self, method: str, path: str, is_last: bool, status: int, fields: Fields) -> None:
        self._asked = None
        assert self._transport is not None
        self._transport.write(_response(method, path, status, fields))
        if is_last:
            self._transport.close()
        else:
            self._serve_next()


def _response(method: str, path: str, status: int, more: Fields) -> bytes:
    body = f"<html><title>{path}</title>{status}</html>".encode().ljust(_BODY_BYTES)
    fields = {
        "Content-Type": "text/html",
        "Content-Length": str(len(body)),
        "Cache-Control": "no-store",
        "Date": formatdate(usegmt=True),
        **dict(more),
    }
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in fields.items())]
    head = "\r\n".join([*lines, "", ""]).encode()
    return head if method == "HEAD" else head + body


async def serve(site: Site) -> None:
    """Listen, say where, and serve until SIGTERM. Raises what a handler raised."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def end(error: BaseException | None = None) -> None:
        if over.done():
            return
        if error is None:
            over.set_result(None)
        else:
            over.set_exception(error)

    def fail(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        end(context.get("exception") or RuntimeError(context["message"]))

    loop.set_exception_handler(fail)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    port = await _listen(site.hosts)
    sys.stdout.write(f"{LISTENING}{port}\n")
    sys.stdout.flush()
    await over


async def _listen(hosts: Mapping[str, Host]) -> int:
    """Let all hosts listen at one port, which the system chooses for the first of them."""
    loop = asyncio.get_running_loop()
    for tries_left in reversed(range(_PORT_TRIES)):
        servers: list[asyncio.Server] = []
        port = 0
        try:
            for address, host in hosts.items():
                servers.append(await loop.create_server(partial(Connection, host), address, port, backlog=512))
                port = servers[0].sockets[0].getsockname()[1]
        except OSError:
            for server in servers:
                server.close()
            if not tries_left:
                raise
        else:
            break
    return port


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.crawls.shop", description="A simulated origin.")
    parser.add_argument("--scenario", choices=ALL, default="shop-pool")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="change the scenario")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--log", type=Path, default=Path("shop.jsonl"), metavar="FILE")
    given = parser.parse_args(arguments)
    scenario = override(ALL[given.scenario], given.set)
    site = RealSite(scenario, given.seed, ScaledClock(scenario.scale))
    try:
        asyncio.run(serve(site))
    finally:
        write_lines(given.log, site.log)


if __name__ == "__main__":
    main()
