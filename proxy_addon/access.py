"""Who may use the proxy: by address (`allow`) and by user and password (`htpasswd`).

Addons for the embedded runner; a user's own mitmproxy has `allow_hosts` and `proxyauth` for the same.
"""

import asyncio
import functools
import hashlib
import hmac
import ipaddress
import logging
import secrets
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from mitmproxy import http
from mitmproxy.addons import proxyauth
from mitmproxy.connection import Client

from proxy_addon.answers import credentials_wanted
from proxy_addon.clock import Clock

logger = logging.getLogger(__name__)

REMEMBERED = 1024
"""How many verdicts on credentials are remembered. A crawl uses a handful; guesses push each other out."""
AT_ONCE = 2
"""How many passwords are hashed at the same time: bcrypt takes a core for about 0.1 s each."""


class ClientFilter:
    """Closes connections of clients that come from elsewhere than the given networks."""

    name = "paceproxy_client_filter"

    def __init__(self, networks: Iterable[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> None:
        self._networks = tuple(networks)

    def client_connected(self, client: Client) -> None:
        # First: mitmproxy lets a client pass whose hook has raised.
        error, client.error = client.error, "not allowed"
        address = ipaddress.ip_address(client.peername[0].partition("%")[0])
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped
        if any(address in network for network in self._networks):
            client.error = error
        else:
            logger.warning("A client at %s was refused: it is in none of the networks of --allow.", address)


class PasswordFile(proxyauth.ProxyAuth):
    """mitmproxy's `proxyauth`, which asks bcrypt for every request and on the event loop: here once for each pair of
    user and password, and in threads of its own."""

    name = "proxyauth"

    def __init__(self, path: str, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._htpasswd = proxyauth.Htpasswd(f"@{path}")
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="password")
        self._salt = secrets.token_bytes(16)
        self._verdicts: OrderedDict[bytes, bool] = OrderedDict()
        self._checking: dict[bytes, asyncio.Future[bool]] = {}
        self.validator = _Remembered(self)

    def load(self, loader: object) -> None:
        """No option: the file was given at construction."""

    def configure(self, updated: set[str]) -> None:
        """Nothing to follow."""

    def done(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    # mitmproxy lets a request pass whose hook has raised: whatever happens, its own check comes last, and that
    # refuses credentials on which there is no verdict.

    async def http_connect(self, f: http.HTTPFlow) -> None:  # type: ignore[override]
        try:
            await self._verify(f)
        finally:
            super().http_connect(f)

    async def requestheaders(self, f: http.HTTPFlow) -> None:  # type: ignore[override]
        try:
            if f.client_conn not in self.authenticated:
                await self._verify(f)
        finally:
            super().requestheaders(f)

    def authenticate_http(self, f: http.HTTPFlow) -> bool:
        valid = super().authenticate_http(f)
        if not valid:
            # In place of mitmproxy's own page.
            f.response = credentials_wanted(is_proxy=proxyauth.is_http_proxy(f), now=self._clock.now())
        return valid

    def verdict(self, username: str, password: str) -> bool:
        """What is known of these credentials; those never verified are refused."""
        return self._verdicts.get(self._digest(username, password), False)

    async def _verify(self, f: http.HTTPFlow) -> None:
        field = proxyauth.http_auth_header(proxyauth.is_http_proxy(f))
        try:
            _, username, password = proxyauth.parse_http_basic_auth(f.request.headers.get(field, ""))
        except ValueError:
            return
        digest = self._digest(username, password)
        if digest in self._verdicts:
            self._verdicts.move_to_end(digest)
            return
        if digest not in self._checking:
            # A crawler that starts opens many connections at once: they all wait for the one check.
            check = asyncio.get_running_loop().run_in_executor(self._threads, self._htpasswd, username, password)
            check.add_done_callback(functools.partial(self._learn, digest))
            self._checking[digest] = check
        await asyncio.wait((self._checking[digest],))

    def _learn(self, digest: bytes, check: "asyncio.Future[bool]") -> None:
        del self._checking[digest]
        if check.cancelled():
            return
        error = check.exception()
        if error is not None:
            # bcrypt takes no password of more than 72 bytes.
            logger.warning("A password could not be checked, and is refused: %s", error)
        self._verdicts[digest] = error is None and check.result()
        while len(self._verdicts) > REMEMBERED:
            self._verdicts.popitem(last=False)

    def _digest(self, username: str, password: str) -> bytes:
        # Keyed, so that what is kept in memory is no password and no hash to look up.
        length = len(username.encode()).to_bytes(4)
        return hmac.digest(self._salt, length + f"{username}{password}".encode(), hashlib.sha256)


class _Remembered(proxyauth.Validator):
    def __init__(self, file: PasswordFile) -> None:
        self._file = file

    def __call__(self, username: str, password: str) -> bool:
        return self._file.verdict(username, password)
