"""`python -m tests.simulation`, as its users type it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.command import main

_ROOT = Path(__file__).resolve().parents[2]


def test_a_crawl_is_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-s", "shop-pool", "-c", "direct-plain"]) == 0
    heads, _, row = capsys.readouterr().out.splitlines()
    assert heads.startswith(
        "| scenario  | P | client       | asked | got | failed | longest run of failures | makespan s"
    )
    assert row.startswith("| shop-pool | 5 | direct-plain | 31    | 7   | 24     | 24                      | 303.1")


def test_every_combination_is_run_and_written_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = ["-s", "healthy,cdn", "-p", "2,3", "-c", "plain,direct-plain", "--seeds", "2", "--pages-per-slot", "4"]
    wanted += ["--set", "window=600"]
    assert main([*wanted, "--versus", "window=5", "--json", str(tmp_path / "all.json")]) == 0
    rows = [json.loads(line) for line in (tmp_path / "all.json").read_text().splitlines()]
    assert len(rows) == 2 * 2 * 2 * 2 * 2
    assert {(row["parallel"], row["asked"]) for row in rows} == {(2, 8), (3, 12)}
    assert {row["policy"] for row in rows} == {"window=600", "window=5"}
    assert {row["seed"] for row in rows} == {1, 2}
    assert all(row["got"] == row["can"] and row["in_vain"] == 0 for row in rows)
    assert len(capsys.readouterr().out.splitlines()) == 2 + 16


def test_settings_and_numbers_of_the_site_can_be_changed(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            [
                "-s",
                "blackhole",
                "-c",
                "plain",
                "--set",
                "window=4",
                "--set",
                "attempt-timeout=3",
                "--set",
                "in_flight=off",
                "--site",
                "pages=5",
            ]
        )
        == 0
    )
    row = capsys.readouterr().out.splitlines()[-1]
    assert "| window=4 attempt_timeout=3 in_flight=off | 5 " in " ".join(row.split())
    assert "5x 504" in row


def test_a_trace_tells_every_event(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = ["-s", "shop-pool", "-c", "plain-patient", "--site", "pages=12", "--set", "in_flight=4", "--trace"]
    assert main(wanted) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == [
        "t",
        "host",
        "page",
        "event",
        "latency",
        "busy",
        "queue",
        "|",
        "then,",
        "at",
        "the",
        "engine:",
    ]
    events = [line.split()[3] for line in lines[:-3]]
    assert events.count("200") == 12
    assert events.count("sent") == events.count("200") + events.count("left")
    assert lines[3].endswith("sent                   3     0 | in flight 4 of 4, waiting 1")
    assert lines[-1].startswith("| shop-pool")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-s", "shop"], "there is no scenario 'shop'; there are shop-pool, shop-503, "),
        (["-c", "curl"], "there is no client 'curl'; there are plain, plain-1, plain-patient\n"),
        (["--set", "climbs=stall"], "there is no setting 'climbs'; there are listen, "),
        (["--set", "window=-1"], "window must be >= 0 seconds, got -1"),
        (["--site", "worker=4"], "a scenario has no 'worker'; it has name, about, pages, "),
        (["--site", "workers=few"], "a scenario's workers cannot be 'few'\n"),
        (["--trace"], "--trace is for one scenario, one client, one -p and one seed\n"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(message)


def test_several_processes_come_to_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = ["-s", "shop-503,rate-limit", "-c", "plain"]
    main(wanted)
    command = [sys.executable, "-m", "tests.simulation", *wanted, "--jobs", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=_ROOT)
    assert (done.stdout, done.stderr, done.returncode) == (capsys.readouterr().out, "", 0)
