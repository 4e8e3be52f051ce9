"""An origin that costs as little as possible: one kilobyte for every GET, connections kept open.

    healthy_origin.py [SECONDS]

With SECONDS, the first request ever gets a 429 with this Retry-After. It prints its URL, and ends when its
standard input does.
"""

import asyncio
import sys

_RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1024\r\n\r\n" + b"x" * 1024
_LIMITED = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: {}\r\nContent-Length: 0\r\n\r\n"


class Connection(asyncio.Protocol):
    def __init__(self, first_responses: list[bytes]) -> None:
        self._first_responses = first_responses
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        count = self._received.count(b"\r\n\r\n")
        if not count:
            return
        self._received = self._received.rpartition(b"\r\n\r\n")[2]
        if self._first_responses:
            self._transport.write(self._first_responses.pop())
            count -= 1
        self._transport.write(_RESPONSE * count)


async def main(block_s: list[str]) -> None:
    loop = asyncio.get_running_loop()
    first_responses = [_LIMITED.format(seconds).encode() for seconds in block_s]
    server = await loop.create_server(lambda: Connection(first_responses), "127.0.0.1", 0, backlog=4096)
    sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
