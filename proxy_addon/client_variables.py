"""Which environment variables lead the usual clients to a proxy, and which make them trust an authority: a table.

`paceproxy doctor` judges an environment by it. Pure: the environment is handed in. What to print for whom is in
`commands/`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_network


@dataclass(frozen=True, slots=True)
class Client:
    """A client, or several that read the same variables; of each list the first that is set counts."""

    name: str
    http: tuple[str, ...]
    """Name a proxy for `http:` URLs."""
    https: tuple[str, ...]
    """The same for `https:`."""
    authorities: tuple[str, ...]
    """Name a file of certificates."""
    without: str = ""
    """Where no variable names one: what to do instead, as a sentence."""
    switch: str = ""
    """Must be 1, or the others are not read."""
    skips_loopback: bool = False
    """Goes to `localhost` and the addresses of loopback directly, whatever is set."""


_EITHER_HTTP = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
_EITHER_HTTPS = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")

CLIENTS = (
    # No HTTP_PROXY: a CGI script would find the request field Proxy there (https://httpoxy.org).
    Client("curl", ("http_proxy", "all_proxy", "ALL_PROXY"), _EITHER_HTTPS, ("CURL_CA_BUNDLE", "SSL_CERT_FILE")),
    Client("wget", ("http_proxy",), ("https_proxy",), (), without="Give it --ca-certificate FILE."),
    Client("requests", _EITHER_HTTP, _EITHER_HTTPS, ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")),
    Client("urllib, httpx, aiohttp (with trust_env)", _EITHER_HTTP, _EITHER_HTTPS, ("SSL_CERT_FILE",)),
    Client("Scrapy", _EITHER_HTTP, _EITHER_HTTPS, (), without="It does not look at them."),
    Client(
        "Node's fetch (22.21, 24.5 or newer)",
        ("http_proxy", "HTTP_PROXY"),
        ("https_proxy", "HTTPS_PROXY"),
        ("NODE_EXTRA_CA_CERTS",),
        switch="NODE_USE_ENV_PROXY",
    ),
    Client(
        "Go",
        ("HTTP_PROXY", "http_proxy"),
        ("HTTPS_PROXY", "https_proxy"),
        ("SSL_CERT_FILE",),
        skips_loopback=True,
    ),
    Client(
        "Chromium",
        _EITHER_HTTP,
        _EITHER_HTTPS,
        (),
        without="In Playwright: ignore_https_errors=True.",
        skips_loopback=True,
    ),
)


@dataclass(frozen=True, slots=True)
class Way:
    """How a client reaches a URL: by `proxy`, which `variable` names; or directly (both empty), since `why`."""

    proxy: str = ""
    variable: str = ""
    why: str = ""
    remedy: str = ""


def way(client: Client, *, scheme: str, host: str, environ: Mapping[str, str]) -> Way:
    """How this client goes to `host` (a name, or an address without brackets) in this environment.

    1. No variable that it reads is set.
    2. It reads none before its switch is set.
    3. NO_PROXY names the host. (Its forms differ from client to client; judged is what most of them take.)
    4. It never takes a proxy to loopback.
    5. Else: by the first that is set.
    """
    names = client.https if scheme == "https" else client.http
    variable = next((name for name in names if environ.get(name)), "")
    if not variable:
        return Way(why=f"{names[0]} is not set", remedy=f"set {names[0]}")
    if client.switch and environ.get(client.switch) != "1":
        return Way(why=f"{client.switch} is not 1", remedy=f"set {client.switch}=1")
    if (exempting := _exempting(host, environ)) is not None:
        return Way(why=f"{exempting}={environ[exempting]} exempts {host}", remedy=f"take {host} out of {exempting}")
    if client.skips_loopback and is_loopback(host):
        return Way(why=f"it never takes a proxy to {host}", remedy="give the origin another name than that of loopback")
    return Way(proxy=environ[variable], variable=variable)


def authority(client: Client, environ: Mapping[str, str]) -> str | None:
    """The variable that names the certificates which this client trusts; None where none is set."""
    return next((name for name in client.authorities if environ.get(name)), None)


def is_loopback(host: str) -> bool:
    """Whether this host is, by its name alone, the client's own machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _exempting(host: str, environ: Mapping[str, str]) -> str | None:
    """The variable that exempts the host from every proxy."""
    variable = next((name for name in ("no_proxy", "NO_PROXY") if environ.get(name)), None)
    if variable is None:
        return None
    return variable if any(_covers(entry.strip().lower(), host) for entry in environ[variable].split(",")) else None


def _covers(entry: str, host: str) -> bool:
    """Whether an entry of NO_PROXY is of this host: `*`, the name or a name above it, with or without a dot or `*.`
    before it and a port after it, an address, or a network."""
    if entry == "*":
        return True
    try:
        return ip_address(host) in ip_network(entry, strict=False)
    except (ValueError, TypeError):
        name = entry.removeprefix("*").removeprefix(".").partition(":")[0]
        return bool(name) and (host == name or host.endswith(f".{name}"))
