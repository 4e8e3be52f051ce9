"""Where settings come from, what wins, and what is said of a name that no setting has."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from mitmproxy.addonmanager import Loader
from mitmproxy.options import Options
from mitmproxy.optmanager import OptManager

from proxy_addon.setting_sources import add_options, flag, from_options, load, option, variable
from proxy_addon.settings import SETTINGS, SettingError, Settings


def refusal(flags: Mapping[str, object], environ: Mapping[str, str]) -> str:
    with pytest.raises(SettingError) as caught:
        load(flags, environ)
    return str(caught.value)


@pytest.fixture
def options() -> OptManager:
    """mitmproxy's own options, with ours among them."""
    options = Options()
    add_options(Loader(SimpleNamespace(options=options)))
    return options


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "paceproxy.yaml"


def test_a_setting_has_four_spellings() -> None:
    spellings = (flag("attempt_timeout"), variable("attempt_timeout"), option("attempt_timeout"))
    assert spellings == ("--attempt-timeout", "PACE_ATTEMPT_TIMEOUT", "pace_attempt_timeout")


def test_without_any_source_there_are_the_defaults() -> None:
    loaded = load({}, {"PATH": "/bin", "pace_window": "5", "PACEMAKER": "x"})
    assert loaded.settings == Settings()
    assert loaded.source("window") == "the default"


def test_a_flag_wins_over_a_variable_and_that_over_the_file(file: Path) -> None:
    file.write_text("window: 1\nattempt_timeout: 2\nconnect_timeout: 3\n")
    loaded = load(
        {"config": str(file), "window": "10"}, {"PACE_WINDOW": "20", "PACE_ATTEMPT_TIMEOUT": "30", "PACE_DRAIN": "40"}
    )
    settings = loaded.settings
    assert (settings.window, settings.attempt_timeout, settings.connect_timeout, settings.drain) == (10, 30, 3, 40)
    assert loaded.sources == {
        "window": "--window",
        "attempt_timeout": "PACE_ATTEMPT_TIMEOUT",
        "connect_timeout": f"{file}:3",
        "drain": "PACE_DRAIN",
    }


def test_the_file_may_be_named_by_a_variable_and_a_flag_wins(file: Path, tmp_path: Path) -> None:
    file.write_text("window: 1\n")
    (tmp_path / "other.yaml").write_text("window: 2\n")
    assert load({}, {"PACE_CONFIG": str(file)}).settings.window == 1
    assert load({"config": str(tmp_path / "other.yaml")}, {"PACE_CONFIG": str(file)}).settings.window == 2


def test_the_file_may_be_named_relative_to_the_home_folder(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("window: 1\n")
    monkeypatch.setenv("HOME", str(file.parent))
    assert load({"config": "~/paceproxy.yaml"}, {}).settings.window == 1


def test_an_empty_variable_counts_as_not_set(file: Path) -> None:
    file.write_text("window: 1\n")
    loaded = load({"config": str(file)}, {"PACE_WINDOW": "", "PACE_UPSTREAM": "", "PACE_CONFIG": ""})
    assert (loaded.settings.window, loaded.settings.upstream) == (1.0, None)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_is_read_from_a_variable(name: str) -> None:
    # A value that none takes shows who was asked.
    message = refusal({}, {variable(name): "\x00"})
    assert message.startswith(f"{name} must")
    assert f"({variable(name)})" in message


def test_a_bad_value_is_reported_with_the_name_that_the_user_wrote(file: Path) -> None:
    assert refusal({"window": "-5"}, {}) == ("window must be >= 0 seconds, got -5 (--window); give seconds such as 600")
    assert refusal({}, {"PACE_WINDOW": "-5"}) == (
        "window must be >= 0 seconds, got -5 (PACE_WINDOW); give seconds such as 600"
    )
    file.write_text("# a comment\n\nwindow: -5\n")
    assert refusal({"config": str(file)}, {}) == (
        f"window must be >= 0 seconds, got -5 ({file}:3); give seconds such as 600"
    )


def test_of_two_settings_that_do_not_go_together_the_one_that_was_set_is_blamed() -> None:
    assert refusal({}, {"PACE_RETRY_AFTER_CAP": "5000"}) == (
        "retry_after_cap must be < forgive_after (1800 seconds), got 5000 (PACE_RETRY_AFTER_CAP);"
        " change it or forgive_after"
    )
    assert refusal({"listen": "9464"}, {}) == (
        "admin must not be the address of listen, got 127.0.0.1:9464 (the default); give another port, or off"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("PACE_WINDW", "windw is no setting (PACE_WINDW); did you mean PACE_WINDOW?"),
        ("PACE_window", "window is no setting (PACE_window); did you mean PACE_WINDOW?"),
        ("PACE_CONFG", "confg is no setting (PACE_CONFG); did you mean PACE_CONFIG?"),
        (
            "PACE_XYZ",
            "xyz is no setting (PACE_XYZ); unset it: variables that begin with PACE_ are settings",
        ),
    ],
)
def test_a_variable_that_is_no_setting_is_refused_even_if_it_is_empty(name: str, message: str) -> None:
    assert refusal({}, {name: "secret"}) == message
    assert refusal({}, {name: ""}) == message


def test_a_key_that_is_no_setting_is_refused_with_its_line(file: Path) -> None:
    file.write_text("drain: 5\nattempt-timeout: secret\n")
    assert refusal({"config": str(file)}, {}) == (
        f"attempt-timeout is no setting ({file}:2); did you mean attempt_timeout?"
    )
    file.write_text("5: secret\n")
    assert refusal({"config": str(file)}, {}) == (f"5 is no setting ({file}:1); see paceproxy --help for what there is")


def test_the_file_speaks_yaml(file: Path) -> None:
    file.write_text(
        """\
%YAML 1.2
---
admin: off
http2: on
ssl_insecure: no
listen: 8081
ladder: [0, 0.5, 1]
stalls: 5xx,429
hold_request: 64k
max_attempts: 3
upstream:
allow:
  - 10.0.0.0/8
set:
  anticache: true
  certs: [a.pem, b.pem]
"""
    )
    settings = load({"config": str(file)}, {}).settings
    assert (settings.admin, settings.http2, settings.ssl_insecure) == ("off", True, False)
    assert settings.listen == "127.0.0.1:8081"
    assert settings.ladder == (0.0, 0.5, 1.0)
    assert settings.stalls == {"5xx", "429"}
    assert (settings.hold_request, settings.max_attempts, settings.upstream) == (65536, 3, None)
    assert settings.allow == ("10.0.0.0/8",)
    assert settings.set == ("anticache=true", "certs=a.pem", "certs=b.pem")


@pytest.mark.parametrize("text", ["admin: off\n", "%YAML 1.1\n---\nadmin: off\n", "admin: 'off'\n"])
def test_off_is_understood_whatever_yaml_makes_of_it(text: str, file: Path) -> None:
    file.write_text(text)
    assert load({"config": str(file)}, {}).settings.admin == "off"


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "\ufeffwindow: 600\n"])
def test_a_file_may_be_empty_and_begin_with_a_byte_order_mark(text: str, file: Path) -> None:
    file.write_text(text, encoding="utf-8")
    assert load({"config": str(file)}, {}).settings == Settings()


def test_values_may_come_in_by_a_merge(file: Path) -> None:
    file.write_text("<<: {window: -5}\ndrain: 5\n")
    assert refusal({"config": str(file)}, {}) == (
        f"window must be >= 0 seconds, got -5 ({file}); give seconds such as 600"
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"window: [1\n", "must be valid YAML (line 2: expected ',' or ']', but got '<stream end>')"),
        (
            b"drain: 5\nwindow:\t- 5\n",
            "must be valid YAML (line 2: found character '\\t' that cannot start any token)",
        ),
        (b"upstream: secret\nupstream: secret2\n", "must be valid YAML (line 2: a key is there twice)"),
        (b"window: *here\n", "must be valid YAML (line 1: found undefined alias 'here')"),
        (b"drain: 1\n---\ndrain: 2\n", "must be valid YAML (line 2: but found another document)"),
        (b"- window\n", "must be settings by name"),
        (b"window 5\n", "must be settings by name"),
        (b"\xff\xfe\x00", "must be a text file in UTF-8"),
        (b"window: 2026-99-99\n", "must be valid YAML (month must be in 1..12)"),
        (b"max_attempts: " + b"9" * 5000, "must be valid YAML (Exceeds the limit (4300 digits) for integer string"),
        (b"[" * 500, "must be settings by name, not nested"),
    ],
)
def test_a_file_that_cannot_be_understood_is_refused(content: bytes, problem: str, file: Path) -> None:
    file.write_bytes(content)
    message = refusal({}, {"PACE_CONFIG": str(file)})
    assert message.startswith(f"config {problem}")
    assert ", got /" in message
    assert "/paceproxy.yaml (PACE_CONFIG); " in message
    assert "secret" not in message


def test_a_control_character_in_the_file_is_refused(file: Path) -> None:
    file.write_bytes(b"window: \x07\n")
    assert refusal({"config": str(file)}, {}).startswith("config must be valid YAML (unacceptable character #x0007")


@pytest.mark.parametrize(("name", "reason"), [("none.yaml", "No such file or directory"), (".", "Is a directory")])
def test_a_file_that_cannot_be_read_is_refused(name: str, reason: str, tmp_path: Path) -> None:
    path = str(tmp_path / name)
    assert refusal({"config": path}, {}) == (
        f"config must be a file that can be read ({reason}), got {path} (--config); give the path of a YAML file"
    )


def test_an_empty_name_of_a_file_is_refused() -> None:
    assert refusal({"config": ""}, {}).startswith("config must be a file that can be read (Is a directory), got ''")


def test_in_a_users_own_mitmproxy_every_setting_is_an_option(options: OptManager) -> None:
    assert {name for name, _ in options.items() if name.startswith("pace_")} == {f"pace_{name}" for name in SETTINGS}
    types = {name: options._options[f"pace_{name}"].typespec for name in SETTINGS}
    assert (types["window"], types["max_attempts"], types["ssl_insecure"]) == (str, int, bool)
    assert (types["set"], types["ladder"]) == (Sequence[str], str)


def test_options_that_nobody_set_are_the_defaults(options: OptManager) -> None:
    assert from_options(options) == Settings()


def test_options_are_read_as_mitmproxy_sets_them(options: OptManager) -> None:
    options.set("pace_window=60", "pace_ladder=0,0.5", "pace_max_attempts=3", "pace_admin=off", "pace_store=memory:")
    settings = from_options(options)
    assert (settings.window, settings.ladder, settings.max_attempts) == (60.0, (0.0, 0.5), 3)
    assert (settings.admin, settings.store) == ("off", "memory:")


def test_a_bad_option_is_reported_by_its_name(options: OptManager) -> None:
    options.set("pace_window=1m")
    with pytest.raises(SettingError) as caught:
        from_options(options)
    assert str(caught.value) == ("window must be decimal seconds, got 1m (pace_window); give seconds such as 600")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "pace_listen=8081",
            "listen does nothing in your own mitmproxy (pace_listen); use listen_host and listen_port",
        ),
        ("pace_htpasswd=users", "htpasswd does nothing in your own mitmproxy (pace_htpasswd); use proxyauth"),
        ("pace_set=anticache=true", "set does nothing in your own mitmproxy (pace_set); use --set"),
        ("pace_http2=true", "http2 does nothing in your own mitmproxy (pace_http2); use http2"),
    ],
)
def test_an_option_that_would_do_nothing_says_what_does(spec: str, message: str, options: OptManager) -> None:
    options.set(spec)
    with pytest.raises(SettingError) as caught:
        from_options(options)
    assert str(caught.value) == message
