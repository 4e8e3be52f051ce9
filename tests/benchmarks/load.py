"""A closed loop of clients: `load.py PROXY_PORT ORIGIN_URL REQUESTS CLIENTS keep-alive|new`.

Each client sends its next request when it has the answer to the last. Prints one JSON list: the latency of every
request in seconds. Any answer but a 200 ends it with an error.
"""

import asyncio
import json
import sys
import time


async def client(port: int, url: str, requests: int, *, keep_alive: bool) -> list[float]:
    host = url.removeprefix("http://")
    ends = "" if keep_alive else "Connection: close\r\n"
    request = f"GET {url}/ HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\n{ends}\r\n".encode()
    latencies = []
    connection = None
    for _ in range(requests):
        began = time.perf_counter()
        if connection is None:
            connection = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = connection
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        await reader.readexactly(1024)
        if not keep_alive:
            writer.close()
            connection = None
        latencies.append(time.perf_counter() - began)
    if connection is not None:
        connection[1].close()
    return latencies


async def main() -> None:
    port, url, requests, clients, mode = sys.argv[1:]
    each = int(requests) // int(clients)
    parts = await asyncio.gather(
        *(client(int(port), url, each, keep_alive=mode == "keep-alive") for _ in range(int(clients)))
    )
    json.dump([latency for part in parts for latency in part], sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
