"""HTTP/2 on both sides of the proxy: a client in a tunnel, and an origin, each on blocking sockets.

The origin answers by path: `Stream` says what it does with one request. HTTP/1 peers are in `clients` and `origin`.
"""

import contextlib
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

import h2.config
import h2.connection
import h2.events
import h2.settings
import hyperframe.frame
import trustme

from tests.support.clients import RawClient

_TIMEOUT_S = 20.0


@dataclass(slots=True)
class H2Answer:
    """What came on one stream. `reset` is the error code of its RST_STREAM."""

    status: int = 0
    fields: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    trailers: list[tuple[str, str]] = field(default_factory=list)
    ended: bool = False
    reset: int | None = None


class H2Client:
    """HTTP/2 with an origin, through a tunnel of the proxy."""

    def __init__(self, port: int, host: str, target_port: int, ca: Path, *, acknowledges: bool = True) -> None:
        """`acknowledges` False: it gives back no window by itself."""
        self._acknowledges = acknowledges
        self._client = RawClient(port)
        self._authority = f"{host}:{target_port}"
        assert self._client.connect(self._authority).status == 200
        assert self._client.start_tls(host, ca, protocols=("h2",)) == "h2"
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self._h2.initiate_connection()
        self.answers: dict[int, H2Answer] = {}
        self._flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def send(
        self,
        path: str,
        *,
        method: str = "GET",
        body: bytes | None = None,
        fields: tuple[tuple[str, str], ...] = (),
        trailers: tuple[tuple[str, str], ...] = (),
        ends: bool = True,
    ) -> int:
        """Send a request and return the id of its stream. `body` has no declared length. `ends` False: there is more
        of the request to come."""
        stream = self._h2.get_next_available_stream_id()
        head = [(":method", method), (":scheme", "https"), (":authority", self._authority), (":path", path), *fields]
        self._h2.send_headers(stream, head, end_stream=body is None and ends)
        if body is not None:
            self._h2.send_data(stream, body, end_stream=ends and not trailers)
        if trailers:
            self._h2.send_headers(stream, trailers, end_stream=True)
        self.answers[stream] = H2Answer()
        self._flush()
        return stream

    def reset(self, stream: int) -> None:
        self._h2.reset_stream(stream, 8)
        self._flush()

    def answer(self, stream: int) -> H2Answer:
        """Read until this stream has ended."""
        found = self.answers[stream]
        while not found.ended:
            self.read()
        return found

    def read(self) -> None:
        """Take what is there, waiting for something."""
        data = self._client.receive()
        assert data, "the connection ended"
        for event in self._h2.receive_data(data):
            self._take(event)
        self._flush()

    def get(self, path: str) -> H2Answer:
        return self.answer(self.send(path))

    def _take(self, event: h2.events.Event) -> None:
        stream = getattr(event, "stream_id", None)
        found = self.answers.get(stream or 0, H2Answer())
        if isinstance(event, h2.events.ResponseReceived):
            found.fields = [(str(name), str(value)) for name, value in event.headers or ()]
            found.status = int(dict(found.fields)[":status"])
        elif isinstance(event, h2.events.DataReceived):
            found.body += event.data or b""
            if self._acknowledges:
                self._h2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
        elif isinstance(event, h2.events.TrailersReceived):
            found.trailers = [(str(name), str(value)) for name, value in event.headers or ()]
        elif isinstance(event, h2.events.StreamEnded):
            found.ended = True
        elif isinstance(event, h2.events.StreamReset):
            found.ended = True
            found.reset = int(event.error_code or 0)

    def _flush(self) -> None:
        if data := self._h2.data_to_send():
            self._client.send(data)


@dataclass(slots=True)
class Stream:
    """One request at the origin."""

    connection: int
    path: str
    fields: dict[str, str]
    body: bytes = b""
    trailers: list[tuple[str, str]] = field(default_factory=list)
    reset: bool = False
    """The other side gave it up."""


END: Final = "end"


@dataclass(frozen=True, slots=True)
class H2Reply:
    """A response in full. `ends`: "stream" is how it should, "head" does it before the body, "never" leaves it open,
    "connection" closes that with FIN, "goaway" says goodbye to what came later, a number resets with that code."""

    status: int = 200
    body: bytes = b""
    fields: tuple[tuple[str, str], ...] = ()
    hints: tuple[int, ...] = ()
    """Informational responses that come before it."""
    trailers: tuple[tuple[str, str], ...] = ()
    ends: Literal["stream", "head", "never", "connection", "goaway"] | int = "stream"


type Answer = H2Reply | tuple[int, bytes] | tuple[int, bytes, int] | Literal["end"] | None
"""Status and body; None is silence. A third value: the stream is reset after the body, with this code. END: the
connection ends there and then, with RST."""


class _End(Exception):
    """End the connection with FIN."""


class H2Origin:
    """An HTTP/2 origin over TLS for localhost. `answer` is asked once for each complete request."""

    def __init__(self, answer: Callable[[Stream], Answer], *, max_streams: int = 100) -> None:
        self._answer = answer
        self._max_streams = max_streams
        self.streams: list[Stream] = []
        self.connections = 0
        self.port = 0
        self._stop = threading.Event()
        self._sockets: list[socket.socket] = []
        self._folder = tempfile.TemporaryDirectory(prefix="h2origin-")
        self._threads: list[threading.Thread] = []

    @property
    def ca(self) -> Path:
        return Path(self._folder.name) / "ca.pem"

    def hits(self, path: str) -> int:
        return sum(1 for stream in list(self.streams) if stream.path == path)

    def __enter__(self) -> Self:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.ca)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
        context.set_alpn_protocols(["h2"])
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = listener.getsockname()[1]
        self._sockets.append(listener)
        self._start(self._listen, listener, context)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for open_socket in self._sockets:
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
            open_socket.close()
        for thread in self._threads:
            thread.join(_TIMEOUT_S)
        self._folder.cleanup()

    def _start(self, function: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=function, args=arguments, name="h2origin", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _listen(self, listener: socket.socket, context: ssl.SSLContext) -> None:
        while not self._stop.is_set():
            try:
                plain, _ = listener.accept()
                secure = context.wrap_socket(plain, server_side=True)
            except OSError:
                continue
            self.connections += 1
            self._sockets.append(secure)
            self._start(self._serve, secure, self.connections)

    def _serve(self, connection: socket.socket, number: int) -> None:
        conn = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        limits = {h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: self._max_streams}
        conn.local_settings = h2.settings.Settings(client=False, initial_values=limits)
        conn.initiate_connection()
        streams: dict[int, Stream] = {}
        try:
            connection.sendall(conn.data_to_send())
            while data := connection.recv(65536):
                for event in conn.receive_data(data):
                    self._take(conn, event, streams, number)
                connection.sendall(conn.data_to_send())
        except ConnectionAbortedError:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.close()
        except _End:
            connection.sendall(conn.data_to_send())
            with contextlib.suppress(OSError):
                # To close while something is unread would be a reset, which takes back what was sent last.
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass
        except OSError:
            return

    def _take(
        self, conn: h2.connection.H2Connection, event: h2.events.Event, streams: dict[int, Stream], number: int
    ) -> None:
        if isinstance(event, h2.events.RequestReceived):
            fields = {str(name): str(value) for name, value in event.headers or ()}
            streams[event.stream_id or 0] = Stream(number, fields[":path"], fields)
        elif isinstance(event, h2.events.DataReceived):
            streams[event.stream_id or 0].body += event.data or b""
            conn.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
        elif isinstance(event, h2.events.TrailersReceived):
            streams[event.stream_id or 0].trailers = [(str(name), str(value)) for name, value in event.headers or ()]
        elif isinstance(event, h2.events.StreamReset):
            streams[event.stream_id or 0].reset = True
        elif isinstance(event, h2.events.StreamEnded):
            stream = streams[event.stream_id or 0]
            self.streams.append(stream)
            answer = self._answer(stream)
            if isinstance(answer, str):
                raise ConnectionAbortedError
            if isinstance(answer, tuple):
                answer = H2Reply(answer[0], answer[1], ends=answer[2] if len(answer) == 3 else "stream")
            if answer is not None:
                self._give(conn, event.stream_id or 0, answer)

    def _give(self, conn: h2.connection.H2Connection, number: int, reply: H2Reply) -> None:
        for hint in reply.hints:
            conn.send_headers(number, [(":status", str(hint))])
        conn.send_headers(number, [(":status", str(reply.status)), *reply.fields], end_stream=reply.ends == "head")
        if reply.ends == "head":
            return
        ends = reply.ends in ("stream", "goaway")
        if reply.ends == "goaway":
            self._say_goodbye(conn, number)
        conn.send_data(number, reply.body, end_stream=ends and not reply.trailers)
        if reply.trailers:
            conn.send_headers(number, list(reply.trailers), end_stream=True)
        if isinstance(reply.ends, int):
            conn.reset_stream(number, reply.ends)
        elif reply.ends == "connection":
            raise _End

    def _say_goodbye(self, conn: h2.connection.H2Connection, last: int) -> None:
        # The library closes everything with it, so that it is written by hand: it goes out before what is to come.
        frame = hyperframe.frame.GoAwayFrame(0, last_stream_id=last, error_code=0)
        conn._data_to_send += frame.serialize()
