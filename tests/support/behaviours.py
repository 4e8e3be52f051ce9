"""What a scripted origin can do with a request: small values for a script, to be combined with `chain`.

Each is a frozen dataclass with one method, `act`; a new one needs nothing else. How requests are read and
recorded does not belong here (`tests.support.origin`).
"""

import asyncio
import base64
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import ClassVar, Literal

from tests.support.visit import Behaviour, Visit

type Fields = Iterable[tuple[str, str]]
type Framing = Literal["length", "chunked", "close"]

_WEBSOCKET_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 §1.3


@dataclass(frozen=True, slots=True)
class Respond:
    """A complete response. `close`: the connection ends after it, and the response says so."""

    status: int = 200
    body: bytes = b"ok"
    fields: tuple[tuple[str, str], ...] = ()
    framing: Framing = "length"
    trailers: tuple[tuple[str, str], ...] = ()
    close: bool = False
    reads_body: ClassVar[bool] = True

    async def act(self, visit: Visit) -> None:
        ends = self.close or self.framing == "close" or not visit.persistent
        bodiless = visit.request.method == "HEAD" or self.status in (204, 304)
        lines = [*self.fields, *([("Connection", "close")] if ends else [])]
        if self.framing == "chunked":
            lines.append(("Transfer-Encoding", "chunked"))
        elif self.framing == "length" and self.status not in (204, 304):
            lines.append(("Content-Length", str(len(self.body))))
        data = response_head(self.status, lines)
        if not bodiless:
            data += _chunked(self.body, self.trailers) if self.framing == "chunked" else self.body
        await visit.send(data)
        if ends:
            visit.close()


@dataclass(frozen=True, slots=True)
class Raw:
    """These bytes, whatever they are."""

    data: bytes
    reads_body: ClassVar[bool] = True

    async def act(self, visit: Visit) -> None:
        await visit.send(self.data)


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing for this long; then, in a chain, the next behaviour."""

    seconds: float
    reads_body: ClassVar[bool] = True

    async def act(self, visit: Visit) -> None:
        await asyncio.sleep(self.seconds)


@dataclass(slots=True)
class Gate:
    """Nothing, until a test opens it; then, in a chain, the next behaviour. One for any number of requests."""

    opened: bool = False
    reads_body: ClassVar[bool] = True

    async def act(self, visit: Visit) -> None:
        while not self.opened:  # noqa: ASYNC110  It is opened in another thread, which an Event is not made for.
            await asyncio.sleep(0.005)


@dataclass(frozen=True, slots=True)
class Silent:
    """Nothing, until the client closes the connection. `reads_body` False: not even the body is read."""

    reads_body: bool = True

    async def act(self, visit: Visit) -> None:
        if self.reads_body:
            await visit.until_gone()
        else:
            # Reading is what notices a client's departure: without it only the end of the origin ends this.
            await asyncio.Event().wait()
        visit.close()


@dataclass(frozen=True, slots=True)
class Close:
    """FIN."""

    reads_body: bool = True

    async def act(self, visit: Visit) -> None:
        visit.close()


@dataclass(frozen=True, slots=True)
class Reset:
    """RST."""

    reads_body: bool = True

    async def act(self, visit: Visit) -> None:
        visit.reset()


@dataclass(frozen=True, slots=True)
class HalfClose:
    """FIN, and then what still comes is read and dropped until the client has closed its side too. Not over TLS."""

    reads_body: bool = True

    async def act(self, visit: Visit) -> None:
        visit.half_close()
        await visit.until_gone()
        visit.close()


@dataclass(frozen=True, slots=True)
class CloseWithoutNotice:
    """FIN, over TLS without a close_notify before it."""

    reads_body: bool = True

    async def act(self, visit: Visit) -> None:
        visit.close_without_notice()
        await visit.until_gone()


@dataclass(frozen=True, slots=True)
class Hear:
    """Take this many bytes of what the client sends, and of a body no more than that."""

    size: int
    reads_body: ClassVar[bool] = False

    async def act(self, visit: Visit) -> None:
        await visit.reader.readexactly(self.size)


@dataclass(frozen=True, slots=True)
class Drip:
    """A response whose body comes in pieces with a pause before each.

    `length` is what Content-Length says, None for a chunked body; more than the pieces have, and the body is
    cut short.
    """

    pieces: tuple[bytes, ...]
    pause_s: float
    length: int | None = None
    status: int = 200
    fields: tuple[tuple[str, str], ...] = ()
    reads_body: ClassVar[bool] = True

    async def act(self, visit: Visit) -> None:
        framing = ("Transfer-Encoding", "chunked") if self.length is None else ("Content-Length", str(self.length))
        await visit.send(response_head(self.status, [*self.fields, framing]))
        for piece in self.pieces:
            await asyncio.sleep(self.pause_s)
            await visit.send(piece if self.length is not None else _chunk(piece))
        if self.length is None:
            await visit.send(b"0\r\n\r\n")
        elif sum(map(len, self.pieces)) < self.length:
            visit.close()


@dataclass(frozen=True, slots=True)
class WebSocketEcho:
    """A WebSocket that sends every text message back with `echo:` before it, and closes when asked to."""

    reads_body: ClassVar[bool] = True

    async def act(self, visit: Visit) -> None:
        key = visit.request.values("Sec-WebSocket-Key")[0].encode()
        accept = base64.b64encode(hashlib.sha1(key + _WEBSOCKET_GUID).digest()).decode()
        await visit.send(
            response_head(
                101,
                [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept)],
            )
        )
        while True:
            opcode, message = await _read_frame(visit)
            if opcode == 8:
                await visit.send(b"\x88" + bytes([len(message)]) + message)
                visit.close()
                return
            if opcode == 1:
                echo = b"echo:" + message
                assert len(echo) < 126, "this echo knows short messages only"
                await visit.send(bytes([0x81, len(echo)]) + echo)


@dataclass(frozen=True, slots=True)
class Tunnel:
    """A parent proxy's CONNECT: dial the target, answer 200, and pass bytes both ways."""

    reads_body: ClassVar[bool] = True

    async def act(self, visit: Visit) -> None:
        host, _, port = visit.request.target.rpartition(":")
        reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        try:
            await visit.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
            there = asyncio.ensure_future(_copy(visit.reader, writer))
            try:
                while data := await reader.read(65536):
                    await visit.send(data)
            finally:
                there.cancel()
        finally:
            writer.close()
            visit.close()


@dataclass(frozen=True, slots=True)
class Chain:
    """One behaviour after the other."""

    steps: tuple[Behaviour, ...]

    @property
    def reads_body(self) -> bool:
        return self.steps[0].reads_body

    async def act(self, visit: Visit) -> None:
        for step in self.steps:
            await step.act(visit)
            if not visit.open:
                return


def respond(
    status: int = 200,
    body: bytes = b"ok",
    fields: Fields = (),
    *,
    chunked: bool = False,
    until_close: bool = False,
    trailers: Fields = (),
    close: bool = False,
) -> Respond:
    """A complete response; its body delimited by its length, by chunks, or by the end of the connection."""
    framing: Framing = "chunked" if chunked else "close" if until_close else "length"
    return Respond(status, body, tuple(fields), framing, tuple(trailers), close)


def chain(*steps: Behaviour) -> Chain:
    return Chain(steps)


def silent() -> Silent:
    return Silent()


def close() -> Close:
    return Close()


def reset() -> Reset:
    return Reset()


def late(seconds: float, behaviour: Behaviour) -> Chain:
    """A behaviour, this long after the request."""
    return Chain((Pause(seconds), behaviour))


def garbage() -> Chain:
    """Bytes that are no HTTP, then FIN."""
    return Chain((Raw(b"NOT HTTP AT ALL\r\n\r\n"), Close()))


def partial_head() -> Chain:
    """The beginning of a head, then FIN."""
    return Chain((Raw(b"HTTP/1.1 200 OK\r\nContent-Le"), Close()))


def truncated(body: bytes = b"abc", length: int = 1000) -> Drip:
    """A body that ends before its length says so, with FIN."""
    return Drip((body,), 0, length=length)


def informational(status: int = 103, fields: Fields = ()) -> Raw:
    """A 1xx; to be chained before the final response."""
    return Raw(response_head(status, fields))


def response_head(status: int, fields: Fields = ()) -> bytes:
    """A raw response head with the empty line that ends it."""
    try:
        reason = HTTPStatus(status).phrase
    except ValueError:
        reason = "Unnamed"
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
    return f"HTTP/1.1 {status} {reason}\r\n{lines}\r\n".encode("latin-1")


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _chunked(body: bytes, trailers: Fields) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in trailers)
    return (_chunk(body) if body else b"") + b"0\r\n" + lines.encode("latin-1") + b"\r\n"


async def _read_frame(visit: Visit) -> tuple[int, bytes]:
    """A client's (masked, short) WebSocket frame: its opcode and payload."""
    first, second = await visit.reader.readexactly(2)
    length = second & 0x7F
    assert length < 126, "this echo knows short messages only"
    mask = await visit.reader.readexactly(4)
    payload = await visit.reader.readexactly(length)
    return first & 0x0F, bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        sink.write(data)
        await sink.drain()
    sink.close()
