"""Fixtures that more than one test module uses."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.origin import Origin


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
    """A folder for the proxy's CA. Making the CA's keys takes long, so that all tests share one."""
    return tmp_path_factory.mktemp("confdir")
