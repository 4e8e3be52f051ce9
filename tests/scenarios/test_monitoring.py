"""What Prometheus sees of two proxies that share a store, under a load in which everything happens at least once.

Every panel of the dashboard must have data there, and the alerts must be raised: with their durations divided, so that
a minute of theirs is a fraction of a second here.
"""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.behaviours import respond
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
"""How much shorter than in the file the rules' durations are. None gets shorter than a scrape."""
DEADLINE_S = 40.0

SICK = [f"127.0.0.{number}" for number in range(2, 16)]
BLOCKED = "127.0.0.20"


def behave(request: Request) -> Behaviour:
    name = request.values("Host")[0].partition(":")[0]
    if name in SICK:
        return respond(503)
    if name == BLOCKED:
        return respond(429, fields=[("Retry-After", "200")])
    if request.path.startswith("/flaky"):
        FLAKY[request.path] = FLAKY.get(request.path, 0) + 1
        return respond(503) if FLAKY[request.path] == 1 else respond()
    return respond()


FLAKY: dict[str, int] = {}


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
        for path in ("/well", f"/flaky-{proxy.port}-{turn}"):
            self._ask_and_forget(proxy, f"http://127.0.0.1:{port}{path}")
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


@pytest.fixture(scope="module")
def watched(confdir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    store = tmp_path_factory.mktemp("store") / "hosts.sqlite3"
    flags = (
        *("--store", f"sqlite:///{store}", "--climb", "stall", "--ladder", "0,0.3,0.5,1", "--in-flight", "2"),
        *("--pause-after", "4", "--pause", "60", "--retry-after-cap", "60", "--attempt-timeout", "2"),
    )
    with ExitStack() as stack:
        origin = stack.enter_context(Origin(behave, address="0.0.0.0"))
        proxies = [stack.enter_context(Paceproxy(*flags, confdir=confdir)) for _ in range(2)]
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "scrape_configs": [
                {
                    "job_name": "paceproxy",
                    "static_configs": [{"targets": [f"127.0.0.1:{proxy.admin_port}" for proxy in proxies]}],
                }
            ],
        }
        server = stack.enter_context(Prometheus(config, rules=shortened(RULES)))
        # So that rates have something to begin from.
        until(lambda: len(server.query("paceproxy_build_info")) == 2, "both proxies were scraped", DEADLINE_S)
        stack.enter_context(Load(origin, proxies))
        yield server


def asked(expression: str) -> str:
    """The expression as Grafana asks for it, with the job chosen and every instance."""
    values = {"$job": "paceproxy", "$instance": ".*", "$__rate_interval": "10s", "$__range": "30s"}
    for variable, value in values.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression
    return expression


def test_every_query_of_every_panel_has_data(watched: Prometheus) -> None:
    missing = {(p["title"], t["refId"]): asked(t["expr"]) for p in PANELS for t in p["targets"]}

    def all_have_data() -> bool:
        for key, expression in list(missing.items()):
            if any(sample["value"][1] != "NaN" for sample in watched.query(expression)):
                del missing[key]
        return not missing

    try:
        until(all_have_data, "every query had data", DEADLINE_S, look_every_s=0.5)
    except AssertionError as error:
        error.add_note(json.dumps([list(key) for key in missing]))
        raise


def test_two_proxies_that_share_a_store_count_each_host_once(watched: Prometheus) -> None:
    (slow,) = [panel for panel in PANELS if panel["title"] == "Slow hosts"]
    expression = asked(slow["targets"][0]["expr"])

    def counted() -> list[float]:
        return [float(sample["value"][1]) for sample in watched.query(expression)]

    # The sick ones, the blocked one once its block is a rung, and 127.0.0.1 while it stumbles.
    seen: list[float] = []

    def all_slow() -> bool:
        seen.extend(counted())
        return bool(seen) and seen[-1] >= len(SICK)

    until(all_slow, "every sick host was slow", DEADLINE_S, look_every_s=0.5)
    assert max(seen) <= len(SICK) + 2


def test_the_variables_have_values(watched: Prometheus) -> None:
    assert watched.label_values("job", "paceproxy_build_info") == ["paceproxy"]
    assert len(watched.label_values("instance", 'paceproxy_build_info{job=~"paceproxy"}')) == 2


@pytest.mark.parametrize(
    "alert", ["PaceproxyHostPaused", "PaceproxyManyHostsSlow", "PaceproxyClientsGiveUp", "PaceproxyLineGrows"]
)
def test_the_alert_is_raised(watched: Prometheus, alert: str) -> None:
    seen: set[str] = set()

    def raised() -> bool:
        seen.update(watched.firing())
        return alert in seen or bool(
            watched.query(f'max_over_time(ALERTS{{alertname="{alert}", alertstate="firing"}}[5m])')
        )

    until(raised, f"{alert} was raised", DEADLINE_S, look_every_s=0.5)
