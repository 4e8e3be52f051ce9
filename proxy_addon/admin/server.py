"""The admin address: a small HTTP server on the proxy's own event loop, for Prometheus, probes and people.

What there is, is a list of routes. It answers only requests that name it as its users do: a web page in a browser
on this machine can let its own name resolve to 127.0.0.1 (DNS rebinding) and read what is here, but its requests
still carry that name. What the routes answer does not belong here.
"""

import asyncio
import errno
import logging
import re
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address, ip_address
from types import TracebackType
from typing import Any

from tornado.web import Application, HTTPError, RequestHandler

from proxy_addon.admin.accepting import BoundedServer, Door
from proxy_addon.admin.guard import Guard

IDLE_CONNECTION_S = 120.0
"""How long an open connection may be silent: longer than the usual scrape interval of at most a minute."""

MAX_REQUEST_BYTES = 65536
"""Of a request's head, and of its body, which nothing here reads."""

_log = logging.getLogger(__name__)

_HOST_FIELD = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^\[\]:]+)(?::[0-9]*)?")


@dataclass(frozen=True, slots=True)
class ExpectedHosts:
    """The names under which users reach the admin address."""

    loopback: bool
    """Only this machine can connect."""
    names: frozenset[str] = frozenset()
    """Further names, in lower case."""

    def accept(self, host: str) -> bool:
        """Whether the field `Host` with this value may come from a user.

        1. `localhost`, and what `names` holds.
        2. An address of the loopback range. When others than this machine can connect: any address,
           since what has no name cannot have been rebound.
        3. Nothing else, an empty field included.

        Any port will do, with any of them: a tunnel or a container changes it, and it proves nothing.
        """
        match = _HOST_FIELD.fullmatch(host.lower())
        if match is None:
            return False
        name = match["name"]
        if name == "localhost" or name in self.names:
            return True
        address = _address(name.strip("[]"))
        return address is not None and (address.is_loopback or not self.loopback)

    def __str__(self) -> str:
        addresses = "127.0.0.1, [::1]" if self.loopback else "any IP address"
        return ", ".join(["localhost", addresses, *sorted(self.names - {"localhost"})])


class AdminHandler(RequestHandler):
    """What all answers have in common. A route's handler derives from it and defines `get` and `head`."""

    SUPPORTED_METHODS: tuple[str, ...] = ("GET", "HEAD")

    def set_default_headers(self) -> None:
        self.clear_header("Server")  # Tornado's tells its version
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Cross-Origin-Resource-Policy", "same-origin")

    def prepare(self) -> None:
        # From the field, not from `request.host`, which is "127.0.0.1" where there is no field.
        host = self.request.headers.get("Host", "")
        expected: ExpectedHosts = self.settings["expected_hosts"]
        if not expected.accept(host):
            self.answer(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"This address does not answer to the host name {host!r}, only to: {expected}.",
            )

    def answer(self, status: HTTPStatus, text: str) -> None:
        """Answer with this status and line of text, and be done."""
        self.set_status(status)
        self.finish(text + "\n")

    def compute_etag(self) -> None:
        """No ETag: nothing here is to be stored."""

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        status = HTTPStatus(status_code)
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.set_header("Allow", ", ".join(self.SUPPORTED_METHODS))
        hint = ": its log tells more" if status.is_server_error else ""
        self.answer(status, f"{status} {status.phrase}{hint}.")

    def log_exception(
        self,
        typ: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if typ is None or value is None or isinstance(value, HTTPError):
            return  # the client's mistake, and it has been told
        _log.error("admin: %s %r failed", self.request.method, self.request.path, exc_info=(typ, value, tb))


@dataclass(frozen=True, slots=True)
class Route:
    """One thing that the admin address answers."""

    path: str
    """A regular expression for the whole path, as Tornado takes it."""
    purpose: str
    """For people, in a few words."""
    handler: type[AdminHandler]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """For the handler's `initialize`."""
    shown: str = ""
    """How people write the path; empty: as it is. Routes without a purpose are not shown."""


class _NothingHandler(AdminHandler):
    def initialize(self, routes: Sequence[Route]) -> None:
        self._routes = routes

    def get(self) -> None:
        known = "".join(f"\n  {route.shown or route.path}  {route.purpose}" for route in self._routes if route.purpose)
        self.answer(HTTPStatus.NOT_FOUND, f"There is nothing here. There is:{known}")

    head = get


class AdminServer:
    """The listening server. It must be stopped once it has started."""

    def __init__(
        self,
        routes: Sequence[Route],
        *,
        names: Collection[str] = (),
        token: str | None = None,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        """`names` are further host names under which users reach it, such as that of a container. Who has `token` may
        change things. `on_stop` ends answers that would go on for ever."""
        self._routes = tuple(routes)
        self._names = frozenset(name.lower() for name in names)
        self._token = token
        self._on_stop = on_stop
        self._server: BoundedServer | None = None
        self._door: Door | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen on every address of `host`, on one port (0: any that is free), and return the first.

        Raises OSError where it cannot listen, and then nothing is left behind.
        """
        if self._server is not None:
            raise RuntimeError("the admin server has been started already")
        sockets = await _listen(host, port)
        addresses = [sock.getsockname() for sock in sockets]
        loopback = all(ip_address(address[0]).is_loopback for address in addresses)
        # Whoever set a name for the address to listen on will also ask for it. Addresses need not be named.
        named = {host.lower()} if host and _address(host) is None else frozenset()
        expected = ExpectedHosts(loopback=loopback, names=self._names | named)
        application = Application(
            [(route.path, route.handler, dict(route.arguments)) for route in self._routes],
            default_handler_class=_NothingHandler,
            default_handler_args={"routes": self._routes},
            log_function=_log_request,
            expected_hosts=expected,
            guard=Guard(loopback=loopback, token=self._token),
        )
        self._server = BoundedServer(
            application,
            max_header_size=MAX_REQUEST_BYTES,
            max_body_size=MAX_REQUEST_BYTES,
            idle_connection_timeout=IDLE_CONNECTION_S,
            body_timeout=IDLE_CONNECTION_S,
        )
        self._door = Door(self._server, sockets)
        return addresses[0][0], addresses[0][1]

    async def stop(self) -> None:
        """Stop listening and close all connections. Harmless when called twice or before `start`."""
        server, self._server = self._server, None
        if server is not None:
            self._on_stop()
            assert self._door is not None, "it has one since `start`"
            self._door.close()
            await server.close_all_connections()


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """The address that this is in its usual notation; None where it is a name."""
    try:
        return ip_address(text)
    except ValueError:
        return None


async def _listen(host: str, port: int) -> list[socket.socket]:
    """Listening sockets, at least one, for the addresses of `host`; of all interfaces, where it is empty.

    Tornado's own `bind_sockets` blocks the loop while it looks up the name, and leaves sockets open where one
    of them fails.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except UnicodeError as error:  # a label that is empty or longer than 63
        raise socket.gaierror(socket.EAI_NONAME, f"{host!r} is no host name") from error
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            if sockets and port == 0:
                address = (address[0], sockets[0].getsockname()[1], *address[2:])
            try:
                sock = socket.create_server(address, family=family)
            except OSError as error:
                # A name such as localhost has an IPv6 address also where IPv6 is switched off, as in many
                # containers: that one is left out.
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                missing = error
                continue
            sock.setblocking(False)
            sockets.append(sock)
        if not sockets:
            raise missing or OSError(errno.EADDRNOTAVAIL, f"{host!r} has no address")
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def _log_request(handler: RequestHandler) -> None:
    """Scrapes and probes come all the time; they are of interest only to who looks for them."""
    request = handler.request
    _log.debug("admin: %s %r from %s: %d", request.method, request.path, request.remote_ip, handler.get_status())
