"""Which requests count for one host, and how many hosts there may be in the metrics.

The names exist nowhere: a scripted parent proxy answers for all of them.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.behaviours import respond
from tests.support.clients import RawClient
from tests.support.origin import Origin
from tests.support.proxy import Paceproxy

FINE = respond(200, b"fine")
SICK = respond(503, b"sick")


@pytest.fixture(scope="module")
def parent() -> Iterator[Origin]:
    with Origin() as running:
        yield running


@pytest.fixture(scope="module")
def proxy(parent: Origin, confdir: Path) -> Iterator[Paceproxy]:
    with Paceproxy("--upstream", parent.url(""), "--ladder", "0,100", "--pause-after", "0", confdir=confdir) as running:
        yield running
        running.assert_idle()


def ask(client: RawClient, url: str) -> int:
    """A GET that does not wait; the status."""
    client.send(f"GET {url} HTTP/1.1\r\nHost: x\r\nPace-Window: 0\r\n\r\n".encode())
    return client.answer().status


@pytest.mark.parametrize(
    ("host", "urls", "others"),
    [
        pytest.param(
            "xn--bcher-kva.example",
            (
                "http://B\N{LATIN CAPITAL LETTER U WITH DIAERESIS}CHER.example/",
                "http://b\N{LATIN SMALL LETTER U WITH DIAERESIS}cher.example/",
                "http://bu\N{COMBINING DIAERESIS}cher.example/",
                "http://xn--bcher-kva.example/",
                "http://XN--BCHER-KVA.EXAMPLE./",
                "http://xn--bcher-kva.example:80/x",
            ),
            ("http://xn--bcher-kva.example:8080/", "http://www.xn--bcher-kva.example/", "http://bucher.example/"),
            id="an international name",
        ),
        pytest.param(
            "[2001:db8::1]",
            (
                "http://[2001:db8::1]/",
                "http://[2001:DB8::1]/",
                "http://[2001:db8:0:0:0:0:0:1]/",
                "http://[2001:0db8::0001]:80/",
            ),
            ("http://[2001:db8::2]/", "http://[2001:db8::1]:8080/"),
            id="an IPv6 address",
        ),
    ],
)
def test_names_of_one_host_are_one_host(
    proxy: Paceproxy, parent: Origin, host: str, urls: tuple[str, ...], others: tuple[str, ...]
) -> None:
    with RawClient(proxy.port) as client:
        parent.mode = SICK
        assert ask(client, urls[0]) == 503
        proxy.wait_for_metric("paceproxy_host_rung", 1, host=host)
        parent.mode = FINE
        asked = len(parent.requests)
        assert [ask(client, url) for url in urls] == [503] * len(urls)
        assert len(parent.requests) == asked
        assert [ask(client, url) for url in others] == [200] * len(others)


def test_the_host_field_does_not_make_another_host(proxy: Paceproxy, parent: Origin) -> None:
    with RawClient(proxy.port) as client:
        parent.mode = SICK
        client.send(b"GET http://target.example/ HTTP/1.1\r\nHost: field.example\r\nPace-Window: 0\r\n\r\n")
        assert client.answer().status == 503
        proxy.wait_for_metric("paceproxy_host_rung", 1, host="target.example")
        assert parent.requests[-1].values("Host") == ["target.example"]
        parent.mode = FINE
        assert ask(client, "http://field.example/") == 200


def test_a_crawl_of_many_hosts_does_not_make_as_many_series(proxy: Paceproxy, parent: Origin) -> None:
    parent.mode = SICK
    with RawClient(proxy.port) as client:
        assert [ask(client, f"http://site-{number}.example/") for number in range(150)] == [503] * 150
    metrics = proxy.metrics()
    for name in ("paceproxy_host_rung", "paceproxy_host_waiting"):
        series = metrics.by(name, "host")
        assert len(series) == 100 + 1
        assert "other" in series
    assert metrics.value("paceproxy_hosts") >= 150


def test_both_forms_of_an_ipv6_address_reach_the_same_origin(shared_proxy: Paceproxy) -> None:
    with Origin({"/first": SICK}, address="::1") as origin, RawClient(shared_proxy.port) as client:
        assert ask(client, f"http://[::1]:{origin.port}/first") == 503
        shared_proxy.wait_for_metric("paceproxy_host_rung", 1, host=f"[::1]:{origin.port}")
        client.get(f"http://[0:0:0:0:0:0:0:1]:{origin.port}/second")
        answer = client.answer()
        assert answer.status == 200
        assert "attempts=1" in answer.proxy_status
        assert "rung=1" in answer.proxy_status
