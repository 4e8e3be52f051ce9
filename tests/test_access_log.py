"""The listener: whom it hears, and what it tells of lines that are lost."""

import asyncio
import json
from pathlib import Path

from proxy_addon.access_log import AccessLog
from proxy_addon.metrics import Metrics
from proxy_addon.model import AttemptEnded, Outcome, Snapshot
from proxy_addon.settings import Settings
from tests.support.requests_ended import ended


def test_a_log_that_is_off_listens_to_nothing() -> None:
    log = AccessLog(Settings())
    log.start()
    log.reopen()
    asyncio.run(log.stop())
    assert (log.listeners, log.lost_lines) == ((), 0)


def test_only_requests_have_lines_and_the_setting_leaves_the_query_out(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    log = AccessLog(Settings(access_log=str(path), access_log_query=False))
    log.start()
    (listener,) = log.listeners
    listener(AttemptEnded("shop.example", Outcome.SERVED, None, 1.0))
    listener(ended(url="https://shop.example/item?token=secret"))
    asyncio.run(log.stop())
    (line,) = path.read_text().splitlines()
    assert json.loads(line)["url"] == "https://shop.example/item"


def test_lines_for_which_there_is_no_room_are_counted_in_the_metrics() -> None:
    log = AccessLog(Settings(access_log="/dev/full"))
    metrics = Metrics(
        lambda: Snapshot(hosts=(), waiting=0, in_flight=0, store_up=True, at=0.0),
        rungs=6,
        lost_lines=lambda: log.lost_lines,
    )
    log.start()
    (listener,) = log.listeners
    event = ended(url="https://shop.example/" + "x" * 9000)
    for _ in range(2000):
        listener(event)
    # Of lines of 8,423 bytes, 995 fit in 8 MiB.
    (family,) = [family for family in metrics.collect() if family.name == "paceproxy_access_log_lost_lines"]
    asyncio.run(log.stop())
    assert [sample.value for sample in family.samples] == [2000 - 995]
