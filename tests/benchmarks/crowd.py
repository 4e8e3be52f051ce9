"""Many clients that all wait at once: `crowd.py PROXY_PORT ORIGIN_URL CLIENTS`.

Each sends one request on a connection of its own. Prints `sent` when all have sent, then, when all have their
answer, one JSON object: how often which status came, and how long it took from the first answer to the last.
"""

import asyncio
import json
import sys
import time
from collections import Counter

_CONNECTING_AT_ONCE = 100


async def main() -> None:
    port, url, count = sys.argv[1:]
    request = f"GET {url}/ HTTP/1.1\r\nHost: {url.removeprefix('http://')}\r\nConnection: close\r\n\r\n".encode()
    connecting = asyncio.Semaphore(_CONNECTING_AT_ONCE)
    sent = asyncio.Event()
    waiting = int(count)
    answered_at: list[float] = []

    async def client() -> str:
        nonlocal waiting
        async with connecting:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
            writer.write(request)
            await writer.drain()
        waiting -= 1
        if not waiting:
            sent.set()
        answer = await reader.read()
        answered_at.append(time.monotonic())
        writer.close()
        return answer[9:12].decode("latin-1")

    clients = [asyncio.create_task(client()) for _ in range(int(count))]
    await sent.wait()
    sys.stdout.write("sent\n")
    sys.stdout.flush()
    statuses = Counter(await asyncio.gather(*clients))
    json.dump({"statuses": statuses, "release_s": max(answered_at) - min(answered_at)}, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
