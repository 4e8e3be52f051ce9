"""Every duration of Paceproxy is multiplied by the time scale, and nothing else."""

import pytest

from proxy_addon.setting_kinds import Seconds
from proxy_addon.setting_sources import load
from proxy_addon.settings import SETTINGS, SettingError, Settings
from tests.crawls.scaled_settings import scaled_environment


def test_durations_and_the_ladder_are_scaled() -> None:
    environment = scaled_environment(0.02, {})
    assert environment["PACE_WINDOW"] == "12"
    assert environment["PACE_ATTEMPT_TIMEOUT"] == "0.6"
    assert environment["PACE_FORGIVE_AFTER"] == "36"
    assert environment["PACE_LADDER"] == "0,0.04,0.1,0.3,0.6,1.2"
    assert "PACE_PAUSE_AFTER" not in environment  # a number of stalls


def test_no_duration_is_left_out() -> None:
    durations = {f"PACE_{name.upper()}" for name, about in SETTINGS.items() if isinstance(about.kind, Seconds)}
    assert set(scaled_environment(0.5, {})) == durations | {"PACE_LADDER"}


def test_what_is_asked_for_is_in_simulated_seconds() -> None:
    environment = scaled_environment(0.1, {"attempt-timeout": "20", "ladder": "0,1", "page_fault_after": "7"})
    assert environment["PACE_ATTEMPT_TIMEOUT"] == "2"
    assert environment["PACE_LADDER"] == "0,0.1"
    assert environment["PACE_PAGE_FAULT_AFTER"] == "7"


def test_the_command_reads_what_was_scaled() -> None:
    settings = load({}, scaled_environment(0.5, {"http2": "true"})).settings
    assert settings.ladder == (0.0, 1.0, 2.5, 7.5, 15.0, 30.0)
    assert (settings.window, settings.http2, settings.pause_after) == (300.0, True, Settings().pause_after)


def test_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SettingError, match=r"atempt_timeout is not a setting; did you mean attempt_timeout\?"):
        scaled_environment(1.0, {"atempt-timeout": "1"})
