"""The alerts for Prometheus: that it takes them, that they are raised when they should be, and what they speak of."""

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from proxy_addon.metrics import Metrics
from proxy_addon.model import ErrorName, HostState, HostView, LastStall, Snapshot
from tests.support import promtool

ROOT = Path(__file__).parents[1]
RULES = ROOT / "config" / "prometheus" / "paceproxy.rules.yaml"
TESTS = ROOT / "tests" / "prometheus" / "paceproxy.rules.test.yaml"


def test_prometheus_takes_the_rules() -> None:
    result = promtool.run("check", "rules", str(RULES))
    assert (result.returncode, result.stderr) == (0, b"")
    assert b"9 rules found" in result.stdout


def test_the_alerts_are_raised_when_they_should_be_and_not_otherwise() -> None:
    result = promtool.run("test", "rules", str(TESTS))
    assert result.returncode == 0, (result.stdout + result.stderr).decode()


def test_every_alert_is_tested() -> None:
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text())
    assert len(alerts) == 9
    assert set(re.findall(r"alertname: (\w+)", TESTS.read_text())) == set(alerts)


@pytest.mark.parametrize("file", [RULES, TESTS], ids=lambda file: file.name)
def test_every_series_that_is_named_exists_with_its_labels(file: Path) -> None:
    slow = HostView("a.example", HostState(rung=1), 2.0, 0, 0, LastStall(ErrorName.RATE_LIMITED, 1.0))
    one_slow_host = Snapshot(hosts=(slow,), waiting=0, in_flight=0, store_up=True, at=0.0)
    body, _ = Metrics(lambda: one_slow_host, rungs=6).expose()
    series = [s for family in text_string_to_metric_families(body.decode()) for s in family.samples]
    named = re.findall(r"\b(paceproxy_\w+)(?:\{(.*?)\})?", file.read_text())
    assert len(named) > 5
    for name, text in named:
        labels = {key: value for key, value in re.findall(r'(\w+)="(.*?)"', text) if key not in ("job", "instance")}
        assert any(one.name == name and labels.items() <= one.labels.items() for one in series), (name, labels)


def test_every_alert_has_its_section_in_the_runbook_and_every_section_its_alert() -> None:
    pairs = re.findall(r"- alert: (\w+)\n(?:.*\n)*?\s+runbook: docs/runbook.md#(\w+)\n", RULES.read_text())
    assert [alert.lower() for alert, _ in pairs] == [anchor for _, anchor in pairs]
    sections = re.findall(r"^## (\w+)$", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE)
    assert [alert for alert, _ in pairs] == sections


def test_what_the_alerts_quote_from_the_log_is_what_it_says() -> None:
    quoted = re.findall(r'\("(.*?)"\)', RULES.read_text())
    sources = "".join(file.read_text() for file in (ROOT / "proxy_addon").glob("*.py"))
    assert quoted == ["is left alone for", "has given up waiting"]
    assert all(words in sources for words in quoted)
