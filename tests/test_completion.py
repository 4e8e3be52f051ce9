"""Completion as it is in the shells: keys are pressed, and the shell is looked at."""

import os
import sys
from pathlib import Path

import pytest

from proxy_addon.cli import main
from tests.support.command_run import OnTerminal, environment
from tests.support.programs import find
from tests.support.waiting import until

_GUARD_S = 60.0
SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source <(paceproxy completion bash)"),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit && compinit -u && source <(paceproxy completion zsh)"),
    "fish": (["fish", "--no-config", "-i"], "paceproxy completion fish | source"),
}


def path_with_the_command(folder: Path) -> str:
    """A PATH on which `paceproxy` is the one under test."""
    command = folder / "paceproxy"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m proxy_addon "$@"\n')
    command.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


@pytest.mark.parametrize("name", SHELLS)
def test_a_shell_completes_commands_flags_and_values(name: str, tmp_path: Path) -> None:
    program, setup = SHELLS[name]
    find(program[0], package=name)
    environ = environment(
        TERM="xterm", PATH=path_with_the_command(tmp_path), HOME=str(tmp_path), PS1="$ ", LC_ALL="C.UTF-8"
    )
    with OnTerminal(program, environ) as shell:
        shell.press(f"{setup}; echo re''ady\n")
        shell.wait_for("ready")
        for typed, completed in [
            ("paceproxy comple\t", "paceproxy completion"),
            ("paceproxy --connect-t\t", "paceproxy --connect-timeout"),
            ("paceproxy --climb inc\t", "paceproxy --climb incident"),
            ("paceproxy env --shell power\t", "paceproxy env --shell powershell"),
            ("paceproxy run paceprox\t", "paceproxy run paceproxy"),
        ]:
            shell.press(typed)
            until(
                lambda completed=completed: any(completed in line for line in shell.shown()),  # type: ignore[misc]
                f"{name} made {completed!r} of {typed!r}",
                _GUARD_S,
            )
            shell.press("\x15")  # away with the line


def test_what_a_shell_is_told_does_not_depend_on_the_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"], environ={"PACE_X": "wrong"}) == 0
    out, err = capsys.readouterr()
    assert "_PACEPROXY_COMPLETE=bash_complete" in out
    assert "complete -o nosort -F _paceproxy_completion paceproxy" in out
    assert err == ""
