"""Servers that take no connection, or take one and say nothing. Sockets only, no thread."""

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def full_backlog(address: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
    """A port on loopback whose SYNs get no answer, as with a host that is overloaded or gone."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((address, port), family=family, backlog=0))
        for _ in range(4):
            filler = stack.enter_context(socket.socket(family))
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(listener.getsockname())
        yield listener.getsockname()[1]


@contextlib.contextmanager
def mute_server() -> Iterator[int]:
    """A port on loopback where connections are made, and nothing is ever read or written."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield listener.getsockname()[1]


def closed_port() -> int:
    """A port on loopback that refuses connections."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
