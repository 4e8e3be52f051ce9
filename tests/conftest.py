"""Fixtures that more than one test module uses."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.support.origin import Origin

for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        # Of a shell that runs the tests in the background, or of nohup. We go on ignoring it; but what is started here
        # has it as usual, which it would inherit otherwise.
        signal.signal(number, lambda *_: None)


@pytest.fixture
def origin() -> Iterator[Origin]:
    """A scripted origin, which answers 200 until its `script` or `mode` is set."""
    with Origin() as running:
        yield running


@pytest.fixture
def secure_origin() -> Iterator[Origin]:
    """The same over TLS, for localhost."""
    with Origin(tls=True) as running:
        yield running


@pytest.fixture(scope="session")
def confdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a CA for the proxy. All tests share it: what the proxy makes by itself, with RSA, takes long to
    make, and at each start as long to read as all the rest."""
    folder = tmp_path_factory.mktemp("confdir")
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    certificate = authority.cert_pem.bytes()
    (folder / "mitmproxy-ca.pem").write_bytes(authority.private_key_pem.bytes() + certificate)
    (folder / "mitmproxy-ca-cert.pem").write_bytes(certificate)
    return folder
