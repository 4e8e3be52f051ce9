"""Whether an address is one of our own listeners, so that a request to it would come back to us."""

import ipaddress
import socket
from collections.abc import Iterable

type Address = tuple[str, int]
"""An IP address as text, and a port."""


def leads_back(address: Address, listeners: Iterable[Address]) -> bool:
    """Whether dialling `address` would reach one of `listeners`.

    A listener on every interface (`0.0.0.0`, `::`) is reached by any address of this machine; one on a loopback
    address by that address, and through an unspecified one, which the kernel takes for loopback.
    """
    target = _parse(address[0])
    for host, port in listeners:
        if port != address[1] or target is None:
            continue
        own = _parse(host)
        if own is None or own.is_unspecified:
            if _is_local(target):
                return True
        elif target == own or (target.is_unspecified and own.is_loopback):
            return True
    return False


def _parse(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        parsed = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped:
        return parsed.ipv4_mapped
    return parsed


def _is_local(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether this machine has the address: then a socket can be bound to it."""
    if address.is_loopback or address.is_unspecified:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        # A kernel without IPv6 refuses the socket, any other the binding.
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True
