"""The picture of the dashboard in the documentation: drawn from what a real Prometheus saw of a real proxy."""

import itertools
import math
import os
import random
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.support.behaviours import late, respond
from tests.support.clients import RawClient
from tests.support.dashboard_picture import Data, Line, Table, draw
from tests.support.origin import Origin
from tests.support.prometheus import Prometheus
from tests.support.proxy import Paceproxy
from tests.support.visit import Behaviour, Request
from tests.test_dashboard import DASHBOARD

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "dashboard.svg"
SHOWN = [panel for panel in DASHBOARD["panels"] if panel["id"] < 25]
"""All but those of the proxy's own health."""
HOSTS = ("a.example", "b.example", "c.example", "d.example", "news.example", "shop.example", "images.example")


class Sites:
    """Some are well, and some fail as overloaded sites do."""

    def __init__(self) -> None:
        self._chance = random.Random(1)

    def behave(self, request: Request) -> Behaviour:
        name = request.values("Host")[0].partition(":")[0]
        taken_s = self._chance.uniform(0.02, 0.3)
        fails = {"shop.example": 0.3, "news.example": 0.1, "images.example": 0.5}.get(name, 0.0)
        if self._chance.random() >= fails:
            return late(taken_s, respond())
        return respond(429 if name == "shop.example" else 503)


class Crawl:
    """So many requests at a time, until it is told to end."""

    def __init__(self, proxy: Paceproxy, at_a_time: int) -> None:
        self._proxy = proxy
        self._over = threading.Event()
        self._hosts = itertools.cycle(HOSTS)
        self._threads = [threading.Thread(target=self._run) for _ in range(at_a_time)]

    def __enter__(self) -> "Crawl":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            with RawClient(self._proxy.port, timeout=30) as client:
                client.get(f"http://{next(self._hosts)}/", "Pace-Window: 25")
                client.answer()
            self._over.wait(0.2)


def test_the_picture_is_of_the_dashboard_as_it_is() -> None:
    texts = [element.text for element in ElementTree.parse(PICTURE).iter("{http://www.w3.org/2000/svg}text")]
    titles = {panel["title"] for panel in SHOWN}
    assert [text for text in texts if text in titles] == [panel["title"] for panel in SHOWN]
    assert PICTURE.stat().st_size < 150_000


@pytest.mark.skipif("PACEPROXY_PICTURE_S" not in os.environ, reason="makes the picture of the documentation anew")
def test_the_picture_of_the_documentation(confdir: Path) -> None:
    lasts_s = float(os.environ["PACEPROXY_PICTURE_S"])
    flags = ("--climb", "stall", "--ladder", "0,0.5,1,2,4")
    with Origin(Sites().behave) as origin, Paceproxy(*flags, "--upstream", origin.url(""), confdir=confdir) as proxy:
        targets = [{"targets": [f"127.0.0.1:{proxy.admin_port}"]}]
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [{"job_name": "paceproxy", "static_configs": targets}],
        }
        with Prometheus(config) as server, Crawl(proxy, 24):
            began = time.time()
            time.sleep(lasts_s)  # the picture is of so many seconds
            seen = Seen(server, since=began, now=time.time())
            says = (
                f"The dashboard's data: drawn from its queries on a real Prometheus, which watched a demo crawl for "
                f"{lasts_s:.0f} s. This is not a screenshot of Grafana."
            )
            PICTURE.write_text(draw(SHOWN, seen.data, says=says))


class Seen:
    """What the queries of a panel find."""

    def __init__(self, server: Prometheus, *, since: float, now: float) -> None:
        self._server = server
        self._since = since
        self._now = now

    def data(self, panel: Mapping[str, Any]) -> Data:
        match panel["type"]:
            case "stat":
                (sample,) = self._server.query(self._asked(panel["targets"][0]))
                return float(sample["value"][1])
            case "table":
                return self._table(panel)
            case _:
                return [line for target in panel["targets"] for line in self._lines(target)]

    def _asked(self, target: Mapping[str, Any]) -> str:
        expression: str = target["expr"]
        values = {
            "$job": ".*",
            "$instance": ".*",
            "$__rate_interval": "10s",
            "$__range": f"{self._now - self._since:.0f}s",
        }
        for variable, value in values.items():
            expression = expression.replace(variable, value)
        return expression

    def _lines(self, target: Mapping[str, Any]) -> list[Line]:
        step_s = max(1.0, (self._now - self._since) / 60)
        found = self._server.history(self._asked(target), since=self._since, to=self._now, step_s=step_s)
        lines = []
        for series in found:
            name: str = target["legendFormat"]
            for label, value in series["metric"].items():
                name = name.replace("{{" + label + "}}", value)
            points = tuple((float(at), float(value)) for at, value in series["values"])
            lines.append(Line(name, tuple(point for point in points if not math.isnan(point[1]))))
        return [line for line in lines if line.points]

    def _table(self, panel: Mapping[str, Any]) -> Table:
        (names,) = [t["options"]["renameByName"] for t in panel["transformations"] if t["id"] == "organize"]
        rows: dict[str, dict[str, str]] = {}
        for target in panel["targets"]:
            column = names[f"Value #{target['refId']}"]
            for sample in self._server.query(self._asked(target)):
                row = rows.setdefault(sample["metric"]["host"], {})
                row.update({names[label]: text for label, text in sample["metric"].items() if label in names})
                row[column] = self._cell(column, float(sample["value"][1]))
        worst_first = sorted(rows.values(), key=lambda row: (-float(row.get("Rung", 0)), row["Host"]))
        columns = tuple(names.values())
        return Table(columns, tuple(tuple(row.get(column, "") for column in columns) for row in worst_first))

    def _cell(self, column: str, value: float) -> str:
        if column == "Last stall":
            return f"{self._now - value / 1000:.0f} s ago"
        if column == "Held until":
            return f"in {value / 1000 - self._now:.0f} s"
        return f"{value:g} s" if column == "Pace" else f"{value:g}"
