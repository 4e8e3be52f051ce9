"""The documentation is what the code says."""

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from proxy_addon import setting_docs
from proxy_addon.answers import Course, error_response
from proxy_addon.cli import main
from proxy_addon.commands import COMMANDS
from proxy_addon.metrics import Metrics
from proxy_addon.model import ErrorName, Snapshot
from proxy_addon.setting_lists import STALL_NAMES
from proxy_addon.setting_sources import load
from proxy_addon.settings import SETTINGS, Settings
from tests.scenarios.test_clients import CLIENTS

ROOT = Path(__file__).parent.parent
CONFIG = ROOT / "config" / "paceproxy.yaml"
README = (ROOT / "README.md").read_text("utf-8")


def between(text: str, name: str) -> str:
    """What the README has between the markers of this name."""
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", text, re.DOTALL)
    assert found is not None, f"README.md has no <!-- {name} --> … <!-- /{name} -->"
    return found[1]


def test_the_readmes_table_of_settings_is_made_from_the_code() -> None:
    printed = between(README, "settings")
    assert printed.strip() == setting_docs.table(), "paste what `python -m proxy_addon.setting_docs table` prints"


def test_the_table_has_a_row_for_every_setting() -> None:
    rows = re.findall(r"^\| `--([a-z0-9-]+)(?: [^`]+)?` \|", setting_docs.table(), re.MULTILINE)
    assert sorted(row.replace("-", "_") for row in rows) == sorted(SETTINGS)


def test_the_table_shows_flag_default_and_meaning() -> None:
    assert "| `--connect-timeout SECONDS` | `10` | How long TCP and TLS may take. |" in setting_docs.table()
    assert "| `--http2` | `false` |" in setting_docs.table()
    assert "| `--upstream URL` | none |" in setting_docs.table()


def test_the_yaml_file_is_made_from_the_code() -> None:
    assert CONFIG.read_text("utf-8") == setting_docs.yaml(), (
        "run `python -m proxy_addon.setting_docs yaml > config/paceproxy.yaml`"
    )


def test_the_yaml_file_as_it_stands_changes_nothing() -> None:
    assert load({"config": str(CONFIG)}, {}).settings == Settings()


def test_the_yaml_file_has_every_setting_at_its_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    text = re.sub(r"^#(?=[a-z])", "", CONFIG.read_text("utf-8"), flags=re.MULTILINE)
    assert list(YAML().load(text)) == list(SETTINGS)
    (tmp_path / "all.yaml").write_text(text)
    assert load({"config": str(tmp_path / "all.yaml")}, {}).settings == Settings()


def test_the_documentation_is_printed_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    assert setting_docs.main(["table"]) == 0
    assert capsys.readouterr().out == setting_docs.table() + "\n"
    assert setting_docs.main(["yaml"]) == 0
    assert capsys.readouterr().out == setting_docs.yaml()
    assert setting_docs.main(["html"]) == 2
    assert setting_docs.main([]) == 2
    assert capsys.readouterr().out == ""


def test_every_metric_is_in_the_readme_and_every_metric_in_the_readme_exists() -> None:
    metrics = Metrics(lambda: Snapshot(hosts=(), waiting=0, in_flight=0, store_up=True, at=0.0), rungs=6)
    existing = {
        f"{family.name}{ {'counter': '_total', 'info': '_info'}.get(family.type, '') }" for family in metrics.collect()
    }
    assert set(re.findall(r"^\| `(paceproxy_[a-z0-9_]+)", README, re.MULTILINE)) == existing


def test_the_readmes_list_of_stalls_has_every_error_that_is_waited_out() -> None:
    waited_out = set(re.findall(r"\| waited out[^|`]*: `([a-z0-9_]+)` \|", README))
    names = set(STALL_NAMES) - {"5xx", "429", "connection_refused"}
    assert waited_out == names | {"http_status_5xx", "rate_limited", "http_request_timeout"}


def test_the_readmes_answers_at_once_have_the_status_that_the_code_gives() -> None:
    rows = re.findall(r"answered at once: (\d{3}) (`[^|]+`)", README)
    given = {name: int(status) for status, names in rows for name in re.findall(r"`([a-z_]+)`", names)}
    assert len(given) >= 6
    for name, status in given.items():
        course = Course(attempts=1, waited_s=0.0, rung=0)
        assert error_response(ErrorName(name), course, now=0.0).status_code == status


def test_the_readmes_time_out_for_clients_outlives_a_wait_by_default() -> None:
    settings = Settings()
    longest_s = settings.window + settings.connect_timeout + settings.attempt_timeout + settings.hold_time
    assert longest_s == 642
    assert "642 s by default" in README
    assert "timeout=660" in README


def test_the_recipes_have_a_row_for_every_client_that_is_tried() -> None:
    recipes = (ROOT / "docs" / "recipes.md").read_text("utf-8")
    rows = re.findall(r"^\| ([A-Z]?[a-z][\w ]*) \|", recipes, re.MULTILINE)
    assert rows[0] == "client"
    assert rows[1:] == list(CLIENTS)


@pytest.mark.parametrize("page", [*sorted(ROOT.glob("docs/*.md")), ROOT / "README.md"], ids=lambda page: page.name)
def test_the_python_of_the_documentation_compiles_and_its_links_lead_somewhere(page: Path) -> None:
    text = page.read_text("utf-8")
    for code in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        compile(code, str(page), "exec")
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)|src=\"([^\"]+)\"", text):
        path = target[0] or target[1]
        assert path.startswith("https://") or (page.parent / path).exists(), path


def test_the_commands_of_the_documentation_of_run_are_ones_that_the_command_takes() -> None:
    text = (ROOT / "docs" / "run.md").read_text("utf-8")
    lines = re.findall(r"^(?:eval .{3})?(paceproxy [^)|>\n]*)", text, re.MULTILINE)
    assert len(lines) == 7
    for line in lines:
        _, *args = line.split()
        at = next(place for place, word in enumerate(args) if word in COMMANDS)
        # All flags must be known, and then nothing is done.
        assert main([*args[: at + 1], "--help", *args[at + 1 :]], environ={}) == 0, line
