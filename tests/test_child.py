"""A command that cannot be started, and its exit code."""

from pathlib import Path

import pytest

from proxy_addon.child import Child, NotStartedError


def test_what_is_no_program_has_the_exit_code_that_a_shell_gives_it(tmp_path: Path) -> None:
    (tmp_path / "no-program").write_text("text")
    with pytest.raises(NotStartedError) as caught:
        Child([str(tmp_path / "no-program")], {}, mask=set())
    assert str(caught.value) == f"{tmp_path}/no-program: Permission denied"
    assert caught.value.exit_code == 126


def test_a_program_that_is_not_there_has_another() -> None:
    with pytest.raises(NotStartedError) as caught:
        Child(["no-such-program"], {}, mask=set())
    assert (str(caught.value), caught.value.exit_code) == ("no-such-program: not found", 127)
