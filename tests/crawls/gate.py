"""The simplest proxy that helps, as a yardstick: at most so many requests in flight per host, nothing learnt.

    python -m tests.crawls.gate PORT [LIMIT]

A request keeps its place until the origin has answered, even if its client has left: the origin's worker is as busy as
before. One whose client left while it waited is never sent.
"""

import asyncio
import contextlib
import sys
from collections import defaultdict
from collections.abc import Sequence


class Gate:
    """A forward proxy for plain HTTP."""

    def __init__(self, limit: int) -> None:
        self._places: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(limit))

    async def serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError), contextlib.closing(writer):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                method, url, _ = head.split(" ", 2)
                _, _, host, path = url.split("/", 3)
                async with self._places[host]:
                    if reader.at_eof():
                        return
                    response = await _fetch(method, host, f"/{path}")
                writer.write(response)
                await writer.drain()


async def _fetch(method: str, host: str, path: str) -> bytes:
    name, _, port = host.partition(":")
    reader, writer = await asyncio.open_connection(name, int(port or 80))
    with contextlib.closing(writer):
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        return await reader.read()


async def _serve(port: int, limit: int) -> None:
    server = await asyncio.start_server(Gate(limit).serve_client, "127.0.0.1", port)
    await server.serve_forever()


def main(arguments: Sequence[str]) -> None:
    port, limit = [*map(int, arguments), 2][:2]
    asyncio.run(_serve(port, limit))


if __name__ == "__main__":
    main(sys.argv[1:])
