"""Killed with SIGKILL and started again on the same file: rung, slot and block are as they were.

How long a start takes is up to the machine. So nobody waits for the slot here: a request that will not be held
(`Pace-Window: 0`) is told at once when it comes.
"""

import time
from pathlib import Path

import pytest

from tests.support.behaviours import respond
from tests.support.clients import Answer, RawClient
from tests.support.origin import Origin
from tests.support.proxy import Paceproxy

LADDER = ("--ladder", "0,0.2,120")


@pytest.fixture
def store(tmp_path: Path) -> tuple[str, str]:
    return ("--store", f"sqlite:///{tmp_path}/pace.db")


def ask_at_once(proxy: Paceproxy, url: str) -> Answer:
    """A request that will not wait."""
    with RawClient(proxy.port) as client:
        client.get(url, "Pace-Window: 0")
        return client.answer()


def wait_s(answer: Answer) -> int:
    (value,) = answer.values("Retry-After")
    return int(value)


def test_rung_and_slot_survive_a_kill(origin: Origin, confdir: Path, store: tuple[str, str]) -> None:
    origin.script = {"/sick": respond(503)}
    with Paceproxy(*LADDER, *store, confdir=confdir) as first, RawClient(first.port) as client:
        client.get(origin.url("/sick"))
        first.wait_for_metric("paceproxy_host_rung", 2, host=origin.host)
        first.kill()
    with Paceproxy(*LADDER, *store, confdir=confdir) as second:
        assert second.metric("paceproxy_host_rung", host=origin.host) == 2
        answer = ask_at_once(second, origin.url("/next"))
        left_s = origin.requests[1].at + 120 - time.monotonic()
    assert answer.status == 503
    assert wait_s(answer) == pytest.approx(left_s, abs=1.5)  # it is rounded to whole seconds
    assert [request.path for request in origin.requests] == ["/sick", "/sick"]


def test_a_block_survives_a_kill(origin: Origin, confdir: Path, store: tuple[str, str]) -> None:
    origin.script = {"/limited": respond(429, fields=[("Retry-After", "240")])}
    with Paceproxy(*LADDER, *store, confdir=confdir) as first, RawClient(first.port) as client:
        client.get(origin.url("/limited"))
        first.wait_for_metric("paceproxy_host_rung", 1, host=origin.host)
        first.kill()
    with Paceproxy(*LADDER, *store, confdir=confdir) as second:
        answer = ask_at_once(second, origin.url("/next"))
        left_s = origin.requests[0].at + 240 - time.monotonic()
    assert answer.status == 503
    assert wait_s(answer) == pytest.approx(left_s, abs=1.5)
    assert [request.path for request in origin.requests] == ["/limited"]


def test_the_slot_is_granted_after_a_kill_when_it_comes(origin: Origin, confdir: Path, store: tuple[str, str]) -> None:
    origin.script = {"/sick": [respond(503), respond(503), respond()]}
    ladder = ("--ladder", "0,0.2,2")
    with Paceproxy(*ladder, *store, confdir=confdir) as first, RawClient(first.port) as client:
        client.get(origin.url("/sick"))
        first.wait_for_metric("paceproxy_host_rung", 2, host=origin.host)
        first.kill()
    with Paceproxy(*ladder, *store, confdir=confdir) as second, RawClient(second.port) as client:
        client.get(origin.url("/next"))
        assert client.answer().status == 200
    _, stalled, following = origin.requests
    assert following.path == "/next"
    assert following.at - stalled.at >= 2 - 0.02
