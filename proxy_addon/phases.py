"""What a stream and its layer say to each other, and where a request can be. Names only."""

from dataclasses import dataclass
from enum import Enum

from mitmproxy.proxy import commands
from mitmproxy.proxy.layers.http._base import HttpEvent

from proxy_addon.exchange import Exchange


@dataclass
class PaceHoldHook(commands.StartHook):
    """Hold the request until `exchange.answer` is set. An exception leaves it empty, which refuses the request."""

    name = "pace_hold"
    exchange: Exchange


class Phase(Enum):
    """Where a request is."""

    RECEIVING = "receiving"
    """Before its first attempt."""
    HELD = "held"
    CONNECTING = "connecting"
    WAITING = "waiting"
    """Sent, or being sent; no head yet."""
    HOLDING = "holding"
    """The head has come; the body is held back."""
    DRAINING = "draining"
    """The reply is discarded; its body is read to the end."""
    ANSWERING = "answering"
    """An answer goes to the client."""
    ENDED = "ended"
    """The exchange is closed. At most the rest of an upload is still read and dropped."""


class Deadline(HttpEvent):
    """The moment that a stream asked for has come."""


class CutOff(HttpEvent):
    """The proxy shuts down, and its time for that is over: end this request as well as it can be."""


class BreakOff(HttpEvent):
    """Our own code has failed elsewhere: end this request."""
