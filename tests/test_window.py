"""How long a request may keep trying: what its client may ask for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy_addon import window
from proxy_addon.settings import Settings
from tests.support.examples import FIXED


def window_s(*fields: tuple[str, str], longest_s: float = 600.0) -> float:
    return window.window_s(fields, settings=Settings(window=longest_s))


def test_the_window_is_the_setting_where_the_request_does_not_say() -> None:
    assert window_s(("Accept", "*/*")) == 600.0
    assert window_s(longest_s=60.0) == 60.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("45", 45.0),
        ("0", 0.0),
        ("0.05", 0.05),
        (" 45 ", 45.0),
        ("600", 600.0),
        ("601", 600.0),
        ("9" * 400, 600.0),
    ],
)
def test_a_request_may_ask_for_less_but_never_for_more(value: str, seconds: float) -> None:
    assert window_s(("Pace-Window", value)) == seconds


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("wait=10", 10.0),
        ("wait=0", 0.0),
        ("wait=3600", 600.0),
        ("respond-async, wait=10", 10.0),
        ("wait=10, respond-async", 10.0),
        ("respond-async,wait=10", 10.0),
        ("Wait=10", 10.0),
        ("WAIT=10", 10.0),
        ("wait = 10", 10.0),
        ("wait\t=\t10", 10.0),
        ('wait="10"', 10.0),
        ('wait="1\\0"', 10.0),
        ("wait=10; strict", 10.0),
        ("wait=10;foo=bar, wait=20", 10.0),
        ('x="a, wait=3; \\", wait=4", wait=10', 10.0),
        (", ,wait=10", 10.0),
        ("return=minimal; wait=3, wait=10", 10.0),
    ],
)
def test_prefer_wait_is_read_by_the_syntax_of_rfc_7240(value: str, seconds: float) -> None:
    assert window_s(("Prefer", value)) == seconds


@pytest.mark.parametrize(
    "value",
    [
        "",
        ",",
        "wait",
        "wait=",
        'wait=""',
        "wait=-1",
        "wait=+1",
        "wait=1.5",
        "wait=soon",
        "wait=nan",
        "wait=1e3",
        "wait=\u0664\u0665",
        "wait=\u00b2",
        "await=10",
        "wait-more=10",
        "return=minimal; wait=10",
        'x="wait=10"',
        'wait="10',
        "respond-async",
    ],
)
def test_an_invalid_wait_is_ignored(value: str) -> None:
    assert window_s(("Prefer", value)) == 600.0


def test_of_several_waits_only_the_first_is_looked_at() -> None:
    assert window_s(("Prefer", "wait=10, wait=20")) == 10.0
    assert window_s(("Prefer", "wait=20"), ("Prefer", "wait=10")) == 20.0
    assert window_s(("Prefer", "respond-async"), ("prefer", "wait=10")) == 10.0
    assert window_s(("Prefer", "wait=soon"), ("Prefer", "wait=10")) == 600.0


def test_pace_window_counts_before_prefer() -> None:
    assert window_s(("Prefer", "wait=10"), ("Pace-Window", "45")) == 45.0
    assert window_s(("pace-window", "45"), ("PREFER", "wait=10")) == 45.0


@pytest.mark.parametrize("value", ["", "-1", "+1", "soon", "nan", "inf", "1e3", "\u0664\u0665", "1, 2", "1m"])
def test_an_invalid_pace_window_is_ignored(value: str) -> None:
    assert window_s(("Pace-Window", value)) == 600.0
    assert window_s(("Pace-Window", value), ("Prefer", "wait=10")) == 10.0


@FIXED
@given(
    fields=st.lists(
        st.tuples(
            st.sampled_from(["Prefer", "Pace-Window"]),
            st.one_of(st.text(max_size=40), st.text(alphabet='wait=,;" \\0123456789.-', max_size=60)),
        ),
        max_size=4,
    )
)
def test_the_window_is_always_between_nothing_and_the_setting(fields: list[tuple[str, str]]) -> None:
    assert 0.0 <= window_s(*fields) <= 600.0


@pytest.mark.parametrize(
    "value",
    [
        pytest.param('"' + '\\"' * 30_000, id="a string of escaped quotation marks that never ends"),
        pytest.param('"a"' * 20_000, id="many strings"),
        pytest.param("," * 60_000, id="many commas"),
        pytest.param(" " * 60_000, id="many spaces"),
        pytest.param("wait =" * 10_000, id="many waits"),
        pytest.param('"\\' * 30_000, id="many ends that are escaped"),
    ],
)
def test_a_prefer_as_long_as_a_head_may_be_is_read_at_once(value: str) -> None:
    """Read in quadratic time, the first of them took minutes: this test then hangs."""
    assert window_s(("Prefer", f"{value}, wait=10")) in (600.0, 10.0)
    assert window_s(("Prefer", f"wait=10, {value}")) == 10.0
