"""`paceproxy doctor`: what it says of an environment, with real proxies, origins and files."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.behaviours import respond
from tests.support.clients import curl
from tests.support.forked import run_forked
from tests.support.origin import Origin
from tests.support.ports import greeting_port, refusing_port
from tests.support.proxy import Paceproxy


@dataclass(frozen=True, slots=True)
class Said:
    """What the doctor printed."""

    code: int
    text: str

    def lines(self, grade: str) -> list[str]:
        """The findings of this grade."""
        return [line.split(maxsplit=1)[1] for line in self.text.splitlines() if line.startswith(grade)]

    @property
    def problems(self) -> list[str]:
        return self.lines("problem")


@pytest.fixture(scope="module")
def tls() -> Iterator[Origin]:
    with Origin(tls=True) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(tls: Origin) -> Iterator[Paceproxy]:
    with Paceproxy(f"--upstream-ca={tls.ca}") as running:
        yield running


def doctor(proxy: Paceproxy, url: str, environ: Mapping[str, str] | None = None, *, admin: str | None = None) -> Said:
    """Ask it in this environment, on a machine whose settings are those of the proxy."""
    flags = [f"--listen=127.0.0.1:{proxy.port}", "doctor", "--admin", admin or f"127.0.0.1:{proxy.admin_port}"]
    done = run_forked([*flags, url], {"PATH": os.environ["PATH"], **(environ or {})}, timeout=60)
    return Said(done.returncode, done.stdout + done.stderr)


def all_set(proxy: Paceproxy) -> dict[str, str]:
    """As `paceproxy env` prints them."""
    bundle = str(proxy.confdir / "paceproxy-ca-bundle.pem")
    names = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
    files = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
    return dict.fromkeys(names, proxy.url) | dict.fromkeys(files, bundle) | {"NODE_USE_ENV_PROXY": "1"}


def test_where_all_is_well_it_says_so(proxy: Paceproxy, tls: Origin) -> None:
    said = doctor(proxy, tls.url("/page"), all_set(proxy))
    assert said.code == 0
    assert said.problems == []
    assert f"A Paceproxy listens at {proxy.url}." in said.lines("ok")
    assert "curl: trust the proxy's authority by CURL_CA_BUNDLE." in said.lines("ok")
    assert said.lines("ok")[-1] == f"{tls.url('/page')} came: 200 OK."
    # Loopback is what these two never take a proxy to; the others do.
    assert [line for line in said.lines("note") if line.startswith("Not proxied")] == [
        "Not proxied: Go, Chromium: it never takes a proxy to 127.0.0.1. "
        "To change that, give the origin another name than that of loopback."
    ]


def test_one_request_is_sent(proxy: Paceproxy, origin: Origin) -> None:
    doctor(proxy, origin.url("/once"), all_set(proxy))
    assert [(request.method, request.path) for request in origin.requests] == [("GET", "/once")]


def test_a_slow_host_is_told_with_the_reason(proxy: Paceproxy, origin: Origin) -> None:
    origin.script = {"/down": respond(503)}
    for _ in range(2):
        # The window of 0 seconds: one attempt each, and no wait.
        curl(proxy.url, origin.url("/down"), "-H", "Pace-Window: 0")
    said = doctor(proxy, origin.url("/page"), all_set(proxy))
    assert said.code == 0
    (told,) = (line for line in said.lines("note") if line.startswith("The host is slow."))
    assert told.startswith(
        f"The host is slow. {origin.host}: rung 1, every 2 s, 0 waiting; last stall: server error (5xx), "
    )


def test_without_an_admin_address_it_says_that_it_cannot_tell(proxy: Paceproxy, origin: Origin) -> None:
    with refusing_port() as port:
        said = doctor(proxy, origin.url("/"), all_set(proxy), admin=f"127.0.0.1:{port}")
    assert said.code == 0
    (told,) = (line for line in said.lines("note") if line.startswith("Whether"))
    assert told.startswith(f"Whether the host is slow cannot be told: no proxy answers at http://127.0.0.1:{port} (")


def test_nobody_is_proxied_where_no_variable_is_set(proxy: Paceproxy, origin: Origin) -> None:
    said = doctor(proxy, origin.url("/"))
    assert said.code == 1
    (problem,) = said.problems
    assert problem.startswith("No client is proxied: http_proxy is not set (curl, wget, requests, ")
    assert problem.endswith('In the shell of your crawler: eval "$(paceproxy env)".')


def test_who_reads_only_lower_case_is_named(proxy: Paceproxy, origin: Origin) -> None:
    said = doctor(proxy, origin.url("/"), {"HTTP_PROXY": proxy.url})
    assert said.code == 0
    assert "Not proxied: curl, wget: http_proxy is not set. To change that, set http_proxy." in said.lines("note")


def test_a_host_that_no_proxy_exempts_is_told(proxy: Paceproxy, origin: Origin) -> None:
    said = doctor(proxy, origin.url("/"), all_set(proxy) | {"NO_PROXY": "127.0.0.0/8"})
    assert said.code == 1
    assert "NO_PROXY=127.0.0.0/8 exempts 127.0.0.1 (curl, " in said.problems[0]


def test_a_proxy_that_does_not_run_is_told(proxy: Paceproxy, origin: Origin) -> None:
    with refusing_port() as port:
        said = doctor(proxy, origin.url("/"), {"http_proxy": f"http://127.0.0.1:{port}"})
    assert said.code == 1
    assert said.problems == [
        f"No proxy answers at http://127.0.0.1:{port}: connection refused. "
        "Start it with paceproxy, or together with your crawler: paceproxy run -- COMMAND."
    ]


def test_another_proxy_is_told(proxy: Paceproxy, origin: Origin) -> None:
    said = doctor(proxy, origin.url("/"), {"http_proxy": origin.url("").rstrip("/")})
    assert said.code == 1
    assert said.problems[0].endswith("is no Paceproxy: it answered 200.")


def test_each_variable_whose_file_makes_nobody_trust_us_is_told(proxy: Paceproxy, tls: Origin, tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    files = {
        "CURL_CA_BUNDLE": f"{tmp_path}/missing.pem",
        "SSL_CERT_FILE": f"{empty}",
        "REQUESTS_CA_BUNDLE": str(tls.ca),
    }
    said = doctor(proxy, tls.url("/"), all_set(proxy) | files)
    remedy = "Set it to the bundle that paceproxy env prints."
    does_not = "does not make clients trust the proxy"
    assert said.code == 1
    assert said.problems == [
        f"CURL_CA_BUNDLE={tmp_path}/missing.pem {does_not}: there is no such file. {remedy}",
        f"REQUESTS_CA_BUNDLE={tls.ca} {does_not}: unable to get local issuer certificate. {remedy}",
        f"SSL_CERT_FILE={empty} {does_not}: it holds no certificates. {remedy}",
    ]


def test_who_has_no_file_of_certificates_is_told(proxy: Paceproxy, tls: Origin) -> None:
    said = doctor(proxy, tls.url("/"), {"https_proxy": proxy.url})
    assert said.code == 1
    assert any(
        line.startswith("curl: no trust in the proxy's authority, since CURL_CA_BUNDLE is") for line in said.problems
    )


def test_what_the_proxy_says_of_the_origin_is_passed_on(proxy: Paceproxy, origin: Origin) -> None:
    with refusing_port() as port:
        said = doctor(proxy, f"http://user:secret@127.0.0.1:{port}/", all_set(proxy))
    assert said.code == 1
    assert said.problems == [
        f"http://127.0.0.1:{port}/ did not come: 502 Bad Gateway, from the proxy itself: "
        "The host refuses connections on this port. (connection refused)"
    ]


def test_an_error_of_the_origin_is_its_own(proxy: Paceproxy, origin: Origin) -> None:
    origin.script = {"/missing": respond(404)}
    said = doctor(proxy, origin.url("/missing"), all_set(proxy))
    assert said.code == 0
    assert f"{origin.url('/missing')} came: 404 Not Found, which is what the origin says, passed on as it is." in (
        said.lines("note")
    )


@pytest.mark.parametrize("url", ["shop.example", "ftp://shop.example/", "http://", "http://shop.example:port/", ""])
def test_what_is_no_url_is_refused(proxy: Paceproxy, url: str) -> None:
    said = doctor(proxy, url)
    assert said.code == 2
    assert said.text == f"paceproxy: {url!r} is no URL of a page; give one such as https://shop.example/\n"


@pytest.mark.parametrize("url", ["http://[::1/", "http://user:secret@[::1", "http://shop.example:99999/"])
def test_what_looks_like_a_url_and_is_none_is_refused_without_its_credentials(proxy: Paceproxy, url: str) -> None:
    said = doctor(proxy, url)
    assert said.code == 2
    shown = url.replace("user:secret@", "")
    assert said.text == f"paceproxy: {shown!r} is no URL of a page; give one such as https://shop.example/\n"


def test_a_url_is_sent_as_clients_write_it(proxy: Paceproxy, origin: Origin) -> None:
    said = doctor(proxy, origin.url("/gr\u00fc\u00dfe%20/a b?q=\u00fc&r=%41#part"), all_set(proxy))
    assert said.code == 0
    assert [request.path for request in origin.requests] == ["/gr%C3%BC%C3%9Fe%20/a%20b?q=%C3%BC&r=%41"]


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        ("http://user:secret@127.0.0.1:99999", "http://127.0.0.1:99999"),
        ("http://user:secret@[::1", "http://[::1"),
        ("http://user:sec/ret@127.0.0.1:9", "http://127.0.0.1:9"),
        ("socks5://user:secret@127.0.0.1:9", "socks5://127.0.0.1:9"),
        ("user:secret@127.0.0.1:0", "http://127.0.0.1:0"),
    ],
)
def test_what_is_no_proxys_url_is_told_without_its_credentials(
    proxy: Paceproxy, origin: Origin, named: str, shown: str
) -> None:
    said = doctor(proxy, origin.url("/"), {"http_proxy": named})
    assert said.code == 1
    assert f"{shown} is no URL of a Paceproxy, which is reached by http://HOST:PORT." in said.problems
    assert "sec" not in said.text


def test_what_a_hostile_proxy_says_does_nothing_to_the_terminal(proxy: Paceproxy, origin: Origin) -> None:
    hostile = (
        b"HTTP/1.1 502 \x1b[31mred\r\nProxy-Status: paceproxy; error=destination_unavailable\r\n"
        b"Content-Length: 10\r\n\r\n\x1b]0;x\x07\xff\xff\n!"
    )
    with greeting_port(hostile) as port:
        said = doctor(proxy, origin.url("/"), {"http_proxy": f"http://127.0.0.1:{port}"})
    assert said.problems[-1].endswith(" did not come: 502 ?[31mred, from the proxy itself: ?]0;x?\ufffd\ufffd")
    with greeting_port(b"\x1b[31m\x00garbage\r\n\r\n") as port:
        said = doctor(proxy, origin.url("/"), {"http_proxy": f"http://127.0.0.1:{port}"})
    assert said.problems[-1].startswith(f"No proxy answers at http://127.0.0.1:{port}: ?[31m?garbage")


def test_certificates_that_are_no_file_are_told_and_not_waited_for(
    proxy: Paceproxy, tls: Origin, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    files = {"CURL_CA_BUNDLE": f"{tmp_path}", "SSL_CERT_FILE": f"{tmp_path}/pipe", "REQUESTS_CA_BUNDLE": "/dev/zero"}
    said = doctor(proxy, tls.url("/"), all_set(proxy) | files)
    assert said.code == 1
    assert [line.split(": ")[1].split(".")[0] for line in said.problems] == [
        "it is a folder",
        "it is no regular file",
        "it is no regular file",
    ]


def test_without_any_admin_address_the_rest_is_told(proxy: Paceproxy, origin: Origin) -> None:
    said = doctor(proxy, origin.url("/"), all_set(proxy), admin="off")
    assert said.code == 0
    assert said.lines("ok")[-1] == f"{origin.url('/')} came: 200 OK."
    (told,) = (line for line in said.lines("note") if line.startswith("Whether"))
    assert told.startswith("Whether the host is slow cannot be told: admin must say where the running proxy has its ")
