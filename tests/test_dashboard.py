"""Grafana's dashboard: that it is one, and that a person can read it. What it shows is in `scenarios`."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.support import promtool

FILE = Path(__file__).parents[1] / "config" / "grafana" / "dashboards" / "paceproxy.json"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]


def lost(given: Any, kept: Any, path: str = "") -> list[str]:
    """What Grafana's own types, which are made from its schema, do not keep of a value."""
    if isinstance(given, dict) and isinstance(kept, dict):
        return [
            fault
            for key, value in given.items()
            for fault in (lost(value, kept[key], f"{path}.{key}") if key in kept else [f"{path}.{key}"])
        ]
    if isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        return [
            fault
            for i, (one, other) in enumerate(zip(given, kept, strict=True))
            for fault in lost(one, other, f"{path}[{i}]")
        ]
    return [] if given == kept and type(given) is type(kept) else [path]


def round_trip(dashboard: dict[str, Any]) -> list[str]:
    register_default_plugins()
    kept = json.loads(json.dumps(Dashboard.from_json(dashboard), cls=JSONEncoder))
    return lost(dashboard, kept)


def test_every_field_is_one_that_grafana_knows() -> None:
    assert round_trip(DASHBOARD) == []


@pytest.mark.parametrize(
    "break_it",
    [
        lambda dashboard: dashboard.update(titel="Paceproxy"),
        lambda dashboard: dashboard["panels"][1].update(discription="…"),
        lambda dashboard: dashboard["panels"][1]["options"].update(colourMode="value"),
        lambda dashboard: dashboard["panels"][1]["targets"][0].update(expression="up"),
        lambda dashboard: dashboard["panels"][1]["fieldConfig"]["defaults"].update(units="s"),
    ],
)
def test_a_field_that_grafana_does_not_know_is_found(break_it: Any) -> None:
    broken = json.loads(FILE.read_text())
    break_it(broken)
    assert len(round_trip(broken)) == 1


def test_every_panel_says_what_it_answers_in_whole_sentences() -> None:
    for panel in PANELS:
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]


def test_every_row_is_a_question_and_has_panels() -> None:
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows == [
        "Is anything slow now?",
        "Which hosts, and why?",
        "What did waiting save?",
        "How long do requests take, and how much of it is waiting?",
        "Is the proxy itself well?",
    ]


def test_no_panel_lies_over_another_and_no_number_is_there_twice() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)


def test_every_expression_is_of_the_chosen_job_and_instance() -> None:
    for expression in EXPRESSIONS:
        assert 'job=~"$job", instance=~"$instance"' in expression


def test_every_expression_is_written_as_prometheus_takes_it() -> None:
    rules = [{"record": f"panel:{i}", "expr": filled_in(expr)} for i, expr in enumerate(EXPRESSIONS)]
    result = promtool.run(
        "check", "rules", "/dev/stdin", given=json.dumps({"groups": [{"name": "panels", "rules": rules}]}).encode()
    )
    assert result.returncode == 0, (result.stdout + result.stderr).decode()


def filled_in(expression: str) -> str:
    """As Grafana asks for it with all jobs and instances chosen."""
    for variable, value in {"$job": ".*", "$instance": ".*", "$__rate_interval": "1m", "$__range": "1h"}.items():
        expression = expression.replace(variable, value)
    assert not re.search(r"\$", expression), expression
    return expression
