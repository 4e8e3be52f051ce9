"""What one round of the fuzz run does: pages that misbehave in turn, and clients that ask for them. Values only.

A round is printed as Python when it fails, and `run.py --replay` plays it again. How hypothesis draws one is in
`draw.py`, what the pages' faults look like on the wire in `origin.py`.
"""

from dataclasses import dataclass
from enum import StrEnum


class _Named(StrEnum):
    """Printed as it is written in Python."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class Fault(_Named):
    """What is wrong with a reply. Those before the head, in the head, and in the body."""

    NONE = "none"

    SILENT = "silent"
    CLOSE = "close"
    RESET = "reset"
    GARBAGE = "garbage"

    HEAD_CLOSED = "head closed"
    HEAD_RESET = "head reset"
    HEAD_STOPS = "head stops"
    """Half a head, and nothing more."""
    HEAD_HUGE = "head huge"
    LENGTH_TWICE = "length twice"
    """The same Content-Length in two fields: untidy, and well understood."""
    LENGTHS_DIFFER = "lengths differ"
    LENGTH_AND_CHUNKED = "length and chunked"
    LENGTH_NEGATIVE = "length negative"
    CONTROL_CHARACTER = "control character"

    BODY_CLOSED = "body closed"
    """Cut short with FIN; a body that ends with the connection is complete with that."""
    BODY_RESET = "body reset"
    BODY_STOPS = "body stops"
    BODY_TOO_LONG = "body too long"
    """More bytes than the length says, or after the last chunk: what follows a response on its connection."""
    CHUNK_SIZE_BAD = "chunk size bad"
    LAST_CHUNK_MISSING = "last chunk missing"


BEFORE_HEAD = frozenset({Fault.SILENT, Fault.CLOSE, Fault.RESET, Fault.GARBAGE})
IN_HEAD = frozenset({Fault.HEAD_CLOSED, Fault.HEAD_RESET, Fault.HEAD_STOPS})
INVALID_HEAD = frozenset(
    {
        Fault.HEAD_HUGE,
        Fault.LENGTHS_DIFFER,
        Fault.LENGTH_AND_CHUNKED,
        Fault.LENGTH_NEGATIVE,
        Fault.CONTROL_CHARACTER,
    }
)
HARMLESS = frozenset({Fault.NONE, Fault.LENGTH_TWICE, Fault.BODY_TOO_LONG})
"""The reply is complete all the same."""


class Framing(_Named):
    """How the end of a body is found."""

    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class Reply:
    """What the origin does with one request. The body is made from the request's number, to be told from others."""

    status: int = 200
    framing: Framing = Framing.LENGTH
    size_bytes: int = 20
    fault: Fault = Fault.NONE
    retry_after: tuple[str, ...] = ()
    hints: int = 0
    """How many 103 come first."""
    trailers: bool = False
    """After a chunked body."""
    slowly: bool = False
    """The body comes in two pieces, with a pause in between."""
    early: bool = False
    """Before the request's body has been read."""
    closes: bool = False
    """The connection ends after it, without a word in the head."""
    fields: tuple[str, ...] = ()
    """Further header lines."""


@dataclass(frozen=True, slots=True)
class Page:
    """Its replies in turn; the last one repeats."""

    replies: tuple[Reply, ...]


class Leaving(_Named):
    """How a client goes without its answer."""

    CLOSE = "close"
    RESET = "reset"
    HALF_CLOSE = "half_close"


class Protocol(_Named):
    """How a client speaks with the proxy."""

    HTTP_1_1 = "HTTP/1.1"
    HTTP_1_0 = "HTTP/1.0"
    TUNNEL = "CONNECT"
    """HTTP/1.1 over TLS after CONNECT."""
    HTTP_2 = "HTTP/2"


@dataclass(frozen=True, slots=True)
class Ask:
    """One request."""

    page: int
    method: str = "GET"
    keyed: bool = False
    """With an Idempotency-Key."""
    body_bytes: int = 0
    chunked: bool = False
    window: str | None = None
    """The value of Pace-Window, which may be nonsense."""
    expects: bool = False
    """With `Expect: 100-continue`, though its body follows at once."""


@dataclass(frozen=True, slots=True)
class Client:
    """Its requests, one after the other on one connection; pipelined, or over HTTP/2, all at once."""

    asks: tuple[Ask, ...]
    protocol: Protocol = Protocol.HTTP_1_1
    pipelined: bool = False
    slow: bool = False
    """It sends its requests in small pieces, and reads nothing for a while."""
    leaves: Leaving | None = None
    """During the last of its requests (over HTTP/2: it resets the first stream)."""
    leaves_after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Round:
    pages: tuple[Page, ...]
    clients: tuple[Client, ...]


def read_round(text: str) -> Round:
    """A round as it is printed."""
    kinds = (Round, Page, Reply, Client, Ask, Fault, Framing, Leaving, Protocol)
    round_ = eval(text, {kind.__name__: kind for kind in kinds})
    assert isinstance(round_, Round)
    return round_
