"""Rungs, stalls, networks and options of mitmproxy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy_addon.model import ErrorName
from proxy_addon.setting_kinds import BadValue
from proxy_addon.setting_lists import STALL_NAMES, Denied, Ladder, Networks, Options, Ports, Stalls


@pytest.mark.parametrize(
    ("value", "ladder"),
    [
        ("0,2,5,15,30,60", (0.0, 2.0, 5.0, 15.0, 30.0, 60.0)),
        (" 0 , 0.05 ", (0.0, 0.05)),
        ("0,3,3,3", (0.0, 3.0, 3.0, 3.0)),
        ([0, 2, 5.5], (0.0, 2.0, 5.5)),
        ((0.0, 1.0), (0.0, 1.0)),
    ],
)
def test_a_ladder_is_zero_and_then_values_that_never_decrease(value: object, ladder: tuple[float, ...]) -> None:
    assert Ladder().parse(value) == ladder


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", "must begin with 0"),
        ([], "must begin with 0"),
        ("1,2", "must begin with 0"),
        ("0", "must have at least one value after 0"),
        (0, "must have at least one value after 0"),
        ("0,0,5", "must be above 0 after its first value"),
        ("0,5,2", "must never decrease"),
        ("0,5,0", "must never decrease"),
        ("0,-1", "must be a comma list of decimal seconds from 0 to 1000000000"),
        ("0,nan", "must be a comma list of decimal seconds from 0 to 1000000000"),
        ("0,1m", "must be a comma list of decimal seconds from 0 to 1000000000"),
        ("0,2,", "must be a comma list of decimal seconds from 0 to 1000000000"),
        ("0;2", "must be a comma list of decimal seconds from 0 to 1000000000"),
        ([0, [2]], "must be a comma list of decimal seconds from 0 to 1000000000"),
        ("0,1000000001", "must be a comma list of decimal seconds from 0 to 1000000000"),
        (None, "must be a comma list of decimal seconds from 0 to 1000000000"),
    ],
)
def test_a_ladder_that_cannot_be_climbed_is_refused(value: object, problem: str) -> None:
    with pytest.raises(BadValue) as caught:
        Ladder().parse(value)
    assert caught.value.problem == problem


@given(st.lists(st.floats(min_value=1e-9, max_value=1e9), min_size=1))
def test_a_ladder_that_was_written_is_read_as_the_same(paces: list[float]) -> None:
    ladder = (0.0, *sorted(paces))
    assert Ladder().parse(Ladder().show(ladder)) == ladder


@pytest.mark.parametrize(
    ("value", "stalls"),
    [
        ("5xx", {"5xx"}),
        ("5XX, 429", {"5xx", "429"}),
        ("503,403", {"503", "403"}),
        ("connection_refused", {"connection_refused"}),
        ("429,429", {"429"}),
        (["5xx", 429], {"5xx", "429"}),
        (429, {"429"}),
        (frozenset({"5xx"}), {"5xx"}),
        ("", set()),
        ([], set()),
    ],
)
def test_stalls_are_names_and_status_codes(value: object, stalls: set[str]) -> None:
    assert Stalls().parse(value) == stalls


@pytest.mark.parametrize(
    "name", ["4xx", "200", "399", "600", "http_response_timeouts", "dns_error", "5xx,", "5 xx", "٥٠٣"]
)
def test_a_stall_that_is_not_known_is_refused(name: str) -> None:
    with pytest.raises(BadValue) as caught:
        Stalls().parse(name)
    assert caught.value.problem.startswith(
        "must be a comma list of http_response_timeout, connection_timeout, 5xx, 429, connection_terminated,"
        " http_response_incomplete, dns_timeout, connection_refused and status codes from 400 to 599"
    )


def test_every_stall_with_a_name_is_an_error_that_an_attempt_can_have() -> None:
    assert {name for name in STALL_NAMES if not name[0].isdigit()} <= {error.value for error in ErrorName}


def test_stalls_are_written_in_the_order_of_the_documentation() -> None:
    stalls = frozenset({"403", "dns_timeout", "408", "429", "5xx"})
    assert Stalls().show(stalls) == "5xx,429,dns_timeout,403,408"
    assert Stalls().yaml(stalls) == "[5xx, 429, dns_timeout, 403, 408]"


@pytest.mark.parametrize(
    ("value", "networks"),
    [
        ("10.0.0.0/8", ("10.0.0.0/8",)),
        ("10.0.0.0/8, 192.168.1.7", ("10.0.0.0/8", "192.168.1.7/32")),
        ("FD00::/8,::1", ("fd00::/8", "::1/128")),
        (["10.0.0.0/8"], ("10.0.0.0/8",)),
        ("", ()),
    ],
)
def test_networks_are_addresses_and_cidr(value: object, networks: tuple[str, ...]) -> None:
    assert Networks().parse(value) == networks


@pytest.mark.parametrize("value", ["10.0.0.0/33", "example.org", "10.0.0.0/8,", "10.0.0", "*", 5.5, None])
def test_what_is_no_network_is_refused(value: object) -> None:
    with pytest.raises(BadValue) as caught:
        Networks().parse(value)
    assert (caught.value.problem, caught.value.remedy) == ("must be addresses and networks", "")


def test_an_address_with_a_mask_is_not_silently_made_a_network() -> None:
    with pytest.raises(BadValue) as caught:
        Networks().parse("10.1.2.3/8")
    assert caught.value.remedy == "did you mean 10.0.0.0/8?"


@pytest.mark.parametrize(
    ("value", "denied"),
    [
        ("default", ("default",)),
        ("Default, 10.0.0.0/8", ("default", "10.0.0.0/8")),
        ("::1,192.168.1.7", ("::1/128", "192.168.1.7/32")),
        (["default", "10.0.0.0/8"], ("default", "10.0.0.0/8")),
        ("", ()),
        ("off", ()),
        (" OFF ", ()),
        (False, ()),
        ([], ()),
    ],
)
def test_what_is_denied_may_be_off_or_more_than_the_default(value: object, denied: tuple[str, ...]) -> None:
    assert Denied().parse(value) == denied
    assert Denied().parse(Denied().show(denied)) == denied


@pytest.mark.parametrize("value", ["loopback", "off,10.0.0.0/8", "10.0.0.0/8,", True, 5.5])
def test_what_cannot_be_denied_is_refused(value: object) -> None:
    with pytest.raises(BadValue, match=r"^must be addresses and networks$"):
        Denied().parse(value)


@pytest.mark.parametrize(
    ("value", "ports"),
    [("22", (22,)), (" 22, 993 ", (22, 993)), (22, (22,)), ([22, "65535"], (22, 65535)), ("", ()), ([], ())],
)
def test_ports_are_numbers(value: object, ports: tuple[int, ...]) -> None:
    assert Ports().parse(value) == ports
    assert Ports().parse(Ports().show(ports)) == ports


@pytest.mark.parametrize("value", ["0", "65536", "-1", "22,", "ssh", "20-30", "2.2", "\u0662\u0662", True, None])
def test_what_is_no_port_is_refused(value: object) -> None:
    with pytest.raises(BadValue, match=r"^must be ports from 1 to 65535$"):
        Ports().parse(value)


@pytest.mark.parametrize(
    ("value", "options"),
    [
        (("anticache=true", "certs=a b=c"), ("anticache=true", "certs=a b=c")),
        ("anticache=true  'certs=a b'", ("anticache=true", "certs=a b")),
        (
            {"anticache": True, "key_size": 4096, "certs": ["a", "b"]},
            ("anticache=true", "key_size=4096", "certs=a", "certs=b"),
        ),
        (["empty="], ("empty=",)),
        ("", ()),
        ({}, ()),
    ],
)
def test_options_are_names_with_values(value: object, options: tuple[str, ...]) -> None:
    assert Options().parse(value) == options


@pytest.mark.parametrize("value", ["anticache", "=true", "a b=c", ["a", "b=c"], {"a b": 1}, 5, None])
def test_an_option_without_a_name_or_a_value_is_refused(value: object) -> None:
    with pytest.raises(BadValue, match=r"^must be NAME=VALUE$"):
        Options().parse(value)


def test_an_open_quotation_mark_in_options_is_refused() -> None:
    with pytest.raises(BadValue, match=r"^must have its quotation marks in pairs$"):
        Options().parse("a='b")


@given(st.lists(st.text(alphabet=st.characters(blacklist_categories=["Cs"]))))
def test_options_that_were_written_are_read_as_the_same(values: list[str]) -> None:
    options = tuple(f"name={value}" for value in values)
    assert Options().parse(Options().show(options)) == options


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("proxyauth=user:secret", "proxyauth=***"),
        ("upstream_auth:user:secret", "upstream_auth***"),
        ("a=1,b=secret", "a=***"),
        ("anticache", "anticache"),
        ("", ""),
    ],
)
def test_the_value_of_an_option_is_never_shown(text: str, masked: str) -> None:
    assert Options().mask(text) == masked
