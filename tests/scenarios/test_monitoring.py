"""What Prometheus sees of two proxies that share a store, under a load in which everything happens at least once.

Every panel of the dashboard must have data there, and the alerts must be raised: with their durations divided, so that
a minute of theirs is a fraction of a second here.
"""

import json
import math
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.behaviours import close, late, respond
from tests.support.clients import RawClient
from tests.support.origin import Origin
from tests.support.prometheus import Prometheus
from tests.support.proxy import Paceproxy
from tests.support.visit import Behaviour, Request
from tests.support.waiting import until
from tests.test_dashboard import PANELS

ROOT = Path(__file__).parents[2]
RULES = (ROOT / "config" / "prometheus" / "paceproxy.rules.yaml").read_text()
SCALE = 75
"""How much shorter than in the file the rules' durations are. None gets shorter than two scrapes."""
DEADLINE_S = 90.0

SICK = [f"127.0.0.{number}" for number in range(2, 16)]
BLOCKED = "127.0.0.20"
WELL = "127.0.0.30"
BUSY = "127.0.0.31"
DOWN_OR_ABSENT = 'ALERTS{alertname=~"PaceproxyDown|PaceproxyAbsent"}'
STORE_ERRORS = ("Errors of the store, and redials", "A")


def behave(request: Request) -> Behaviour:
    name = request.values("Host")[0].partition(":")[0]
    if name in SICK:
        return respond(503)
    if name == BLOCKED:
        return respond(429, fields=[("Retry-After", "200")])
    first = request.path not in ASKED
    ASKED.add(request.path)
    if first and request.path.startswith("/flaky"):
        return respond(503)
    if first and request.path.startswith("/closing"):
        return close()
    return late(0.3, respond()) if name == BUSY else respond()


ASKED: set[str] = set()


def shortened(rules: str) -> str:
    """The rules with all their durations divided."""

    def shorter(match: re.Match[str]) -> str:
        seconds = int(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]
        return f"{max(1000, 1000 * seconds // SCALE)}ms"

    return re.sub(r"(?<=[\[: ])(\d+)([smh])(?=[\]:) \n])", shorter, rules)


class Load:
    """Requests that keep coming, until it ends."""

    def __init__(self, origin: Origin, proxies: list[Paceproxy]) -> None:
        self._origin = origin
        self._proxies = proxies
        self._over = threading.Event()
        self._open: list[RawClient] = []
        self._thread = threading.Thread(target=self._run, name="load")
        self._fault: BaseException | None = None

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """No more requests; those that are held are given up."""
        self._over.set()
        self._thread.join(30)
        for client in self._open:
            client.close()
        if self._fault is not None:
            raise self._fault

    def _run(self) -> None:
        try:
            turn = 0
            while not self._over.is_set():
                for proxy in self._proxies:
                    self._turn(proxy, turn)
                turn += 1
                self._over.wait(1.0)
        except BaseException as fault:
            self._fault = fault

    def _turn(self, proxy: Paceproxy, turn: int) -> None:
        port = self._origin.port
        for name in ("127.0.0.1", BUSY):
            self._ask_and_forget(proxy, f"http://{name}:{port}/flaky-{name}-{proxy.port}-{turn}")
        with RawClient(proxy.port) as client:
            # The connection that was kept for the second request has just ended.
            for path in ("/", f"/closing-{proxy.port}-{turn}"):
                client.get(f"http://{WELL}:{port}{path}")
                assert client.answer().status == 200
        for _ in range(4):
            self._ask_and_forget(proxy, f"http://{BUSY}:{port}/")
        self._ask_and_forget(proxy, f"http://{SICK[2]}:{port}/lost", "Pace-Window: 1")
        self._ask_and_forget(proxy, f"http://127.0.0.1:9/refused-{turn}")
        with RawClient(proxy.port) as impatient:
            impatient.get(f"http://{SICK[0]}:{port}/left")
        if turn < 100:
            # They wait, ever more of them; a host is also asked by several at once.
            for name in SICK if turn == 0 else (SICK[0], SICK[1], SICK[-1], BLOCKED):
                self._ask_and_forget(proxy, f"http://{name}:{port}/{turn}", "Pace-Window: 500")

    def _ask_and_forget(self, proxy: Paceproxy, url: str, *lines: str) -> None:
        client = RawClient(proxy.port)
        client.get(url, *lines)
        self._open.append(client)


@dataclass(frozen=True, slots=True)
class Watched:
    """Two proxies that share a store, what is asked of them, and the Prometheus that watches them."""

    server: Prometheus
    proxies: list[Paceproxy]
    load: Load
    store: Path

    def value(self, expression: str) -> float:
        """The greatest value among the series of the expression; 0 where there is none."""
        values = [float(sample["value"][1]) for sample in self.server.query(asked(expression))]
        return max((value for value in values if not math.isnan(value)), default=0.0)

    def wait_for_alert(self, alert: str, **labels: str) -> None:
        """Return once it was raised with these labels. Also one that is over meanwhile: some come and go."""
        match = "".join(f', {label}="{value}"' for label, value in labels.items())
        raised = f'max_over_time(ALERTS{{alertname="{alert}", alertstate="firing"{match}}}[5m])'
        until(lambda: self.server.query(raised), f"{alert} was raised", DEADLINE_S, look_every_s=0.3)


@pytest.fixture(scope="module")
def watched(confdir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    store = tmp_path_factory.mktemp("store") / "hosts.sqlite3"
    flags = (
        *("--store", f"sqlite:///{store}", "--climb", "stall", "--ladder", "0,0.3,0.5,1", "--in-flight", "2"),
        *("--pause-after", "4", "--pause", "60", "--retry-after-cap", "60", "--attempt-timeout", "2"),
    )
    with ExitStack() as stack:
        origin = stack.enter_context(Origin(behave, address="0.0.0.0"))
        proxies = [stack.enter_context(Paceproxy(*flags, confdir=confdir)) for _ in range(2)]
        config = {
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
            "scrape_configs": [
                {
                    "job_name": "paceproxy",
                    "static_configs": [{"targets": [f"127.0.0.1:{proxy.admin_port}" for proxy in proxies]}],
                }
            ],
        }
        server = stack.enter_context(Prometheus(config, rules=shortened(RULES)))
        # So that rates and what grows have something to begin from: subqueries look once a second.
        scraped = "count_over_time(paceproxy_build_info[1m]) > 4"
        until(lambda: len(server.query(scraped)) == 2, "both proxies were scraped some times", DEADLINE_S)
        load = stack.enter_context(Load(origin, proxies))
        yield Watched(server, proxies, load, store)


def asked(expression: str) -> str:
    """The expression as Grafana asks for it, with the job chosen and every instance."""
    values = {"$job": "paceproxy", "$instance": ".*", "$__rate_interval": "10s", "$__range": "30s"}
    for variable, value in values.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression
    return expression


def queries() -> dict[tuple[str, str], str]:
    """The expressions of the dashboard by their panel's title and their letter."""
    return {(panel["title"], target["refId"]): target["expr"] for panel in PANELS for target in panel["targets"]}


def test_every_query_of_every_panel_has_data_and_more_than_zero(watched: Watched) -> None:
    missing = queries()
    del missing[STORE_ERRORS]  # in a test of its own

    def all_have_data() -> bool:
        for key, expression in list(missing.items()):
            if watched.value(expression) > 0:
                del missing[key]
        return not missing

    try:
        until(all_have_data, "every query had data", DEADLINE_S, look_every_s=0.5)
    except AssertionError as error:
        error.add_note(json.dumps([list(key) for key in missing]))
        raise


def test_two_proxies_that_share_a_store_count_each_host_once(watched: Watched) -> None:
    slow = queries()["Slow hosts", "A"]
    seen: list[float] = []

    def all_slow() -> bool:
        seen.append(watched.value(slow))
        return seen[-1] >= len(SICK)

    until(all_slow, "every sick host was slow", DEADLINE_S, look_every_s=0.5)
    # The sick ones, the blocked one once its block is a rung, and those two that stumble.
    assert max(seen) <= len(SICK) + 3


def test_the_variables_have_values(watched: Watched) -> None:
    assert watched.server.label_values("job", "paceproxy_build_info") == ["paceproxy"]
    assert len(watched.server.label_values("instance", 'paceproxy_build_info{job=~"paceproxy"}')) == 2


@pytest.mark.parametrize(
    "alert", ["PaceproxyHostPaused", "PaceproxyManyHostsSlow", "PaceproxyClientsGiveUp", "PaceproxyLineGrows"]
)
def test_the_alert_is_raised(watched: Watched, alert: str) -> None:
    watched.wait_for_alert(alert)


# From here on each test breaks something.


def test_a_store_that_cannot_be_used_is_seen_and_told_of(watched: Watched) -> None:
    assert watched.value(queries()[STORE_ERRORS]) == 0
    with closing(sqlite3.connect(watched.store, isolation_level=None)) as another:
        another.execute("BEGIN IMMEDIATE")  # and never ends: nobody else can write
        watched.wait_for_alert("PaceproxyStoreDown", job="paceproxy")
        until(lambda: watched.value(queries()[STORE_ERRORS]) > 0, "the errors were seen", DEADLINE_S, look_every_s=0.3)
        assert watched.value(queries()["Store", "A"]) == 0


def test_a_proxy_that_ends_is_told_of_and_then_that_there_is_none(watched: Watched) -> None:
    watched.load.end()
    ended, left = watched.proxies
    instances = [f"127.0.0.1:{proxy.admin_port}" for proxy in (ended, left)]
    ended.kill()
    watched.wait_for_alert("PaceproxyDown", instance=instances[0])
    assert {sample["metric"].get("instance") for sample in watched.server.query(DOWN_OR_ABSENT)} == {instances[0]}
    left.kill()
    watched.wait_for_alert("PaceproxyDown", instance=instances[1])
    watched.wait_for_alert("PaceproxyAbsent")
