"""The egress guard: section 14 of the contract. Values in, verdict out; nothing is dialled or looked up."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy_addon.egress import EgressGuard, meant
from tests.support.examples import FIXED

METADATA = "169.254.169.254"


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "169.254.0.0",
        "169.254.255.255",
        "fe80::1",
        "fe80::1%eth0",
        "febf::1",
        "fd00:ec2::254",
        "100.100.100.200",
        "168.63.129.16",
    ],
)
@pytest.mark.parametrize("exposed", [True, False])
def test_by_default_link_local_and_metadata_addresses_are_denied(address: str, exposed: bool) -> None:
    assert EgressGuard(("default",)).denies(address, exposed=exposed)


@pytest.mark.parametrize(
    "address", ["169.253.255.255", "169.255.0.0", "fec0::1", "fd00:ec2::253", "10.0.0.1", "192.0.2.1"]
)
@pytest.mark.parametrize("exposed", [True, False])
def test_by_default_private_networks_are_not_denied(address: str, exposed: bool) -> None:
    assert not EgressGuard(("default",)).denies(address, exposed=exposed)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.255.0.1", "::1", "0.0.0.0", "::", "::ffff:127.0.0.1", "::%1"])
def test_by_default_loopback_is_denied_where_others_can_reach_the_proxy(address: str) -> None:
    guard = EgressGuard(("default",))
    assert guard.denies(address, exposed=True)
    assert not guard.denies(address, exposed=False)


def test_a_list_of_ones_own_is_all_that_is_denied() -> None:
    guard = EgressGuard(("10.0.0.0/8",))
    assert guard.denies("10.1.2.3", exposed=True)
    assert not guard.denies("127.0.0.1", exposed=True)
    assert not guard.denies(METADATA, exposed=True)


def test_the_default_can_be_added_to() -> None:
    guard = EgressGuard(("default", "10.0.0.0/8"))
    assert guard.denies("10.1.2.3", exposed=False)
    assert guard.denies(METADATA, exposed=False)
    assert guard.denies("127.0.0.1", exposed=True)
    assert not guard.denies("127.0.0.1", exposed=False)


@pytest.mark.parametrize("address", [METADATA, "::1", "fe80::1", "0.0.0.0"])
def test_an_empty_list_denies_nothing(address: str) -> None:
    assert not EgressGuard(()).denies(address, exposed=True)
    assert not EgressGuard(()).denies_target(address, exposed=True)


@pytest.mark.parametrize(
    "address",
    [
        "::169.254.169.254",
        "::ffff:169.254.169.254",
        "::ffff:0:169.254.169.254",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::169.254.169.254",
        # RFC 6052 §2.2, with the prefix of RFC 8215: /48, /56, /64, /96.
        "64:ff9b:1:a9fe:a9:fe00::",
        "64:ff9b:1:12a9:fe:a9fe::",
        "64:ff9b:1:1234:a9:fea9:fe00:0",
        "64:ff9b:1:1234:5678:9abc:a9fe:a9fe",
        "2002:a9fe:a9fe::",
        "2002:a9fe:a9fe:1:2:3:4:5",
        "2001:0:a9fe:a9fe::",
        "2001:0:4136:e378:8000:63bf:5601:5601",
        "::ffff:169.254.169.254%eth0",
    ],
)
def test_an_ipv4_address_is_found_in_every_form_in_which_ipv6_carries_one(address: str) -> None:
    assert EgressGuard(("169.254.0.0/16",)).denies(address, exposed=False)


@pytest.mark.parametrize(
    "address",
    [
        "::a9fe:a9fe:0:0",
        "::fffe:169.254.169.254",
        "64:ff9b:2::169.254.169.254",
        "64:ff9c::169.254.169.254",
        "2003:a9fe:a9fe::",
        "2001:1:a9fe:a9fe::",
        "2001:db8::169.254.169.254",
    ],
)
def test_bits_that_only_look_like_an_ipv4_address_are_left_alone(address: str) -> None:
    assert not EgressGuard(("169.254.0.0/16",)).denies(address, exposed=False)


def test_a_network_may_be_written_in_its_mapped_form() -> None:
    guard = EgressGuard(("::ffff:10.0.0.0/104",))
    assert guard.denies("10.1.2.3", exposed=False)
    assert guard.denies("::ffff:10.1.2.3", exposed=False)
    assert not guard.denies("11.1.2.3", exposed=False)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1.",
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f000001",
        "0x7F.1",
        "0177.0.0.1",
        "017700000001",
        "0.0.0.0",
        "0",
        "::1",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:7f00:1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "localhost",
        "LocalHost.",
        "a.b.localhost",
        "ip6-localhost",
        "localhost.localdomain",
        "\uff11\uff12\uff17.0.0.1",
        "\u24db\u24de\u24d2\u24d0lhost",
    ],
)
def test_a_parent_is_not_asked_for_loopback_in_any_spelling(host: str) -> None:
    assert EgressGuard(("127.0.0.0/8", "::1")).denies_target(host, exposed=False)


@pytest.mark.parametrize(
    "host", ["metadata.google.internal", "Metadata.Google.Internal.", "instance-data", "metadata.goog"]
)
def test_a_parent_is_not_asked_for_a_metadata_server_by_its_name(host: str) -> None:
    assert EgressGuard(("default",)).denies_target(host, exposed=False)


@pytest.mark.parametrize(
    "host",
    [
        "shop.example",
        "localhost.example",
        "notlocalhost",
        "127.0.0.1.example",
        "128.1",
        "08.0.0.1",
        "1.2.3.4.5",
        "",
        "[]",
    ],
)
def test_a_parent_may_be_asked_for_any_other_name(host: str) -> None:
    assert not EgressGuard(("default", "127.0.0.0/8")).denies_target(host, exposed=True)


@FIXED
@given(address=st.ip_addresses())
def test_an_address_always_means_itself_and_its_ipv4_parts_mean_no_more(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    first, *others = meant(address)
    assert first == address
    assert all(other.version == 4 or other == ipaddress.IPv6Address("::1") for other in others)


@FIXED
@given(address=st.ip_addresses(v=4), network=st.ip_addresses(v=4))
def test_a_mapped_address_is_denied_just_where_the_plain_one_is(
    address: ipaddress.IPv4Address, network: ipaddress.IPv4Address
) -> None:
    guard = EgressGuard((str(ipaddress.ip_network(f"{network}/3", strict=False)),))
    plain = guard.denies(str(address), exposed=False)
    assert guard.denies(f"::ffff:{address}", exposed=False) == plain
    assert guard.denies_target(f"{int(address)}", exposed=False) == plain
    assert guard.denies_target(f"0x{int(address):x}", exposed=False) == plain
