"""The settings together: defaults, what excludes what, and how a bad value is reported."""

from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from proxy_addon.setting_places import Address, Url
from proxy_addon.settings import SETTINGS, SettingError, Settings

ZERO_ALLOWED = {
    # Section 13: 0 switches these off.
    "max_attempts",
    "pause_after",
    "page_fault_after",
    "abandon_stall_after",
    "forgive_after",
    # And here it is a value like any other: no hold, no drain, no reuse, nothing kept.
    "window",
    "drain",
    "idle_reuse",
    "hold_request",
    "keep_reply",
    "hold_body",
    "hold_time",
    "hold_time_healthy",
    "body_timeout",
}
ABOVE_ZERO = {
    "attempt_timeout",
    "connect_timeout",
    "page_fault_after_other",
    "pause_per_request",
    "retry_after_cap",
    "pause",
    "pause_max",
}


def refusal(**values: Any) -> str:
    """What `Settings` says to these values."""
    with pytest.raises(SettingError) as caught:
        Settings(**values)
    return str(caught.value)


def refusal_or_none(name: str, value: Any) -> str | None:
    """The same for one value that may be a good one."""
    values: dict[str, Any] = {name: value}
    try:
        Settings(**values)
    except SettingError as error:
        return str(error)
    return None


def test_the_defaults_are_those_of_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    monkeypatch.setenv("HOME", "/home/me")
    assert Settings().model_dump() == {
        "listen": "127.0.0.1:8080",
        "htpasswd": None,
        "allow": (),
        "admin": "127.0.0.1:9464",
        "admin_names": (),
        "admin_token_file": None,
        "http2": False,
        "window": 600.0,
        "attempt_timeout": 30.0,
        "connect_timeout": 10.0,
        "max_attempts": 0,
        "page_fault_after": 4,
        "page_fault_after_other": 6,
        "hold_request": 1024 * 1024,
        "keep_reply": 16 * 1024,
        "hold_body": 256 * 1024,
        "hold_time": 2.0,
        "hold_time_healthy": 0.2,
        "body_timeout": 60.0,
        "idle_reuse": 1.0,
        "ladder": (0.0, 2.0, 5.0, 15.0, 30.0, 60.0),
        "stalls": frozenset(
            {
                "http_response_timeout",
                "connection_timeout",
                "5xx",
                "429",
                "connection_terminated",
                "http_response_incomplete",
                "dns_timeout",
            }
        ),
        "climb": "incident",
        "in_flight": "learn",
        "retry_after_cap": 300.0,
        "forgive_after": 1800.0,
        "abandon_stall_after": 5.0,
        "store": "sqlite:////state/paceproxy/hosts.sqlite3",
        "pause_after": 10,
        "pause_per_request": 3,
        "pause": 120.0,
        "pause_max": 900.0,
        "upstream": None,
        "reverse": None,
        "egress_deny": ("default",),
        "tunnel_ports": (),
        "upstream_ca": None,
        "ssl_insecure": False,
        "confdir": "/home/me/.mitmproxy",
        "ca_bundle": None,
        "drain": 25.0,
        "set": (),
        "access_log": "off",
        "access_log_query": True,
        "log_level": "info",
    }


def test_the_store_is_in_the_state_folder_which_is_not_made_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    Settings()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", SETTINGS)
def test_every_default_passes_its_own_check(name: str) -> None:
    default = Settings.model_fields[name].get_default(call_default_factory=True)
    assert getattr(Settings(**{name: default}), name) == default


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_says_what_it_does(name: str) -> None:
    assert SETTINGS[name].help.endswith(".")
    assert "\n" not in SETTINGS[name].help


@pytest.mark.parametrize("name", sorted(ZERO_ALLOWED))
def test_zero_is_allowed_where_it_means_something(name: str) -> None:
    zero: dict[str, Any] = {name: "0"}
    assert getattr(Settings(**zero), name) == 0


@pytest.mark.parametrize("name", sorted(ABOVE_ZERO))
def test_zero_is_refused_where_it_means_nothing(name: str) -> None:
    assert refusal(**{name: "0"}).startswith(f"{name} must be > 0")


def test_whether_zero_is_allowed_is_decided_for_every_number() -> None:
    numbers = {name for name, about in SETTINGS.items() if about.kind.metavar in ("SECONDS", "N", "BYTES")}
    assert numbers == ZERO_ALLOWED | ABOVE_ZERO


@given(st.sampled_from(sorted(SETTINGS)), st.text())
def test_any_text_is_a_value_or_refused_with_one_printable_line(name: str, text: str) -> None:
    message = refusal_or_none(name, text)
    assert message is None or (message.startswith(f"{name} must") and message.isprintable())


@given(
    st.sampled_from(sorted(SETTINGS)),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.dates() | st.binary(),
        lambda values: st.lists(values) | st.dictionaries(st.text(), values),
    ),
)
def test_anything_that_yaml_can_hold_is_a_value_or_refused(name: str, value: object) -> None:
    message = refusal_or_none(name, value)
    assert message is None or (message.startswith(f"{name} must") and message.isprintable())


def test_a_bad_value_is_reported_with_setting_value_and_remedy() -> None:
    assert refusal(window="-5") == "window must be >= 0 seconds, got -5; give seconds such as 600"
    assert refusal(max_attempts=1.5) == "max_attempts must be a whole number, got 1.5; give a whole number such as 0"
    assert refusal(in_flight="0") == (
        "in_flight must be learn, off or a whole number from 1 to 10000, got 0; give a whole number, or learn"
    )
    assert refusal(keep_reply="1x") == "keep_reply must be a number of bytes, got 1x; give bytes such as 65536 or 64k"
    assert refusal(log_level="loud") == (
        "log_level must be one of debug, info, warning, error, got loud; give one of them, such as info"
    )
    assert refusal(ladder="0,5,2") == "ladder must never decrease, got 0,5,2; give a comma list such as 0,2,5,15,30,60"
    assert refusal(listen="here") == (
        "listen must end in a port from 0 to 65535, got here;"
        " give HOST:PORT, [IPV6]:PORT or PORT, such as 127.0.0.1:8080"
    )
    assert refusal(window=None) == "window must be decimal seconds, got nothing; give seconds such as 600"


def test_the_source_stands_where_the_user_looks_for_it() -> None:
    error = SettingError("window", "must be >= 0 seconds", value="-5", remedy="give seconds such as 600")
    error.source = "PACE_WINDOW"
    assert str(error) == "window must be >= 0 seconds, got -5 (PACE_WINDOW); give seconds such as 600"


def test_a_value_cannot_break_the_line_or_fill_the_screen() -> None:
    message = refusal(listen="a\nb\x1b[31m\udcff" + "c" * 10_000)
    assert message.startswith(r"listen must end in a port from 0 to 65535, got a b\x1b[31m\udcffccc")
    assert len(message) < 400


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("upstream", "http://user:secret@parent/path", "http://***@parent/path"),
        ("upstream", "http://user:secret", "http://***"),
        ("upstream", "user:secret@parent:3128", "***@parent:3128"),
        ("reverse", "http://user:secret@origin", "http://***@origin"),
        ("store", "redis://:secret@host", "redis://***@host"),
        ("set", ("proxyauth:user:secret",), "proxyauth***"),
        ("set", "'proxyauth=user:secret", "***"),
        ("set", {"proxyauth user": "secret"}, "***"),
    ],
)
def test_a_bad_value_is_reported_without_its_password(name: str, value: object, shown: str) -> None:
    message = refusal(**{name: value})
    assert f", got {shown};" in message
    assert "secret" not in message


def test_settings_can_be_printed_without_a_password() -> None:
    settings = Settings(upstream="http://user:secret@parent:3128", set=("proxyauth=user:secret",))
    assert "upstream='http://***@parent:3128'" in repr(settings)
    assert "secret" not in repr(settings)
    assert "secret" not in str(settings)


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Settings().window = 5.0


def test_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValidationError, match="windw"):
        Settings(windw=5.0)  # type: ignore[call-arg]


def test_parsed_forms_are_at_hand() -> None:
    settings = Settings(
        listen="[::1]:0", admin="8081", allow=("10.0.0.0/8",), upstream="https://user:pass%20word@parent"
    )
    assert settings.listen_address == Address("::1", 0)
    assert settings.admin_address == Address("127.0.0.1", 8081)
    assert settings.allow_networks == (IPv4Network("10.0.0.0/8"),)
    assert settings.upstream_url == Url("https", "parent", 443, "user", "pass word")
    assert settings.reverse_url is None
    assert Settings(reverse="http://origin:81").reverse_url == Url("http", "origin", 81)
    assert Settings().upstream_url is None
    assert Settings(admin="off").admin_address is None


@pytest.mark.parametrize("listen", ["0.0.0.0:8080", ":8080", "[::]:8080", "10.0.0.1:8080", "example.org:8080"])
def test_beyond_loopback_somebody_must_say_who_may_come(listen: str, tmp_path: Path) -> None:
    (tmp_path / "users").write_text("me:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n")
    assert refusal(listen=listen) == (
        f"listen must be a loopback address, or come with htpasswd or allow, got {listen};"
        " add --htpasswd FILE or --allow 10.0.0.0/8, or listen on 127.0.0.1:8080"
    )
    assert Settings(listen=listen, allow=("10.0.0.0/8",)).listen == listen
    assert Settings(listen=listen, htpasswd=str(tmp_path / "users")).listen == listen


@pytest.mark.parametrize("listen", ["127.0.0.1:8080", "127.0.0.2:0", "localhost:8080", "[::1]:8080", "8080"])
def test_on_loopback_nobody_is_asked(listen: str) -> None:
    assert Settings(listen=listen).listen_address.is_loopback


def test_a_proxy_has_a_parent_or_an_origin_but_not_both() -> None:
    assert refusal(upstream="http://user:secret@parent", reverse="http://origin") == (
        "reverse must not be given together with upstream, got http://origin; leave one of them out"
    )


def test_two_listeners_need_two_addresses() -> None:
    assert refusal(listen="127.0.0.1:9464") == (
        "admin must not be the address of listen, got 127.0.0.1:9464; give another port, or off"
    )
    assert Settings(listen="127.0.0.1:0", admin="127.0.0.1:0").admin == "127.0.0.1:0"
    assert Settings(listen="127.0.0.1:9464", admin="off").admin == "off"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"pause": 901}, "pause must be <= pause_max (900 seconds), got 901; change it or pause_max"),
        ({"pause_max": 119.5}, "pause_max must be >= pause (120 seconds), got 119.5; change it or pause"),
        ({"pause": 9, "pause_max": 8}, "pause_max must be >= pause (9 seconds), got 8; change it or pause"),
        (
            {"retry_after_cap": 1800},
            "retry_after_cap must be < forgive_after (1800 seconds), got 1800; change it or forgive_after",
        ),
        (
            {"forgive_after": 300},
            "forgive_after must be > retry_after_cap (300 seconds), got 300; change it or retry_after_cap",
        ),
        ({"forgive_after": 900}, "forgive_after must be > pause_max (900 seconds), got 900; change it or pause_max"),
        ({"pause_max": 1800}, "pause_max must be < forgive_after (1800 seconds), got 1800; change it or forgive_after"),
    ],
)
def test_durations_that_cannot_go_together_are_refused(values: dict[str, float], message: str) -> None:
    assert refusal(**values) == message


@pytest.mark.parametrize(
    "values",
    [
        {"pause": 900},
        {"forgive_after": 901},
        {"retry_after_cap": 5000, "forgive_after": 0},
        {"forgive_after": 301, "pause_after": 0},
    ],
)
def test_durations_at_their_bounds_go_together(values: dict[str, Any]) -> None:
    assert Settings(**values).model_fields_set == set(values)


def test_a_bad_list_of_denied_networks_says_what_could_be_given() -> None:
    assert refusal(egress_deny="loopback") == (
        "egress_deny must be addresses and networks, got loopback; give a comma list such as default,10.0.0.0/8, or off"
    )
    assert refusal(tunnel_ports="22,ssh") == (
        "tunnel_ports must be ports from 1 to 65535, got 22,ssh; give a comma list such as 22,993"
    )
