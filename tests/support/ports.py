"""Ports at which nobody serves, each in its own way. Held while the context lasts, so nobody else gets them."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

_ADDRESS = "127.0.0.1"
_FILL_LIMIT = 64
"""Connections after which the queue of a port with a backlog of 0 is surely full."""


@contextmanager
def refusing_port() -> Iterator[int]:
    """A port that refuses connections."""
    with closing(socket.socket()) as bound:
        bound.bind((_ADDRESS, 0))  # and never listens
        yield bound.getsockname()[1]


@contextmanager
def mute_port() -> Iterator[int]:
    """A port that accepts connections and says nothing: a TLS handshake with it never ends."""
    with closing(socket.create_server((_ADDRESS, 0), backlog=128)) as listening:
        yield listening.getsockname()[1]


@contextmanager
def greeting_port(greeting: bytes) -> Iterator[int]:
    """A port that says this to everybody at once, whatever comes, and then listens until they close."""

    def serve(listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.sendall(greeting)
                with suppress(ConnectionError):
                    while connection.recv(65536):
                        pass

    with socket.create_server((_ADDRESS, 0), backlog=128) as listening:
        thread = threading.Thread(target=serve, args=(listening,), name="greeting", daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


@contextmanager
def unreachable_port() -> Iterator[int]:
    """A port that leaves attempts to connect without any answer: its queue is full."""
    with ExitStack() as stack:
        listening = stack.enter_context(closing(socket.create_server((_ADDRESS, 0), backlog=0)))
        port = listening.getsockname()[1]
        for _ in range(_FILL_LIMIT):
            filler = stack.enter_context(closing(socket.socket()))
            filler.settimeout(0.2)
            try:
                filler.connect((_ADDRESS, port))
            except TimeoutError:
                break
        else:
            raise AssertionError(f"{_FILL_LIMIT} connections did not fill the queue of a port")
        yield port


def connections_to(port: int) -> int:
    """How many sockets on this machine are connected to a port, or about to be: SYN sent, open, or only half closed."""
    count = 0
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, _, remote, state, *_ = line.split()
            count += int(remote.rpartition(":")[2], 16) == port and state in ("01", "02", "04", "08")
    return count
