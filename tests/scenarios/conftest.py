"""One running proxy for all scenarios that can do with its settings: a start takes seconds."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.proxy import Paceproxy


@pytest.fixture(scope="session")
def running_proxy(confdir: Path) -> Iterator[Paceproxy]:
    flags = (
        *("--ladder", "0,0.1,0.2,0.4", "--attempt-timeout", "1", "--retry-after-cap", "1.2", "--window", "30"),
        # Spacing is judged by the plain rule, which can be told from an origin's log.
        *("--pause-after", "0", "--ssl-insecure", "--http2", "--climb", "stall", "--in-flight", "off"),
    )
    with Paceproxy(*flags, confdir=confdir) as proxy:
        yield proxy


@pytest.fixture
def shared_proxy(running_proxy: Paceproxy) -> Iterator[Paceproxy]:
    """The running proxy, and after the test nothing in flight in it and nobody waiting."""
    yield running_proxy
    running_proxy.assert_idle()
