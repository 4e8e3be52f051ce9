"""What the repository shows is what its stored results say."""

from pathlib import Path

import pytest

from tests.crawls.report import README, all_tables, incident, readme_table, stored, with_table
from tests.crawls.results import STORED, read
from tests.simulation.scenarios import SCENARIOS

_WRITE = "run `python -m tests.crawls report`"


def test_the_readmes_table_is_made_from_the_stored_results() -> None:
    readme = README.read_text("utf-8")
    assert readme == with_table(readme, readme_table(stored())), _WRITE


def test_the_tables_of_everything_are_made_from_the_stored_results() -> None:
    assert (STORED / "tables.md").read_text("utf-8") == all_tables(stored()), _WRITE


def test_the_chart_is_made_from_what_the_runs_left() -> None:
    assert (STORED / "incident.svg").read_bytes() == incident(STORED / "kept").encode(), _WRITE


def test_paceproxy_and_every_peer_of_the_readme_are_on_every_scenario() -> None:
    header, _, *rows = readme_table(stored()).partition("\n\n")[0].splitlines()
    assert header == f"|  | {' | '.join(SCENARIOS)} |"
    assert len(rows) == 10
    assert [row for row in rows if "|  |" in row] == []


def test_the_stored_results_are_of_the_usual_length() -> None:
    assert len(read(STORED / "peers.jsonl")) == 14 * len(SCENARIOS)
    assert len(read(STORED / "paceproxy.jsonl")) >= 2 * len(SCENARIOS)


def test_a_readme_without_the_markers_is_refused() -> None:
    with pytest.raises(ValueError, match=r"README\.md has no <!-- crawls -->"):
        with_table("# Paceproxy\n", "| |")


def test_a_chart_of_runs_that_were_not_kept_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"shop-pool--plain is not there; run the crawls with .* --keep"):
        incident(tmp_path)


def test_only_what_is_between_the_markers_is_written() -> None:
    before = "# A\n<!-- crawls -->\nold\n<!-- /crawls -->\n## B\n"
    assert with_table(before, "| new |") == "# A\n<!-- crawls -->\n| new |\n<!-- /crawls -->\n## B\n"
