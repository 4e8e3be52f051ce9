"""Literal results, and how the tables show them."""

from dataclasses import replace

from tests.crawls.results import Result
from tests.crawls.tables import all_columns, also, in_short, overview
from tests.crawls.test_results import RESULT, VERDICT

GOOD = replace(RESULT, verdict=replace(VERDICT, got=31, streak=0, makespan=64.4, received=32, wasted=1, errors=()))


def named(contender: str, scenario: str, result: Result) -> Result:
    return replace(result, conditions=replace(result.conditions, contender=contender, scenario=scenario))


def test_a_result_has_a_line_with_every_column() -> None:
    lines = all_columns([RESULT, named("squid", "shop-pool", GOOD)]).splitlines()
    head, rule, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert dict(zip(head, rows[0], strict=True)) == {
        "driver": "plain",
        "asked": "31",
        "got": "7",
        "failed": "24",
        "longest run of failures": "24",
        "makespan s": "303.0",
        "÷ oracle": "(5.88)",
        "origin got": "31",
        "wasted": "24",
        "abandoned": "24",
        "errors": "0",
        "while saturated": "17",
        "gap s, least/median": "0.0/4.7",
        "also": "24x TimeoutError; 120 s later 8/8, 3.7 s a page",
    }
    assert rows[1][:9] == ["squid", "31", "31", "0", "0", "64.4", "1.25", "32", "1"]
    assert set("".join(rule)) == {"-"}
    assert len({len(line) for line in lines}) == 1


def test_in_short_a_result_is_pages_time_and_requests_in_vain() -> None:
    assert in_short(GOOD) == "31/31<br>1.25<br>1"


def test_pages_that_are_missing_stand_out_and_the_time_is_in_brackets() -> None:
    assert in_short(RESULT) == "**7/31**<br>(5.88)<br>24"


def test_giving_up_early_is_no_merit() -> None:
    assert in_short(replace(RESULT, verdict=replace(VERDICT, makespan=20.0))) == "**7/31**<br>early<br>24"


def test_a_crawl_that_was_stopped_took_longer_than_that() -> None:
    stopped = replace(RESULT, verdict=replace(VERDICT, makespan=1800.0, cut=2))
    assert in_short(stopped) == "**7/31**<br>>(34.95)<br>24"
    assert also(stopped) == "24x TimeoutError; 2 pages still open when stopped; 120 s later 8/8, 3.7 s a page"


def test_where_nothing_can_be_had_it_matters_whether_the_crawl_ends() -> None:
    nothing = replace(VERDICT, can=0, got=0, makespan=112.0, oracle=56.0, received=9, wasted=9)
    assert in_short(replace(RESULT, verdict=nothing)) == "none<br>2.00<br>9"
    assert in_short(replace(RESULT, verdict=replace(nothing, cut=3))) == "hangs<br>>2.00<br>9"


def test_beside_a_sick_host_the_others_have_a_time_of_their_own() -> None:
    verdict = replace(
        VERDICT, asked=200, can=200, got=190, healthy_got=190, healthy_makespan=18.72, healthy_oracle=15.6
    )
    fleet = named("plain", "mixed-fleet", Result(RESULT.conditions, verdict))
    assert in_short(fleet) == "**190/200**<br>(5.88)<br>24<br>others 1.20"
    assert also(fleet) == "healthy hosts 190/190 in 18.7 s (x1.20); 24x TimeoutError"


def test_the_overview_has_contenders_in_the_order_of_their_names_and_scenarios_in_theirs() -> None:
    found = [named("b", "flaky", GOOD), named("a", "shop-pool", RESULT), named("unnamed", "poison", RESULT)]
    table = overview(found[:2] + found[:1], {"b": "B", "a": "A", "c": "C"}, lambda result: str(result.verdict.got))
    assert table == "|  | shop-pool | flaky |\n| --- | --- | --- |\n| B |  | 31 |\n| A | 7 |  |"
