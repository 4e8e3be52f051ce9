"""A scripted resolver in place of the system's, for everything in this process."""

import ipaddress
import socket
import threading
from typing import Any

import pytest


class Resolver:
    """In place of the system's: answers from a table; a name that is not in it waits until it is told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, table: dict[str, list[str] | Exception]) -> None:
        self.table = table
        self.asked: list[str] = []
        self.go_on = threading.Event()
        self._system = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self)

    def __call__(
        self, host: str, port: int, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> list[tuple[Any, ...]]:
        if flags & socket.AI_NUMERICHOST or _is_address(host):
            return self._system(host, port, family, type, proto, flags)
        self.asked.append(host)
        if host not in self.table:
            self.go_on.wait(20)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.9", port))]
        found = self.table[host]
        if isinstance(found, Exception):
            raise found
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (address, port, 0, 0))
            if ":" in address
            else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in found
        ]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
