"""What docs/access-log.md says of the access log is so, and its commands run."""

import re
import subprocess
from pathlib import Path

import duckdb
import pytest

from proxy_addon.access_line import access_line
from proxy_addon.log_file import LogFile
from proxy_addon.model import ErrorName, Outcome
from tests.support import programs
from tests.support.requests_ended import ended

TEXT = (Path(__file__).parent.parent / "docs" / "access-log.md").read_text("utf-8")
EVENTS = (
    ended(url="https://shop.example/1", duration_s=3.0, waited_s=2.25, stalls=1),
    ended(url="https://shop.example/2", duration_s=1.0, waited_s=0.5, stalls=0, first_byte_at=None),
    ended(host="slow.example", url="http://slow.example/", duration_s=40.0, waited_s=30.0, stalls=3),
    ended(
        host="down.example",
        outcome=Outcome.FAILURE,
        error=ErrorName.CONNECTION_REFUSED,
        status=502,
        sent_at=None,
        first_byte_at=None,
        duration_s=0.5,
        waited_s=0.0,
    ),
)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With an access log, and to be in."""
    (tmp_path / "access.log").write_text("".join(access_line(event, query=True) for event in EVENTS))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_table_has_the_keys_of_a_line_in_their_order() -> None:
    assert re.findall(r"^\| `([a-z_]+)` \|", TEXT, re.MULTILINE) == re.findall(
        r'"([a-z_]+)":', access_line(ended(), query=True)
    )


@pytest.mark.parametrize(
    ("number", "printed"),
    [
        (0, "slow.example 30\nshop.example 2.75\ndown.example 0\n"),
        (1, "3 https://shop.example/1\n40 http://slow.example/\n"),
    ],
)
def test_the_questions_for_jq_are_answered(folder: Path, number: int, printed: str) -> None:
    programs.find("jq", package="jq")
    command = [block for block in blocks("sh") if block.startswith("jq ")][number]
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=30)
    # jq 1.7 and newer leave a number as it is written.
    assert (re.sub(r"(\.\d*?)0+(?= |\n)", r"\1", done.stdout).replace(". ", " ").replace(".\n", "\n"), done.stderr) == (
        printed,
        "",
    )


def test_a_time_is_one_for_jq_without_its_fraction(folder: Path) -> None:
    jq = programs.find("jq", package="jq")
    expression = re.search(r"`(\.accepted_at\[[^`]+)`", TEXT)
    assert expression is not None
    done = subprocess.run([jq, expression[1], "access.log"], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout == "1800000000\n" * 4


def test_the_question_for_duckdb_is_answered(folder: Path) -> None:
    (query,) = blocks("sql")
    with duckdb.connect() as database:
        rows = database.sql(query).fetchall()
        types = {
            name: str(type_) for name, type_, *_ in database.sql("DESCRIBE FROM read_json('access.log')").fetchall()
        }
    assert rows == [
        ("slow.example", 1, 1, 40.0, 75.0),
        ("shop.example", 2, 1, 2.9, 69.0),
        ("down.example", 1, 0, 0.5, 0.0),
    ]
    assert (types["accepted_at"], types["sent_at"]) == ("TIMESTAMP WITH TIME ZONE",) * 2


def test_logrotate_takes_the_file_away_as_it_is_told(folder: Path) -> None:
    logrotate = programs.find("logrotate", package="logrotate")
    log = folder / "access.log"
    (rules,) = blocks("logrotate")
    (folder / "rules").write_text(rules.replace("/var/log/paceproxy/access.log", str(log)))
    (folder / "rules").chmod(0o600)
    file = LogFile(str(log))
    file.follow()
    before = log.read_bytes()
    command = [logrotate, "--force", "--state", str(folder / "state"), str(folder / "rules")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    file.follow()
    file.append(b"new\n")
    file.close()
    assert ((folder / "access.log.1").read_bytes(), log.read_bytes()) == (before, b"new\n")
