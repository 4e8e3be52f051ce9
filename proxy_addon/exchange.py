"""What passes between the paced layer and the addon: one `Exchange` per request, and the answers it can get.

The layer never sees the engine. It asks through the `Pacing` protocol, and what it asks for starts empty: an empty
answer means "refuse, send nothing". The layer calls every method of `Pacing` synchronously, on the event loop, except
for the one wait, which is the blocking hook `pace_hold` (its only argument is the `Exchange`).

The order of calls for one request:

    accept                              the request's head is complete; its window starts
    prepare                             the request is ready (body held, or to be streamed): before the first attempt
    ( grant | hook pace_hold )          -> answer: Send, or Respond
    sending                             the first byte of the attempt is about to be handed to the socket
    overdue?                            `overdue_after_s` has passed and there is no head
    hold_s                              a response's head is there: how long to hold its body back
    replied                             -> verdict: Release, Again (back to grant/hold), or Respond
    first_byte, cut?                    the answer begins to flow to the client; it broke off on the way
    left?                               the client has gone; at any moment, at most once
    close                               exactly once, whatever happened

A call that raises is a bug of ours: the layer answers the client with a 500 (`proxy_internal_error`), sends nothing
to the origin without a grant, and still calls `close`.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol

from mitmproxy import http

from proxy_addon.clock import Clock
from proxy_addon.model import ErrorName, Reply

SHUTTING_DOWN = Reply(error=ErrorName.PROXY_INTERNAL_RESPONSE, details="the proxy is shutting down", charged=False)
"""What an attempt has brought back that was cut off because the proxy shuts down."""


@dataclass(frozen=True, slots=True)
class Send:
    """The attempt is granted. All times in seconds."""

    connect_timeout_s: float
    """TCP, TLS and a parent's CONNECT must be done by then: else `connection_timeout`."""
    response_timeout_s: float
    """From the last byte of the request to the response's head: else `http_response_timeout`."""
    overdue_after_s: float | None = None
    """Not None (and then below `response_timeout_s`): tell `overdue` when the head is not there by then, and go on
    waiting."""


@dataclass(frozen=True, slots=True)
class Respond:
    """Give this response to the client; there is no (further) attempt."""

    response: http.Response


@dataclass(frozen=True, slots=True)
class Release:
    """Give the origin's own response to the client, as it stands in `Exchange.response`."""


@dataclass(frozen=True, slots=True)
class Again:
    """Discard the reply and come back for another attempt."""

    fresh: bool = False
    """The next attempt must not use a connection that was used before."""


@dataclass(slots=True, eq=False)
class Exchange:
    """One request on its way. The layer writes the upper part, the addon the lower part."""

    flow: http.HTTPFlow
    held: bool = True
    """The whole body is in memory: it can be sent again. False: it is streamed, so there is one attempt."""
    number: int = 0
    """The attempt, from 1; 0 before the first."""
    client_left: str | None = None
    """Why the client is gone, once it is."""
    status: int | None = None
    """Of the final response, whoever made it, once its head has gone to the client."""
    body_bytes: int = 0
    """How much of that response's body has gone after it, as it was passed on."""
    response: http.Response | None = None
    """The response whose head the attempt brought back, while `replied` is asked about it. The addon may add fields.
    Its body is not in it yet."""

    answer: Send | Respond | None = None
    """To `grant` and the hook. The layer empties it before each question."""
    verdict: Release | Again | Respond | None = None
    """To `replied`. The layer empties it before each question."""
    discarded_body: bytearray = field(default_factory=bytearray)
    """The first bytes of the last discarded response's body, at most `keep_reply_bytes` of them."""
    discarded_whole: bool = False
    """That body was complete, and not longer."""
    ticket: Any = None
    """The addon's own; None once closed."""


class Pacing(Protocol):
    """What the layer asks. See the module's text for when."""

    clock: Clock
    keep_reply_bytes: int
    """Of a discarded response's body, how much the layer keeps in `Exchange.discarded_body`."""
    hold_body_bytes: int
    """Of a response's body, how much may be held back before it is released; 0: none."""
    body_timeout_s: float
    """How long an upload, or the body of a response, may make no progress; 0: for ever."""
    idle_reuse_s: float
    """A request that is not idempotent never goes over a connection that was idle for longer than this."""
    tunnel_ports: frozenset[int]
    """After CONNECT to one of these ports raw bytes pass. The CONNECT is then the exchange."""
    is_draining: bool
    """The proxy shuts down: what is in hand is finished, and clients are told to go elsewhere."""
    is_cut_off: bool
    """The time for that is over: what is not finished ends now."""

    def accept(self, exchange: Exchange) -> None: ...

    def prepare(self, exchange: Exchange) -> None: ...

    def grant(self, exchange: Exchange) -> bool:
        """Set `answer` and return True if that needs no wait; else return False, and the layer yields the hook."""

    def goes_soon(self, exchange: Exchange) -> bool:
        """Asked after a `grant` of False: whether it may keep its idle connection to the origin while it waits."""

    def sending(self, exchange: Exchange) -> None: ...

    def overdue(self, exchange: Exchange) -> None: ...

    def hold_s(self, exchange: Exchange, reply: Reply) -> float:
        """For how many seconds, at most, the body of this response is held back before `replied` is asked; 0: not."""

    def replied(self, exchange: Exchange, reply: Reply) -> None:
        """Set `verdict`."""

    def first_byte(self, exchange: Exchange) -> None: ...

    def cut(self, exchange: Exchange) -> None: ...

    def left(self, exchange: Exchange) -> None:
        """`client_left` is set. A pending `pace_hold` must come back soon."""

    def close(self, exchange: Exchange) -> None: ...
