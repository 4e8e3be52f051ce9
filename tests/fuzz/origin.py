"""The origins of the fuzz run, which do to each request what the plan says, and write down what they did.

One without TLS and one with, on all of 127.0.0.0/8, so that each round can ask for a host of its own. What the proxy
should have made of it is for `judge.py` to say.
"""

import asyncio
import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from tests.fuzz.plan import BEFORE_HEAD, IN_HEAD, INVALID_HEAD, Fault, Framing, Page, Reply
from tests.support.behaviours import respond, response_head
from tests.support.origin import Origin
from tests.support.visit import Behaviour, Request, Visit

SLOW_S = 0.15
"""Longer than a healthy host's body is held, shorter than any time-out."""
EXTRA = b"EXTRA BYTES OF NOBODY\r\n\r\n"


@dataclass(slots=True, eq=False)
class Sent:
    """What the origin did with one request."""

    number: int
    hit: int
    """Which time it was that this request came, from 1."""
    request: Request
    reply: Reply
    reused: bool
    """It came over a connection that had carried a request before."""
    opened_at: float
    """When that connection was opened."""
    told_at: float = 0.0
    """When the proxy can have known at the earliest (monotonic): the head went out, or the connection ended."""
    body: bytes = b""
    """What a client gets that gets all of it."""
    complete: bool | None = False
    """The response was sent whole. None: the client may get it, or not."""


def body_of(number: int, hit: int, size_bytes: int) -> bytes:
    """Every request has a body unlike any other's."""
    text = f"{number}.{hit} ".encode()
    return (text * (size_bytes // len(text) + 1))[:size_bytes]


@dataclass(slots=True, eq=False)
class Origins:
    """Both origins, and what they have done so far."""

    plain: Origin
    secure: Origin
    pages: Sequence[Page] = ()
    sent: list[Sent] = field(default_factory=list)
    lag_s: float = 0.0
    """By how much the event loop of the plain one came late, at worst, since this was last set to 0."""
    _visits: dict[int, "itertools.count[int]"] = field(default_factory=dict)
    _connections: set[tuple[bool, int]] = field(default_factory=set)

    def play(self, pages: Sequence[Page]) -> None:
        """From now on these pages."""
        self.pages = pages
        self.sent = []
        self.lag_s = 0.0
        self._visits = {page: itertools.count() for page in range(len(pages))}

    def choose(self, request: Request) -> Behaviour:
        """`/NUMBER/PAGE`."""
        parts = request.path.strip("/").split("/")
        connection = (request.secure, request.connection)
        reused = connection in self._connections
        self._connections.add(connection)
        if len(parts) != 2:
            return respond()
        number, page = int(parts[0]), int(parts[1])
        replies = self.pages[page].replies
        reply = replies[min(next(self._visits[page]), len(replies) - 1)]
        hit = 1 + sum(1 for sent in self.sent if sent.number == number)
        origin = self.secure if request.secure else self.plain
        opened_at = origin.connections[request.connection - 1].opened_at
        sent = Sent(number, hit, request, reply, reused, opened_at)
        self.sent.append(sent)
        return _Play(sent)


@contextmanager
def running_origins() -> Iterator[Origins]:
    with ExitStack() as stack:
        plain = stack.enter_context(Origin(address="0.0.0.0"))
        secure = stack.enter_context(Origin(address="0.0.0.0", tls=True))
        origins = Origins(plain, secure)
        plain.script = secure.script = origins.choose
        yield origins


@dataclass(frozen=True, slots=True)
class _Play:
    sent: Sent

    @property
    def reads_body(self) -> bool:
        return not self.sent.reply.early

    async def act(self, visit: Visit) -> None:
        sent, reply = self.sent, self.sent.reply
        if reply.hints and reply.fault not in BEFORE_HEAD:
            await visit.send(response_head(103, [("Link", "</style.css>; rel=preload")]) * reply.hints)
        if reply.fault in BEFORE_HEAD | IN_HEAD:
            await self._no_head(visit)
            sent.told_at = time.monotonic()
            return
        head, pieces, self.sent.complete, ends = _wire(sent)
        whole, sent.complete = sent.complete, False
        sent.told_at = time.monotonic()
        await visit.send(head + pieces[0])
        for piece in pieces[1:]:
            await asyncio.sleep(SLOW_S)
            await visit.send(piece)
        sent.complete = whole
        await visit.read_body()
        if ends is Fault.BODY_STOPS:
            await visit.until_gone()
        if ends is Fault.BODY_RESET:
            visit.reset()
        elif ends is not None or reply.closes or reply.framing is Framing.CLOSE:
            visit.close()

    async def _no_head(self, visit: Visit) -> None:
        fault = self.sent.reply.fault
        if fault is Fault.GARBAGE:
            await visit.send(b"NOT HTTP AT ALL\r\n\r\n")
        elif fault in IN_HEAD:
            await visit.send(b"HTTP/1.1 200 OK\r\nContent-Le")
        if fault in (Fault.SILENT, Fault.HEAD_STOPS):
            await visit.until_gone()
        if fault in (Fault.RESET, Fault.HEAD_RESET):
            visit.reset()
        else:
            visit.close()


def _wire(sent: Sent) -> tuple[bytes, list[bytes], bool | None, Fault | None]:
    """Head, pieces of what follows, whether that is a whole response, and the fault that ends the connection."""
    reply, method = sent.reply, sent.request.method
    body = body_of(sent.number, sent.hit, reply.size_bytes)
    head = response_head(reply.status, _fields(reply, len(body)))
    if method == "HEAD" or reply.status in (204, 304):
        after = EXTRA if reply.fault is Fault.BODY_TOO_LONG else b""
        ends = reply.fault if reply.fault in (Fault.BODY_CLOSED, Fault.BODY_RESET, Fault.BODY_STOPS) else None
        complete: bool | None = reply.fault not in INVALID_HEAD
        if reply.fault is Fault.BODY_RESET or (reply.fault is Fault.LENGTH_AND_CHUNKED and reply.status == 204):
            complete = None  # It may be lost; it may be refused, or mended, since a 204 has no body in any case.
        return head, [after], complete, ends
    half = body[: len(body) // 2]
    match reply.fault:
        case Fault.BODY_CLOSED | Fault.BODY_RESET | Fault.BODY_STOPS:
            by_length = reply.framing is Framing.LENGTH and not body
            by_close = reply.framing is Framing.CLOSE and reply.fault is Fault.BODY_CLOSED
            complete = by_length or by_close
            if complete and reply.fault is Fault.BODY_RESET:
                complete = None
            sent.body = half
            return head, [_framed(reply, half)], complete, reply.fault
        case Fault.CHUNK_SIZE_BAD if reply.framing is Framing.CHUNKED:
            return head, [_framed(reply, half) + b"zz\r\nmore"], False, Fault.BODY_CLOSED
        case Fault.LAST_CHUNK_MISSING if reply.framing is Framing.CHUNKED:
            return head, [_framed(reply, body)], False, Fault.BODY_CLOSED
    sent.body = body
    last = _last_chunk(reply) if reply.framing is Framing.CHUNKED else b""
    if reply.fault is Fault.BODY_TOO_LONG and reply.framing is not Framing.CLOSE:
        last += EXTRA
    if reply.slowly:
        rest = _framed(reply, body[len(half) :]) + last
        pieces = [_framed(reply, half), *([rest] if rest else [])]
    else:
        pieces = [_framed(reply, body) + last]
    return head, pieces, reply.fault not in INVALID_HEAD, None


def _framed(reply: Reply, data: bytes) -> bytes:
    if reply.framing is Framing.CHUNKED and data:
        return f"{len(data):x}\r\n".encode() + data + b"\r\n"
    return data


def _last_chunk(reply: Reply) -> bytes:
    return b"0\r\nX-Trailer: yes\r\n\r\n" if reply.trailers else b"0\r\n\r\n"


def _fields(reply: Reply, size_bytes: int) -> list[tuple[str, str]]:
    fields = [("Content-Type", "text/plain"), *(("Retry-After", value) for value in reply.retry_after)]
    for line in reply.fields:
        name, _, value = line.partition(":")
        fields.append((name, value.strip()))
    if reply.status == 301:
        fields.append(("Location", "/elsewhere"))
    if reply.framing is Framing.CHUNKED:
        fields.append(("Transfer-Encoding", "chunked"))
    elif reply.framing is Framing.LENGTH:
        fields.append(("Content-Length", str(size_bytes)))
    match reply.fault:
        case Fault.HEAD_HUGE:
            fields.append(("X-Huge", "x" * 300_000))
        case Fault.LENGTH_TWICE if reply.framing is Framing.LENGTH:
            fields.append(("Content-Length", str(size_bytes)))
        case Fault.LENGTHS_DIFFER:
            fields += [("Content-Length", str(size_bytes)), ("Content-Length", str(size_bytes + 1))]
        case Fault.LENGTH_AND_CHUNKED:
            fields += [("Content-Length", str(size_bytes)), ("Transfer-Encoding", "chunked")]
        case Fault.LENGTH_NEGATIVE:
            fields.append(("Content-Length", "-1"))
        case Fault.CONTROL_CHARACTER:
            fields.append(("X-Control", "a\x01b"))
    return fields
