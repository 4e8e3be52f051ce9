"""One request at a scripted origin, as a behaviour sees it, and what a behaviour is.

Raw sockets and bytes only. Which behaviour a request gets is decided in `tests.support.origin`; what they do,
in `tests.support.behaviours`.
"""

import asyncio
import socket
from dataclasses import dataclass
from typing import Protocol

from tests.support.heads import field_values, path_of, request_line


@dataclass(slots=True, eq=False)
class Request:
    """One request as it arrived. `body` is filled in once it has been read."""

    at: float
    """`time.monotonic()` when its first byte was there."""
    connection: int
    """The number of its connection, from 1."""
    secure: bool
    """It came over TLS."""
    head: bytes
    """The raw head, with the empty line that ends it."""
    body: bytes = b""
    """Without chunk framing."""
    whole: bool = False
    """The body was read to its end."""
    done_at: float | None = None
    """When the origin was done with it: had answered, or had seen the client leave. Times as in `at`."""

    @property
    def method(self) -> str:
        return request_line(self.head)[0]

    @property
    def target(self) -> str:
        """The request target as it came: `/path`, `http://host/path` or `host:port`."""
        return request_line(self.head)[1]

    @property
    def path(self) -> str:
        """Path and query of the target."""
        return path_of(self.target)

    def values(self, name: str) -> list[str]:
        """Every value of a header field, in order; the name in any case."""
        return field_values(self.head, name)


class Visit:
    """One request's connection, as a behaviour sees it."""

    def __init__(
        self,
        request: Request,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        persistent: bool,
    ) -> None:
        self.request = request
        self.persistent = persistent
        """The connection may serve another request after this one."""
        self.reader = reader
        self._writer = writer

    @property
    def open(self) -> bool:
        return not self._writer.is_closing()

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def read_body(self) -> None:
        """Read the body into `request.body`, asking for it first where the client waits for a 100."""
        if self.request.whole:
            return
        if "100-continue" in (value.lower() for value in self.request.values("Expect")):
            await self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        if "chunked" in self.request.values("Transfer-Encoding"):
            self.request.body = await _read_chunks(self.reader)
        else:
            lengths = self.request.values("Content-Length")
            self.request.body = await self.reader.readexactly(int(lengths[0]) if lengths else 0)
        self.request.whole = True

    async def until_gone(self) -> None:
        """Wait until the client has closed the connection, reading and dropping what it sends."""
        while await self.reader.read(65536):
            pass

    def close(self) -> None:
        """End the connection with FIN (over TLS: close_notify)."""
        self._writer.close()

    def half_close(self) -> None:
        """FIN, and go on reading."""
        self._writer.write_eof()

    def close_without_notice(self) -> None:
        """End the connection with FIN, over TLS without the close_notify that belongs to it."""
        self._writer.get_extra_info("socket").shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """End the connection with RST."""
        connection = self._writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self._writer.transport.abort()


class Behaviour(Protocol):
    """What the origin does with one request."""

    @property
    def reads_body(self) -> bool:
        """The origin reads the whole body first."""

    async def act(self, visit: Visit) -> None:
        """Do it. To return with the connection open is to be ready for the next request on it."""


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        body += (await reader.readexactly(size + 2))[:-2]
    while (await reader.readuntil(b"\r\n")) != b"\r\n":  # trailers
        pass
    return body
