"""What follows from an environment: findings in words."""

from urllib.parse import urlsplit

import pytest

from proxy_addon import diagnosis
from proxy_addon.diagnosis import Finding, Grade

SHOP = urlsplit("https://shop.example/")
OURS = "http://127.0.0.1:8080"
ALL = {"https_proxy": OURS, "HTTPS_PROXY": OURS, "NODE_USE_ENV_PROXY": "1"}


def test_different_proxies_are_a_problem() -> None:
    found = diagnosis.ways(SHOP, ALL | {"HTTPS_PROXY": "http://user:secret@other.example:3128"})
    assert diagnosis.proxying(found)[-2:] == [
        Finding(Grade.OK, "Proxied to http://other.example:3128 by HTTPS_PROXY: Go."),
        Finding(Grade.PROBLEM, "The variables name different proxies. Give all of them the same: paceproxy env."),
    ]
    assert diagnosis.proxy_of(found) == OURS


def test_one_proxy_for_all_is_well() -> None:
    findings = diagnosis.proxying(diagnosis.ways(SHOP, ALL))
    assert {finding.grade for finding in findings} == {Grade.OK}
    assert findings[-1].text == f"Proxied to {OURS} by HTTPS_PROXY: Go."


def test_a_variable_that_is_set_for_some_only_is_a_note() -> None:
    environ = ALL | {"SSL_CERT_FILE": "/bundle.pem"}
    found = diagnosis.ways(SHOP, environ)
    assert diagnosis.files(found, environ) == {"SSL_CERT_FILE": "/bundle.pem"}
    trust = diagnosis.trusting(found, environ, {"SSL_CERT_FILE": None})
    assert trust[0].text == (
        "curl, urllib, httpx, aiohttp (with trust_env), Go: trust the proxy's authority by SSL_CERT_FILE."
    )
    assert {finding.grade for finding in trust[1:]} == {Grade.NOTE}


def test_no_variable_at_all_is_a_problem() -> None:
    found = diagnosis.ways(SHOP, ALL)
    trust = diagnosis.trusting(found, ALL, {})
    assert [finding.grade for finding in trust if "no trust" in finding.text] == [Grade.PROBLEM] * 4


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("127.0.0.1:8080", "127.0.0.1:8080"),
        ("http://user:secret@proxy.example:3128/", "http://proxy.example:3128/"),
        # Without a scheme, as curl and others take it, what stands before the colon is none.
        ("user:secret@proxy.example:3128", "proxy.example:3128"),
        ("http:user:secret@proxy.example", "proxy.example"),
        # No URLs, but what people write who do not escape their passwords.
        ("http://user:se/cret@proxy.example:3128", "http://proxy.example:3128"),
        ("http://user:se@cret@proxy.example", "http://proxy.example"),
        ("http://user:se://cret@proxy.example", "http://proxy.example"),
        ("user:se/x://cret@proxy.example", "proxy.example"),
        ("http://user:secret@[::1", "http://[::1"),
    ],
)
def test_no_credentials_are_shown_however_a_proxy_is_written(named: str, shown: str) -> None:
    assert diagnosis.masked(named) == shown
