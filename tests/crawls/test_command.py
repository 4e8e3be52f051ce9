"""The command's help, its refusals, and which runs its arguments mean."""

from pathlib import Path

import pytest

from tests.crawls import results
from tests.crawls.command import main, trials
from tests.crawls.contenders import PEERS
from tests.crawls.proxies import Ours
from tests.simulation.scenarios import ALL, SCENARIOS


def test_the_help_has_examples_and_every_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    said = capsys.readouterr().out
    assert ended.value.code == 0
    assert "python -m tests.crawls paceproxy -s shop-pool --parallel 5,20,50 --pages 400" in said
    assert [name for name in ALL if name not in said] == []


@pytest.mark.parametrize("kind", ["paceproxy", "peers", "proxy", "report", "oracle"])
def test_every_kind_of_run_has_a_help(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([kind, "--help"])
    assert ended.value.code == 0
    assert f"python -m tests.crawls {kind}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("paceproxy -s shop", "there is no scenario 'shop'; see --help"),
        ("paceproxy -c plane", "there is no driver 'plane'; see --help"),
        ("peers -d squids", "there is no driver 'squids'; see --help"),
        ("paceproxy --set worker=3", "a scenario has no 'worker'; it has name, about, pages"),
        ("paceproxy --option windo=3", "windo is not a setting; did you mean window?"),
        ("paceproxy --option window=-1", "window must be >= 0 seconds, got -1"),
        ("paceproxy --parallel five", "invalid literal"),
        ("", "the following arguments are required: WHAT"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_runs(
    arguments: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments.split())
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_paceproxy_is_asked_by_both_clients_on_every_scenario_by_default() -> None:
    wanted = trials(["paceproxy"])
    assert len(wanted) == 2 * len(SCENARIOS)
    assert {trial.contender.label for trial in wanted} == {"paceproxy-plain", "paceproxy-plain-patient"}
    assert {trial.changes for trial in wanted} == {()}


def test_every_peer_runs_on_every_scenario_by_default() -> None:
    assert [trial.contender.label for trial in trials(["peers", "-s", "flaky"])] == list(PEERS)


def test_each_parallelism_is_a_run_of_its_own_and_the_usual_one_is_no_change() -> None:
    wanted = trials(["paceproxy", "-s", "shop-pool", "-c", "plain", "--parallel", "5,20", "--pages", "31"])
    assert [trial.changes for trial in wanted] == [(), ("parallel=20",)]


def test_settings_are_handed_to_paceproxy() -> None:
    (trial,) = trials(["paceproxy", "-s", "flaky", "-c", "plain", "--option", "window=30", "--option", "http2"])
    assert trial.contender.proxy == Ours({"window": "30", "http2": "true"})


def test_the_oracle_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["oracle", "-s", "shop-pool,mixed-fleet"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "shop-pool       51.5 s    31 pages  always 2 in flight",
        "mixed-fleet     93.5 s   200 pages  healthy hosts at once, the sick one when it is back",
        "                15.6 s  its healthy hosts alone",
    ]


def test_a_run_is_printed_and_kept_and_one_that_cannot_be_is_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "results.jsonl"
    conditions = ["-s", "healthy", "--pages", "3", "--scale", "0.1", "--peers", str(tmp_path), "--results", str(kept)]
    assert main(["peers", "-d", "scrapy,plain", *conditions]) == 1
    said = capsys.readouterr()
    assert said.err.startswith("healthy scrapy: could not run: ")
    assert "\nhealthy pages=3: a fast, healthy host: no pacing should show\noracle 0.1 s, 3 pages: " in said.out
    assert "| plain  | 3     | 3   | 0 " in said.out
    (result,) = results.read(kept)
    assert (result.conditions.contender, result.conditions.changes, result.verdict.got) == ("plain", ("pages=3",), 3)
