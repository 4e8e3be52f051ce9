"""The clients of the fuzz run: threads that ask as the plan says, and read what comes with h11 and h2, strictly.

An answer is judged elsewhere (`judge.py`); here it is only found out whether it is one.
"""

import contextlib
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import h2.exceptions
import h11

from tests.fuzz.origin import body_of
from tests.fuzz.plan import Ask, Client, Leaving, Protocol
from tests.support.clients import RawClient
from tests.support.h2_client import H2Client

GUARD_S = 15.0
"""Far beyond the longest that a request can take: a client that waits for so long has been forgotten."""
_SLOW_S = 0.02
"""Between the pieces of a slow client: far below every time-out."""
_H2_BODY_LIMIT_BYTES = 16_000
"""One frame, and the bodies of three streams fit the connection's initial window."""


class End(StrEnum):
    """What came of a request."""

    ANSWERED = "answered"
    CUT = "cut"
    """There was a head, and then the connection or stream broke off."""
    CLOSED = "closed"
    """The connection or stream ended without a head."""
    LEFT = "left"
    """The client did not wait for it."""
    FAULTY = "faulty"
    """What came is not HTTP, or nothing came at all."""


@dataclass(slots=True, eq=False)
class Got:
    """What a client got for one request."""

    number: int
    ask: Ask
    client: Client
    sent_at: float
    """Monotonic, as all times."""
    end: End = End.CLOSED
    status: int = 0
    fields: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    note: str = ""
    was_reset: bool = False
    """The connection ended with RST, or the stream with RST_STREAM."""
    excused: bool = False
    """The connection had been said to end before this request was answered."""

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.fields if key.lower() == name]


@dataclass(frozen=True, slots=True)
class Where:
    """Where a round's clients ask."""

    proxy_port: int
    ca: Path
    plain: str
    """`host:port` of the origin without TLS, and of the one with it."""
    secure: str


def ask_all(clients: Sequence[Client], first_number: int, where: Where) -> list[Got]:
    """All clients at once; what they got, in the order of the requests' numbers."""
    start = threading.Barrier(len(clients))
    with ThreadPoolExecutor(len(clients)) as pool:
        futures = []
        number = first_number
        for client in clients:
            futures.append(pool.submit(_run, client, number, where, start))
            number += len(client.asks)
        return [got for future in futures for got in future.result()]


def _run(client: Client, first_number: int, where: Where, start: threading.Barrier) -> list[Got]:
    start.wait(GUARD_S)
    numbered = list(enumerate(client.asks, first_number))
    if client.protocol is Protocol.HTTP_2:
        return _over_http2(client, numbered, where)
    done: list[Got] = []
    while len(done) < len(numbered):
        done += _over_http1(client, numbered[len(done) :], where)
    return done


# --- HTTP/1


def _over_http1(client: Client, numbered: list[tuple[int, Ask]], where: Where) -> list[Got]:
    """As many of the requests as one connection takes: at least one."""
    with RawClient(where.proxy_port, timeout=GUARD_S) as raw:
        if client.protocol is Protocol.TUNNEL:
            answer = raw.connect(where.secure)
            assert answer.status == 200, answer
            raw.start_tls(where.secure.rpartition(":")[0], where.ca)
        reader = _Reader(raw)
        if client.pipelined:
            return _pipelined(client, numbered, where, raw, reader)
        done = []
        for number, ask in numbered:
            last = number == numbered[-1][0]
            got = Got(number, ask, client, time.monotonic())
            done.append(got)
            data = _request(client, number, ask, where, last=last)
            if last and client.leaves is not None:
                _leave(client, got, raw, data)
                return done
            _send(client, raw, data)
            persistent = reader.read(got)
            if last and got.end is End.ANSWERED:
                reader.expect_end(got)
            if not persistent:
                return done
        return done


def _pipelined(
    client: Client, numbered: list[tuple[int, Ask]], where: Where, raw: RawClient, reader: "_Reader"
) -> list[Got]:
    gots = [Got(number, ask, client, time.monotonic()) for number, ask in numbered]
    data = b"".join(_request(client, number, ask, where, last=number == numbered[-1][0]) for number, ask in numbered)
    if client.leaves is not None:
        for got in gots:
            got.end = End.LEFT
        _leave(client, gots[-1], raw, data)
        return gots
    _send(client, raw, data)
    persistent = True
    for got in gots:
        got.excused = not persistent
        if persistent:
            persistent = reader.read(got)
    if gots[-1].end is End.ANSWERED:
        reader.expect_end(gots[-1])
    return gots


def _send(client: Client, raw: RawClient, data: bytes) -> None:
    with contextlib.suppress(OSError):
        if not client.slow:
            raw.send(data)
            return
        for start in range(0, len(data), len(data) // 8 + 1):
            raw.send(data[start : start + len(data) // 8 + 1])
            time.sleep(_SLOW_S)
        time.sleep(_SLOW_S * 10)


def _request(client: Client, number: int, ask: Ask, where: Where, *, last: bool) -> bytes:
    tunnel = client.protocol is Protocol.TUNNEL
    host = where.secure if tunnel else where.plain
    target = f"/{number}/{ask.page}" if tunnel else f"http://{host}/{number}/{ask.page}"
    version = "HTTP/1.0" if client.protocol is Protocol.HTTP_1_0 else "HTTP/1.1"
    lines = [f"{ask.method} {target} {version}", f"Host: {host}", *(f"{n}: {v}" for n, v in _fields(number, ask))]
    if client.protocol is Protocol.HTTP_1_0:
        lines.append("Connection: close" if last else "Connection: keep-alive")
    elif last:
        lines.append("Connection: close")
    body = upload_of(number, ask, client.protocol)
    if body and ask.chunked and client.protocol is not Protocol.HTTP_1_0:
        lines.append("Transfer-Encoding: chunked")
        middle = len(body) // 2
        body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:middle], body[middle:]) if part)
        body += b"0\r\n\r\n"
    elif body or ask.method in ("POST", "PUT", "PATCH"):
        lines.append(f"Content-Length: {len(body)}")
    if body and ask.expects and client.protocol is not Protocol.HTTP_1_0:
        lines.append("Expect: 100-continue")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _fields(number: int, ask: Ask) -> Iterator[tuple[str, str]]:
    if ask.keyed:
        yield "idempotency-key", f'"{number}"'
    if ask.window is not None:
        yield "pace-window", ask.window


def upload_of(number: int, ask: Ask, protocol: Protocol) -> bytes:
    """The body of a request."""
    if ask.method in ("GET", "HEAD"):
        return b""
    limit_bytes = _H2_BODY_LIMIT_BYTES if protocol is Protocol.HTTP_2 else ask.body_bytes
    return body_of(number, 0, min(ask.body_bytes, limit_bytes))


def _leave(client: Client, got: Got, raw: RawClient, data: bytes) -> None:
    """Send the request, or where there is no time for that a part of it, and go."""
    got.end = End.LEFT
    with contextlib.suppress(OSError):
        raw.send(data if client.leaves_after_s else data[: len(data) * 3 // 4])
    time.sleep(client.leaves_after_s)  # This client has little patience.
    if client.leaves is Leaving.RESET:
        raw.reset()
    elif client.leaves is Leaving.HALF_CLOSE:
        with contextlib.suppress(OSError):
            raw.half_close()
            raw.rest()
    else:
        raw.close()


class _Reader:
    """Reads responses, one after the other, from one connection."""

    def __init__(self, raw: RawClient) -> None:
        self._raw = raw
        self._rest = b""
        self._ended = False
        self._was_reset = False

    def read(self, got: Got) -> bool:
        """Whether the connection is good for another one."""
        parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=1_000_000)
        parser.send(h11.Request(method=got.ask.method, target="/", headers=[("Host", "a")]))
        parser.send(h11.EndOfMessage())
        if self._rest:  # Nothing would be the end.
            parser.receive_data(self._rest)
        came = bool(self._rest)
        body = bytearray()
        try:
            while True:
                event = parser.next_event()
                if event is h11.NEED_DATA:
                    if self._ended:
                        parser.receive_data(b"")
                        continue
                    data = self._receive()
                    came = came or bool(data)
                    if self._was_reset:  # That is no end, not even of a body that ends with the connection.
                        got.end = End.CUT if got.status else End.FAULTY if came else End.CLOSED
                        got.note, got.was_reset = "reset", True
                        break
                    parser.receive_data(data)
                elif isinstance(event, h11.Response):
                    got.status = event.status_code
                    got.fields = tuple((n.decode("latin-1"), v.decode("latin-1")) for n, v in event.headers)
                elif isinstance(event, h11.Data):
                    body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    got.end = End.ANSWERED
                    break
                elif isinstance(event, h11.InformationalResponse):
                    pass
                else:
                    got.end, got.note = End.CLOSED, repr(event)
                    break
        except h11.RemoteProtocolError as error:
            if not self._ended:
                got.end = End.FAULTY
            else:
                got.end = End.CUT if got.status else End.FAULTY if came else End.CLOSED
            got.note = str(error)
        except TimeoutError:
            got.end, got.note = End.FAULTY, f"nothing for {GUARD_S} s"
        got.body = bytes(body)
        self._rest = parser.trailing_data[0]
        if got.client.protocol is Protocol.HTTP_1_0 and "keep-alive" not in map(str.lower, got.values("connection")):
            return False  # RFC 9112 §9.3
        return got.end is End.ANSWERED and parser.their_state is h11.DONE and not self._ended

    def expect_end(self, got: Got) -> None:
        """After the last answer nothing may come."""
        rest = self._rest
        try:
            while not self._ended and (data := self._receive()):
                rest += data
        except TimeoutError:
            got.end, got.note = End.FAULTY, "the connection was not closed though it was asked for"
        if rest:
            got.end, got.note = End.FAULTY, f"bytes after the answer: {rest[:80]!r}"

    def _receive(self) -> bytes:
        """What comes; empty at the end, as `_ended` then tells."""
        try:
            data = self._raw.receive()
        except (ConnectionError, ssl.SSLError):
            self._ended = self._was_reset = True
            return b""
        self._ended = not data
        return data


# --- HTTP/2


def _over_http2(client: Client, numbered: list[tuple[int, Ask]], where: Where) -> list[Got]:
    gots = [Got(number, ask, client, time.monotonic()) for number, ask in numbered]
    try:
        with H2Client(where.proxy_port, where.secure, where.ca) as connection:
            streams = [
                connection.request(
                    f"/{got.number}/{got.ask.page}",
                    method=got.ask.method,
                    fields=tuple(_fields(got.number, got.ask)),
                    body=upload_of(got.number, got.ask, client.protocol),
                )
                for got in gots
            ]
            waiting = list(zip(gots, streams, strict=True))
            if client.leaves is not None:
                time.sleep(client.leaves_after_s)  # As above.
                connection.reset(streams[0])
                gots[0].end = End.LEFT
                del waiting[0]
            for got, number in waiting:
                (stream,) = connection.wait(number)
                got.status, got.fields, got.body = stream.status, tuple(stream.fields[1:]), stream.body
                got.end = End.ANSWERED if stream.reset is None else End.CUT if stream.status else End.CLOSED
                got.was_reset = stream.reset is not None
                got.note = "" if stream.reset is None else f"reset with {stream.reset}"
    except (AssertionError, OSError, h2.exceptions.ProtocolError) as error:
        for got in gots:
            if got.end is End.CLOSED:
                got.end, got.note = End.FAULTY, repr(error)[:300]
    return gots
