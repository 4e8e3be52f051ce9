"""Clients of the proxy: curl, requests, and a raw socket for what no proper client would do."""

import socket
import ssl
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import requests

from tests.support.heads import field_values, fields_of

_TIMEOUT_S = 30.0
"""Against hanging. A test that expects a time-out says its own."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A response as it came, or what came of it. `status` is 0 where there was no response."""

    status: int
    head: bytes
    body: bytes

    @property
    def fields(self) -> list[tuple[str, str]]:
        return fields_of(self.head)

    def values(self, name: str) -> list[str]:
        """Every value of a header field, in order; the name in any case."""
        return field_values(self.head, name)

    @property
    def proxy_status(self) -> str:
        """The `Proxy-Status` field, empty where there is none."""
        return ", ".join(self.values("Proxy-Status"))


@dataclass(frozen=True, slots=True)
class CurlResult:
    exit_code: int
    answer: Answer
    error: str


def curl(proxy_url: str, url: str, *arguments: str, ca: Path | None = None, timeout: float = _TIMEOUT_S) -> CurlResult:
    """Run curl once, without retries of its own. `ca`: the PEM file it trusts for HTTPS."""
    with tempfile.NamedTemporaryFile(prefix="curl-head-") as head_file:
        done = subprocess.run(
            [*curl_command(proxy_url, ca=ca, timeout=timeout), "-D", head_file.name, *arguments, url],
            capture_output=True,
            check=False,
            timeout=timeout + 10,
        )
        heads = [head for head in head_file.read().split(b"\r\n\r\n") if head]
    # With CONNECT, 1xx or a 401 there are several heads; the last is the response's.
    head = heads[-1] if heads else b""
    status = int(head.split(b" ", 2)[1]) if head else 0
    return CurlResult(done.returncode, Answer(status, head, done.stdout), done.stderr.decode())


def curl_command(proxy_url: str, *, ca: Path | None = None, timeout: float = _TIMEOUT_S) -> list[str]:
    """The curl command line up to the URL."""
    trust = ["--cacert", str(ca)] if ca else []
    # --noproxy '': a NO_PROXY of the environment must not exempt loopback.
    return ["curl", "-q", "-sS", "-m", str(timeout), "--noproxy", "", "-x", proxy_url, *trust]


def requests_session(proxy_url: str, *, ca: Path | None = None) -> requests.Session:
    """A session that takes nothing from the environment; to be closed by its user."""
    session = requests.Session()
    session.trust_env = False
    session.proxies = {"http": proxy_url, "https": proxy_url}
    session.verify = str(ca) if ca else True
    return session


class RawClient:
    """A TCP connection to the proxy, byte by byte."""

    def __init__(self, port: int, *, address: str = "127.0.0.1", timeout: float = _TIMEOUT_S) -> None:
        self._socket: socket.socket = socket.create_connection((address, port), timeout)
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def get(self, url: str, *lines: str) -> None:
        """Send a GET in absolute form. `lines` are further header lines."""
        host = url.split("/", 3)[2]
        more = "".join(f"{line}\r\n" for line in lines)
        self.send(f"GET {url} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode())

    def half_close(self) -> None:
        """FIN in our direction; the other stays open."""
        self._socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """RST."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self._socket.close()

    def close(self) -> None:
        self._socket.close()

    def connect(self, target: str, *lines: str) -> Answer:
        """Ask for a tunnel to `host:port`."""
        more = "".join(f"{line}\r\n" for line in lines)
        self.send(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{more}\r\n".encode())
        return self.answer(method="CONNECT")

    def start_tls(self, host: str, ca: Path, *, protocols: Sequence[str] = ("http/1.1",)) -> str | None:
        """Speak TLS from here on; the protocol that ALPN chose."""
        context = ssl.create_default_context(cafile=str(ca))
        context.set_alpn_protocols(list(protocols))
        secure = context.wrap_socket(self._socket, server_hostname=host)
        self._socket = secure
        return secure.selected_alpn_protocol()

    def answer(self, *, method: str = "GET") -> Answer:
        """Read one response. Its body ends as its head says."""
        head = self._until(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        tunnel = method == "CONNECT" and 200 <= status < 300
        if method == "HEAD" or tunnel or status in (204, 304) or status < 200:
            return Answer(status, head, b"")
        if "chunked" in field_values(head, "Transfer-Encoding"):
            return Answer(status, head, self._chunks())
        lengths = field_values(head, "Content-Length")
        return Answer(status, head, self._exactly(int(lengths[0])) if lengths else self.rest())

    def rest(self) -> bytes:
        """Everything until the proxy closes; a reset raises ConnectionResetError."""
        data, self._buffer = self._buffer, b""
        while more := self.receive():
            data += more
        return data

    def receive(self, size: int = 65536) -> bytes:
        """What is there, waiting for at least one byte; empty at the end."""
        if self._buffer:
            data, self._buffer = self._buffer, b""
            return data
        return self._socket.recv(size)

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            self._more(f"{mark!r}")
        head, _, self._buffer = self._buffer.partition(mark)
        return head + mark

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._more(f"{size} bytes")
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def _chunks(self) -> bytes:
        data = b""
        while size := int(self._until(b"\r\n").split(b";")[0], 16):
            data += self._exactly(size)
            self._until(b"\r\n")
        while self._until(b"\r\n") != b"\r\n":
            pass
        return data

    def _more(self, wanted: str) -> None:
        more = self._socket.recv(65536)
        assert more, f"the connection ended before {wanted}: {self._buffer!r}"
        self._buffer += more
