"""Bodies too large to keep, from one end of the proxy to the other: over HTTP/1.1, or HTTP/2 inside TLS.

`BulkOrigin` sends `/bytes/N` and swallows what is PUT; `BulkClient` does the opposite. Both only count, on blocking
sockets. How little of it the proxy keeps is for its user to measure.
"""

import contextlib
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import h2.config
import h2.connection
import h2.events
import h2.settings
import trustme

from tests.support.clients import RawClient
from tests.support.heads import field_values, request_line

_PIECE = b"x" * 65536
_TIMEOUT_S = 600.0
"""Against hanging."""
_OURS_BYTES = 1048576
"""The window that these peers give for a stream."""


class _H2:
    """One end of an HTTP/2 connection, which sends and takes bodies."""

    def __init__(self, connection: socket.socket, *, client: bool, wide: bool = True) -> None:
        self._socket = connection
        self.conn = h2.connection.H2Connection(h2.config.H2Configuration(client_side=client, header_encoding="utf-8"))
        if wide:
            # More than the least: else most of the time goes by in asking for more.
            values = {h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: _OURS_BYTES}
            self.conn.local_settings = h2.settings.Settings(client=client, initial_values=values)
        self.conn.initiate_connection()
        if wide:
            self.conn.increment_flow_control_window(_OURS_BYTES)
        self.flush()
        self.ended: set[int] = set()
        self.acknowledges = True
        """Whether it gives back windows."""

    def flush(self) -> None:
        if data := self.conn.data_to_send():
            self._socket.sendall(data)

    def receive(self, taken: Callable[[int], None] = lambda size: None) -> list[h2.events.Event]:
        """Wait for something; empty is the end."""
        data = self._socket.recv(1 << 18)
        if not data:
            return []
        found = self.conn.receive_data(data)
        for event in found:
            if isinstance(event, h2.events.DataReceived):
                taken(len(event.data or b""))
                if self.acknowledges:
                    self.conn.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
            elif isinstance(event, h2.events.StreamEnded):
                self.ended.add(event.stream_id or 0)
            elif isinstance(event, h2.events.StreamReset):
                raise ConnectionResetError(event)
        self.flush()
        return found or [h2.events.Event()]

    def send_body(self, stream: int, size: int, sent: Callable[[int], None] = lambda size: None) -> None:
        while size:
            room = self.conn.local_flow_control_window(stream)
            window = min(room, self.conn.max_outbound_frame_size, len(_PIECE), size)
            if window <= 0:
                assert self.receive(), "the connection ended"
                continue
            self.conn.send_data(stream, _PIECE[:window], end_stream=window == size)
            self.flush()
            size -= window
            sent(window)

    def wait_for_end(self, stream: int, taken: Callable[[int], None] = lambda size: None) -> None:
        while stream not in self.ended:
            assert self.receive(taken), "the connection ended"


class BulkOrigin:
    """`h2`: HTTP/2 over TLS for localhost, else HTTP/1.1. It counts; `reads` may be cleared to make it take nothing."""

    def __init__(self, *, h2: bool) -> None:
        self.h2 = h2
        self.sent_bytes = 0
        self.received_bytes = 0
        self.reads = threading.Event()
        self.reads.set()
        self.gives_window = True
        """Over HTTP/2. Else it takes only what it must."""
        self.port = 0
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._context: ssl.SSLContext | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="bulk-")

    def __enter__(self) -> Self:
        if self.h2:
            authority = trustme.CA()
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            authority.issue_cert("localhost").configure_cert(self._context)
            self._context.set_alpn_protocols(["h2"])
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = listener.getsockname()[1]
        self._sockets.append(listener)
        self._start(self._listen, listener)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.reads.set()
        for open_socket in self._sockets:
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
            open_socket.close()
        for thread in self._threads:
            thread.join(10)
        self._folder.cleanup()

    @property
    def authority(self) -> str:
        return f"localhost:{self.port}"

    def _start(self, function: Callable[[socket.socket], None], argument: socket.socket) -> None:
        thread = threading.Thread(target=function, args=(argument,), name="bulk-origin", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _listen(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _ = listener.accept()
                self._sockets.append(plain)
                self._start(self._serve, plain)

    def _serve(self, plain: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self._context is None:
                self._serve_http1(plain)
            else:
                with self._context.wrap_socket(plain, server_side=True) as secure:
                    peer = _H2(secure, client=False, wide=self.gives_window)
                    peer.acknowledges = self.gives_window
                    self._serve_http2(peer)

    def _serve_http1(self, connection: socket.socket) -> None:
        data = b""
        while True:
            while b"\r\n\r\n" not in data:
                more = connection.recv(65536)
                if not more:
                    return
                data += more
            head, _, data = data.partition(b"\r\n\r\n")
            method, target, _ = request_line(head + b"\r\n")
            size = _size(target)
            if method == "GET":
                connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode())
                while size:
                    connection.sendall(_PIECE[:size])
                    self.sent_bytes += len(_PIECE[:size])
                    size -= len(_PIECE[:size])
                continue
            left = int((field_values(head, "Content-Length") or ["0"])[0]) - len(data)
            self.received_bytes += len(data)
            data = b""
            while left:
                self.reads.wait(_TIMEOUT_S)
                more = connection.recv(min(left, 1 << 18))
                if not more:
                    return
                left -= len(more)
                self.received_bytes += len(more)
            status = "503 Busy" if method == "POST" else "200 OK"
            connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())

    def _serve_http2(self, peer: _H2) -> None:
        methods: dict[int, tuple[str, str]] = {}

        def took(size: int) -> None:
            self.reads.wait(_TIMEOUT_S)
            self.received_bytes += size

        def sent(size: int) -> None:
            self.sent_bytes += size

        while found := peer.receive(took):
            for event in found:
                if isinstance(event, h2.events.RequestReceived):
                    fields = {str(name): str(value) for name, value in event.headers or ()}
                    methods[event.stream_id or 0] = (fields[":method"], fields[":path"])
            for stream in list(peer.ended & methods.keys()):
                method, path = methods.pop(stream)
                peer.conn.send_headers(stream, [(":status", "503" if method == "POST" else "200")], method != "GET")
                peer.flush()
                if method == "GET":
                    peer.send_body(stream, _size(path), sent)


def _size(target: str) -> int:
    name = target.rpartition("/bytes/")[2]
    return int(name) if name.isdecimal() else 0


class BulkClient:
    """One connection through the proxy to one origin. `sent_bytes` and `received_bytes` are those of the bodies."""

    def __init__(self, proxy_port: int, origin: BulkOrigin, ca: Path) -> None:
        self.sent_bytes = 0
        self.received_bytes = 0
        self._authority = origin.authority
        self._raw = RawClient(proxy_port, timeout=_TIMEOUT_S)
        self._h2: _H2 | None = None
        if origin.h2:
            assert self._raw.connect(self._authority).status == 200
            assert self._raw.start_tls("localhost", ca, protocols=("h2",)) == "h2"
            self._h2 = _H2(self._raw._socket, client=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._raw.close()

    def fail(self) -> None:
        """A POST that the origin answers with 503: from then on its host is paced."""
        if self._h2 is None:
            self._raw.send(self._head("POST", "/", 0))
            assert self._raw.answer().status == 503
        else:
            self._h2.wait_for_end(self._open("POST", "/", True))

    def upload(self, size: int) -> None:
        """PUT that much, and wait for the answer."""
        if self._h2 is not None:
            stream = self._open("PUT", "/", False)
            self._h2.send_body(stream, size, self._sent)
            self._h2.wait_for_end(stream)
            return
        self._raw.send(self._head("PUT", "/", size))
        left = size
        while left:
            self._raw.send(_PIECE[:left])
            self._sent(len(_PIECE[:left]))
            left -= len(_PIECE[:left])
        answer = self._raw.answer()
        assert answer.status == 200, answer

    def ask(self, size: int) -> int:
        """GET that much; the stream of the request. Nothing is read yet."""
        if self._h2 is not None:
            return self._open("GET", f"/bytes/{size}", True)
        self._raw.send(self._head("GET", f"/bytes/{size}", None))
        return 0

    def take(self, stream: int, size: int, pause: Callable[[], None] = lambda: None) -> None:
        """Read all of it; `pause` is called again and again on the way."""

        def took(part: int) -> None:
            self.received_bytes += part
            pause()

        if self._h2 is not None:
            self._h2.wait_for_end(stream, took)
            assert self.received_bytes == size
            return
        head = self._raw._until(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        while self.received_bytes < size:
            data = self._raw.receive(1 << 18)
            assert data, "the connection ended"
            took(len(data))

    def _sent(self, size: int) -> None:
        self.sent_bytes += size

    def _head(self, method: str, path: str, length: int | None) -> bytes:
        sized = "" if length is None else f"Content-Length: {length}\r\n"
        return f"{method} http://{self._authority}{path} HTTP/1.1\r\nHost: {self._authority}\r\n{sized}\r\n".encode()

    def _open(self, method: str, path: str, ends: bool) -> int:
        assert self._h2 is not None
        stream = self._h2.conn.get_next_available_stream_id()
        pseudo = [(":method", method), (":scheme", "https"), (":authority", self._authority), (":path", path)]
        self._h2.conn.send_headers(stream, pseudo, end_stream=ends)
        self._h2.flush()
        return stream
