"""Who connects to the admin address: accepted while there is room for one more, and left alone while there is not.

It shares its file descriptors with the proxy: people who look must not take what requests need. And where the process
has none left, an accept that is tried again at once would turn in circles. What is said on a connection belongs to
`server.py`.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Iterable

from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream

MAX_CONNECTIONS = 128
"""At once, of all who look: the readers of the events, and a few for each page, scrape and probe."""
RETRY_S = 1.0
"""After which an accept that failed for want of something is tried again, as asyncio does it."""

_WANTING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

_log = logging.getLogger(__name__)


class BoundedServer(HTTPServer):
    """An HTTP server that counts its connections, and closes those that are too many."""

    def initialize(self, *args: object, **kwargs: object) -> None:
        super().initialize(*args, **kwargs)  # type: ignore[arg-type]
        self._open = 0

    def handle_stream(self, stream: IOStream, address: tuple[object, ...]) -> None:
        if self._open >= MAX_CONNECTIONS:
            stream.close()
            return
        self._open += 1
        super().handle_stream(stream, address)

    def on_close(self, server_conn: object) -> None:
        self._open -= 1
        super().on_close(server_conn)


class Door:
    """Accepts connections for a server, from these sockets on, which are its own."""

    def __init__(self, server: BoundedServer, sockets: Iterable[socket.socket]) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._later: dict[socket.socket, asyncio.TimerHandle] = {}
        self._sockets = tuple(sockets)
        for sock in self._sockets:
            self._open(sock)

    def close(self) -> None:
        """Accept no more, and close the sockets."""
        for handle in self._later.values():
            handle.cancel()
        for sock in self._sockets:
            self._loop.remove_reader(sock)
            sock.close()

    def _open(self, sock: socket.socket) -> None:
        self._loop.add_reader(sock, self._accept, sock)

    def _accept(self, sock: socket.socket) -> None:
        try:
            connection, address = sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # it has left again
        except OSError as error:
            if error.errno not in _WANTING:
                raise
            _log.warning(
                "admin: a connection has to wait, since the process can open no more files: %s.", error.strerror
            )
            self._loop.remove_reader(sock)
            self._later[sock] = self._loop.call_later(RETRY_S, self._open, sock)
            return
        connection.setblocking(False)
        self._server.handle_stream(IOStream(connection), address)
