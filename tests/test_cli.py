"""The command: what reaches the runner, what is printed, and the exit codes."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from proxy_addon import __version__
from proxy_addon.cli import main
from proxy_addon.settings import SETTINGS, SettingError, Settings


class Served:
    """Stands where the runner does, and keeps what it is given."""

    def __init__(self, code: int = 0) -> None:
        self.settings: list[Settings] = []
        self._code = code

    def __call__(self, settings: Settings) -> int:
        self.settings.append(settings)
        return self._code


def served(*args: str, **environ: str) -> Settings:
    """The settings with which these arguments serve."""
    runner = Served()
    assert main(args, environ=environ, serve=runner) == 0
    (settings,) = runner.settings
    return settings


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> "Refused":
    return Refused(capsys)


class Refused:
    """Runs the command, which must end with exit code 2 and one line, and returns the line."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *args: str, **environ: str) -> str:
        runner = Served()
        assert main(args, environ=environ, serve=runner) == 2
        assert runner.settings == []
        printed = self._capsys.readouterr()
        assert printed.out == ""
        (line,) = printed.err.splitlines()
        return line


def test_without_arguments_it_serves_with_the_defaults() -> None:
    assert served() == Settings()


def test_the_exit_code_is_the_proxys() -> None:
    assert main([], environ={}, serve=Served(code=7)) == 7


def test_flags_reach_the_proxy() -> None:
    settings = served(
        "--window", "60", "--ladder=0,0.5", "--set", "a=1", "--set", "b=2 3", "--http2", "--upstream", "http://u:p@h:1"
    )
    assert (settings.window, settings.ladder, settings.set) == (60.0, (0.0, 0.5), ("a=1", "b=2 3"))
    assert (settings.http2, settings.ssl_insecure, settings.upstream) == (True, False, "http://u:p@h:1")


def test_a_flag_wins_over_its_variable() -> None:
    assert served("--window", "60", PACE_WINDOW="70").window == 60.0
    assert served("--no-http2", PACE_HTTP2="on").http2 is False
    assert served("--set", "a=1", PACE_SET="b=2").set == ("a=1",)


@pytest.mark.parametrize(
    ("value", "on"),
    [
        ("1", True),
        ("true", True),
        ("YES", True),
        ("on", True),
        ("0", False),
        ("False", False),
        ("no", False),
        ("off", False),
    ],
)
def test_the_variable_of_a_switch_takes_the_usual_words(value: str, on: bool) -> None:
    assert served(PACE_SSL_INSECURE=value).ssl_insecure is on


def test_the_variable_of_a_switch_takes_no_other_word(refused: Refused) -> None:
    assert refused(PACE_HTTP2="maybe") == (
        "paceproxy: http2 must be one of 1, 0, true, false, yes, no, on, off, got maybe (PACE_HTTP2);"
        " give true or false"
    )


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "paceproxy.yaml").write_text("window: 5\n")
    assert served("--config", str(tmp_path / "paceproxy.yaml")).window == 5.0
    assert served(PACE_CONFIG=str(tmp_path / "paceproxy.yaml")).window == 5.0


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["--window", "-5"], "window must be >= 0 seconds, got -5 (--window); give seconds such as 600"),
        (["--window="], "window must be decimal seconds, got '' (--window); give seconds such as 600"),
        (["--windw", "5"], "--windw is no flag; did you mean --window?"),
        (["--no-http"], "--no-http is no flag; did you mean --no-http2?"),
        (["--attempt_timeout", "5"], "--attempt_timeout is no flag; did you mean --attempt-timeout?"),
        (["--zzz"], "--zzz is no flag; see paceproxy --help"),
        (["-h"], "-h is no flag; see paceproxy --help"),
        (["--window"], "Option '--window' requires an argument; see paceproxy --help"),
        (["--http2=yes"], "Option '--http2' does not take a value; see paceproxy --help"),
        (["serve"], "serve is no command; see paceproxy --help"),
        (["--window", "5", "completoin", "bash"], "completoin is no command; did you mean completion?"),
        (["completion", "--bash"], "--bash is no flag; see paceproxy completion --help"),
        (
            ["completion"],
            "Missing argument '{bash|zsh|fish}'. Choose from: bash, zsh, fish; see paceproxy completion --help",
        ),
        (["http://user:secret@parent"], "http://***@parent is no command; see paceproxy --help"),
        (
            ["--listen", "0.0.0.0:8080"],
            "listen must be a loopback address, or come with htpasswd or allow, got 0.0.0.0:8080 (--listen);"
            " add --htpasswd FILE or --allow 10.0.0.0/8, or listen on 127.0.0.1:8080",
        ),
        (
            ["--htpasswd", "/nonexistent/users"],
            "htpasswd must be a file that exists, got /nonexistent/users (--htpasswd);"
            " give the path of a file that this user may read",
        ),
        (
            ["--upstream", "http://user:secret@parent/x"],
            "upstream must end after its host and port, got http://***@parent/x (--upstream);"
            " percent-encode / ? # in a user or password as %2F %3F %23",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(args: Sequence[str], line: str, refused: Refused) -> None:
    assert refused(*args) == f"paceproxy: {line}"


def test_a_variable_that_is_no_setting_is_refused(refused: Refused) -> None:
    assert refused(PACE_WINDOWS="5") == "paceproxy: windows is no setting (PACE_WINDOWS); did you mean PACE_WINDOW?"


@pytest.mark.parametrize(
    ("args", "environ", "source"),
    [([], {}, "the default"), (["--listen", "8080"], {}, "--listen"), ([], {"PACE_LISTEN": "8080"}, "PACE_LISTEN")],
)
def test_what_fails_only_at_the_start_is_reported_in_the_same_way(
    args: Sequence[str], environ: dict[str, str], source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def serve(settings: Settings) -> int:
        raise SettingError("listen", "must be a free address", value=settings.listen, remedy="choose another port")

    assert main(args, environ=environ, serve=serve) == 2
    assert capsys.readouterr().err == (
        f"paceproxy: listen must be a free address, got 127.0.0.1:8080 ({source}); choose another port\n"
    )


def test_a_fault_of_ours_is_not_taken_for_one_of_the_users() -> None:
    def serve(settings: Settings) -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        main([], environ={}, serve=serve)


def test_an_interrupt_ends_it_as_a_shell_expects() -> None:
    def serve(settings: Settings) -> int:
        raise KeyboardInterrupt

    assert main([], environ={}, serve=serve) == 130


def test_the_help_names_every_flag_and_its_default(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--help"], environ={}, serve=Served()) == 0
    text = capsys.readouterr().out
    # click breaks lines after hyphens too.
    words = " ".join(re.sub(r"(?<=\w-)\n +(?=\w)", "", text).split())
    for name, about in SETTINGS.items():
        assert f"--{name.replace('_', '-')} " in words
        assert about.help in words
        if about.default:
            assert f"{about.help} [default: {about.default.replace(',', ', ')}]" in words
    for flag in ("--config ", "--version ", "--help "):
        assert flag in text
    assert [line for line in text.splitlines() if len(line) > 80 or not line.isascii()] == []


def test_the_help_is_grouped(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"], environ={}, serve=Served())
    headings = [line for line in capsys.readouterr().out.splitlines() if line.endswith(":") and line[0] not in " -"]
    assert headings == [
        "Listening:",
        "Requests:",
        "Pacing:",
        "Hosts that stay down:",
        "On the way to origins:",
        "The process:",
        "Commands:",
    ]


def test_help_and_version_are_given_even_where_the_settings_are_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--window", "x", "--help"], environ={"PACE_X": "y"}, serve=Served()) == 0
    assert main(["--version"], environ={"PACE_X": "y"}, serve=Served()) == 0
    assert capsys.readouterr().out.endswith(f"paceproxy {__version__}\n")


@pytest.mark.parametrize(
    "command", [[sys.executable, "-m", "proxy_addon"], [str(Path(sys.executable).parent / "paceproxy")]]
)
def test_the_installed_commands_are_the_same(command: list[str]) -> None:
    def run(*args: str, **environ: str) -> tuple[int, str, str]:
        plain = {name: value for name, value in os.environ.items() if not name.startswith("PACE_")}
        done = subprocess.run(
            [*command, *args], env=plain | environ, capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode, done.stdout, done.stderr

    assert run("--version") == (0, f"paceproxy {__version__}\n", "")
    assert run("--window", "0x5") == (
        2,
        "",
        "paceproxy: window must be decimal seconds, got 0x5 (--window); give seconds such as 600\n",
    )
    assert run(PACE_ADMIN="here") == (
        2,
        "",
        "paceproxy: admin must end in a port from 0 to 65535, got here (PACE_ADMIN);"
        " give HOST:PORT, [IPV6]:PORT or PORT, such as 127.0.0.1:9464\n",
    )
