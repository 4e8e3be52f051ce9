"""Whether dialling an address would come back to one of our own listeners."""

import socket

import pytest

from proxy_addon.loops import leads_back


def own_address() -> str:
    """An IPv4 address of this machine's that is not loopback; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(probe.getsockname()[0])


@pytest.mark.parametrize(
    ("target", "listener"),
    [
        (("127.0.0.1", 8080), ("127.0.0.1", 8080)),
        (("::ffff:127.0.0.1", 8080), ("127.0.0.1", 8080)),
        (("127.0.0.1", 8080), ("::ffff:127.0.0.1", 8080)),
        (("::1", 8080), ("::1", 8080)),
        (("0:0:0:0:0:0:0:1", 8080), ("::1", 8080)),
        (("fe80::1%eth0", 8080), ("fe80::1", 8080)),
        (("192.0.2.1", 8080), ("192.0.2.1", 8080)),
    ],
)
def test_a_listeners_own_address_leads_back(target: tuple[str, int], listener: tuple[str, int]) -> None:
    assert leads_back(target, [listener])


@pytest.mark.parametrize("target", ["0.0.0.0", "::", "::ffff:0.0.0.0"])
@pytest.mark.parametrize("listener", ["127.0.0.1", "127.1.2.3", "::1", "0.0.0.0", "::"])
def test_the_kernel_takes_an_unspecified_address_for_loopback(target: str, listener: str) -> None:
    assert leads_back((target, 8080), [(listener, 8080)])


@pytest.mark.parametrize("listener", ["0.0.0.0", "::", "::ffff:0.0.0.0"])
@pytest.mark.parametrize("target", ["127.0.0.1", "127.1.2.3", "::ffff:127.0.0.1", "::1"])
def test_a_listener_on_every_interface_is_reached_by_loopback(target: str, listener: str) -> None:
    assert leads_back((target, 8080), [(listener, 8080)])


@pytest.mark.parametrize("listener", ["0.0.0.0", "::"])
def test_a_listener_on_every_interface_is_reached_by_this_machines_other_addresses(listener: str) -> None:
    assert leads_back((own_address(), 8080), [(listener, 8080)])
    assert leads_back((f"::ffff:{own_address()}", 8080), [(listener, 8080)])


@pytest.mark.parametrize("target", ["192.0.2.1", "2001:db8::1", "203.0.113.7"])
@pytest.mark.parametrize("listener", ["0.0.0.0", "::", "127.0.0.1", "::1"])
def test_other_machines_do_not_lead_back(target: str, listener: str) -> None:
    assert not leads_back((target, 8080), [(listener, 8080)])


@pytest.mark.parametrize(
    ("target", "listener"),
    [
        ("127.0.0.2", "127.0.0.1"),
        ("::1", "127.0.0.1"),
        ("127.0.0.1", "::1"),
        ("127.0.0.1", "192.0.2.1"),
        ("0.0.0.0", "192.0.2.1"),
    ],
)
def test_a_listener_on_one_address_is_not_reached_by_another(target: str, listener: str) -> None:
    assert not leads_back((target, 8080), [(listener, 8080)])


def test_another_port_does_not_lead_back() -> None:
    assert not leads_back(("127.0.0.1", 8081), [("127.0.0.1", 8080), ("0.0.0.0", 8080), ("::", 8082)])


def test_any_of_the_listeners_counts() -> None:
    listeners = [("192.0.2.1", 9464), ("::1", 8080), ("127.0.0.1", 9464)]
    assert leads_back(("127.0.0.1", 9464), listeners)
    assert leads_back(("::1", 8080), listeners)


def test_without_listeners_nothing_leads_back() -> None:
    assert not leads_back(("127.0.0.1", 8080), [])


@pytest.mark.parametrize("target", ["localhost", "", "127.0.0.1.", "1.2.3", "[::1]"])
def test_what_is_no_numeric_address_is_not_judged(target: str) -> None:
    # Names are resolved before: it is the address dialled that is asked about.
    assert not leads_back((target, 8080), [("0.0.0.0", 8080), ("127.0.0.1", 8080)])


def test_a_listener_that_is_known_by_name_only_may_be_anywhere_on_this_machine() -> None:
    assert leads_back(("127.0.0.1", 8080), [("localhost", 8080)])
    assert not leads_back(("192.0.2.1", 8080), [("localhost", 8080)])


def test_where_there_is_no_ipv6_no_ipv6_address_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_ipv6(family: int, kind: int) -> socket.socket:
        raise OSError(97, "Address family not supported by protocol")

    monkeypatch.setattr("proxy_addon.loops.socket.socket", without_ipv6)
    assert not leads_back(("2001:db8::1", 8080), [("::", 8080)])
