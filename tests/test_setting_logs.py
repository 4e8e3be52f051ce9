"""Where a log may go, as people write it."""

from pathlib import Path

import pytest

from proxy_addon.setting_kinds import BadValue
from proxy_addon.setting_logs import LogPlace


@pytest.mark.parametrize("value", ["off", "OFF", " off ", False])
def test_a_log_may_be_off(value: object) -> None:
    assert LogPlace().parse(value) == "off"


def test_a_dash_is_standard_output() -> None:
    assert LogPlace().parse("-") == "-"


def test_a_file_needs_not_be_there_but_its_folder_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert LogPlace().parse("~/access.log") == str(tmp_path / "access.log")
    assert not (tmp_path / "access.log").exists()
    with pytest.raises(BadValue, match="must be in a folder that exists"):
        LogPlace().parse(str(tmp_path / "none" / "access.log"))
    with pytest.raises(BadValue, match="must be a file, not a folder"):
        LogPlace().parse(str(tmp_path))


@pytest.mark.parametrize("value", ["", True, 5, None, "a\0b"])
def test_anything_else_is_no_place(value: object) -> None:
    with pytest.raises(BadValue, match="must be a path"):
        LogPlace().parse(value)
