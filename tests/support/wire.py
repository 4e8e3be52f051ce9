"""mitmproxy's layers without a network: events in, commands out. Everything is synchronous."""

from dataclasses import dataclass, field
from typing import Literal

from mitmproxy import http, options
from mitmproxy.connection import Client, ConnectionState, Server
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layer import Layer
from mitmproxy.proxy.layers.http._base import HttpEvent, ReceiveHttp


def context(*, tls: bool = False, via: tuple[Literal["http"], tuple[str, int]] | None = None) -> Context:
    """A client and a server, both connected; `via` a parent proxy."""
    client = Client(
        peername=("127.0.0.1", 1), sockname=("127.0.0.1", 2), timestamp_start=0.0, state=ConnectionState.OPEN
    )
    made = Context(client, options.Options())
    made.server = Server(address=("site", 80), via=via, tls=tls)
    made.server.state = ConnectionState.OPEN
    return made


@dataclass
class Seen:
    """What a layer did."""

    sent: bytes = b""
    told: list[HttpEvent] = field(default_factory=list)
    closed: bool = False
    half_closed: bool = False
    others: list[commands.Command] = field(default_factory=list)


def drive(layer: Layer, *happened: events.Event) -> Seen:
    """Give it these events one after the other."""
    seen = Seen()
    for event in happened:
        for command in layer.handle_event(event):
            if isinstance(command, commands.SendData):
                seen.sent += command.data
            elif isinstance(command, ReceiveHttp):
                seen.told.append(command.event)
            elif isinstance(command, commands.CloseTcpConnection) and command.half_close:
                seen.half_closed = True
            elif isinstance(command, commands.CloseConnection):
                seen.closed = True
            else:
                seen.others.append(command)
    return seen


def request(
    method: str = "GET", fields: tuple[tuple[bytes, bytes], ...] = (), *, version: str = "HTTP/1.1"
) -> http.Request:
    """A request to http://site/x in origin form, with a Host field."""
    return http.Request(
        host="site",
        port=80,
        method=method.encode(),
        scheme=b"http",
        authority=b"",
        path=b"/x",
        http_version=version.encode(),
        headers=http.Headers(((b"Host", b"site"), *fields)),
        content=None,
        trailers=None,
        timestamp_start=0.0,
        timestamp_end=None,
    )
