"""Which client reads what."""

import pytest

from proxy_addon.client_variables import CLIENTS, Client, Way, authority, is_loopback, way

PROXY = "http://127.0.0.1:8080"


def client(name: str) -> Client:
    return next(one for one in CLIENTS if one.name.startswith(name))


def to(name: str, scheme: str = "http", host: str = "shop.example", **environ: str) -> Way:
    return way(client(name), scheme=scheme, host=host, environ=environ)


def test_without_a_variable_every_client_goes_directly() -> None:
    for one in CLIENTS:
        assert to(one.name).proxy == ""
        assert to(one.name, "https").proxy == ""


@pytest.mark.parametrize("name", ["curl", "wget"])
def test_the_upper_case_variable_for_http_is_not_read_by(name: str) -> None:
    assert to(name, HTTP_PROXY=PROXY) == Way(why="http_proxy is not set", remedy="set http_proxy")
    assert to(name, http_proxy=PROXY) == Way(proxy=PROXY, variable="http_proxy")


@pytest.mark.parametrize("name", ["requests", "urllib", "Scrapy", "Go", "Chromium"])
def test_either_case_is_read_by(name: str) -> None:
    assert to(name, HTTP_PROXY=PROXY) == Way(proxy=PROXY, variable="HTTP_PROXY")
    assert to(name, "https", https_proxy=PROXY) == Way(proxy=PROXY, variable="https_proxy")


def test_an_empty_variable_counts_as_not_set() -> None:
    assert to("curl", "https", https_proxy="", HTTPS_PROXY=PROXY) == Way(proxy=PROXY, variable="HTTPS_PROXY")


def test_node_reads_them_only_when_it_is_told_to() -> None:
    assert to("Node", HTTP_PROXY=PROXY).why == "NODE_USE_ENV_PROXY is not 1"
    assert to("Node", HTTP_PROXY=PROXY, NODE_USE_ENV_PROXY="1").proxy == PROXY


@pytest.mark.parametrize("host", ["localhost", "a.localhost", "127.0.0.5", "::1"])
def test_go_and_chromium_take_no_proxy_to_loopback(host: str) -> None:
    assert is_loopback(host)
    for name in ("Go", "Chromium"):
        assert to(name, host=host, HTTP_PROXY=PROXY).why == f"it never takes a proxy to {host}"
    assert to("curl", host=host, http_proxy=PROXY).proxy == PROXY


@pytest.mark.parametrize(
    ("entries", "exempt"),
    [
        ("*", True),
        ("shop.example", True),
        ("SHOP.EXAMPLE", True),
        ("example", True),
        (".example", True),
        ("*.example", True),
        ("other.example, shop.example", True),
        ("shop.example:8080", True),
        ("op.example", False),
        ("other.example", False),
        (",", False),
        ("10.0.0.0/8", False),
    ],
)
def test_no_proxy_exempts_names_and_those_below_them(entries: str, exempt: bool) -> None:
    found = to("curl", http_proxy=PROXY, NO_PROXY=entries)
    assert (found.proxy == "") is exempt
    if exempt:
        assert found.why == f"NO_PROXY={entries} exempts shop.example"


@pytest.mark.parametrize(
    ("host", "entry", "exempt"),
    [
        ("10.1.2.3", "10.0.0.0/8", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("fd00::1", "fd00::/8", True),
        ("10.1.2.3", "fd00::/8", False),
    ],
)
def test_no_proxy_exempts_addresses_and_networks(host: str, entry: str, exempt: bool) -> None:
    assert (to("curl", host=host, http_proxy=PROXY, no_proxy=entry).proxy == "") is exempt


def test_the_first_variable_that_is_set_names_the_authorities() -> None:
    both = {"REQUESTS_CA_BUNDLE": "/a.pem", "CURL_CA_BUNDLE": "/b.pem", "SSL_CERT_FILE": "/c.pem"}
    assert authority(client("requests"), both) == "REQUESTS_CA_BUNDLE"
    assert authority(client("curl"), both) == "CURL_CA_BUNDLE"
    assert authority(client("Go"), both) == "SSL_CERT_FILE"
    assert authority(client("Node"), both) is None
    assert authority(client("wget"), both) is None
