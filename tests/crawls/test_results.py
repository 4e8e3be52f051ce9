"""Results are kept one for each run, and come back as they were."""

from dataclasses import replace
from pathlib import Path

from tests.crawls.judge import Verdict
from tests.crawls.results import Conditions, Probe, Result, keep, read

VERDICT = Verdict(
    asked=31,
    can=31,
    got=7,
    streak=24,
    makespan=303.0,
    cut=0,
    oracle=51.5,
    received=31,
    wasted=24,
    abandoned=24,
    errored=0,
    saturated=17,
    least_gap=0.0,
    median_gap=4.7,
    errors=("24x TimeoutError",),
)
RESULT = Result(Conditions("shop-pool", "plain", (), scale=0.02, seed=3, load=1.2), VERDICT, Probe(8, 8, 3.7))


def test_a_result_comes_back_as_it_was(tmp_path: Path) -> None:
    changed = replace(RESULT.conditions, changes=("pages=62", "parallel=20"), options=("in_flight=off",))
    other = Result(changed, VERDICT)
    keep(tmp_path / "results.jsonl", [other, RESULT])
    assert read(tmp_path / "results.jsonl") == [RESULT, other]


def test_a_run_that_is_repeated_takes_its_own_place(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    flaky = replace(RESULT, conditions=replace(RESULT.conditions, scenario="flaky"))
    keep(path, [flaky, RESULT])
    again = replace(RESULT, conditions=replace(RESULT.conditions, date="2027-01-01", scale=0.1))
    keep(path, [again])
    assert read(path) == [again, flaky]


def test_other_changes_options_and_seeds_are_other_runs(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    was = RESULT.conditions
    others = [replace(was, changes=("parallel=20",)), replace(was, options=("window=30",)), replace(was, seed=4)]
    keep(path, [RESULT, *(replace(RESULT, conditions=conditions) for conditions in others)])
    assert len(read(path)) == 4


def test_where_there_is_no_file_there_are_no_results(tmp_path: Path) -> None:
    assert read(tmp_path / "results.jsonl") == []


def test_the_site_of_a_result_is_the_one_that_was_crawled() -> None:
    site = replace(RESULT.conditions, changes=("pages=62", "parallel=20")).site()
    assert (site.pages, site.parallel, site.workers) == (62, 20, 6)
