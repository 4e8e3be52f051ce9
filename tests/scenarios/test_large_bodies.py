"""Bodies of any size pass through little memory, whoever is slow, and whether they wait before they are sent."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.bulk import BulkClient, BulkOrigin
from tests.support.proxy import Paceproxy
from tests.support.waiting import until_still

MIB = 1 << 20
LIMIT = 12 * MIB
"""How much the proxy may grow at its peak."""


@pytest.fixture(scope="module")
def proxy(confdir: Path) -> Iterator[Paceproxy]:
    with Paceproxy("--http2", "--ssl-insecure", "--ladder", "0,1", confdir=confdir) as running:
        yield running


@pytest.fixture(params=[False, True], ids=["HTTP/1.1", "HTTP/2"])
def bulk(request: pytest.FixtureRequest) -> Iterator[BulkOrigin]:
    with BulkOrigin(h2=request.param) as origin:
        yield origin


@contextmanager
def within_limit(proxy: Paceproxy) -> Iterator[None]:
    """The proxy's resident memory does not grow by more than LIMIT meanwhile, not for a moment."""
    Path(f"/proc/{proxy.process.pid}/clear_refs").write_text("5")
    before = proxy.peak_rss_bytes()
    yield
    grown = proxy.peak_rss_bytes() - before
    assert grown < LIMIT, f"it grew by {grown / MIB:.1f} MiB"


def size_for(bulk: BulkOrigin) -> int:
    """More than the proxy may grow by, and than the system's own buffers on the way take, some 20 MiB; over HTTP/2
    windows leave those empty."""
    return 24 * MIB if bulk.h2 else 64 * MIB


def warm_up(client: BulkClient) -> None:
    """What is loaded and cached at the first request is no part of the body."""
    client.take(client.ask(MIB), MIB)
    client.received_bytes = 0


def test_a_download_waits_for_a_client_that_takes_nothing(proxy: Paceproxy, bulk: BulkOrigin) -> None:
    size = size_for(bulk)
    with BulkClient(proxy.port, bulk, proxy.ca) as client:
        warm_up(client)
        with within_limit(proxy):
            bulk.sent_bytes = 0
            stream = client.ask(size)
            until_still(lambda: bulk.sent_bytes, "the origin could send no more")
            assert bulk.sent_bytes < size / 2
            client.take(stream, size)
    assert bulk.sent_bytes == size


def test_an_upload_waits_for_an_origin_that_takes_nothing(proxy: Paceproxy, bulk: BulkOrigin) -> None:
    size = size_for(bulk)
    with BulkClient(proxy.port, bulk, proxy.ca) as client:
        warm_up(client)
        with within_limit(proxy):
            bulk.reads.clear()
            sender = threading.Thread(target=client.upload, args=(size,), daemon=True)
            sender.start()
            until_still(lambda: client.sent_bytes, "the client could send no more")
            assert client.sent_bytes < size / 2
            bulk.reads.set()
            sender.join(30)
    assert bulk.received_bytes == size


def test_an_upload_waits_with_its_client_while_its_host_is_paced(proxy: Paceproxy, bulk: BulkOrigin) -> None:
    size = size_for(bulk)
    with BulkClient(proxy.port, bulk, proxy.ca) as client:
        warm_up(client)
        client.fail()
        with within_limit(proxy):
            client.upload(size)
    assert bulk.received_bytes == size
