"""Who of the peers on one client connection may send more: never one whose data does not go on.

HTTP/1 is stopped by not reading from its connection, HTTP/2 by not giving back a stream's window: so that what is in
memory stays bounded, and nobody else is stopped. How windows are given is in `http2.py`.
"""

from collections.abc import Callable
from typing import Protocol

from mitmproxy.connection import Connection, Server
from mitmproxy.proxy import commands

from proxy_addon.dial import PacedConnectionHandler
from proxy_addon.handler import WhenDrained

AHEAD_BYTES = 65536
"""What may wait in our buffer before nothing more is taken: as much as asyncio's transports, whose mark it is."""


class Flow(Protocol):
    """What is asked of a stream."""

    def upload_goes_on(self) -> bool:
        """Whether more of the request can be taken: it is not held, and little of it waits in our buffer."""

    def download_goes_on(self) -> bool:
        """The same of the response."""

    def slow_origin(self) -> Connection | None:
        """Whose socket has more in its buffer than may wait there."""


class FlowControl:
    """See the module's text. To be looked at after each event: `to_look_at`, `read_on`, `new_waits`."""

    def __init__(
        self, client: Connection, handler: PacedConnectionHandler, stream: Callable[[int], Flow | None]
    ) -> None:
        self._client = client
        self._handler = handler
        self._stream = stream
        self._owing: set[Connection] = set()
        """HTTP/2 connections that have been refused a window."""
        self._slow: set[Connection] = set()
        """Sockets that must drain first."""
        self._stopped: dict[Connection, Flow] = {}
        """HTTP/1 connections from which nothing is read."""
        self._waits: dict[commands.Command, Connection] = {}

    def may_upload(self, stream_id: int) -> bool:
        flow = self._stream(stream_id)
        if flow is None or flow.upload_goes_on():
            return True
        self._owing.add(self._client)
        if (origin := flow.slow_origin()) is not None:
            self._slow.add(origin)
        return False

    def may_download(self, server: Server, attempt_id: int) -> bool:
        flow = self._stream(attempt_id)
        if flow is None or flow.download_goes_on():
            return True
        self._owing.add(server)
        return False

    def stop(self, origin: Connection, flow: Flow) -> None:
        """Read no more from this HTTP/1 origin until the response goes on."""
        self._stopped[origin] = flow
        self._handler.hold_back(origin)

    def to_look_at(self) -> set[Connection]:
        """HTTP/2 connections where a window may have to be given now."""
        owing, self._owing = self._owing, set()
        return owing

    def read_on(self) -> None:
        for origin in [one for one, flow in self._stopped.items() if flow.download_goes_on()]:
            del self._stopped[origin]
            self._handler.read_on(origin)

    def new_waits(self) -> list[commands.Command]:
        """To be yielded; what comes of them is for `has_drained`."""
        waits: dict[commands.Command, Connection] = {
            WhenDrained(one): one for one in self._slow if one not in self._waits.values()
        }
        self._slow.clear()
        self._waits.update(waits)
        return list(waits)

    def has_drained(self, command: commands.Command) -> bool:
        """Whether it was one of ours."""
        return self._waits.pop(command, None) is not None
