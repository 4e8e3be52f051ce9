"""Where this machine reaches who listens at an address: an address of a listener may be one that nobody can dial."""

import ipaddress

from proxy_addon.setting_places import Address


def local_address(address: Address) -> Address:
    """The same, and loopback for what stands for all interfaces (an empty host, `0.0.0.0`, `::`)."""
    try:
        ip = ipaddress.ip_address(address.host or "0.0.0.0")
    except ValueError:
        return address
    if not ip.is_unspecified:
        return address
    return Address("127.0.0.1" if ip.version == 4 else "::1", address.port)
