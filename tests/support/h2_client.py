"""An HTTP/2 client that goes through the proxy by CONNECT, several streams at once on one connection."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import h2.config
import h2.connection
import h2.errors
import h2.events

from tests.support.clients import RawClient


@dataclass(slots=True, eq=False)
class Stream:
    """What has come back on one stream."""

    status: int = 0
    """0 while there is no head."""
    fields: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    trailers: list[tuple[str, str]] = field(default_factory=list)
    ended: bool = False
    reset: int | None = None
    """The error code with which the proxy reset the stream."""

    @property
    def proxy_status(self) -> str:
        return ", ".join(value for name, value in self.fields if name == "proxy-status")


class H2Client:
    """A connection to one origin. TLS with the proxy's CA; an AssertionError where ALPN does not choose h2."""

    def __init__(self, proxy_port: int, authority: str, ca: Path, *lines: str) -> None:
        """`lines` are further header lines of the CONNECT."""
        self.streams: dict[int, Stream] = {}
        self.goodbye: tuple[int, int] | None = None
        """Of GOAWAY: the last stream that the proxy has taken, and the error code."""
        self._authority = authority
        self._raw = RawClient(proxy_port)
        connected = self._raw.connect(authority, *lines)
        assert connected.status == 200, connected
        chosen = self._raw.start_tls(authority.rpartition(":")[0], ca, protocols=("h2", "http/1.1"))
        assert chosen == "h2", chosen
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="latin-1"))
        self._h2.initiate_connection()
        self._flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._raw.close()

    def request(
        self,
        path: str,
        *,
        method: str = "GET",
        fields: Iterable[tuple[str, str]] = (),
        body: bytes = b"",
        ends: bool = True,
    ) -> int:
        """Open a stream with a request; its number. The body must fit the initial window, 64 kB, and is only its
        beginning where the request does not end with it."""
        number = self._h2.get_next_available_stream_id()
        pseudo = [
            (":method", method),
            (":scheme", "https"),
            (":authority", self._authority),
            (":path", path),
        ]
        self.streams[number] = Stream()
        self._h2.send_headers(number, [*pseudo, *fields], end_stream=not body)
        if body:
            self._h2.send_data(number, body, end_stream=ends)
        self._flush()
        return number

    def reset(self, number: int) -> None:
        """Take one stream back; the others go on."""
        self._h2.reset_stream(number, h2.errors.ErrorCodes.CANCEL)
        self._flush()

    def wait(self, *numbers: int) -> list[Stream]:
        """Read until these streams have ended or were reset; the streams."""
        streams = [self.streams[number] for number in numbers]
        while not all(stream.ended for stream in streams):
            data = self._raw.receive()
            assert data, f"the connection ended before the streams: {streams}"
            for event in self._h2.receive_data(data):
                self._take(event)
            self._flush()
        return streams

    def wait_for_goodbye(self) -> tuple[int, int]:
        """Read until GOAWAY has come: the last stream that the proxy has taken, and the error code."""
        while self.goodbye is None:
            data = self._raw.receive()
            assert data, "the connection ended without GOAWAY"
            for event in self._h2.receive_data(data):
                self._take(event)
        return self.goodbye

    def _take(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.ResponseReceived(stream_id=number, headers=fields):
                pairs = [(str(name), str(value)) for name, value in fields]
                self.streams[number].status = int(dict(pairs)[":status"])
                self.streams[number].fields = pairs
            case h2.events.DataReceived(stream_id=number, data=data, flow_controlled_length=size):
                self.streams[number].body += data
                self._h2.acknowledge_received_data(size, number)
            case h2.events.TrailersReceived(stream_id=number, headers=fields):
                self.streams[number].trailers = [(str(name), str(value)) for name, value in fields]
            case h2.events.StreamEnded(stream_id=number):
                self.streams[number].ended = True
            case h2.events.StreamReset(stream_id=number, error_code=code):
                self.streams[number].ended = True
                self.streams[number].reset = int(code)
            case h2.events.ConnectionTerminated(last_stream_id=number, error_code=code):
                self.goodbye = (int(number or 0), int(code or 0))
            case _:
                pass  # settings, window updates and the like: the library has dealt with them

    def _flush(self) -> None:
        if data := self._h2.data_to_send():
            self._raw.send(data)
