"""The commands beside serving: how they are found, and where they get their settings."""

import subprocess
import sys
from pathlib import Path

import pytest

from proxy_addon.cli import main
from proxy_addon.commands import COMMANDS, Invocation, find_command
from proxy_addon.settings import SettingError, Settings
from tests.support.ports import refusing_port


def never(settings: Settings) -> int:
    raise AssertionError("a command does not serve")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_the_module_of_its_name_and_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = find_command(name)
    assert command is not None
    assert command.name == name
    assert main([name, "--help"], environ={"PACE_X": "wrong settings do not matter"}, serve=never) == 0
    assert capsys.readouterr().out.startswith(f"Usage: paceproxy {name} ")


def test_the_help_lists_every_command_with_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"], environ={}, serve=never) == 0
    listed = " ".join(capsys.readouterr().out.partition("\nCommands:\n")[2].split())
    assert listed == " ".join(f"{name} {purpose}" for name, purpose in COMMANDS.items())


def test_the_help_imports_no_command() -> None:
    script = (
        "import sys; from proxy_addon.cli import main; main(['--help'], environ={});"
        "print([name for name in sys.modules if name.startswith(('proxy_addon.commands.', 'mitmproxy', 'rich'))])"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert printed.stdout.splitlines()[-1] == "[]"


def test_a_command_has_the_settings_of_the_flags_before_it_and_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "paceproxy.yaml").write_text("admin: 127.0.0.1:1\nwindow: 1\ndrain: 1\npause: 1\n")
    environ = {"PACE_CONFIG": str(tmp_path / "paceproxy.yaml"), "PACE_WINDOW": "2", "PACE_DRAIN": "2"}
    invocation = Invocation({"drain": "3"}, environ)
    loaded = invocation.load(flags={"pause": "4", "window": None}, defaults={"listen": "127.0.0.1:0", "pause": "5"})
    settings = loaded.settings
    assert (settings.admin, settings.window, settings.drain, settings.pause) == ("127.0.0.1:1", 2.0, 3.0, 4.0)
    assert (settings.listen, loaded.source("listen")) == ("127.0.0.1:0", "the default")


def test_what_shows_to_be_wrong_only_in_use_is_told_with_where_it_came_from() -> None:
    loaded = Invocation({}, {"PACE_LISTEN": "127.0.0.1:1"}).load()
    with pytest.raises(SettingError) as caught, loaded.named():
        raise SettingError("listen", "must be free", value="127.0.0.1:1", remedy="give another")
    assert str(caught.value) == "listen must be free, got 127.0.0.1:1 (PACE_LISTEN); give another"


@pytest.mark.parametrize("name", ["run", "env", "status", "doctor"])
def test_a_setting_after_the_command_is_told_its_place(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--window", "60", "x"], environ={}, serve=never) == 2
    said = capsys.readouterr().err
    assert said == f"paceproxy: --window is a setting, and stands before the command: paceproxy --window … {name}\n"


CANNOT_RUN = [
    (
        ["--reverse", "http://example.org"],
        "reverse: a command finds its proxy by proxy variables; leave it out, or start paceproxy alone",
    ),
    (["--allow", "10.0.0.0/8"], "allow: the command comes from 127.0.0.1, which it leaves out; add 127.0.0.0/8"),
    (["--windows", "5"], "--windows is no flag; did you mean --window?"),
]


@pytest.mark.parametrize(("flags", "line"), CANNOT_RUN)
def test_settings_that_keep_a_command_from_its_proxy_are_refused(
    flags: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*flags, "run", "true"], environ={}, serve=never) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"paceproxy: {line}\n")


@pytest.mark.parametrize("command", [["status"], ["host", "a.example", "resume"], ["health"]])
def test_a_command_that_asks_a_proxy_need_not_know_whom_that_serves(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    # As in a container: the proxy was told by a flag.
    with refusing_port() as port:
        assert main(command, environ={"PACE_LISTEN": ":8080", "PACE_ADMIN": f"127.0.0.1:{port}"}, serve=never) != 0
    said = capsys.readouterr().err
    assert str(port) in said
    assert "allow" not in said
