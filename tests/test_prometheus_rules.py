"""The alerts for Prometheus: that it takes them, that they are raised when they should be, and what they speak of."""

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from proxy_addon.metrics import Metrics
from proxy_addon.model import Snapshot
from tests.support import promtool

ROOT = Path(__file__).parents[1]
RULES = ROOT / "config" / "prometheus" / "paceproxy.rules.yaml"
TESTS = ROOT / "tests" / "prometheus" / "paceproxy.rules.test.yaml"


def test_prometheus_takes_the_rules() -> None:
    result = promtool.run("check", "rules", str(RULES))
    assert (result.returncode, result.stderr) == (0, b"")
    assert b"5 rules found" in result.stdout


def test_the_alerts_are_raised_when_they_should_be_and_not_otherwise() -> None:
    result = promtool.run("test", "rules", str(TESTS))
    assert result.returncode == 0, (result.stdout + result.stderr).decode()


def test_every_alert_is_tested() -> None:
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text())
    assert len(alerts) == 5
    assert set(re.findall(r"alertname: (\w+)", TESTS.read_text())) == set(alerts)


@pytest.mark.parametrize("file", [RULES, TESTS], ids=lambda file: file.name)
def test_every_series_that_is_named_exists_with_its_labels(file: Path) -> None:
    nothing = Snapshot(hosts=(), waiting=0, in_flight=0, store_up=True, at=0.0)
    body, _ = Metrics(lambda: nothing, rungs=6).expose()
    series = [s for family in text_string_to_metric_families(body.decode()) for s in family.samples]
    named = re.findall(r"\b(paceproxy_\w+)(?:\{(.*?)\})?", file.read_text())
    assert len(named) > 5
    for name, text in named:
        labels = {key: value for key, value in re.findall(r'(\w+)="(.*?)"', text) if key not in ("job", "instance")}
        assert any(one.name == name and labels.items() <= one.labels.items() for one in series), (name, labels)


def test_what_the_alerts_quote_from_the_log_is_what_it_says() -> None:
    quoted = re.findall(r'\("(.*?)"\)', RULES.read_text())
    sources = "".join(file.read_text() for file in (ROOT / "proxy_addon").glob("*.py"))
    assert quoted == ["is left alone for", "has given up waiting"]
    assert all(words in sources for words in quoted)
