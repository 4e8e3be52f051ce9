"""What a crawler notes, and what it does not note twice."""

from pathlib import Path

import pytest

from tests.crawls.notebook import Notebook
from tests.crawls.records import Outcome, read_outcomes


@pytest.fixture
def notebook() -> Notebook:
    """Half a real second is one of its seconds; each look at the clock is one real second after the last."""
    return Notebook(scale=0.5, proxy=None, monotonic=map(float, range(100, 200)).__next__)


def test_a_page_runs_from_when_it_is_first_sent_to_when_its_user_first_knows(
    notebook: Notebook, tmp_path: Path
) -> None:
    assert not notebook.begun
    notebook.begin("http://shop/p/0")
    assert notebook.begun
    notebook.begin("http://shop/p/0")
    notebook.end("http://shop/p/0", 200, tries=2)
    notebook.end("http://shop/p/0", error=TimeoutError())
    notebook.save(tmp_path / "crawl.jsonl")
    assert read_outcomes(tmp_path / "crawl.jsonl") == [Outcome("http://shop/p/0", 0.0, 4.0, 200, None, 2)]


def test_an_error_is_noted_by_the_name_of_its_kind(notebook: Notebook, tmp_path: Path) -> None:
    notebook.end("http://shop/p/1", error=TimeoutError("after 56 s"))
    notebook.save(tmp_path / "crawl.jsonl")
    assert read_outcomes(tmp_path / "crawl.jsonl") == [Outcome("http://shop/p/1", 0.0, 0.0, None, "TimeoutError", None)]


def test_nothing_is_left_beside_what_was_saved(notebook: Notebook, tmp_path: Path) -> None:
    notebook.save(tmp_path / "crawl.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["crawl.jsonl"]
