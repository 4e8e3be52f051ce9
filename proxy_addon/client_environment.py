"""The environment variables by which clients find the proxy and trust it, and what the user has in them.

There is no one variable that all clients read: each of these is read by some. NO_PROXY and ALL_PROXY are the user's:
the one says what is to be reached without a proxy, and the other counts only where none of ours does.
"""

from collections.abc import Iterator, Mapping

PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
"""In both cases: curl reads http_proxy in lower case only, others the upper case only."""

CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
"""For whatever uses OpenSSL's default, and Go; Python requests; curl; Node."""

_FURTHER = {"NODE_USE_ENV_PROXY": "1"}
"""Node looks at the proxy variables only when told to."""


def client_environment(proxy_url: str, bundle: str) -> dict[str, str]:
    """The variables, in the order in which they are shown."""
    return dict.fromkeys(PROXY_VARIABLES, proxy_url) | dict.fromkeys(CA_VARIABLES, bundle) | _FURTHER


def own_proxies(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The proxy variables that the user has set, and which ours take the place of; each proxy once."""
    seen: set[str] = set()
    for name in (*PROXY_VARIABLES, "ALL_PROXY", "all_proxy"):
        value = environ.get(name, "")
        if value and value not in seen:
            seen.add(value)
            yield name, value


def own_bundles(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The files of certificates that the user has named, by variable; each once."""
    seen: set[str] = set()
    for name in CA_VARIABLES:
        value = environ.get(name, "")
        if value and value not in seen:
            seen.add(value)
            yield name, value
