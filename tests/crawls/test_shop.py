"""The simulated site on real sockets answers as its scenario says, and writes it down."""

import http.client
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest

from tests.crawls.contenders import PEERS
from tests.crawls.records import read_lines
from tests.crawls.run import Trial, shop
from tests.support.waiting import until


@dataclass(frozen=True, slots=True)
class RunningShop:
    port: int
    log: Path

    def ask(self, path: str, *, host: str = "127.0.0.1", method: str = "GET") -> http.client.HTTPResponse:
        """The response, read to its end."""
        with closing(http.client.HTTPConnection(host, self.port, timeout=10)) as connection:
            connection.request(method, path)
            response = connection.getresponse()
            response.read()
            return response

    def leave(self, path: str) -> None:
        """Ask, and do not wait for the answer."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: shop\r\n\r\n".encode())
            connection.settimeout(0.1)
            with pytest.raises(TimeoutError):
                connection.recv(1)


@contextmanager
def running(folder: Path, scenario: str, *changes: str) -> Iterator[RunningShop]:
    with shop(Trial(scenario, PEERS["plain"], changes, scale=0.01), folder) as port:
        yield RunningShop(port, folder / "shop.jsonl")


def test_a_healthy_host_serves_every_page_and_writes_it_down(tmp_path: Path) -> None:
    with running(tmp_path, "healthy") as origin:
        response = origin.ask("/p/0")
        assert (response.status, response.getheader("Content-Length")) == (200, "2000")
        assert origin.ask("/p/1", method="HEAD").status == 200
    first, second = read_lines(tmp_path / "shop.jsonl")
    assert (first["host"], first["path"], first["status"], first["left"]) == ("127.0.0.1", "/p/0", 200, None)
    assert 0 <= first["at"] <= first["start"] < first["finish"] <= second["at"]
    assert second["path"] == "/p/1"


def test_a_connection_is_kept_and_requests_sent_together_are_answered_in_turn(tmp_path: Path) -> None:
    request = "GET http://shop/p/{} HTTP/1.1\r\nHost: shop\r\n{}\r\n"
    with running(tmp_path, "healthy") as origin, socket.create_connection(("127.0.0.1", origin.port), 10) as client:
        client.sendall((request.format(7, "") + request.format(8, "Connection: close\r\n")).encode())
        with client.makefile("rb") as stream:
            came = stream.read()
    assert came.count(b"HTTP/1.1 200 OK\r\n") == 2
    assert came.index(b"<title>/p/7</title>") < came.index(b"<title>/p/8</title>")


def test_an_outage_begins_and_ends_when_it_should(tmp_path: Path) -> None:
    statuses: list[int] = []
    with running(tmp_path, "outage", "cost=1", "dead_from=20", "dead_to=40") as origin:

        def is_back() -> bool:
            statuses.append(origin.ask(f"/p/{len(statuses)}").status)
            return statuses[-2:] == [503, 200]

        until(is_back, "the outage was over")
    refused = [line for line in read_lines(tmp_path / "shop.jsonl") if line["status"] == 503]
    assert statuses[0] == 200
    assert all(20 <= line["at"] < 40 and line["saturated"] for line in refused)
    assert all(line["start"] is None for line in refused)


def test_a_silent_host_says_nothing_until_its_client_leaves(tmp_path: Path) -> None:
    with running(tmp_path, "blackhole") as origin:
        origin.leave("/p/0")
    (line,) = read_lines(tmp_path / "shop.jsonl")
    assert (line["status"], line["saturated"]) == (None, True)
    assert line["left"] > 0


def test_a_limited_host_says_in_turn_how_long_to_wait_and_until_when(tmp_path: Path) -> None:
    with running(tmp_path, "rate-limit", "burst=1", "rate=0.001", "retry_after=150") as origin:
        assert origin.ask("/p/0").status == 200
        asked_at = time.time()
        second, third = origin.ask("/p/1"), origin.ask("/p/2")
    assert (second.status, second.getheader("Retry-After")) == (429, "2")  # 150 * 0.01, rounded up
    date = third.getheader("Retry-After")
    assert date is not None
    assert asked_at + 2 <= parsedate_to_datetime(date).timestamp() <= asked_at + 10


def test_a_flaky_host_refuses_the_same_requests_in_every_run(tmp_path: Path) -> None:
    with running(tmp_path, "flaky") as origin:
        statuses = {path: origin.ask(path).status for path in (f"/p/{number}" for number in range(20))}
        refused = [path for path, status in statuses.items() if status == 503]
        assert [origin.ask(path).status for path in refused] == [200] * len(refused)
    assert refused == ["/p/5", "/p/17"]


def test_bad_pages_are_bad_whenever_they_are_asked_for(tmp_path: Path) -> None:
    with running(tmp_path, "poison", "pages=100", "cost=0.1") as origin:
        statuses = [[origin.ask(f"/p/{number}").status for number in range(100)] for _ in range(2)]
    assert statuses[0] == statuses[1]
    assert sorted(statuses[0]) == [200] * 98 + [500] * 2


@pytest.mark.parametrize(("full", "status"), [("503", 503), ("429", 429)])
def test_a_full_pool_may_refuse(tmp_path: Path, full: str, status: int) -> None:
    with running(tmp_path, "shop-503", f"full={full}", "workers=1", "cores=1", "cost=1000") as origin:
        origin.leave("/p/0")
        assert origin.ask("/p/1").status == status


def test_a_page_is_made_although_its_client_has_left(tmp_path: Path) -> None:
    with running(tmp_path, "shop-pool", "workers=1", "cores=1", "cost=20", "jitter=0") as origin:
        origin.leave("/p/0")
        assert origin.ask("/p/1").status == 200
    dead, alive = read_lines(tmp_path / "shop.jsonl")
    assert dead["left"] < dead["finish"]
    assert dead["status"] == 200
    assert alive["start"] >= dead["start"] + 20
    assert (alive["saturated"], alive["busy"], alive["queued"]) == (True, 1, 0)


def test_only_the_sick_host_of_a_fleet_is_sick(tmp_path: Path) -> None:
    with running(tmp_path, "mixed-fleet", "cost=0.1", "dead_how=503") as origin:
        statuses = [origin.ask("/p/0", host=f"127.0.1.{number}").status for number in range(1, 21)]
    assert [number for number, status in enumerate(statuses, 1) if status != 200] == [7]
    assert len({line["host"] for line in read_lines(tmp_path / "shop.jsonl")}) == 20
